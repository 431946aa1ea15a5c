// SPDX-License-Identifier: Apache-2.0
// What decides the results of a run beside its state, as names and values: {"train.seed", "1"}.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::core {

// Frozen weights, as a list of patterns; where it is not there, everything is trained.
constexpr std::string_view kFreezeName = "train.freeze";

using Manifest = std::vector<std::pair<std::string, std::string>>;

// A line per name whose value is another one or that one side lacks: "train.seed is 2, it was 1". Numbers
// have as many digits as tell them apart, up to six; of checksums it says only that they differ. `left_out`:
// values that a manifest leaves out, because they always were so.
std::vector<std::string> differences(const Manifest& before, const Manifest& now,
                                     const Manifest& left_out = {});

// The value of a name; empty: there is none.
std::string value_of(const Manifest& manifest, std::string_view name);

}  // namespace sluice::core
