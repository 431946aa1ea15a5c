// SPDX-License-Identifier: Apache-2.0
#include "state/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "io/directory.h"
#include "io/file.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "step-", kTemporary = ".tmp";

std::string name_of_step(int64_t step) {
  return fmt::format("{}{}", kPrefix, step);
}

// The step of a checkpoint's name, as name_of_step() writes it.
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool whole = ec == std::errc() && step >= 0 && name_of_step(step) == name;
  return whole ? std::optional(step) : std::nullopt;
}

// What a save or a removal that was stopped leaves.
bool is_leftover(std::string_view name) {
  if (!name.ends_with(kTemporary)) return false;
  name.remove_suffix(kTemporary.size());
  return name == "latest" || step_of(name);
}

struct Content {
  std::vector<int64_t> steps;  // ascending
  std::vector<fs::path> leftovers;
};

Result<Content> content_of(const fs::path& dir) {
  Content out;
  std::error_code code;
  if (!fs::exists(dir, code)) return out;
  for (fs::directory_iterator it(dir, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename();
    std::error_code ignored;
    if (is_leftover(name)) {
      out.leftovers.push_back(it->path());
    } else if (const auto step = step_of(name); step && it->is_directory(ignored)) {
      out.steps.push_back(*step);
    }
  }
  if (code) return file_error("list", dir, code.value());
  std::sort(out.steps.begin(), out.steps.end());
  return out;
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
  SLUICE_ASSIGN(Content content, content_of(store.dir_));
  for (const fs::path& leftover : content.leftovers) {
    std::error_code code;
    fs::remove_all(leftover, code);
    if (code) return file_error("remove", leftover, code.value());
  }
  store.steps_ = std::move(content.steps);
  // A process that was stopped after it made a checkpoint may not have come to the link.
  if (!store.steps_.empty()) SLUICE_TRY(store.link_latest());
  return store;
}

Status CheckpointStore::save(int64_t step, const std::function<Status(const fs::path&)>& write) {
  if (std::binary_search(steps_.begin(), steps_.end(), step)) return {};
  if (!steps_.empty() && step < steps_.back()) {
    return error("{}: a checkpoint of step {} is there, one of step {} would be of another run",
                 dir_.string(), steps_.back(), step);
  }
  SLUICE_ASSIGN(AtomicDirectory fresh, AtomicDirectory::create(at(step)));
  SLUICE_TRY(write(fresh.temporary()));
  SLUICE_TRY(fresh.commit());
  steps_.push_back(step);
  SLUICE_TRY(link_latest());
  return prune();
}

Status CheckpointStore::link_latest() {
  const fs::path link = dir_ / "latest", target = name_of_step(steps_.back());
  std::error_code none;
  if (fs::read_symlink(link, none) == target) return {};
  return point_link(link, target);
}

Status CheckpointStore::prune() {
  const std::vector<int64_t> before = steps_;
  const size_t last = size_t(std::max<int64_t>(1, retention_.last));
  for (size_t i = 0; i + last < before.size(); ++i) {
    const int64_t step = before[i];
    if (retention_.every > 0 && step % retention_.every == 0) continue;
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

}  // namespace sluice::core
