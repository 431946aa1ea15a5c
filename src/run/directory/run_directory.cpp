// SPDX-License-Identifier: Apache-2.0
#include "run/directory/run_directory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "checkpoint/store.h"
#include "io/file.h"
#include "io/set_aside.h"
#include "run/inputs/paths.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLock = "run.lock";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kDemo = "demo.json";
constexpr const char* kCheckpoints = "checkpoints";
constexpr std::array kOfPlans = {"plan.json",      "plan.txt",     "config.toml",
                                 "predicted.json", "timeline.svg", "model.json"};
constexpr std::array kOfSteps = {"trace.json", "loss.svg", "routers.html"};

// Files that results would replace.
std::vector<std::string> in_the_way(const fs::path& directory) {
  std::vector<std::string> names{kMetrics, kDemo, kCheckpoints};
  names.insert(names.end(), kOfPlans.begin(), kOfPlans.end());
  names.insert(names.end(), kOfSteps.begin(), kOfSteps.end());
  std::erase_if(names, [&](const std::string& name) { return !is_there(directory / name); });
  return names;
}

Error taken(std::string_view key, const fs::path& path, const std::string& by) {
  Error e = error("{} = {}: {}", key, path.string(), by);
  e.details.emplace_back("taken", by);
  return e;
}

}  // namespace

RunDirectory::Content RunDirectory::content() const {
  std::error_code ignored;
  const auto holds = [&](const char* name) { return is_there(path_ / name); };
  const fs::path checkpoints = path_ / kCheckpoints;
  if (fs::file_size(path_ / kMetrics, ignored) > 0 && !ignored) return Content::Run;
  if (is_there(checkpoints) &&
      !(fs::is_directory(checkpoints, ignored) && fs::is_empty(checkpoints, ignored)))
    return Content::Run;
  if (holds(kDemo)) return Content::Demo;
  return std::any_of(kOfPlans.begin(), kOfPlans.end(), holds) ? Content::Plan : Content::Nothing;
}

Status RunDirectory::check() const {
  if (lock_.is_there()) return {};
  return error(
      ErrorKind::Io,
      "run.dir = {}: the directory was removed, moved or replaced while this run used it; nothing is "
      "written to what has its name now",
      path_.string());
}

Result<RunDirectory> RunDirectory::take(std::string_view key, const fs::path& named) {
  const fs::path path = named.has_filename() ? named : named.parent_path();
  SLUICE_TRY(check_directory(key, path));
  const bool made = !is_there(path), marked = !is_there(path / kLock);
  if (const auto names = in_the_way(path); marked && !names.empty())
    return taken(key, path,
                 fmt::format("{} there, which no run of this version wrote; they are not replaced",
                             fmt::join(names, ", ")));
  SLUICE_TRY(make_directories(path));
  auto lock = LockFile::take(path / kLock);
  if (!lock.ok()) {
    const std::string by(lock.error().detail("used_by"));
    return by.empty() ? lock.error() : taken(key, path, by + " uses this directory");
  }
  RunDirectory out(path, std::move(*lock));
  out.made_ = made;
  out.marked_ = marked;
  if (marked) {
    // A disk that kept what is written next, but not the mark, would hold a directory that no run may take.
    SLUICE_TRY(sync_directory(path));
  } else {
    SLUICE_TRY(remove_temporaries(path));
    // Opening the store cleans it, also for those who only look what is there.
    SLUICE_ASSIGN([[maybe_unused]] const CheckpointStore cleaned, CheckpointStore::open(path / kCheckpoints));
  }
  return out;
}

Result<RunDirectory> RunDirectory::take_free(std::string_view key, const fs::path& named, Content most) {
  const fs::path path = named.has_filename() ? named : named.parent_path();
  for (int64_t number = 1;; ++number) {
    fs::path next = path;
    if (number > 1) next += fmt::format("-{}", number);  // a dot begins no ending here: runs/lr-0.1-2
    auto directory = take(key, next);
    if (directory.ok() && directory->content() <= most) return directory;
    if (!directory.ok() && directory.error().detail("taken").empty()) return directory.error();
  }
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      made_(other.made_),
      marked_(other.marked_) {}

RunDirectory::~RunDirectory() {
  if (path_.empty() || !marked_ || !lock_.is_there() || !in_the_way(path_).empty()) return;
  lock_.remove();
  std::error_code ignored;
  if (made_) fs::remove(path_, ignored);  // keeps one that has other files
}

}  // namespace sluice::core
