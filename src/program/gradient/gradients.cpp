// SPDX-License-Identifier: Apache-2.0
#include "program/gradient/gradients.h"

#include <algorithm>

#include "program/gradient/rules.h"

namespace sluice::core {

std::string gradient_role(std::string_view role) {
  const bool stream = role == "x" || role == "h" || role.starts_with("x_");
  return std::string(stream ? "d" : "d_").append(role);
}

Gradients::State& Gradients::state(ObjectId id) {
  if (id.value >= states_.size()) states_.resize(std::max<size_t>(id.value + 1, program_.objects().size()));
  return states_[id.value];
}

void Gradients::want(ObjectId param, ObjectId grad) {
  State& s = state(param);
  s.gradient = grad;
  s.wanted = true;
  s.written = false;
}

bool Gradients::wanted(ObjectId x) const {
  return x.value < states_.size() && states_[x.value].wanted;
}

bool Gradients::has(ObjectId y) const {
  return y.value < states_.size() && (states_[y.value].written || states_[y.value].addend.valid());
}

uint32_t Gradients::readers(ObjectId x) const {
  return x.value < states_.size() ? states_[x.value].readers : 0;
}

// What a task makes leads to a wanted gradient when something does that it reads.
void Gradients::note(const Task& task) {
  bool wanted = false;
  for (const Use& use : task.uses) {
    State& s = state(use.object);
    if (use.access == Access::Write) continue;
    if (use.access == Access::Read) ++s.readers;
    wanted |= s.wanted;
  }
  for (const Use& use : task.uses) {
    if (use.access != Access::Read) state(use.object).wanted |= wanted;
  }
  if (const auto operand = remade_operand(task.op)) state(task.uses[*operand].object).remade = true;
}

void Gradients::record(uint32_t count) {
  std::vector<TaskId> tasks;
  for (uint32_t left = count; left > 0; --left) tasks.emplace_back(uint32_t(program_.tasks().size()) - left);
  record(tasks);
}

void Gradients::record(std::span<const TaskId> tasks) {
  Node node;
  for (const TaskId id : tasks) node.tasks.push_back(program_.task(id));
  for (const Task& task : node.tasks) note(task);
  nodes_.push_back(std::move(node));
}

void Gradients::record_fused(Task task) {
  note(task);
  Node node;
  node.tasks.push_back(std::move(task));
  node.fused = true;
  nodes_.push_back(std::move(node));
}

void Gradients::record_later(std::function<void()> make) {
  Node node;
  node.later = std::move(make);
  nodes_.push_back(std::move(node));
}

void Gradients::record_input(ObjectId input) {
  Node node;
  node.input = input;
  nodes_.push_back(std::move(node));
}

void Gradients::backward() {
  while (!nodes_.empty()) {
    const Node node = std::move(nodes_.back());
    nodes_.pop_back();
    if (node.later) {
      node.later();
    } else if (node.input.valid()) {
      if (wanted(node.input)) gradient_of(node.input, std::nullopt, {});
    } else if (node.fused || std::any_of(node.tasks.begin(), node.tasks.end(), [&](const Task& task) {
                 return std::any_of(task.uses.begin(), task.uses.end(), [&](const Use& use) {
                   return use.access != Access::Read && wanted(use.object);
                 });
               })) {
      apply_rule(node.tasks, *this);
    }
  }
}

ObjectId Gradients::of(ObjectId y) const {
  SLUICE_CHECK(has(y), "nothing contributed to the gradient of {}", program_.object(y).name);
  const State& s = states_[y.value];
  SLUICE_CHECK(!s.written || !s.addend.valid(), "a gradient of {} was never added", program_.object(y).name);
  return s.written ? s.gradient : s.addend;
}

ObjectId Gradients::like(ObjectId x, std::string_view role, ObjectKind kind, DType dtype) {
  const Object& of = program_.object(x);
  Object made = of;
  made.name = std::string(role) + of.name.substr(of.role.size());
  made.role = role;
  made.kind = kind;
  made.format = dtype;
  made.bytes = made.format.bytes(of.elements());
  made.persistent = false;
  return program_.add(std::move(made));
}

ObjectId Gradients::gradient_of(ObjectId x, std::optional<DType> dtype, std::string_view role) {
  if (const ObjectId made = state(x).gradient; made.valid()) return made;
  const Object& object = program_.object(x);
  const DType own = object.kind == ObjectKind::Param ? param_dtype_ : object.format.type;
  const ObjectId made = like(x, role.empty() ? gradient_role(object.role) : std::string(role),
                             ObjectKind::ActGrad, dtype.value_or(own));
  return state(x).gradient = made;
}

Gradients::Into Gradients::into(ObjectId x, std::optional<DType> dtype, std::string_view role) {
  const ObjectId object = gradient_of(x, dtype, role);
  State& s = state(x);
  SLUICE_CHECK(!s.addend.valid(), "the rule cannot add to the gradient of {}", program_.object(x).name);
  return {object, std::exchange(s.written, true)};
}

Gradients::IntoSum Gradients::into_sum(ObjectId x) {
  if (state(x).written) {
    // What was written so far is what is added; the sum is another object.
    const ObjectId before = state(x).gradient;
    const Object& object = program_.object(before);
    SLUICE_CHECK(object.kind == ObjectKind::ActGrad && !state(x).addend.valid(),
                 "the rule cannot accumulate into the gradient of {}", program_.object(x).name);
    const ObjectId sum = like(x, object.role + "+", ObjectKind::ActGrad, object.format.type);
    state(x).gradient = sum;
    return {sum, before};
  }
  const ObjectId object = gradient_of(x, std::nullopt, {});
  State& s = state(x);
  s.written = true;
  const ObjectId addend = std::exchange(s.addend, ObjectId());
  return {object, addend.valid() ? std::optional(addend) : std::nullopt};
}

bool Gradients::has_addend(ObjectId x) const {
  return x.value < states_.size() && states_[x.value].addend.valid();
}

void Gradients::replace(ObjectId x, ObjectId dx) {
  State& s = state(x);
  SLUICE_CHECK(s.written && !s.addend.valid(), "the gradient of {} is not whole yet",
               program_.object(x).name);
  s.gradient = dx;
}

void Gradients::add(ObjectId x, ObjectId dy) {
  State& s = state(x);
  SLUICE_CHECK(!s.written && !s.addend.valid(), "a second gradient to add to that of {}",
               program_.object(x).name);
  s.addend = dy;
}

void Gradients::with_result(ObjectId y, std::function<void(ObjectId)> use) {
  State& s = state(y);
  if (s.remade && s.wanted) {
    s.waiting.push_back(std::move(use));
  } else {
    use(y);
  }
}

void Gradients::remade(ObjectId y, ObjectId again) {
  for (const auto& use : std::exchange(state(y).waiting, {})) use(again);
}

void Gradients::task(const Task& forward, std::string_view what, SharedOp op,
                     const std::vector<Bound>& uses) {
  const size_t place = forward.name.find('.');
  std::string name(what);
  if (place != std::string::npos) name += forward.name.substr(place);
  program_.add(std::move(name), std::move(op), uses, Phase::Backward, forward.layer, forward.round,
               forward.chunk);
}

}  // namespace sluice::core
