// SPDX-License-Identifier: Apache-2.0
// What `sluice bench` can measure.
#pragma once

#include <string>
#include <vector>

namespace sluice::core {

// The words that BenchRequest::what may be.
std::vector<std::string> bench_names();

}  // namespace sluice::core
