// SPDX-License-Identifier: Apache-2.0
// What tests of a config.json share.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "model/families/families.h"

namespace sluice::core {

// The model's own file.
class ModelConfig : public testing::Test {
 protected:
  void expect_model_error(const std::string& json, const std::vector<std::string>& parts) {
    const auto model = parse_model_config(json);
    ASSERT_FALSE(model.ok());
    for (const std::string& part : parts) {
      EXPECT_NE(model.message().find(part), std::string::npos) << model.message() << "\nlacks: " << part;
    }
  }
  // A valid configuration with `changes` (which come first and so win over what follows).
  static std::string with(std::string_view heads, std::string_view kv, std::string_view head_dim) {
    return fmt::format(
        R"({{"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "vocab_size": 97,
        "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}}})",
        heads, kv, head_dim);
  }
};

}  // namespace sluice::core
