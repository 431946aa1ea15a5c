// SPDX-License-Identifier: Apache-2.0
// Documents that are held out and trained on, too: the same tokens, whatever their files are called.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "dataset/places.h"
#include "dataset/token_set.h"
#include "records/findings.h"

namespace sluice::core {

// Adds each held-out document of the same tokens as one that is trained on. `told`: how many more tokens were
// read. The sentence on them; empty: there are none.
std::string find_held_out_too(const TokenSet& heldout, const TokenSet& train, const PlacesFile& places,
                              Findings& findings, const std::function<void(int64_t tokens)>& told);

}  // namespace sluice::core
