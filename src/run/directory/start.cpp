// SPDX-License-Identifier: Apache-2.0
#include "run/directory/start.h"

#include "checkpoint/store.h"
#include "config/files/load_config.h"
#include "run/inputs/paths.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

bool same(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

// Which checkpoint of another run the one in this directory began at, as its config.toml has it.
Result<std::string> beginning_in(const fs::path& directory) {
  SLUICE_ASSIGN(const RunConfig before, load_config((directory / "config.toml").string(), {}));
  return before.run.resume;
}

// Where the run in `dir` began, which goes on from `latest`. run.resume may be given again, as by a batch
// system that repeats a command.
Result<std::string> beginning_of(const RunConfig& c, const fs::path& dir, const fs::path& latest) {
  const auto began = beginning_in(dir);
  if (c.run.resume.empty() || same(c.run.resume, latest)) return began.ok() ? *began : "";
  if (began.ok() && !began->empty() && same(c.run.resume, *began)) return c.run.resume;
  return error(
      "run.resume = {}: run.dir = {} holds a run that did not begin there and goes on from its own {}; "
      "leave run.resume out, or begin another run beside it with --new",
      c.run.resume, dir.string(), latest.filename().string());
}

}  // namespace

Error naming_older_one(const fs::path& dir, Error why) {
  const fs::path damaged(why.detail("damaged"));
  if (damaged.parent_path() != checkpoints_in(dir)) return why;
  return with_older_one(std::move(why), damaged, [&](const fs::path& older) {
    fs::path aside = dir / "damaged-";
    aside += damaged.filename();
    return fmt::format("To {}, type: mv {} {}; then the same command again",
                       older.empty() ? "begin anew" : "go on from " + older.filename().string(),
                       damaged.string(), aside.string());
  });
}

Result<TakenDirectory> take_run_directory(const RunConfig& c, bool anew, Observer& observer) {
  auto taken =
      anew ? RunDirectory::take_free("run.dir", c.run.dir) : RunDirectory::take("run.dir", c.run.dir);
  if (!taken.ok()) {
    Error why = taken.error();
    if (!why.detail("taken").empty())
      why.message += "; name another one, or take the next free one with --new";
    return why;
  }
  const std::string dir = taken->path().string();
  if (!taken->unlocked().empty()) {
    observer.warned(fmt::format("run.dir = {}: {}; a second process in this directory would not be noticed",
                                dir, taken->unlocked()));
  }
  if (taken->content() == RunDirectory::Content::Demo) {
    return error(
        "run.dir = {}: it holds the results of sluice demo; name another one, or take the next free "
        "one with --new",
        dir);
  }
  const auto latest = newest_checkpoint(checkpoints_in(dir));
  if (!latest.ok()) return naming_older_one(dir, latest.error());
  TakenDirectory out{std::move(*taken), {.directory = dir}};
  if (*latest) {
    out.start.latest = (*latest)->string();
    SLUICE_ASSIGN(out.start.beginning, beginning_of(c, dir, **latest));
  } else if (!c.run.resume.empty()) {
    SLUICE_TRY(check_input(c, "run.resume", c.run.resume));
  }
  return out;
}

}  // namespace sluice::core
