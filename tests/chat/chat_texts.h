// SPDX-License-Identifier: Apache-2.0
// Templates of the tests: templates/NAME.jinja.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/chat_template.h"
#include "io/file.h"

namespace sluice::core {

// Of those that fixtures/NAME.json has conversations for.
inline std::vector<std::string_view> chat_text_names() {
  return {"chatml",     "smollm2",      "smollm3-short", "qwen2",    "qwen2.5",       "qwen3",
          "qwen3-2507", "llama3",       "llama3.1",      "llama3.2", "mistral-first", "mistral-v1",
          "mistral-v3", "mistral-nemo", "gemma",         "gemma3"};
}

inline ChatTemplate chat_template(std::string_view name, ChatSettings settings) {
  const auto text =
      read_file(std::filesystem::path(SLUICE_CHATS) / "../templates" / (std::string(name) + ".jinja"));
  EXPECT_TRUE(text.ok()) << text.message();
  auto made = ChatTemplate::parse(*text, std::move(settings));
  EXPECT_TRUE(made.ok()) << made.message();
  return *made;
}

}  // namespace sluice::core
