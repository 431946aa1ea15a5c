// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/lanes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu/spin.h"

namespace sluice::core::cpu {

Lanes::Lanes(LaneTable table, LaunchFn launch, ReadFn read)
    : table_(std::move(table)), launch_(std::move(launch)), read_(std::move(read)), queues_(table_) {
  for (const Lane lane : table_) {
    queues_[lane].ids.resize(1);
    queues_[lane].thread = std::thread([this, lane] { serve(lane); });
  }
}

Lanes::~Lanes() {
  for (Queue& q : queues_) push(q, kStop);
  for (Queue& q : queues_) q.thread.join();
}

Status Lanes::begin(uint32_t commands) {
  if (slots_.size() < commands) {
    slots_.resize(commands);
    after_.resize(commands * table_.size());
    intervals_.resize(commands);
    lane_of_.resize(commands);
    for (Queue& q : queues_) q.ids.resize(size_t{commands} + 1);
  }
  for (Queue& q : queues_) {
    q.base = q.pushed.load();
    q.finished.store(0);
  }
  commands_ = commands;
  submitted_ = 0;
  {
    const std::lock_guard lock(fault_mutex_);
    fault_.reset();
  }
  failed_.store(false);
  begin_ = std::chrono::steady_clock::now();
  return {};
}

Status Lanes::submit(const Command& command, const Arenas& arenas) {
  if (failed_.load()) {
    const std::lock_guard lock(fault_mutex_);
    return fault_->error;
  }
  SLUICE_CHECK(command.id == submitted_ && command.id < commands_, "command {} after {} of {}", command.id,
               submitted_, commands_);
  Slot& slot = slots_[command.id];
  for (const Lane lane : table_) after(command.id, lane) = 0;
  for (const uint32_t w : command.waits) {
    SLUICE_CHECK(w < command.id, "command {} waits for {}, which was not submitted", command.id, w);
    after(command.id, lane_of_[w]) = std::max(after(command.id, lane_of_[w]), w + 1);
  }
  const bool is_launch = std::holds_alternative<Launch>(command.work);
  const LaneEnds& ends = table_[command.lane];
  SLUICE_CHECK(is_launch ? !ends.copies() : !ends.network, "command {}: a {} on lane {}", command.id,
               is_launch ? "launch" : "copy", name_of(ends));
  if (is_launch) {
    const auto& launch = std::get<Launch>(command.work);
    SLUICE_CHECK(launch.operands.size() <= kMaxOperands, "{} operands", launch.operands.size());
    slot.op = launch.op;
    slot.task = launch.task;
    slot.operand_count = static_cast<uint32_t>(launch.operands.size());
    std::ranges::copy(launch.operands, slot.operands.begin());
    slot.workspace = launch.workspace;
  } else {
    slot.op = nullptr;
    const auto& copy = std::get<Copy>(command.work);
    slot.to = arenas[copy.to.tier] + copy.to.offset;
    slot.from = copy.from.tier == kDisk ? nullptr : arenas[copy.from.tier] + copy.from.offset;
    slot.copy = copy;
  }
  lane_of_[command.id] = command.lane;
  ++submitted_;
  push(queues_[command.lane], command.id);
  return {};
}

void Lanes::push(Queue& q, uint32_t id) {
  q.ids[q.pushed.load() - q.base] = id;
  q.pushed.fetch_add(1);
  q.pushed.notify_all();
}

Status Lanes::wait(uint32_t command) {
  SLUICE_CHECK(command < submitted_, "command {} of {} submitted", command, submitted_);
  const std::atomic<uint32_t>& finished = queues_[lane_of_[command]].finished;
  for (uint32_t f; (f = finished.load()) <= command;) wait_while_equal(finished, f);
  if (!failed_.load()) return {};
  const std::lock_guard lock(fault_mutex_);
  return fault_->error;
}

std::optional<Fault> Lanes::finish(std::vector<Interval>* timeline) {
  ByLane<uint32_t> last(table_);
  for (uint32_t id = 0; id < submitted_; ++id) last[lane_of_[id]] = id + 1;
  for (const Lane lane : table_) {
    const std::atomic<uint32_t>& finished = queues_[lane].finished;
    for (uint32_t f; (f = finished.load()) < last[lane];) wait_while_equal(finished, f);
  }
  if (timeline) timeline->assign(intervals_.begin(), intervals_.begin() + submitted_);
  const std::lock_guard lock(fault_mutex_);
  return fault_;
}

void Lanes::serve(Lane lane) {
  Queue& q = queues_[lane];
  for (;;) {
    wait_while_equal(q.pushed, q.taken);
    for (const uint32_t pushed = q.pushed.load(); q.taken != pushed; ++q.taken) {
      const uint32_t id = q.ids[q.taken - q.base];
      if (id == kStop) return;
      run_command(lane, id);
    }
  }
}

void Lanes::run_command(Lane lane, uint32_t id) {
  const Slot& slot = slots_[id];
  for (const Lane other : table_) {
    const std::atomic<uint32_t>& finished = queues_[other].finished;
    const uint32_t wanted = after(id, other);
    for (uint32_t f; (f = finished.load()) < wanted;) wait_while_equal(finished, f);
  }
  Interval& interval = intervals_[id];
  interval.start_ns = now_ns();
  if (!failed_.load()) {
    if (Status status = run_work(lane, slot); !status.ok()) fail(id, status.error());
  }
  interval.end_ns = now_ns();
  Queue& q = queues_[lane];
  q.finished.store(id + 1);
  q.finished.notify_all();
}

Status Lanes::run_work(Lane lane, const Slot& slot) {
  if (slot.op)
    return launch_(table_[lane],
                   {slot.op, {slot.operands.data(), slot.operand_count}, slot.workspace, slot.task});
  return slot.copy.for_each_part([&](int64_t begin, int64_t bytes) -> Status {
    if (slot.copy.from.tier == kDisk)
      return read_(slot.copy.from.offset + begin, {slot.to + begin, size_t(bytes)});
    std::memcpy(slot.to + begin, slot.from + begin, static_cast<size_t>(bytes));
    return {};
  });
}

void Lanes::fail(uint32_t id, Error error) {
  const std::lock_guard lock(fault_mutex_);
  if (!fault_) fault_ = Fault{id, std::move(error)};
  failed_.store(true);
}

double Lanes::now_ns() const {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin_).count();
}

}  // namespace sluice::core::cpu
