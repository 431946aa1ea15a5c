// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "checkpoint/checkpoint.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/set_aside.h"
#include "io/shards.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "step-", kBestPrefix = "best-", kTemporary = ".tmp";

std::string name_of_step(int64_t step, std::string_view prefix = kPrefix) {
  return fmt::format("{}{}", prefix, step);
}

// The step of a checkpoint's name, as name_of_step() writes it.
std::optional<int64_t> step_of(std::string_view name, std::string_view prefix = kPrefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size());
  int64_t step = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool whole = ec == std::errc() && step >= 0 && name_of_step(step, prefix) == name;
  return whole ? std::optional(step) : std::nullopt;
}

// Leftovers of an interrupted save or removal.
bool is_leftover(std::string_view name) {
  if (!name.ends_with(kTemporary)) return false;
  name.remove_suffix(kTemporary.size());
  return name == "latest" || name == "best" || step_of(name) || step_of(name, kBestPrefix);
}

struct Content {
  std::vector<int64_t> steps;        // that have a whole checkpoint, ascending
  std::map<int64_t, Error> damaged;  // that have one which cannot be read
  std::vector<int64_t> best;         // that have a whole model, ascending
  std::vector<fs::path> leftovers;
};

// Whether a directory is a whole checkpoint of that step.
Status look_at(const fs::path& dir, int64_t step) {
  SLUICE_ASSIGN(const CheckpointInfo info, look_at_checkpoint(dir));
  if (info.step == step) return {};
  return error("{}: its checkpoint.json is of step {}", dir.string(), info.step);
}

// Whether it has, or has left, what a save puts there. What else has such a name is somebody else's.
bool was_checkpoint(const fs::path& dir) {
  return is_there(dir / "checkpoint.json") || is_there(dir / "model.safetensors") ||
         is_there(dir / "model.safetensors.index.json") || is_there(dir / "optimizer.safetensors") ||
         is_there(dir / kAdapterName);
}

// Whether all that lies in a checkpoint is its own. What a user put there is not ours to remove.
bool has_only_its_own(const fs::path& dir) {
  const auto info = read_checkpoint_info(dir);
  std::error_code code;
  for (fs::directory_iterator it(dir, code), end; info.ok() && !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename();
    if (name != "checkpoint.json" && !info->files.contains(name)) return false;
  }
  return info.ok() && !code;
}

Result<Content> content_of(const fs::path& dir) {
  Content out;
  std::error_code code;
  if (!fs::exists(dir, code)) return out;
  const std::string named = target_of(dir / "latest").value_or("");
  for (fs::directory_iterator it(dir, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename();
    if (is_leftover(name)) {
      out.leftovers.push_back(it->path());
    } else if (const auto step = step_of(name); step && (name == named || was_checkpoint(it->path()))) {
      const Status whole = look_at(it->path(), *step);
      if (whole.ok()) out.steps.push_back(*step);
      if (!whole.ok()) out.damaged.emplace(*step, whole.error());
    } else if (const auto best = step_of(name, kBestPrefix); best && look_at(it->path(), *best).ok()) {
      out.best.push_back(*best);
    }
  }
  if (code) return file_error("list", dir, code.value());
  std::sort(out.steps.begin(), out.steps.end());
  std::sort(out.best.begin(), out.best.end());
  return out;
}

// Which of them the link names; without one the newest.
std::optional<int64_t> linked_best(const fs::path& dir, const Content& content) {
  const auto target = target_of(dir / "best");
  for (const int64_t step : content.best) {
    if (target == name_of_step(step, kBestPrefix)) return step;
  }
  return content.best.empty() ? std::nullopt : std::optional(content.best.back());
}

}  // namespace

fs::path CheckpointStore::at(int64_t step) const {
  return dir_ / name_of_step(step);
}

std::optional<int64_t> CheckpointStore::latest() const {
  return steps_.empty() ? std::nullopt : std::optional(steps_.back());
}

Result<CheckpointStore> CheckpointStore::open(fs::path dir, Retention retention) {
  CheckpointStore store(std::move(dir), retention);
  std::error_code none;
  if (fs::is_symlink(store.dir_, none)) SLUICE_TRY(make_own_directory(store.dir_));
  SLUICE_ASSIGN(Content content, content_of(store.dir_));
  for (const fs::path& leftover : content.leftovers) {
    std::error_code code;
    fs::remove_all(leftover, code);
    if (code) return file_error("remove", leftover, code.value());
  }
  store.steps_ = std::move(content.steps);
  // A process that was stopped after it made a checkpoint may not have come to the link. A newer one that is
  // damaged keeps it: who goes on is to say from where.
  const bool is_newest = content.damaged.empty() || store.latest() > content.damaged.rbegin()->first;
  if (!store.steps_.empty() && is_newest) SLUICE_TRY(store.link_latest());
  store.best_ = linked_best(store.dir_, content);
  for (const int64_t step : content.best) {
    if (step != store.best_) SLUICE_TRY(store.remove_best(step));
  }
  if (store.best_) SLUICE_TRY(point_link(store.dir_ / "best", name_of_step(*store.best_, kBestPrefix)));
  return store;
}

fs::path CheckpointStore::best_at(int64_t step) const {
  return dir_ / name_of_step(step, kBestPrefix);
}

