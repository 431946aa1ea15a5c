// The lanes of one device and a host, as LaneTable() has them.
#pragma once

#include "base/lane.h"

namespace sluice {

inline const Lane kCompute = LaneTable().compute(), kLoad = LaneTable().copy(kHost, kDevice),
                  kStore = LaneTable().copy(kDevice, kHost);

}  // namespace sluice
