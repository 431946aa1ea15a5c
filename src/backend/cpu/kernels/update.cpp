// SPDX-License-Identifier: Apache-2.0
// The optimizers' updates: one loop, and a rule for each optimizer that says what becomes of an element.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/kernels/weights.h"
#include "base/bytes.h"
#include "ops/adam_bias.h"
#include "ops/compact.h"
#include "ops/master.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kBlock = 16 * kKiB;  // elements per task

// A rule's numbers, the same for all elements. Those that make weights are not used where only the state is
// updated.
struct AdamWRule {
  static constexpr int kStates = 2;
  static constexpr bool kSquares[] = {false, true};
  float beta1, beta2;
  float eps = 0, inv_bias1 = 0, inv_bias2 = 0, learning_rate = 0, decay = 0;
};
struct SgdRule {
  static constexpr int kStates = 1;
  static constexpr bool kSquares[] = {false};
  float momentum;
  bool nesterov = false;
  float weight_decay = 0, learning_rate = 0;
};
struct LionRule {
  static constexpr int kStates = 1;
  static constexpr bool kSquares[] = {false};
  float beta2;
  float beta1 = 0, learning_rate = 0, decay = 0;
};

// What it makes are directions, of which the products of Muon make updates of weights.
struct MuonRule {
  static constexpr int kStates = 1;
  static constexpr bool kSquares[] = {false};
  float momentum;
  bool nesterov;
};

AdamWRule rule_of(const AdamW& op, const StepArgs& step) {
  return {.beta1 = float(op.beta1),
          .beta2 = float(op.beta2),
          .eps = op.eps,
          .inv_bias1 = 1.0f / adam_bias(op.beta1, step.updates),
          .inv_bias2 = 1.0f / adam_bias(op.beta2, step.updates),
          .learning_rate = step.learning_rate,
          .decay = step.learning_rate * op.weight_decay};
}
AdamWRule rule_of(const AdamWMoments& op, const StepArgs&) {
  return {.beta1 = float(op.beta1), .beta2 = float(op.beta2)};
}
SgdRule rule_of(const SgdMomentum& op, const StepArgs& step) {
  return {.momentum = op.momentum,
          .nesterov = op.nesterov,
          .weight_decay = op.weight_decay,
          .learning_rate = step.learning_rate};
}
SgdRule rule_of(const SgdMomentumState& op, const StepArgs&) {
  return {.momentum = op.momentum};
}
LionRule rule_of(const Lion& op, const StepArgs& step) {
  return {.beta2 = op.beta2,
          .beta1 = op.beta1,
          .learning_rate = step.learning_rate,
          .decay = step.learning_rate * op.weight_decay};
}
LionRule rule_of(const LionState& op, const StepArgs&) {
  return {.beta2 = op.beta2};
}

// One task's gradients and state; the latter is rounded to its type.
template <class G, class S, int kStates>
struct State {
  const G* g;
  std::array<S*, kStates> s;
  int64_t n;
  int64_t index;  // of the first element, for its random bits
};

