// SPDX-License-Identifier: Apache-2.0
// Studies of many plans, which take long: what they have is shown as it comes, kept, and printed when they
// are stopped.
#pragma once

#include <string>

#include "commands/commands.h"
#include "commands/working.h"
#include "config/config.h"
#include "what_if/outlook.h"

namespace sluice::core {

// How a stopped study speaks of the rest.
inline std::string stopped_words(size_t known, size_t all) {
  return fmt::format("Stopped: {} of {} are planned. The same command goes on with the others.", known, all);
}

// Runs `study(StudyWatch)` and returns what it does.
template <class Study>
auto watched(std::string doing, const RunConfig& config, Requests& asked, Study&& study) {
  Working working(std::move(doing));
  const StopWhenAsked stop(asked.stop);
  asked.stop_is_handled = true;
  StudyWatch watch;
  watch.say = [&](const std::string& what, int64_t done, int64_t total) { working.say(what, done, total); };
  watch.row = [&](const std::string& line) { working.row(line); };
  watch.stop = stop.token();
  if (!config.data.cache.empty()) watch.cache = std::filesystem::path(config.data.cache) / "outlooks";
  auto found = study(watch);
  asked.stop_is_handled = false;  // from here on a signal ends the process
  return found;
}

}  // namespace sluice::core
