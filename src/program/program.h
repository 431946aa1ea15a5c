// SPDX-License-Identifier: Apache-2.0
// A Program is one step as data: an ordered list of tasks over objects. It says what is computed and in which
// order sums are formed; it holds no memory decision. Two programs with equal hash() compute the same thing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "ops/ops.h"

namespace sluice::core {

enum class ObjectKind : uint8_t {
  Param,
  Grad,
  OptState,    // moments and master weights
  Activation,  // written by forward tasks; may be dropped and computed again
  ActGrad,     // gradient of an activation
  Input,       // written by the trainer before every step
  Constant,    // written once
  Metric,      // read by the trainer after every step
  Cache,       // keys and values of text so far
};
constexpr int kObjectKinds = 9;
std::string_view name_of(ObjectKind kind);

// Activations of a model's residual stream, to which every half of a layer adds.
enum class Stream : uint8_t {
  No,
  Within,   // between the halves of a layer
  Between,  // between layers: recomputation starts from it, so it is always kept
};

// A named byte range. Objects of one `role` in different layers and chunks are alike.
struct Object {
  std::string name;  // unique: "x_mid.L3.r0c1"
  std::string role;  // "x_mid"
  ObjectKind kind;
  NumberFormat format;
  int64_t bytes;
  int32_t layer = -1, round = -1, chunk = -1;
  bool persistent = false;  // its content survives the step
  Stream stream = Stream::No;
  bool in_files = false;  // files have its bytes, and no task writes to it

  int64_t elements() const { return format.elements(bytes); }
};

// A task's use of an object: the bytes [offset, offset + bytes) of it.
struct Use {
  ObjectId object;
  Access access;
  int64_t offset, bytes;
};

// An object bound to an operand, which begins `offset` bytes into it.
struct Bound {
  ObjectId object;
  int64_t offset = 0;

  Bound(ObjectId id, int64_t from = 0) : object(id), offset(from) {}  // NOLINT(google-explicit-constructor)
  Bound(const Use& use) : object(use.object), offset(use.offset) {}   // NOLINT(google-explicit-constructor)
};

enum class Phase : uint8_t { Forward, Backward, Update };
std::string_view name_of(Phase phase);

struct Task {
  std::string name;  // unique: "gate_up.L3.r0c1"
  SharedOp op;
  std::vector<Use> uses;  // in the order of the op's operands
  Phase phase;
  int32_t layer = -1, round = -1, chunk = -1;
};

// Facts of one step, for reports.
struct StepFacts {
  int64_t tokens = 0;      // trained tokens per step, of all processes that share it
  double model_flops = 0;  // per step of this process, by the formula of model/flops.h
};

// A task whose operands are bound in order. Sizes and access follow from the op's schema.
Task make_task(std::string name, SharedOp op, std::span<const Bound> bound, Phase phase, int layer, int round,
               int chunk);

class Program {
 public:
  ObjectId add(Object object);
  // Appends a task of this program's objects.
  TaskId add(Task task);
  // The same of what make_task() makes.
  TaskId add(std::string name, SharedOp op, std::span<const Bound> bound, Phase phase, int layer, int round,
             int chunk) {
    return add(make_task(std::move(name), std::move(op), bound, phase, layer, round, chunk));
  }
  TaskId add(std::string name, SharedOp op, std::span<const ObjectId> whole, Phase phase, int layer,
             int round, int chunk) {
    return add(std::move(name), std::move(op), std::vector<Bound>(whole.begin(), whole.end()), phase, layer,
               round, chunk);
  }

  const std::vector<Object>& objects() const { return objects_; }
  const std::vector<Task>& tasks() const { return tasks_; }
  const Object& object(ObjectId id) const { return objects_[id.value]; }
  const Task& task(TaskId id) const { return tasks_[id.value]; }

  StepFacts facts;

  // Content hash over objects and tasks. Kept up to date as they are added, so asking costs nothing.
  uint64_t hash() const { return Hash().add(objects_hash_.value()).add(tasks_hash_.value()).value(); }

 private:
  std::vector<Object> objects_;
  std::vector<Task> tasks_;
  Hash objects_hash_, tasks_hash_;
};

// Checks a Program's own rules: uses lie inside their objects and agree with the op's schema. A task never
// binds overlapping bytes to two operands when it writes one of them. The first use of an object that does
// not survive steps is a whole write. Inputs and constants are never written. Every metric that does not
// survive steps is written. The forward pass reads no activation that it writes to afterwards.
Status verify(const Program& program);

// How contents evolve. Every write or accumulate turns version v of an object into v + 1; versions start at
// 0.
struct Versions {
  // before[t][i]: the version task t's use i needs (for a Write: the version it replaces).
  std::vector<std::vector<uint32_t>> before;
  // last[o]: the version of object o after the step.
  std::vector<uint32_t> last;
};
Versions versions_of(const Program& program);

// Total bytes per kind, and of everything.
struct Footprint {
  int64_t by_kind[kObjectKinds] = {};
  int64_t total = 0;
};
Footprint footprint(const Program& program);
// Bytes of what outlives the step.
int64_t persistent_bytes(const Program& program);

}  // namespace sluice::core
