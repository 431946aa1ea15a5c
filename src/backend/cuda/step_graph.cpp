// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/step_graph.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/check.h"

namespace sluice::core::cuda {
namespace {

using Graph = Handle<cudaGraph_t, cudaGraphDestroy>;

// Events order commands across lanes while they are recorded: one of each command that is awaited. By
// another one lanes join the recording, and each leaves it by one of its own.
struct Events {
  std::vector<Event> done;
  Event begin;
  ByLane<Event> end;
};

Result<Events> make_events(const LaneTable& lanes, std::span<const Command> commands) {
  Events events{std::vector<Event>(commands.size()), {}, ByLane<Event>(lanes)};
  const auto make = [](Event& event) {
    return check(cudaEventCreateWithFlags(event.receive(), cudaEventDisableTiming), "cudaEventCreate");
  };
  SLUICE_TRY(make(events.begin));
  for (Event& event : events.end) SLUICE_TRY(make(event));
  for (const Command& command : commands) {
    if (command.awaited) SLUICE_TRY(make(events.done[command.id]));
  }
  return events;
}

Status queue_all(const Lanes& lanes, std::span<const Command> commands, const StepGraph::QueueCommand& queue,
                 const Events& events) {
  const LaneTable& table = lanes.table();
  const Lane first = table.compute(Tier::device(0));
  ByLane<int> joined(table);
  joined[first] = 1;
  // known[a][b]: lane a waits for the commands of lane b with lower ids already.
  ByLane<ByLane<int64_t>> known(table, ByLane<int64_t>(table));
  SLUICE_CUDA_TRY(cudaEventRecord(events.begin.get(), lanes.stream(first)));
  for (const Command& command : commands) {
    cudaStream_t stream = lanes.stream(command.lane);
    if (!std::exchange(joined[command.lane], 1))
      SLUICE_CUDA_TRY(cudaStreamWaitEvent(stream, events.begin.get(), 0));
    bool waits = false;
    for (const uint32_t id : command.waits) {
      const Lane other = commands[id].lane;
      int64_t& until = known[command.lane][other];
      if (other == command.lane || int64_t{id} < until) continue;
      SLUICE_CUDA_TRY(cudaStreamWaitEvent(stream, events.done[id].get(), 0));
      until = int64_t{id} + 1;
      waits = true;
    }
    SLUICE_TRY(queue(command, waits));
    if (command.awaited) SLUICE_CUDA_TRY(cudaEventRecord(events.done[command.id].get(), stream));
  }
  for (const Lane lane : table) {
    if (lane == first || !joined[lane]) continue;
    SLUICE_CUDA_TRY(cudaEventRecord(events.end[lane].get(), lanes.stream(lane)));
    SLUICE_CUDA_TRY(cudaStreamWaitEvent(lanes.stream(first), events.end[lane].get(), 0));
  }
  return {};
}

}  // namespace

Status StepGraph::record(const Lanes& lanes, std::span<const Command> commands, const QueueCommand& queue) {
  SLUICE_ASSIGN(const Events events, make_events(lanes.table(), commands));
  cudaStream_t first = lanes.stream(lanes.table().compute(Tier::device(0)));
  // Other threads may copy meanwhile.
  SLUICE_CUDA_TRY(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
  const Status queued = queue_all(lanes, commands, queue, events);
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(first, &captured);
  const Graph graph(captured);
  cudaGetLastError();  // of a recording that was refused: no lasting error
  SLUICE_TRY(queued);
  SLUICE_TRY(check(ended, "cudaStreamEndCapture"));
  Handle<cudaGraphExec_t, cudaGraphExecDestroy> made;
  SLUICE_CUDA_TRY(cudaGraphInstantiate(made.receive(), graph.get(), 0));
  graph_ = std::move(made);
  return {};
}

Status StepGraph::launch(cudaStream_t stream) const {
  SLUICE_CUDA_TRY(cudaGraphLaunch(graph_.get(), stream));
  return {};
}

}  // namespace sluice::core::cuda
