// SPDX-License-Identifier: Apache-2.0
#include "program/narrow.h"

#include <algorithm>
#include <optional>

#include "ops/op.h"

namespace sluice::core {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};

// Who uses an object.
struct Users {
  uint32_t writers = 0, readers = 0, reader = kNone;  // the newest
};

bool is_same(const Quantize& a, const Quantize& b) {
  return a.rows == b.rows && a.cols == b.cols && a.dtype == b.dtype && a.format == b.format &&
         a.by_row == b.by_row && a.by_column == b.by_column;
}

class Joining {
 public:
  explicit Joining(const Program& program) : program_(program), users_(program.objects().size()) {
    for (uint32_t t = 0; t < program.tasks().size(); ++t) {
      for (const Use& use : program.tasks()[t].uses) {
        Users& users = users_[use.object.value];
        users.writers += use.access != Access::Read ? 1 : 0;
        if (use.access == Access::Write) continue;
        ++users.readers;
        users.reader = t;
      }
    }
  }

  Program run() {
    std::vector<bool> gone(program_.tasks().size()), lost(program_.objects().size());
    std::vector<std::optional<Task>> joined(program_.tasks().size());
    for (size_t t = 0; t < program_.tasks().size(); ++t) {
      const Task& task = program_.tasks()[t];
      std::visit(
          [&](const auto& op) {
            if constexpr (requires { op.narrow_results(); }) joined[t] = join(op, task);
          },
          *task.op);
      if (!joined[t]) continue;
      for (const Use& use : task.uses) {
        if (use.access == Access::Read) continue;
        lost[use.object.value] = true;
        gone[users_[use.object.value].reader] = true;
      }
    }
    Program out;
    out.facts = program_.facts;
    std::vector<ObjectId> now;
    for (size_t o = 0; o < program_.objects().size(); ++o)
      now.push_back(lost[o] ? ObjectId() : out.add(program_.objects()[o]));
    for (size_t t = 0; t < program_.tasks().size(); ++t) {
      if (gone[t]) continue;
      Task task = joined[t] ? std::move(*joined[t]) : program_.tasks()[t];
      for (Use& use : task.uses) use.object = now[use.object.value];
      out.add(std::move(task));
    }
    return out;
  }

 private:
  // The task whose op is narrow; nothing: it cannot be.
  template <class O>
  std::optional<Task> join(const O& op, const Task& task) const {
    const NarrowResults results = op.narrow_results();
    if (op.narrow || results.empty()) return std::nullopt;
    O narrow = op;
    narrow.narrow = true;
    std::vector<Bound> bound(task.uses.begin(), task.uses.end());
    bound.resize(narrow.operands().size(), ObjectId());
    for (const NarrowResult& result : results) {
      const Use& use = task.uses[size_t(result.wide)];
      const Object& object = program_.object(use.object);
      const Users& users = users_[use.object.value];
      const bool passing = object.kind == ObjectKind::Activation || object.kind == ObjectKind::ActGrad;
      if (!passing || object.persistent || users.writers != 1 || users.readers != 1) return std::nullopt;
      const Task& reader = program_.tasks()[users.reader];
      const auto* copies = std::get_if<Quantize>(&*reader.op);
      if (copies == nullptr || !is_same(*copies, result.op)) return std::nullopt;
      if (copies->by_row) bound[size_t(result.by_row)] = reader.uses[Quantize::kY];
      if (copies->by_column) bound[size_t(result.turned)] = reader.uses[copies->turned_operand()];
    }
    return make_task(task.name, narrow, bound, task.phase, task.layer, task.round, task.chunk);
  }

  const Program& program_;
  std::vector<Users> users_;  // by object
};

}  // namespace

Program join_copies(Program program) {
  const bool copies = std::ranges::any_of(
      program.tasks(), [](const Task& task) { return std::holds_alternative<Quantize>(*task.op); });
  return copies ? Joining(program).run() : program;
}

}  // namespace sluice::core
