// SPDX-License-Identifier: Apache-2.0
// Text for people: the only ways in which the program prints, which scripts/check_output sees to. Names, keys
// and errors in it may be others' words; a terminal shows them and obeys none (base/printable.h). A stream
// that is full or that nobody reads any more ends no command: what cannot be written is dropped, and ferror()
// of the stream remembers it.
#pragma once

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "base/printable.h"

namespace sluice::core {

// As it is: what was made printable before, with what this program itself tells the terminal, such as
// colours.
inline void say_exactly(FILE* out, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out);
}

// Standard error is for messages, which are as short as printable_message() makes them.
template <class... Args>
void say(FILE* out, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  say_exactly(out, out == stderr ? printable_message(text) : printable(text));
}
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say(stdout, format, std::forward<Args>(args)...);
}

// To standard error, unless it would be waited for: who reads it may have stopped, and another thread may
// wait for that already. Whether it was said. A text is one line, far less than what a pipe takes at once.
inline bool say_without_waiting(std::string_view text) {
  if (ftrylockfile(stderr) != 0) return false;
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  const bool there = poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) != 0;
  if (there) say(stderr, "{}", text);
  funlockfile(stderr);
  return there;
}

// A result, such as text that a model made, or JSON: to standard output as it is, where a file or another
// program takes it or `raw` asks for that. A terminal gets it made printable.
inline void say_result(std::string_view text, bool raw = false) {
  if (raw || isatty(STDOUT_FILENO) == 0) return say_exactly(stdout, text);
  say_exactly(stdout, printable(text));
}

}  // namespace sluice::core
