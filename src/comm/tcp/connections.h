// SPDX-License-Identifier: Apache-2.0
// The processes of a job that nobody connected for them: they meet at a place that all know, and from then on
// each has a connection to each.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/launch.h"
#include "comm/sockets.h"

namespace sluice::core {

struct MeetingOptions {
  std::chrono::milliseconds limit{300'000};  // for all to have come
  std::chrono::milliseconds note_every{30'000};
  // On rank 0: who has not come yet, every so often. For people.
  std::function<void(const std::string& text)> waiting;
  std::string host;  // of this process: equal where two share one. Empty: found out
};

struct Connections {
  int rank = 0;
  std::vector<Socket> to;  // by rank; none at its own
  std::vector<int> hosts;  // of each rank, the lowest rank on its host
};

// Rank 0 listens at the meeting point and tells those who come where the others listen. Errors, on all that
// came, name the ranks that did not, and what else came in their place. REQUIRES: launch.meeting.
Result<Connections> meet(const ProcessLaunch& launch, const MeetingOptions& options);

// The same for the processes of a group, which tells them where each listens. Every rank has to call it; an
// error is one on all.
Result<Connections> connect(ProcessGroup& group);

// What they are then: a group whose messages pass through these connections. `limit`: until it is watched.
std::unique_ptr<ProcessGroup> group_over(Connections connections,
                                         std::chrono::milliseconds limit = std::chrono::minutes(5));

}  // namespace sluice::core
