// SPDX-License-Identifier: Apache-2.0
#include "commands/console.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "commands/say.h"
#include "draw/axis.h"

namespace sluice::core {

void Console::progress(const Progress& p) {
  std::string note;
  int64_t done = p.done, total = p.total;
  if (p.unit == Progress::Unit::Bytes) {
    note = done > 0 ? fmt::format("{} of {}", format_bytes(done), format_bytes(total)) : format_bytes(total);
    done = total = 0;
  }
  if (p.unit == Progress::Unit::Candidates) {
    note = total > 0 ? fmt::format("{} of at most {} tried", done, total) : fmt::format("{} tried", done);
    if (p.best_tokens_per_s > 0) {
      note += fmt::format(", the fastest makes {} tok/s", grouped(p.best_tokens_per_s, 0));
    }
    done = total = 0;
  }
  if (!working_) working_.emplace(std::string(p.what));
  working_->say(std::string(p.what), done, total, std::move(note));
}

void Console::warned(const std::string& message) {
  stop();
  say(stderr, "warning: {}\n", message);
}

}  // namespace sluice::core
