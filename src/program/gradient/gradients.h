// SPDX-License-Identifier: Apache-2.0
// The backward pass of a program, derived from its forward tasks. They are visited in reverse, and the rule
// of each op (rules.h) appends the tasks that make the gradients of what it read. Only gradients that are
// wanted, or that lead to wanted ones, are computed.
//
// A gradient of several uses is written by the first rule that contributes to it. Others accumulate, or write
// another object that is added to it, in the order of their visits: the order of every sum is part of the
// program.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace sluice::core {

class Gradients {
 public:
  // Appends to `program`, which it borrows. Gradients of parameters are of `param_dtype`.
  Gradients(Program& program, DType param_dtype) : program_(program), param_dtype_(param_dtype) {}

  // The gradient of a parameter is wanted, and collected in `grad` from here on.
  void want(ObjectId param, ObjectId grad);

  // Recording, in the order of the forward pass.
  //
  // The newest `count` tasks of the program, which are differentiated together: blocks of attention that make
  // one result, projections of one input.
  void record(uint32_t count = 1);
  // The same of tasks that others stand between.
  void record(std::span<const TaskId> tasks);
  // A task that computes its result and its gradients at once, given as it is without them: its rule appends
  // it in the backward pass.
  void record_fused(Task task);
  // Calls `make` in the backward pass, when it comes to this place.
  void record_later(std::function<void()> make);
  // `copy` has the values of x in another format, and a product reads it in its place: gradients of the copy
  // are those of x.
  void stands_for(ObjectId copy, ObjectId x);
  // The same values once more, turned (Quantize).
  void turned_copy(ObjectId copy, ObjectId turned);
  // Products with a weight read the gradients of their results in that format.
  void read_in(ObjectId w, const NumberFormat& dy);
  // Whether the backward pass makes the result y again in passing, so that it need not be kept.
  bool makes_again(ObjectId y) const { return y.value < states_.size() && states_[y.value].remade; }
  // Ends a layer that began with `input`: the object of its gradient, which the layer's backward pass hands
  // on to the one before, is made first.
  void record_input(ObjectId input);

  // Appends the backward pass of what was recorded since the last call.
  void backward();

  // For rules.
  //
  // Whether the gradient of x is wanted, or leads to one that is.
  bool wanted(ObjectId x) const;
  // The object that x is a copy of, or x itself.
  ObjectId original(ObjectId x) const;
  // The turned copy beside a copy; invalid: there is none.
  ObjectId turned(ObjectId copy) const;
  // As read_in() said; nothing: as they are.
  std::optional<NumberFormat> reads_in(ObjectId w) const;
  // The gradient of y; adds up what it was made of. REQUIRES: something contributed to it.
  ObjectId of(ObjectId y);
  bool has(ObjectId y) const;
  // Where a rule puts its contribution to the gradient of x.
  struct Into {
    ObjectId object;
    bool accumulate;  // else it is written
  };
  // For an activation, of `dtype` (its own, unless said otherwise) and `role` (as gradient_role() says). One
  // that is not wanted is written all the same, to an object that nobody reads, for ops that cannot do
  // without.
  Into into(ObjectId x, std::optional<DType> dtype = std::nullopt, std::string_view role = {});
  // The same for an op that cannot accumulate: what there was before is added when the gradient is asked for.
  ObjectId into_new(ObjectId x, std::optional<DType> dtype = std::nullopt, std::string_view role = {});
  // For a rule that can add one more gradient to its contribution as it writes it. That is what came to x by
  // add(), or what was written before, as where two losses meet. One of another type is added later.
  struct IntoSum {
    ObjectId object;
    std::optional<ObjectId> addend;
  };
  IntoSum into_sum(ObjectId x);
  // Whether something came to x by add() that nobody has added yet.
  bool has_addend(ObjectId x) const;
  // For an op that changes x in place: an object of `dtype` for the gradient of what it read, in place of
  // that of its result.
  ObjectId replace(ObjectId x, DType dtype);
  // Adds the gradient `dy` of another object to that of x, as it is, where that is wanted.
  void add(ObjectId x, ObjectId dy);
  // An object like x for something else of its backward pass.
  ObjectId like(ObjectId x, std::string_view role, ObjectKind kind, const NumberFormat& format);
  // How many recorded tasks read x.
  uint32_t readers(ObjectId x) const;

  // Calls `use` with the object that holds the forward result y in the backward pass. That is y itself. Where
  // the rule of the op that made y makes it again in passing (see remade_operand()), it is what it calls
  // remade() with.
  void with_result(ObjectId y, std::function<void(ObjectId)> use);
  void remade(ObjectId y, ObjectId again);

  // Appends a backward task at the place of `forward`.
  void task(const Task& forward, std::string_view what, SharedOp op, const std::vector<Bound>& uses);

  DType param_dtype() const { return param_dtype_; }
  const Program& program() const { return program_; }

 private:
  struct Node {
    std::vector<Task> tasks;      // or
    std::function<void()> later;  // or
    ObjectId input;
    bool fused = false;
  };
  struct State {
    ObjectId gradient;               // invalid: none yet
    ObjectId addend;                 // to be added to it
    ObjectId original, turned;       // of a copy
    std::optional<NumberFormat> dy;  // see read_in()
    uint32_t readers = 0;
    bool wanted = false, written = false;
    bool remade = false;  // by the backward pass
    std::vector<std::function<void(ObjectId)>> waiting;
  };
  State& state(ObjectId id);
  DType gradient_type(ObjectId x) const;
  ObjectId gradient_of(ObjectId x, DType dtype, std::string_view role);
  // An object for the gradient of x that nothing was written to.
  ObjectId fresh(ObjectId x, DType dtype, std::string_view role);
  ObjectId sum(ObjectId x, ObjectId left, ObjectId right);
  void note(const Task& task);

  Program& program_;
  const DType param_dtype_;
  std::vector<State> states_;  // by object; those of the newest may be missing
  std::vector<Node> nodes_;
};

// Names the gradient of a role: dx and dh along the stream between layers, d_q and the like beside it.
std::string gradient_role(std::string_view role);

}  // namespace sluice::core
