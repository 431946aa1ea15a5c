#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/kernels.h"
#include "ops/rounding.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kBlock = 16 * kKiB;  // elements per task

// Everything that is the same for all elements. The last three are AdamW's alone.
struct Update {
  float clip, beta1, beta2;
  uint64_t key;
  int64_t step;
  float eps = 0, inv_bias1 = 0, inv_bias2 = 0, learning_rate = 0, decay = 0;
};

Update update_of(const AdamW& op, const StepArgs& step, float clip) {
  return {.clip = clip,
          .beta1 = op.beta1,
          .beta2 = op.beta2,
          .key = rounding_key(step.seed, op.object),
          .step = step.step,
          .eps = op.eps,
          .inv_bias1 = 1.0f / step.bias1,
          .inv_bias2 = 1.0f / step.bias2,
          .learning_rate = step.learning_rate,
          .decay = step.learning_rate * op.weight_decay};
}

Update update_of(const AdamWMoments& op, const StepArgs& step, float clip) {
  return {.clip = clip,
          .beta1 = op.beta1,
          .beta2 = op.beta2,
          .key = rounding_key(step.seed, op.object),
          .step = step.step};
}

// One task's gradients and moments; the latter are rounded to their type.
template <class G, class S>
struct State {
  const G* g;
  S *m, *v;
  int64_t n;
  int64_t index;  // of the first element, for its random bits
};

// Its weights; p is rounded to its type.
template <class P>
struct Weights {
  P* p;
  float* master;  // null: w is p itself
};

}  // namespace
}  // namespace sluice::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/adamw_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::cpu {
namespace {

// Calls body(first element of a task, its State) in parallel.
template <class G, class S, class AnyUpdate, class Body>
void for_each_block(const AnyUpdate& op, const Args& args, const Machine& machine, Body&& body) {
  const auto* g = args.in<G>(AnyUpdate::kG);
  auto *m = args.out<S>(AnyUpdate::kM), *v = args.out<S>(AnyUpdate::kV);
  machine.pool.parallel_for(ceil_div(op.elements, kBlock), [&](int64_t task, int) {
    const int64_t first = task * kBlock;
    body(first, State<G, S>{g + first, m + first, v + first, std::min(kBlock, op.elements - first),
                            op.first + first});
  });
}

template <class P, class G, class S>
void update_all(const AdamW& op, const Args& args, const Update& u, const Machine& machine) {
  auto* p = args.out<P>(AdamW::kP);
  float* master = op.master ? args.out<float>(AdamW::kMaster) : nullptr;
  for_each_block<G, S>(op, args, machine, [&](int64_t first, const State<G, S>& state) {
    const Weights<P> weights{p + first, master ? master + first : nullptr};
    if (op.stochastic) {
      SLUICE_LOOP(machine.isa, template update<true>, u, state, weights, op.moments);
    } else {
      SLUICE_LOOP(machine.isa, template update<false>, u, state, weights, op.moments);
    }
  });
}

template <class G, class S>
void update_all_moments(const AdamWMoments& op, const Args& args, const Update& u, const Machine& machine) {
  for_each_block<G, S>(op, args, machine, [&](int64_t, const State<G, S>& state) {
    if (op.stochastic) {
      SLUICE_LOOP(machine.isa, template update_moments<true>, u, state);
    } else {
      SLUICE_LOOP(machine.isa, template update_moments<false>, u, state);
    }
  });
}

}  // namespace

Status launch(const AdamW& op, const Args& args, const Machine& machine) {
  const StepArgs& step = *args.in<StepArgs>(AdamW::kArgs);
  const float clip = args.in<float>(AdamW::kClip)[1];
  if (step.update == 0 || clip == 0.0f) return {};
  const Update u = update_of(op, step, clip);
  with_type(op.dtype, [&](auto p) {
    with_type(op.grad_dtype, [&](auto g) {
      with_type(op.state_dtype,
                [&](auto s) { update_all<decltype(p), decltype(g), decltype(s)>(op, args, u, machine); });
    });
  });
  return {};
}

Status launch(const AdamWMoments& op, const Args& args, const Machine& machine) {
  const StepArgs& step = *args.in<StepArgs>(AdamWMoments::kArgs);
  const float clip = args.in<float>(AdamWMoments::kClip)[1];
  if (step.update == 0 || clip == 0.0f) return {};
  const Update u = update_of(op, step, clip);
  with_type(op.grad_dtype, [&](auto g) {
    with_type(op.state_dtype,
              [&](auto s) { update_all_moments<decltype(g), decltype(s)>(op, args, u, machine); });
  });
  return {};
}

}  // namespace sluice::cpu