Status CheckpointStore::save_best(int64_t step, const std::function<Status(const fs::path&)>& write) {
  const std::optional<int64_t> before = best_;
  // Steps that are made again find again what they found.
  if (before == step) SLUICE_TRY(remove_best(step));
  SLUICE_TRY(set_aside(best_at(step)));
  SLUICE_ASSIGN(AtomicDirectory fresh, AtomicDirectory::create(best_at(step)));
  SLUICE_TRY(write(fresh.temporary()));
  SLUICE_TRY(fresh.commit());
  SLUICE_TRY(point_link(dir_ / "best", name_of_step(step, kBestPrefix)));
  best_ = step;
  return before && before != step ? remove_best(*before) : Status();
}

Status CheckpointStore::remove_best(int64_t step) {
  return has_only_its_own(best_at(step)) ? remove_directory(best_at(step)) : Status();
}

Status CheckpointStore::save(int64_t step, const std::function<Status(const fs::path&)>& write) {
  if (std::binary_search(steps_.begin(), steps_.end(), step)) return {};
  if (!steps_.empty() && step < steps_.back()) {
    return error("{}: a checkpoint of step {} is there, one of step {} would be of another run",
                 dir_.string(), steps_.back(), step);
  }
  SLUICE_TRY(set_aside(at(step)));
  SLUICE_ASSIGN(AtomicDirectory fresh, AtomicDirectory::create(at(step)));
  SLUICE_TRY(write(fresh.temporary()));
  SLUICE_TRY(fresh.commit());
  steps_.push_back(step);
  SLUICE_TRY(link_latest());
  return prune();
}

Status CheckpointStore::link_latest() {
  const fs::path link = dir_ / "latest";
  const std::string target = name_of_step(steps_.back());
  return target_of(link) == target ? Status() : point_link(link, target);
}

Status CheckpointStore::prune() {
  const std::vector<int64_t> before = steps_;
  const size_t last = size_t(std::max<int64_t>(1, retention_.last));
  for (size_t i = 0; i + last < before.size(); ++i) {
    const int64_t step = before[i];
    if (retention_.every > 0 && step % retention_.every == 0) continue;
    if (!has_only_its_own(at(step))) continue;
    SLUICE_TRY(remove_directory(at(step)));
    steps_.erase(std::find(steps_.begin(), steps_.end(), step));
  }
  return {};
}

std::optional<fs::path> latest_checkpoint(const fs::path& dir) {
  const auto content = content_of(dir);
  if (!content.ok() || content->steps.empty()) return std::nullopt;
  return dir / name_of_step(content->steps.back());
}

std::optional<fs::path> best_model(const fs::path& dir) {
  const auto content = content_of(dir);
  if (!content.ok()) return std::nullopt;
  const auto step = linked_best(dir, *content);
  return step ? std::optional(dir / name_of_step(*step, kBestPrefix)) : std::nullopt;
}

Result<std::optional<fs::path>> newest_checkpoint(const fs::path& dir) {
  SLUICE_ASSIGN(const Content content, content_of(dir));
  const int64_t whole = content.steps.empty() ? -1 : content.steps.back();
  if (!content.damaged.empty() && content.damaged.rbegin()->first > whole) {
    const auto& [step, why] = *content.damaged.rbegin();
    Error e = why;
    e.details.emplace_back("damaged", (dir / name_of_step(step)).string());
    return e;
  }
  if (whole < 0) return std::optional<fs::path>();
  return std::optional(dir / name_of_step(whole));
}

Error with_older_one(Error why, const fs::path& damaged,
                     const std::function<std::string(const fs::path&)>& go_on) {
  const fs::path dir = damaged.parent_path();
  const auto content = content_of(dir);
  const auto step = step_of(damaged.filename().native());
  if (!content.ok() || !step) return why;
  for (auto older = content->steps.rbegin(); older != content->steps.rend(); ++older) {
    const fs::path path = dir / name_of_step(*older);
    if (*older >= *step || !check_whole(path).ok()) continue;
    why.message +=
        fmt::format("; the newest whole checkpoint before it is {}. {}", path.string(), go_on(path));
    return why;
  }
  const std::string instead = go_on({});
  why.message += "; no whole checkpoint is before it" + (instead.empty() ? "" : ". " + instead);
  return why;
}

Result<fs::path> folder_to_read(const fs::path& named, bool best) {
  std::error_code ignored;
  const fs::path from = followed(named);
  if (!fs::is_directory(from, ignored)) {
    return error(ErrorKind::NotFound,
                 "{}: there is no such folder; allowed are a model's, with config.json and safetensors, a "
                 "checkpoint and the directory of a run",
                 from.string());
  }
  if (!best) {
    const auto newest = newest_checkpoint(checkpoints_in(from));
    if (newest.ok()) return newest->value_or(from);
    return with_older_one(newest.error(), std::string(newest.error().detail("damaged")),
                          [&](const fs::path& older) {
                            return older.empty() ? "" : fmt::format("Name it instead of {}", from.string());
                          });
  }
  const auto found = best_model(checkpoints_in(from));
  if (!found) {
    return error(
        ErrorKind::NotFound,
        "--best {}: no best model is there; a run keeps one (run.keep_best) when it evaluates on held-out "
        "text",
        from.string());
  }
  return *found;
}

}  // namespace sluice::core
