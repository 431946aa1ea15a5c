#include "exec/executor.h"

#include <algorithm>

namespace sluice {
namespace {

// Address `offset` of an arena; backends that move no data have no base.
Buffer place(std::byte* base, int64_t offset, int64_t bytes) {
  return {base == nullptr ? nullptr : base + offset, bytes};
}

}  // namespace

Executor::Executor(const Program& program, const Plan& plan, Backend& backend, Arenas arenas)
    : program_(program), plan_(plan), backend_(backend), arenas_(arenas) {
  SLUICE_CHECK(plan.program_hash == program.hash(), "plan is for program {:x}", plan.program_hash);
  resolve();
}

// Turns the plan's offsets into commands once; every step submits the same commands.
void Executor::resolve() {
  size_t operand_count = 0;
  for (const Action& a : plan_.actions) operand_count += a.address_count;
  operands_.reserve(operand_count);
  commands_.reserve(plan_.actions.size());
  for (const Home& home : plan_.homes) {
    const auto& object = program_.objects()[static_cast<size_t>(&home - plan_.homes.data())];
    if (home.device_offset != kNowhere) {
      ledger_.device_peak_bytes = std::max(ledger_.device_peak_bytes, home.device_offset + object.bytes);
    }
    if (home.host_offset != kNowhere) {
      ledger_.host_peak_bytes = std::max(ledger_.host_peak_bytes, home.host_offset + object.bytes);
    }
  }
  for (uint32_t id = 0; id < plan_.actions.size(); ++id) {
    const Action& a = plan_.actions[id];
    Command command{id, a.lane, plan_.waits_of(a), {}, a.cost_ns};
    if (a.bytes > 0)
      ledger_.device_peak_bytes = std::max(ledger_.device_peak_bytes, a.device_offset + a.bytes);
    if (a.kind == ActionKind::Run) {
      const Task& task = program_.task(a.task);
      const auto addresses = plan_.addresses_of(a);
      const size_t first = operands_.size();
      for (size_t i = 0; i < task.uses.size(); ++i) {
        const Use& use = task.uses[i];
        operands_.push_back(place(arenas_.device, addresses[i] + use.offset, use.bytes));
        ledger_.device_peak_bytes =
            std::max(ledger_.device_peak_bytes, addresses[i] + program_.object(use.object).bytes);
      }
      command.work = Launch{&task.op, std::span(operands_).subspan(first, task.uses.size()),
                            a.bytes > 0 ? place(arenas_.device, a.device_offset, a.bytes) : Buffer{}};
    } else {
      const Buffer device = place(arenas_.device, a.device_offset, a.bytes);
      const Buffer host = place(arenas_.host, a.host_offset, a.bytes);
      ledger_.host_peak_bytes = std::max(ledger_.host_peak_bytes, a.host_offset + a.bytes);
      command.work = a.kind == ActionKind::Load ? Copy{device.data, host.data, a.bytes}
                                                : Copy{host.data, device.data, a.bytes};
    }
    command.awaited = false;
    for (const uint32_t wait : command.waits) commands_[wait].awaited = true;
    commands_.push_back(command);
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
    paths_.push_back(path + label(program_, a));
  }
  for (size_t i = 0; i < commands_.size(); ++i) commands_[i].path = paths_[i];
}

Status Executor::step(std::vector<Interval>* timeline) {
  SLUICE_TRY(backend_.begin(static_cast<uint32_t>(commands_.size()), timeline != nullptr));
  Status submitted;
  const Command* last = nullptr;
  for (const Command& command : commands_) {
    last = &command;
    submitted = backend_.submit(command);
    if (!submitted.ok()) break;
  }
  const std::optional<Fault> fault = backend_.finish(timeline);
  if (fault && fault->command) {
    return error_at(label(program_, plan_.actions[*fault->command]), fault->error);
  }
  if (!submitted.ok()) {
    return error_at(label(program_, plan_.actions[last->id]), submitted.error());
  }
  if (fault) return fault->error;
  return {};
}

Status Executor::write(ObjectId object, std::span<const std::byte> data, int64_t offset) {
  const Home& home = plan_.homes[object.value];
  const auto bytes = static_cast<int64_t>(data.size());
  SLUICE_CHECK(home.device_offset != kNowhere || home.host_offset != kNowhere, "{} has no home",
               program_.object(object).name);
  SLUICE_CHECK(offset + bytes <= program_.object(object).bytes, "{}: {} + {} bytes",
               program_.object(object).name, offset, bytes);
  if (home.device_offset != kNowhere) {
    SLUICE_TRY(backend_.upload(arenas_.device + home.device_offset + offset, data.data(), bytes));
  }
  if (home.host_offset != kNowhere) {
    SLUICE_TRY(backend_.upload(arenas_.host + home.host_offset + offset, data.data(), bytes));
  }
  return {};
}

Status Executor::clear(ObjectId object) {
  const Home& home = plan_.homes[object.value];
  const int64_t bytes = program_.object(object).bytes;
  SLUICE_CHECK(home.device_offset != kNowhere || home.host_offset != kNowhere, "{} has no home",
               program_.object(object).name);
  if (home.device_offset != kNowhere) SLUICE_TRY(backend_.clear(arenas_.device + home.device_offset, bytes));
  if (home.host_offset != kNowhere) SLUICE_TRY(backend_.clear(arenas_.host + home.host_offset, bytes));
  return {};
}

Status Executor::read(ObjectId object, std::span<std::byte> data, int64_t offset) const {
  const Home& home = plan_.homes[object.value];
  const auto bytes = static_cast<int64_t>(data.size());
  SLUICE_CHECK(home.device_offset != kNowhere || home.host_offset != kNowhere, "{} has no home",
               program_.object(object).name);
  SLUICE_CHECK(offset + bytes <= program_.object(object).bytes, "{}: {} + {} bytes",
               program_.object(object).name, offset, bytes);
  const bool on_host = home.host_offset != kNowhere;
  const std::byte* from = on_host ? arenas_.host + home.host_offset : arenas_.device + home.device_offset;
  return backend_.download(data.data(), from + offset, bytes);
}

void predict(const Program& program, Plan& plan, const SimOptions& options) {
  SimBackend sim(options);
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

}  // namespace sluice
