#include "program/program.h"

#include <fmt/format.h>

#include "base/hash.h"

namespace sluice {

std::string_view name_of(ObjectKind kind) {
  constexpr std::string_view kNames[kObjectKinds] = {"param", "grad", "opt_state", "activation",
                                                     "act_grad", "input", "constant", "metric"};
  return kNames[static_cast<int>(kind)];
}

std::string_view name_of(Phase phase) {
  constexpr std::string_view kNames[] = {"forward", "backward", "update"};
  return kNames[static_cast<int>(phase)];
}

ObjectId Program::add(Object object) {
  SLUICE_CHECK(object.bytes > 0, "object {} has {} bytes", object.name, object.bytes);
  objects_.push_back(std::move(object));
  return ObjectId(objects_.size() - 1);
}

TaskId Program::add(std::string name, Op op, std::span<const ObjectId> bound, Phase phase, int layer, int round,
                    int chunk) {
  const std::vector<int64_t> offsets(bound.size(), 0);
  return add(std::move(name), std::move(op), bound, offsets, phase, layer, round, chunk);
}

TaskId Program::add(std::string name, Op op, std::span<const ObjectId> bound, std::span<const int64_t> offsets_bytes,
                    Phase phase, int layer, int round, int chunk) {
  const Operands schema = operands(op);
  SLUICE_CHECK(schema.size() == bound.size(), "task {}: op {} has {} operands, {} are bound", name, name_of(op),
               schema.size(), bound.size());
  Task task{std::move(name), std::move(op), {}, phase, layer, round, chunk};
  task.uses.reserve(schema.size());
  for (size_t i = 0; i < schema.size(); ++i) {
    task.uses.push_back({bound[i], schema[i].access, offsets_bytes[i], schema[i].bytes()});
  }
  tasks_.push_back(std::move(task));
  return TaskId(tasks_.size() - 1);
}

uint64_t Program::hash() const {
  Hash h;
  for (const Object& o : objects_) h.add(o.name).add(o.kind).add(o.dtype).add(o.bytes).add(o.persistent);
  for (const Task& t : tasks_) {
    h.add(t.name).add(text(t.op)).add(t.phase);
    for (const Use& u : t.uses) h.add(u.object.value).add(u.offset);
  }
  return h.value();
}

Versions versions_of(const Program& program) {
  Versions v;
  v.last.assign(program.objects().size(), 0);
  v.before.reserve(program.tasks().size());
  for (const Task& task : program.tasks()) {
    std::vector<uint32_t>& before = v.before.emplace_back();
    for (const Use& use : task.uses) before.push_back(v.last[use.object.value]);
    for (const Use& use : task.uses) v.last[use.object.value] += use.access != Access::Read;
  }
  return v;
}

Footprint footprint(const Program& program) {
  Footprint f;
  for (const Object& o : program.objects()) {
    f.by_kind[static_cast<int>(o.kind)] += o.bytes;
    f.total += o.bytes;
  }
  return f;
}

}  // namespace sluice
