// SPDX-License-Identifier: Apache-2.0
// What is known of the keys of a config.json, by family. A key that would change the arithmetic in a way that
// is not done is refused by its name; what nobody knows is named once.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/families/family.h"

namespace sluice::core {

// Sizes, which decide how large a model is: who writes a config.json by hand forgets one of them, or
// misspells it.
constexpr const char* kSizes[] = {"hidden_size",         "num_hidden_layers", "num_attention_heads",
                                  "num_key_value_heads", "intermediate_size", "vocab_size"};

// Keys that a family's models must have with this value or not at all, and those that they must not have.
std::vector<Neutral> neutral_keys(const Family& family);
std::vector<std::string_view> absent_keys(const Family& family);
// Every key that decides something of a family's models, those above among them.
std::vector<std::string_view> known_keys(const Family& family);

// An error if a key is set that would change the arithmetic.
Status refuse_other_arithmetic(const nlohmann::json& root, const Family& family);
// An error if a key is one letter off one that is read; a notice names the others that are in no table.
Status check_unknown(const nlohmann::json& root, const Family& family, std::vector<std::string>& notices);

// Checks a model that wraps a text model. A key of the whole that the text part lacks is an error if it
// concerns the text model. A notice names unknown keys.
Status check_whole(const nlohmann::json& whole, const nlohmann::json& part, const Family& family,
                   std::vector<std::string>& notices);

// Refuses a model_type that no family has: what is missing, where that is known, and which family is near.
Error unknown_family(std::string_view type);

}  // namespace sluice::core
