// SPDX-License-Identifier: Apache-2.0
// The lanes of one device and a host, as LaneTable() has them.
#pragma once

#include "base/lane.h"

namespace sluice::core {

inline const Lane kCompute = LaneTable().compute(), kLoad = LaneTable().copy(kHost, kDevice),
                  kStore = LaneTable().copy(kDevice, kHost);

}  // namespace sluice::core
