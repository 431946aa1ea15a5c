// SPDX-License-Identifier: Apache-2.0
// The optimizers' updates: one loop, and a rule for each optimizer that says what becomes of an element.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/weights.h"
#include "base/bytes.h"
#include "ops/adam_bias.h"
#include "ops/compact.h"
#include "ops/master.h"
#include "ops/step_args.h"
#include "ops/tensor_update.h"
#include "ops/update.h"

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

// Makes directions, from which the products of Muon make updates of weights.
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

// Elements of f32, bf16, or I8: compact state (ops/compact.h).
struct Typed {
  void* data;
  DType type;
};
struct Slot {
  Typed values;
  float* scales;  // of groups, where the values are compact
};
struct CompactSlot {
  uint8_t* bytes;
  float* scales;
};
// As Weights, of any type.
struct AnyWeights {
  Typed p;
  float* master;
  uint8_t* residual;
};
// All elements of an update; the last group of compact state may be part of one.
struct Elements {
  Typed g;
  Slot s[2];
  const AnyWeights* weights;  // null: the state alone is updated
  bool write_state;
  int64_t index;  // of the first element, for its random bits
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/update_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

template <class Rule>
void run_blocks(const Rule& rule, const Update& u, const Elements& e, int64_t count,
                const KernelContext& context) {
  static_assert(kBlock % kCompactGroup == 0);
  context.pool.parallel_for(ceil_div(count, kBlock), [&](int64_t task, int) {
    const int64_t first = task * kBlock;
    SLUICE_LOOP(context.isa, update, rule, u, e, first, std::min(count, first + kBlock));
  });
}

// A state's slots follow each other among the operands; scales of compact ones follow their elements.
Slot slot_of(std::byte* data, DType type, int64_t count) {
  auto* scales = reinterpret_cast<float*>(data + align_up(count, kCompactGroup));
  return {{data, type}, type == DType::I8 ? scales : nullptr};
}

Status run(const auto& op, const Args& args, const KernelContext& context) {
  using AnyUpdate = std::remove_cvref_t<decltype(op)>;
  const StepArgs& step = *args.in<StepArgs>(AnyUpdate::kArgs);
  const float clip = args.in<float>(AnyUpdate::kClip)[1];
  if (step.update == 0 || clip == 0.0f) return {};
  const auto rule = rule_of(op, step);
  Elements e{.g = {args.out<void>(AnyUpdate::kG), op.grad_dtype},
             .s = {},
             .weights = nullptr,
             .write_state = true,
             .index = op.first};
  for (int k = 0; k < rule.kStates; ++k)
    e.s[k] = slot_of(args.out<std::byte>(AnyUpdate::kM + k), op.state_dtype, op.elements);
  AnyWeights weights;
  if constexpr (requires { AnyUpdate::kP; }) {
    const auto of = weights_of<std::byte>(op, args);
    weights = {{of.p, op.dtype}, of.master, of.residual};
    e.weights = &weights;
    e.write_state = op.moments;
  }
  run_blocks(rule, {clip, rounding_key(step.seed, op.object), step.step, op.stochastic}, e, op.elements,
             context);
  return {};
}

}  // namespace

void muon_directions(const Muon& op, const Args& args, const KernelContext& context, float* directions) {
  const StepArgs& step = *args.in<StepArgs>(Muon::kArgs);
  const AnyWeights to{{directions, DType::F32}, nullptr, nullptr};
  const Elements e{.g = {args.out<void>(Muon::kG), op.grad_dtype},
                   .s = {slot_of(args.out<std::byte>(Muon::kM), op.state_dtype, op.elements())},
                   .weights = &to,
                   .write_state = true,
                   .index = op.first};
  run_blocks(MuonRule{op.momentum, op.nesterov},
             {args.in<float>(Muon::kClip)[1], rounding_key(step.seed, op.object), step.step, op.stochastic},
             e, op.elements(), context);
}

Status launch(const AdamW& op, const Args& args, const KernelContext& context) {
  return run(op, args, context);
}
Status launch(const AdamWMoments& op, const Args& args, const KernelContext& context) {
  return run(op, args, context);
}
Status launch(const SgdMomentum& op, const Args& args, const KernelContext& context) {
  return run(op, args, context);
}
Status launch(const SgdMomentumState& op, const Args& args, const KernelContext& context) {
  return run(op, args, context);
}
Status launch(const Lion& op, const Args& args, const KernelContext& context) {
  return run(op, args, context);
}
Status launch(const LionState& op, const Args& args, const KernelContext& context) {
  return run(op, args, context);
}

}  // namespace sluice::core::cpu
