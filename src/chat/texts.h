// SPDX-License-Identifier: Apache-2.0
// Texts of templates that are known by a name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::core {

// One that comes with Sluice.
struct ChatText {
  std::string_view name, text;
};
std::span<const ChatText> chat_texts();

// One that Sluice 0.2 knew by this name, under which it kept tokens.
struct KnownText {
  uint64_t fingerprint = 0;
  std::string_view name;
  bool names_date = false;        // the day is part of that name
  bool learnt_unthought = false;  // it learnt a thought of nothing that the template puts in
  bool left_system = false;       // where all turns are learnt, it left out that of the system
};
// nullptr: none of them.
const KnownText* known_text(uint64_t fingerprint);

}  // namespace sluice::core
