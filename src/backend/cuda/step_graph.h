// SPDX-License-Identifier: Apache-2.0
// A step's commands as one CUDA graph, which the driver queues at once. What differs from step to step is in
// memory, which the graph's kernels read when they run.
#pragma once

#include <functional>
#include <span>

#include "backend/backend.h"
#include "backend/cuda/handle.h"
#include "backend/cuda/lanes.h"
#include "base/status.h"

namespace sluice::core::cuda {

class StepGraph final : public Recording {
 public:
  // Records what `queue` queues on the streams of these lanes, all of one GPU. A lane's stream waits for
  // others as Lanes::open() has it; `queue` is told whether it does so before the command. Nothing runs. An
  // error leaves the streams as they were.
  using QueueCommand = std::function<Status(const Command& command, bool waits)>;
  Status record(const Lanes& lanes, std::span<const Command> commands, const QueueCommand& queue);
  bool recorded() const { return bool(graph_); }

  // Queues it on the stream of the lane that computes.
  Status launch(cudaStream_t stream) const;

 private:
  Handle<cudaGraphExec_t, cudaGraphExecDestroy> graph_;
};

}  // namespace sluice::core::cuda
