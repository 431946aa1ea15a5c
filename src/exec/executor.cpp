// SPDX-License-Identifier: Apache-2.0
#include "exec/executor.h"

#include <algorithm>

namespace sluice::core {
namespace {

// Address `offset` of an arena; backends that move no data have no base.
Buffer place(std::byte* base, int64_t offset, int64_t bytes) {
  return {base == nullptr ? nullptr : base + offset, bytes};
}

}  // namespace

Executor::Executor(const Program& program, const Plan& plan, Backend& backend, Arenas arenas)
    : program_(program), plan_(plan), backend_(backend), arenas_(arenas) {
  SLUICE_CHECK(plan.program_hash == program.hash(), "plan is for program {:x}", plan.program_hash);
  SLUICE_CHECK(plan.lanes == backend.lanes(), "the plan has other lanes than the {} backend", backend.name());
  resolve();
}

// Turns the plan's offsets into commands once; every step submits the same commands.
void Executor::resolve() {
  size_t operand_count = 0;
  for (const Action& a : plan_.actions) operand_count += a.address_count;
  operands_.reserve(operand_count);
  commands_.reserve(plan_.actions.size());
  const auto hand_out = [&](Location place, int64_t bytes) {
    ledger_[place.tier] = std::max(ledger_[place.tier], place.offset + bytes);
  };
  for (size_t o = 0; o < plan_.homes.size(); ++o) {
    for (const Location& place : plan_.homes[o].places()) hand_out(place, program_.objects()[o].bytes);
  }
  for (uint32_t id = 0; id < plan_.actions.size(); ++id) {
    const Action& a = plan_.actions[id];
    Command command{id, a.lane, plan_.waits_of(a), {}, a.cost_ns};
    if (a.kind == ActionKind::Run) {
      const Task& task = program_.task(a.task);
      const Tier device = plan_.device_of(a);
      std::byte* const arena = arenas_[device];
      const auto addresses = plan_.addresses_of(a);
      const size_t first = operands_.size();
      for (size_t i = 0; i < task.uses.size(); ++i) {
        const Use& use = task.uses[i];
        operands_.push_back(place(arena, addresses[i] + use.offset, use.bytes));
        hand_out({device, addresses[i]}, program_.object(use.object).bytes);
      }
      if (a.bytes > 0) hand_out({device, a.workspace_offset}, a.bytes);
      command.work = Launch{&*task.op, std::span(operands_).subspan(first, task.uses.size()),
                            a.bytes > 0 ? place(arena, a.workspace_offset, a.bytes) : Buffer{}, task.name};
    } else {
      const int64_t bytes = program_.object(a.object).bytes;
      hand_out(a.from, bytes);
      hand_out(a.to, bytes);
      command.work = Copy{a.from, a.to, bytes};
      if (a.chooses()) {
        add_choice(id, a);
      } else if (a.loads()) {
        whole_loads_bytes_ += bytes;
      }
    }
    command.awaited = false;
    for (const uint32_t wait : command.waits) commands_[wait].awaited = true;
    commands_.push_back(command);
  }
}

void Executor::add_choice(uint32_t command, const Action& a) {
  const Task& task = program_.task(a.task);
  const auto parts = chosen_parts(task.op);
  SLUICE_CHECK(parts, "{} chooses nothing", task.name);
  const Location chooser{a.to.tier, plan_.addresses_of(a).front()};
  choices_.push_back({.command = command,
                      .told_by = writer_of(task.uses[parts->chooser].object, chooser, command),
                      .chooser = chooser,
                      .chosen = *parts,
                      .part_bytes = program_.object(a.object).bytes / parts->count,
                      .first_part = parts_.size()});
  parts_.resize(parts_.size() + size_t(parts->count));
  told_.resize(std::max(told_.size(), size_t(parts->told_bytes)));
}

uint32_t Executor::writer_of(ObjectId object, Location place, uint32_t before) const {
  for (uint32_t id = before; id-- > 0;) {
    const Action& a = plan_.actions[id];
    if (a.kind == ActionKind::Copy) {
      if (a.object == object && a.to == place) return id;
      continue;
    }
    const std::vector<Use>& uses = program_.task(a.task).uses;
    for (size_t i = 0; i < uses.size(); ++i) {
      const Location used{plan_.device_of(a), plan_.addresses_of(a)[i]};
      if (uses[i].object == object && uses[i].access != Access::Read && used == place) return id;
    }
  }
  SLUICE_CHECK(false, "nothing brings {} to its place", program_.object(object).name);
  return 0;
}

// Several loads may choose by one chooser, which is read once.
Status Executor::choose(const Choice& c) {
  if (read_ != c.told_by) {
    SLUICE_TRY(backend_.wait(c.told_by));
    SLUICE_TRY(backend_.download(told_.data(), c.chooser, c.chosen.told_bytes));
    read_ = c.told_by;
  }
  const std::span<CopyPart> room = std::span(parts_).subspan(c.first_part, size_t(c.chosen.count));
  size_t count = 0;
  for (int64_t i = 0; i < c.chosen.count; ++i) {
    if (!c.chosen.reads(told_, i)) continue;
    const int64_t begin = i * c.part_bytes;
    chosen_bytes_ += c.part_bytes;
    if (count > 0 && room[count - 1].begin + room[count - 1].bytes == begin) {
      room[count - 1].bytes += c.part_bytes;
    } else {
      room[count++] = {begin, c.part_bytes};
    }
  }
  auto& copy = std::get<Copy>(commands_[c.command].work);
  copy.in_parts = true;
  copy.parts = room.first(count);
  return {};
}

void Executor::set_ops(std::vector<SharedOp> ops) {
  SLUICE_CHECK(ops.empty() || ops.size() == program_.tasks().size(), "{} ops for {} tasks", ops.size(),
               program_.tasks().size());
  if (ops.empty() && ops_.empty()) return;
  ops_ = std::move(ops);
  recording_.reset();
  for (size_t i = 0; i < commands_.size(); ++i) {
    const Action& a = plan_.actions[i];
    if (a.kind != ActionKind::Run) continue;
    std::get<Launch>(commands_[i].work).op = ops_.empty() ? &*program_.task(a.task).op : &*ops_[a.task.value];
  }
}

void Executor::annotate() {
  paths_.clear();
  for (const Action& a : plan_.actions) {
    std::string path;
    if (a.kind == ActionKind::Run) {
      const Task& task = program_.task(a.task);
      for (const auto& [name, number] :
           {std::pair{"round", task.round}, {"layer", task.layer}, {"chunk", task.chunk}}) {
        if (number >= 0) path += fmt::format("{} {}/", name, number);
      }
    }
    paths_.push_back(path + describe(program_, a));
  }
  for (size_t i = 0; i < commands_.size(); ++i) commands_[i].path = paths_[i];
}

std::string Executor::where(const Action& a) const {
  const std::string task = describe(program_, a);
  if (plan_.devices() == 1) return task;
  const LaneEnds& ends = plan_.lanes[a.lane];
  if (a.hands_over())
    return fmt::format("{} to {}, {}", name_of(backend_, ends.from), name_of(backend_, ends.to), task);
  return fmt::format("{}, {}", name_of(backend_, ends.to.is_device() ? ends.to : ends.from), task);
}

Executor::Complete Executor::complete(ObjectId object) const {
  for (uint32_t id = uint32_t(plan_.actions.size()); id-- > 0;) {
    const Action& a = plan_.actions[id];
    if (a.kind != ActionKind::Run) continue;
    const std::vector<Use>& uses = program_.task(a.task).uses;
    for (size_t i = 0; i < uses.size(); ++i) {
      if (uses[i].object == object && uses[i].access != Access::Read)
        return {id, {plan_.device_of(a), plan_.addresses_of(a)[i]}};
    }
  }
  SLUICE_CHECK(false, "nothing writes {}", program_.object(object).name);
  return {};
}

Status Executor::make(const Amendment& amendment, Location place) {
  std::vector<std::byte> bytes(size_t(program_.object(amendment.object).bytes));
  SLUICE_TRY(backend_.download(bytes.data(), place, int64_t(bytes.size())));
  SLUICE_TRY(amendment.with(bytes));
  return backend_.upload(place, bytes.data(), int64_t(bytes.size()));
}

Status Executor::step(std::vector<Interval>* timeline, std::span<const Amendment> amendments) {
  std::vector<std::pair<Complete, const Amendment*>> due;
  for (const Amendment& amendment : amendments) due.emplace_back(complete(amendment.object), &amendment);
  std::ranges::sort(due, {}, [](const auto& d) { return d.first.action; });
  auto next = due.begin();
  auto choice = choices_.begin();
  read_.reset();
  chosen_bytes_ = 0;
  SLUICE_TRY(backend_.begin(static_cast<uint32_t>(commands_.size()), timeline != nullptr));
  Status submitted;
  std::span<const Command> one_by_one = commands_;
  if (timeline == nullptr && amendments.empty() && choices_.empty()) {
    const Result<bool> queued = backend_.submit_at_once(commands_, recording_);
    if (!queued.ok()) submitted = queued.error();
    if (!queued.ok() || *queued) one_by_one = {};
  }
  const Command* last = nullptr;
  for (const Command& command : one_by_one) {
    last = &command;
    submitted = {};
    for (; submitted.ok() && choice != choices_.end() && choice->command == command.id; ++choice)
      submitted = choose(*choice);
    if (submitted.ok()) submitted = backend_.submit(command);
    for (; submitted.ok() && next != due.end() && next->first.action == command.id; ++next) {
      submitted = backend_.wait(command.id);
      if (submitted.ok()) submitted = make(*next->second, next->first.place);
    }
    if (!submitted.ok()) break;
  }
  const std::optional<Fault> fault = backend_.finish(timeline);
  if (fault && fault->command) {
    return error_at(where(plan_.actions[*fault->command]), fault->error);
  }
  if (!submitted.ok()) {
    return last != nullptr ? error_at(where(plan_.actions[last->id]), submitted.error()) : submitted.error();
  }
  if (fault) return fault->error;
  return {};
}

const Home& Executor::home_of(ObjectId object, int64_t offset, size_t bytes) const {
  const Home& home = plan_.homes[object.value];
  const Object& o = program_.object(object);
  SLUICE_CHECK(home.anywhere(), "{} has no home", o.name);
  SLUICE_CHECK(offset + static_cast<int64_t>(bytes) <= o.bytes, "{}: {} + {} bytes", o.name, offset, bytes);
  return home;
}

Status Executor::write(ObjectId object, std::span<const std::byte> data, int64_t offset) {
  const Home& home = home_of(object, offset, data.size());
  for (const auto& [tier, begin] : home.places()) {
    if (tier == kDisk) continue;
    SLUICE_TRY(backend_.upload({tier, begin + offset}, data.data(), int64_t(data.size())));
  }
  return {};
}

Status Executor::clear(ObjectId object) {
  const Home& home = home_of(object, 0, 0);
  for (const Location& place : home.places())
    SLUICE_TRY(backend_.clear(place, program_.object(object).bytes));
  return {};
}

Status Executor::read(ObjectId object, std::span<std::byte> data, int64_t offset) const {
  const Home& home = home_of(object, offset, data.size());
  // From the host where it can be, which is the least work.
  const Tier tier = home.on(kHost) ? kHost : home.places().front().tier;
  return backend_.download(data.data(), {tier, home.offset(tier) + offset}, int64_t(data.size()));
}

double simulated_ns(const Plan& plan, std::span<const double> costs_ns, const SimOptions& options) {
  SimBackend sim(options, plan.lanes);
  std::vector<Interval> timeline;
  SLUICE_CHECK(sim.begin(uint32_t(plan.actions.size()), true).ok(), "the simulator failed");
  for (uint32_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    SLUICE_CHECK(sim.submit({id, a.lane, plan.waits_of(a), {}, costs_ns[id]}).ok(), "the simulator failed");
  }
  SLUICE_CHECK(!sim.finish(&timeline), "the simulator failed");
  double end_ns = 0;
  for (const Interval& t : timeline) end_ns = std::max(end_ns, t.end_ns);
  return end_ns;
}

void predict(const Program& program, Plan& plan, const SimOptions& options) {
  SimBackend sim(options, plan.lanes);
  Executor executor(program, plan, sim, {});
  std::vector<Interval> timeline;
  const Status status = executor.step(&timeline);
  SLUICE_CHECK(status.ok(), "the simulator failed: {}", status.message());
  plan.makespan_ns = 0;
  for (size_t i = 0; i < timeline.size(); ++i) {
    plan.actions[i].start_ns = timeline[i].start_ns;
    plan.actions[i].end_ns = timeline[i].end_ns;
    plan.makespan_ns = std::max(plan.makespan_ns, timeline[i].end_ns);
  }
}

}  // namespace sluice::core
