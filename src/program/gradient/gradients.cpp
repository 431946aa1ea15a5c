// SPDX-License-Identifier: Apache-2.0
#include "program/gradient/gradients.h"

#include <algorithm>

#include "ops/exchange.h"
#include "ops/op.h"
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

void Gradients::stands_for(ObjectId copy, ObjectId x) {
  State& s = state(copy);
  s.original = x;
  s.wanted = wanted(x);
}

void Gradients::turned_copy(ObjectId copy, ObjectId turned) {
  state(copy).turned = turned;
}

void Gradients::read_in(ObjectId w, const NumberFormat& dy) {
  state(w).dy = dy;
}

ObjectId Gradients::original(ObjectId x) const {
  const bool copy = x.value < states_.size() && states_[x.value].original.valid();
  return copy ? states_[x.value].original : x;
}

std::optional<NumberFormat> Gradients::reads_in(ObjectId w) const {
  return w.value < states_.size() ? states_[w.value].dy : std::nullopt;
}

ObjectId Gradients::turned(ObjectId copy) const {
  return copy.value < states_.size() ? states_[copy.value].turned : ObjectId();
}

uint32_t Gradients::readers(ObjectId x) const {
  return x.value < states_.size() ? states_[x.value].readers : 0;
}

// A task's outputs lead to a wanted gradient if one of its inputs does.
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
  const Task& first = program_.task(tasks.front());
  SLUICE_CHECK(has_rule(first.op), "{}: op {} has no gradient rule", first.name, name_of(first.op));
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
      if (wanted(node.input)) gradient_of(node.input, gradient_type(node.input), {});
    } else if (node.fused || std::any_of(node.tasks.begin(), node.tasks.end(), [&](const Task& task) {
                 return std::any_of(task.uses.begin(), task.uses.end(), [&](const Use& use) {
                   return use.access != Access::Read && wanted(use.object);
                 });
               })) {
      apply_rule(node.tasks, *this);
    }
  }
}

ObjectId Gradients::of(ObjectId y) {
  SLUICE_CHECK(has(y), "nothing contributed to the gradient of {}", program_.object(y).name);
  const State& s = states_[y.value];
  if (s.written && s.addend.valid()) return sum(y, s.gradient, s.addend);
  return s.written ? s.gradient : s.addend;
}

ObjectId Gradients::like(ObjectId x, std::string_view role, ObjectKind kind, const NumberFormat& format) {
  const Object& of = program_.object(x);
  Object made = of;
  made.name = std::string(role) + of.name.substr(of.role.size());
  made.role = role;
  made.kind = kind;
  made.format = format;
  made.bytes = format.bytes(of.elements());
  made.persistent = false;
  return program_.add(std::move(made));
}

DType Gradients::gradient_type(ObjectId x) const {
  const Object& object = program_.object(x);
  return object.kind == ObjectKind::Param ? param_dtype_ : object.format.type;
}

ObjectId Gradients::gradient_of(ObjectId x, DType dtype, std::string_view role) {
  if (const ObjectId made = state(x).gradient; made.valid()) return made;
  const std::string own = gradient_role(program_.object(x).role);
  return state(x).gradient = like(x, role.empty() ? own : role, ObjectKind::ActGrad, dtype);
}

ObjectId Gradients::fresh(ObjectId x, DType dtype, std::string_view role) {
  const ObjectId before = gradient_of(x, dtype, role);
  State& s = state(x);
  const Object& object = program_.object(before);
  if (std::exchange(s.written, true) || object.format != dtype) {
    SLUICE_CHECK(object.kind == ObjectKind::ActGrad, "the gradient of {} is collected in one place",
                 program_.object(x).name);
    s.gradient = like(x, object.role + "+", ObjectKind::ActGrad, dtype);
  }
  return s.gradient;
}

// Two values have the same sum in either order; which two are summed follows from the order of visits.
ObjectId Gradients::sum(ObjectId x, ObjectId left, ObjectId right) {
  const auto type = [&](ObjectId id) { return program_.object(id).format.type; };
  const DType dtype = type(left) == type(right) ? type(left) : DType::F32;
  const ObjectId out = fresh(x, dtype, {});
  state(x).addend = {};
  const Object& object = program_.object(out);
  program_.add("sum_" + object.name, AddGradients{object.elements(), type(left), type(right), dtype},
               std::vector<Bound>{left, right, out}, Phase::Backward, object.layer, object.round,
               object.chunk);
  return out;
}

Gradients::Into Gradients::into(ObjectId x, std::optional<DType> dtype, std::string_view role) {
  const DType type = dtype.value_or(gradient_type(x));
  const State& s = state(x);
  if (s.written && program_.object(s.gradient).format == type) return {s.gradient, true};
  return {into_new(x, type, role), false};
}

ObjectId Gradients::into_new(ObjectId x, std::optional<DType> dtype, std::string_view role) {
  if (state(x).written) state(x).addend = of(x);
  return fresh(x, dtype.value_or(gradient_type(x)), role);
}

Gradients::IntoSum Gradients::into_sum(ObjectId x) {
  const DType type = gradient_type(x);
  if (!has(x)) return {fresh(x, type, {}), std::nullopt};
  const ObjectId before = of(x);
  const bool same = program_.object(before).format == type;
  state(x).addend = same ? ObjectId() : before;
  return {fresh(x, type, {}), same ? std::optional(before) : std::nullopt};
}

bool Gradients::has_addend(ObjectId x) const {
  return x.value < states_.size() && states_[x.value].addend.valid();
}

ObjectId Gradients::replace(ObjectId x, DType dtype) {
  std::string role = gradient_role(program_.object(x).role);
  State& s = state(x);
  if (s.gradient.valid() && program_.object(s.gradient).role.starts_with(role))
    role = program_.object(s.gradient).role + "+";
  s.gradient = like(x, role, ObjectKind::ActGrad, dtype);
  s.written = true;
  s.addend = {};
  return s.gradient;
}

void Gradients::add(ObjectId x, ObjectId dy) {
  if (!wanted(x)) return;
  SLUICE_CHECK(program_.object(x).kind != ObjectKind::Param,
               "{} is a parameter, and its gradient is collected", program_.object(x).name);
  if (has_addend(x)) {
    sum(x, of(x), dy);
  } else {
    state(x).addend = dy;
  }
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