// Compact state (ops/compact.h): bytes, and scales of groups. A task has whole groups, but for the last.
struct CompactSlot {
  uint8_t* bytes;
  float* scales;
};
template <class G, int kStates>
struct CompactState {
  const G* g;
  std::array<CompactSlot, kStates> s;
  int64_t n;
  int64_t index;
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/update_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

// Calls body(first element of a task, its State) in parallel.
template <class G, class S, class Rule, class AnyUpdate, class Body>
void for_each_block(const AnyUpdate& op, const Args& args, const Machine& machine, Body&& body) {
  const auto* g = args.in<G>(AnyUpdate::kG);
  std::array<S*, Rule::kStates> s;
  for (int k = 0; k < Rule::kStates; ++k) s[size_t(k)] = args.out<S>(AnyUpdate::kM + k);
  machine.pool.parallel_for(ceil_div(op.elements, kBlock), [&](int64_t task, int) {
    const int64_t first = task * kBlock;
    State<G, S, Rule::kStates> state{g + first, s, std::min(kBlock, op.elements - first), op.first + first};
    for (S*& part : state.s) part += first;
    body(first, state);
  });
}

// The same of compact state, whose slots' scales follow their elements.
struct Compact {};
template <class G, class Rule, class AnyUpdate, class Body>
void for_each_compact_block(const AnyUpdate& op, const Args& args, const Machine& machine, Body&& body) {
  static_assert(kBlock % kCompactGroup == 0);
  const auto* g = args.in<G>(AnyUpdate::kG);
  machine.pool.parallel_for(ceil_div(op.elements, kBlock), [&](int64_t task, int) {
    const int64_t first = task * kBlock;
    CompactState<G, Rule::kStates> state{
        g + first, {}, std::min(kBlock, op.elements - first), op.first + first};
    for (int k = 0; k < Rule::kStates; ++k) {
      auto* bytes = args.out<uint8_t>(AnyUpdate::kM + k);
      auto* scales = reinterpret_cast<float*>(bytes + align_up(op.elements, kCompactGroup));
      state.s[size_t(k)] = {bytes + first, scales + first / kCompactGroup};
    }
    body(first, state);
  });
}
template <class G, class S, class Rule>
void for_each_block_of(const auto& op, const Args& args, const Machine& machine, auto&& body) {
  if constexpr (std::is_same_v<S, Compact>) {
    for_each_compact_block<G, Rule>(op, args, machine, body);
  } else {
    for_each_block<G, S, Rule>(op, args, machine, body);
  }
}

template <class P, class G, class S, class Rule>
void update_weights(const auto& op, const Rule& rule, const Update& u, const Args& args,
                    const Machine& machine) {
  const Weights<P> weights = weights_of<P>(op, args);
  for_each_block_of<G, S, Rule>(op, args, machine, [&](int64_t first, const auto& state) {
    SLUICE_LOOP(machine.isa, update, rule, u, state, weights.from(first), op.moments);
  });
}

template <class G, class S, class Rule>
void update_state(const auto& op, const Rule& rule, const Update& u, const Args& args,
                  const Machine& machine) {
  for_each_block_of<G, S, Rule>(op, args, machine, [&](int64_t, const auto& state) {
    SLUICE_LOOP(machine.isa, update_state, rule, u, state);
  });
}

// Calls f with a value of the type that the state's elements have.
void with_state(DType type, auto&& f) {
  if (type == DType::I8) {
    f(Compact{});
  } else {
    with_type(type, f);
  }
}

Status run(const auto& op, const Args& args, const Machine& machine) {
  using AnyUpdate = std::remove_cvref_t<decltype(op)>;
  const StepArgs& step = *args.in<StepArgs>(AnyUpdate::kArgs);
  const float clip = args.in<float>(AnyUpdate::kClip)[1];
  if (step.update == 0 || clip == 0.0f) return {};
  const Update u{clip, rounding_key(step.seed, op.object), step.step, op.stochastic};
  const auto rule = rule_of(op, step);
  with_type(op.grad_dtype, [&](auto grad) {
    using G = decltype(grad);
    with_state(op.state_dtype, [&](auto state) {
      using S = decltype(state);
      if constexpr (requires { AnyUpdate::kP; }) {
        with_type(op.dtype, [&](auto p) { update_weights<decltype(p), G, S>(op, rule, u, args, machine); });
      } else {
        update_state<G, S>(op, rule, u, args, machine);
      }
    });
  });
  return {};
}

}  // namespace

void muon_directions(const Muon& op, const Args& args, const Machine& machine, float* directions) {
  const StepArgs& step = *args.in<StepArgs>(Muon::kArgs);
  const Update u{args.in<float>(Muon::kClip)[1], rounding_key(step.seed, op.object), step.step,
                 op.stochastic};
  const MuonRule rule{op.momentum, op.nesterov};
  // What for_each_block() asks of an op.
  struct Block {
    enum { kG = Muon::kG, kM = Muon::kM };
    int64_t elements, first;
  };
  const Block block{op.elements(), op.first};
  const Weights<float> to{directions, nullptr, nullptr};
  with_type(op.grad_dtype, [&](auto grad) {
    with_state(op.state_dtype, [&](auto state) {
      for_each_block_of<decltype(grad), decltype(state), MuonRule>(
          block, args, machine, [&](int64_t first, const auto& part) {
            SLUICE_LOOP(machine.isa, update, rule, u, part, to.from(first), true);
          });
    });
  });
}

Status launch(const AdamW& op, const Args& args, const Machine& machine) {
  return run(op, args, machine);
}
Status launch(const AdamWMoments& op, const Args& args, const Machine& machine) {
  return run(op, args, machine);
}
Status launch(const SgdMomentum& op, const Args& args, const Machine& machine) {
  return run(op, args, machine);
}
Status launch(const SgdMomentumState& op, const Args& args, const Machine& machine) {
  return run(op, args, machine);
}
Status launch(const Lion& op, const Args& args, const Machine& machine) {
  return run(op, args, machine);
}
Status launch(const LionState& op, const Args& args, const Machine& machine) {
  return run(op, args, machine);
}

}  // namespace sluice::core::cpu
