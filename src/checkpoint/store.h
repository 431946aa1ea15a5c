// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run: a directory that holds
//
//     step-<N>/   a checkpoint (checkpoint/checkpoint.h) after N steps, whole
//     latest      a symbolic link to the newest of them
//     best-<N>/   the weights alone after N steps, where the held-out loss was lowest
//     best        a symbolic link to it
//
// Whatever stops a process at any moment, `latest` names a whole checkpoint, if there was one. A directory of
// such a name counts where its checkpoint.json can be read, is of that step, and every file has the size that
// was saved. No other is linked, removed or written into. One process and one thread at a time uses a store;
// the lock of the run directory sees to that.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "base/status.h"

namespace sluice::core {

// Which checkpoints stay when a new one is there. The newest always does.
struct Retention {
  int64_t last = 2;   // that many of the newest, at least 1
  int64_t every = 0;  // and those of every step that this divides; 0: none
};

class CheckpointStore {
 public:
  // Removes leftovers of killed processes, and makes `latest` made true. A directory that is not there is
  // made by the first save; a link in its place is refused.
  static Result<CheckpointStore> open(std::filesystem::path dir, Retention retention = {});

  const std::filesystem::path& dir() const { return dir_; }
  // Where the checkpoint of a step is, or will be.
  std::filesystem::path at(int64_t step) const;
  // The steps that have a whole one, ascending.
  const std::vector<int64_t>& steps() const { return steps_; }
  std::optional<int64_t> latest() const;

  // Has `write` fill an empty directory, which becomes the newest checkpoint; then removes the ones that need
  // not stay and have no files of others in them. An error leaves those that were there. Nothing is written
  // for a step that has one; a step before the newest one's is an error: it would be of another run. What has
  // the checkpoint's name and is none is set aside (io/set_aside.h).
  Status save(int64_t step, const std::function<Status(const std::filesystem::path&)>& write);
  // The same for the best model, which takes the place of the one that was: there is one at most.
  Status save_best(int64_t step, const std::function<Status(const std::filesystem::path&)>& write);
  std::optional<int64_t> best() const { return best_; }
  std::filesystem::path best_at(int64_t step) const;

 private:
  CheckpointStore(std::filesystem::path dir, Retention retention)
      : dir_(std::move(dir)), retention_(retention) {}
  Status link_latest();
  Status prune();
  // Keeps one that has files of others in it.
  Status remove_best(int64_t step);

  std::filesystem::path dir_;
  Retention retention_;
  std::vector<int64_t> steps_;
  std::optional<int64_t> best_;
};

// Where the store of a run directory is.
inline std::filesystem::path checkpoints_in(const std::filesystem::path& run_directory) {
  return run_directory / "checkpoints";
}

// The newest whole checkpoint in such a directory, and its best model, found without changing anything;
// nothing if there is none.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& dir);
std::optional<std::filesystem::path> best_model(const std::filesystem::path& dir);

// The folder of a model named by its folder, a checkpoint or a run's directory, which stands for its newest
// checkpoint, or its best model. Errors: there is no such folder, or no best model in it.
Result<std::filesystem::path> folder_to_read(const std::filesystem::path& from, bool best = false);

// The newest checkpoint there, found in the same way. Where that is damaged no older one is taken in its
// place: the error has the detail "damaged", its path.
Result<std::optional<std::filesystem::path>> newest_checkpoint(const std::filesystem::path& dir);

// `why` a checkpoint of such a directory cannot be read, with the newest one before it that can be, every
// byte of it, and what to type then. `go_on` says that of its path.
Error with_older_one(Error why, const std::filesystem::path& damaged,
                     const std::function<std::string(const std::filesystem::path&)>& go_on);

}  // namespace sluice::core
