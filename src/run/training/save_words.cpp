// SPDX-License-Identifier: Apache-2.0
#include "run/training/save_words.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::core {
namespace {

// "3.1 s", "15 min".
std::string describe_time(double seconds) {
  if (seconds < 100) return fmt::format("{:.{}f} s", seconds, seconds < 9.95 ? 1 : 0);
  return seconds < 100 * 60 ? fmt::format("{:.0f} min", seconds / 60)
                            : fmt::format("{:.1f} h", seconds / 3600);
}

std::string describe_rate(double bytes_per_s) {
  return bytes_per_s >= 99.5e6 ? fmt::format("{:.2f} GB/s", bytes_per_s / 1e9)
                               : fmt::format("{:.1f} MB/s", bytes_per_s / 1e6);
}

}  // namespace

std::string describe(const SaveForecast& f) {
  std::string out = fmt::format("saves    a checkpoint has {}", format_bytes(f.bytes));
  if (f.disk_bytes_per_s > 0) {
    out += fmt::format(" and takes {} at {}", describe_time(double(f.bytes) / f.disk_bytes_per_s),
                       describe_rate(f.disk_bytes_per_s));
  }
  out +=
      f.beside_run  ? "; steps continue meanwhile, as the host cap has room for a copy"
      : !f.in_parts ? "; the run waits meanwhile, as the host cap has no room for a copy"
      : f.each_writes
          ? "; the run waits meanwhile, and each process writes its part of the state"
          : "; the run waits meanwhile, and process 0 writes what it receives, as others do not see run.dir";
  if (f.interval_s > 0) {
    out += fmt::format("; one every {}", describe_time(f.interval_s));
    if (f.disk_bytes_per_s > 0) out += fmt::format(", {:.2g} % of the run", 100 * f.waited_s / f.interval_s);
  }
  return out + "\n";
}

std::string describe(const SaveEvent& e) {
  std::string out =
      fmt::format("saved {}: {} in {} ({})", e.directory.filename().string(), format_bytes(e.bytes),
                  describe_time(e.seconds), describe_rate(double(e.bytes) / std::max(1e-6, e.seconds)));
  if (e.waited_seconds < e.seconds)
    out += fmt::format(", {} of them while steps went on", describe_time(e.seconds - e.waited_seconds));
  if (e.best) return out + "; the held-out loss was never lower\n";
  out += fmt::format("; saving takes {:.2g} % of the run", 100 * e.share_of_run);
  if (e.delayed) {
    out += fmt::format(", the next is after {}, to stay below {:.0f} %", describe_time(e.next_seconds),
                       100 * Saver::kMostShare);
  }
  return out + "\n";
}

}  // namespace sluice::core
