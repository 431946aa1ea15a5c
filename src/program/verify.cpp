// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <unordered_set>

#include "program/program.h"

namespace sluice::core {
namespace {

Status verify_use(const Program& program, const Task& task, size_t i, const Operand& operand) {
  const Use& use = task.uses[i];
  if (use.object.value >= program.objects().size()) {
    return error("task {}: operand {} is bound to object {}, there are {}", task.name, operand.name,
                 use.object.value, program.objects().size());
  }
  const Object& object = program.object(use.object);
  if (use.access != operand.access || use.bytes != operand.bytes()) {
    return error("task {}: operand {} differs from the schema of {}", task.name, operand.name,
                 name_of(task.op));
  }
  // Columns of a batch lie in one object, of whatever types they are.
  const bool columns = object.kind == ObjectKind::Input && object.format == DType::U8;
  if (object.format != operand.format && !columns) {
    return error("task {}: operand {} is in {}, and {} in {}", task.name, operand.name,
                 to_text(operand.format), object.name, to_text(object.format));
  }
  if (use.offset < 0 || use.offset + use.bytes > object.bytes) {
    return error("task {}: operand {} covers bytes {} to {} of {}, which has {}", task.name, operand.name,
                 use.offset, use.offset + use.bytes, object.name, object.bytes);
  }
  const bool writes = use.access != Access::Read;
  if (writes && (object.kind == ObjectKind::Input || object.kind == ObjectKind::Constant)) {
    return error("task {} writes {}, which is {}", task.name, object.name, name_of(object.kind));
  }
  if (use.access == Access::Write && use.bytes != object.bytes) {
    return error("task {} overwrites {} of the {} bytes of {}; a write covers its object", task.name,
                 use.bytes, object.bytes, object.name);
  }
  for (size_t j = 0; j < task.uses.size(); ++j) {
    const Use& other = task.uses[j];
    if (j == i || !writes || other.object != use.object) continue;
    if (use.offset < other.offset + other.bytes && other.offset < use.offset + use.bytes) {
      return error("task {} writes {} and uses the same bytes as another operand", task.name, object.name);
    }
  }
  return {};
}

// Activations are whole before they are read: a reader that runs again finds one that was kept as its last
// writer left it.
Status verify_whole(const Program& program) {
  std::vector<const Task*> read(program.objects().size(), nullptr);
  for (const Task& task : program.tasks()) {
    if (task.phase != Phase::Forward) continue;
    for (const Use& use : task.uses) {
      const Object& o = program.object(use.object);
      if (o.kind != ObjectKind::Activation) continue;
      const Task*& reader = read[use.object.value];
      if (use.access == Access::Read) {
        reader = &task;
      } else if (reader != nullptr) {
        return error("task {} writes {}, which {} has read", task.name, o.name, reader->name);
      }
    }
  }
  return {};
}

}  // namespace

Status verify(const Program& program) {
  std::unordered_set<std::string_view> names;
  for (const Object& o : program.objects()) {
    if (!names.insert(o.name).second) return error("two objects are named {}", o.name);
  }
  names.clear();
  std::vector<bool> written(program.objects().size(), false);
  for (const Task& task : program.tasks()) {
    if (!names.insert(task.name).second) return error("two tasks are named {}", task.name);
    const Operands schema = operands(task.op);
    if (schema.size() != task.uses.size()) {
      return error("task {} binds {} operands, {} has {}", task.name, task.uses.size(), name_of(task.op),
                   schema.size());
    }
    for (size_t i = 0; i < schema.size(); ++i) SLUICE_TRY(verify_use(program, task, i, schema[i]));
    for (const Use& use : task.uses) {
      const Object& o = program.object(use.object);
      const bool given = o.persistent || o.kind == ObjectKind::Input || o.kind == ObjectKind::Constant;
      if (!given && !written[use.object.value] && use.access != Access::Write) {
        return error("task {} uses {} before anything wrote it", task.name, o.name);
      }
    }
    for (const Use& use : task.uses) {
      if (use.access != Access::Read) written[use.object.value] = true;
    }
  }
  for (size_t i = 0; i < program.objects().size(); ++i) {
    const Object& o = program.objects()[i];
    // One that survives the step may come from the step before.
    if (o.kind == ObjectKind::Metric && !o.persistent && !written[i])
      return error("metric {} is never written", o.name);
  }
  return verify_whole(program);
}

}  // namespace sluice::core
