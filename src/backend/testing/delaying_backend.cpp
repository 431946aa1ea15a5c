// SPDX-License-Identifier: Apache-2.0
#include "backend/testing/delaying_backend.h"

#include <algorithm>
#include <thread>

namespace sluice::core {

Status DelayingBackend::begin(uint32_t commands, bool timed) {
  for (auto& lane : held_) lane.clear();
  held_count_ = 0;
  inner_id_.clear();
  outer_id_.clear();
  return inner().begin(commands, timed);
}

Status DelayingBackend::submit(const Command& command) {
  Held held{command, {command.waits.begin(), command.waits.end()}, {}};
  if (const auto* launch = std::get_if<Launch>(&command.work)) {
    held.operands.assign(launch->operands.begin(), launch->operands.end());
  }
  held_[command.lane].push_back(std::move(held));
  ++held_count_;
  inner_id_.push_back(kHeld);
  if (held_count_ <= delays_.window) return {};
  return release();
}

bool DelayingBackend::ready(const std::deque<Held>& lane) const {
  if (lane.empty()) return false;
  return std::ranges::all_of(lane.front().waits, [&](uint32_t id) { return inner_id_[id] != kHeld; });
}

// Some lane is always ready: the oldest command held back is the first of its lane, and waits for older ones
// only.
Status DelayingBackend::release() {
  std::vector<std::deque<Held>*> lanes;
  for (auto& lane : held_) {
    if (ready(lane)) lanes.push_back(&lane);
  }
  SLUICE_CHECK(!lanes.empty(), "{} commands held back and none ready", held_count_);
  std::deque<Held>& lane = *lanes[random_() % lanes.size()];
  Held held = std::move(lane.front());
  lane.pop_front();
  --held_count_;

  const uint32_t id = held.command.id;
  inner_id_[id] = static_cast<uint32_t>(outer_id_.size());
  outer_id_.push_back(id);
  for (uint32_t& wait : held.waits) wait = inner_id_[wait];
  held.command.id = inner_id_[id];
  held.command.waits = held.waits;
  if (auto* launch = std::get_if<Launch>(&held.command.work)) launch->operands = held.operands;
  pause();
  return inner().submit(held.command);
}

void DelayingBackend::pause() {
  if (delays_.longest.count() <= 0) return;
  std::this_thread::sleep_for(delays_.longest * (random_() % 1024) / 1024);
}

Status DelayingBackend::wait(uint32_t command) {
  while (inner_id_[command] == kHeld) SLUICE_TRY(release());
  return inner().wait(inner_id_[command]);
}

std::optional<Fault> DelayingBackend::finish(std::vector<Interval>* timeline) {
  // An error here means a fault, which finish() reports; what is still held back does not run.
  while (held_count_ > 0 && release().ok()) continue;
  std::vector<Interval> inner_timeline;
  std::optional<Fault> fault = inner().finish(timeline ? &inner_timeline : nullptr);
  if (fault && fault->command) fault->command = outer_id_[*fault->command];
  if (timeline) {
    timeline->assign(inner_id_.size(), {});
    for (size_t i = 0; i < inner_timeline.size(); ++i) (*timeline)[outer_id_[i]] = inner_timeline[i];
  }
  return fault;
}

}  // namespace sluice::core
