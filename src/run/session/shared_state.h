// SPDX-License-Identifier: Apache-2.0
// State of which each of several processes has a part (run.shard_state), as one that process 0 can save.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "base/network.h"
#include "checkpoint/copy.h"
#include "checkpoint/layout.h"
#include "checkpoint/write.h"
#include "exec/executor.h"
#include "setup/prepared.h"

namespace sluice::core {

// Whether checkpoints of a run have their weights in f32.
bool saves_f32(const RunConfig& config);
// The layout of a run's checkpoints, over all processes.
CheckpointLayout saved_layout(const Prepared& prepared);

// Process 0 asks; the others answer while they are in meet(). Borrows the executor of the training program
// and the machine's network.
class SharedState {
 public:
  // REQUIRES: prepared.optimizer.sharded.is().
  SharedState(const Prepared& prepared, const Executor& executor);

  // The objects of a process that has all of the state: layouts for reader() are of these.
  const BuiltProgram& whole() const { return whole_; }
  // In process 0, between steps: asks whoever has what is read.
  PartReader reader() const;
  // In process 0: all write what each has into files of one directory, that of a checkpoint of this step,
  // which all of them see. An error of any is that of the first, which is named.
  Result<FileSums> write(const std::filesystem::path& dir, int64_t step) const;
  // In process 0: all make the update that is pending, as they have to do it together. Nothing in others.
  Status ask_for_update() const;
  // The others answer until process 0 is here; `update` is what it may ask for.
  Status meet(const std::function<Status()>& update) const;

 private:
  struct Request {
    enum What : uint32_t { GoOn, Update, Read, Write } what;
    uint32_t object;  // of whole()
    int64_t offset, bytes;
    int64_t step = 0;  // of Write, whose path of so many bytes follows
  };
  Status ask(Request request) const;
  // This process's file, and what all have written.
  Result<FileSums> write_with_all(const std::filesystem::path& dir, int64_t step) const;

  const Executor& executor_;
  Network& network_;
  BuiltProgram whole_;
  std::vector<StoredTensor> state_;  // of this process
  // By object of whole().
  std::vector<ObjectId> own_;  // invalid: another process has it
  std::vector<int> owner_;
};

}  // namespace sluice::core
