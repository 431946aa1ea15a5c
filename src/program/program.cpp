// SPDX-License-Identifier: Apache-2.0
#include "program/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ops/op.h"

namespace sluice::core {
namespace {

struct Attribute {
  std::string_view name;
  uint64_t value;

  bool operator==(const Attribute&) const = default;
};

// Calls each(attribute) for every attribute of an op, in their order.
template <class O, class Each>
void for_each_attribute(const O& op, Each&& each) {
  op.fields([&](std::string_view name, auto value, auto...) {
    if constexpr (std::is_same_v<decltype(value), float>) {
      each(Attribute{name, std::bit_cast<uint32_t>(value)});
    } else if constexpr (std::is_same_v<decltype(value), double>) {
      each(Attribute{name, std::bit_cast<uint64_t>(value)});
    } else if constexpr (std::is_same_v<decltype(value), NumberFormat>) {
      each(Attribute{name, key_of(value)});
    } else {
      each(Attribute{name, static_cast<uint64_t>(value)});
    }
  });
}

template <class O>
std::vector<Attribute> attributes_of(const O& op) {
  std::vector<Attribute> out;
  for_each_attribute(op, [&](const Attribute& attribute) { out.push_back(attribute); });
  return out;
}

// Adds an op's name and those of its attributes that differ from their defaults, each by name. Programs keep
// their hashes when an op they use gets an attribute, or when the list of ops grows.
template <class O>
void add_op(const O& op, Hash& hash) {
  static const std::vector<Attribute> defaults = attributes_of(O{});
  hash.add(O::kName);
  for_each_attribute(op, [&](const Attribute& attribute) {
    // By name: some ops have attributes that are not there at their defaults.
    if (std::ranges::find(defaults, attribute) == defaults.end())
      hash.add(attribute.name).add(attribute.value);
  });
}

}  // namespace

std::string_view name_of(ObjectKind kind) {
  constexpr std::string_view kNames[kObjectKinds] = {
      "param", "grad", "opt_state", "activation", "act_grad", "input", "constant", "metric", "cache"};
  return kNames[static_cast<int>(kind)];
}

std::string_view name_of(Phase phase) {
  constexpr std::string_view kNames[] = {"forward", "backward", "update"};
  return kNames[static_cast<int>(phase)];
}

ObjectId Program::add(Object object) {
  SLUICE_CHECK(object.bytes > 0, "object {} has {} bytes", object.name, object.bytes);
  objects_hash_.add(object.name)
      .add(object.kind)
      .add(object.format.type)
      .add(object.bytes)
      .add(object.persistent);
  if (object.in_files) objects_hash_.add(object.in_files);
  if (object.format.block > 0) objects_hash_.add(object.format.block).add(object.format.scale);
  objects_.push_back(std::move(object));
  return ObjectId(objects_.size() - 1);
}

Task make_task(std::string name, SharedOp op, std::span<const Bound> bound, Phase phase, int layer, int round,
               int chunk) {
  const Operands schema = operands(op);
  SLUICE_CHECK(schema.size() == bound.size(), "task {}: op {} has {} operands, {} are bound", name,
               name_of(op), schema.size(), bound.size());
  Task task{std::move(name), std::move(op), {}, phase, layer, round, chunk};
  task.uses.reserve(schema.size());
  for (size_t i = 0; i < schema.size(); ++i) {
    task.uses.push_back({bound[i].object, schema[i].access, bound[i].offset, schema[i].bytes()});
  }
  return task;
}

TaskId Program::add(Task task) {
  tasks_hash_.add(task.name).add(task.phase);
  std::visit([&](const auto& o) { add_op(o, tasks_hash_); }, *task.op);
  for (const Use& u : task.uses) tasks_hash_.add(u.object.value).add(u.offset);
  tasks_.push_back(std::move(task));
  return TaskId(tasks_.size() - 1);
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

int64_t persistent_bytes(const Program& program) {
  int64_t bytes = 0;
  for (const Object& o : program.objects()) bytes += o.persistent ? o.bytes : 0;
  return bytes;
}

}  // namespace sluice::core
