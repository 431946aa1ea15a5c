#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/kernels.h"
#include "ops/rounding.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kBlock = 16 * kKiB;  // elements per task

// Everything that is the same for all elements.
struct Update {
  float clip, beta1, beta2, eps, inv_bias1, inv_bias2, learning_rate, decay;
  uint64_t key;
  int64_t step;
};

Update update_of(const AdamW& op, const StepArgs& step, float clip) {
  return {.clip = clip,
          .beta1 = op.beta1,
          .beta2 = op.beta2,
          .eps = op.eps,
          .inv_bias1 = 1.0f / step.bias1,
          .inv_bias2 = 1.0f / step.bias2,
          .learning_rate = step.learning_rate,
          .decay = step.learning_rate * op.weight_decay,
          .key = rounding_key(step.seed, op.object),
          .step = step.step};
}

// One task's elements; p, m and v are rounded to their types.
template <class P, class G, class S>
struct Elements {
  P* p;
  const G* g;
  S *m, *v;
  float* master;  // null: w is p itself
  int64_t n;
  int64_t index;  // of the first element, for its random bits
};

}  // namespace
}  // namespace sluice::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/adamw_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::cpu {
namespace {

template <class P, class G, class S>
void update_all(const AdamW& op, const Args& args, const Update& u, const Machine& machine) {
  auto* p = args.out<P>(AdamW::kP);
  const auto* g = args.in<G>(AdamW::kG);
  auto *m = args.out<S>(AdamW::kM), *v = args.out<S>(AdamW::kV);
  float* master = op.master ? args.out<float>(AdamW::kMaster) : nullptr;
  machine.pool.parallel_for(ceil_div(op.elements, kBlock), [&](int64_t task, int) {
    const int64_t first = task * kBlock;
    const Elements<P, G, S> e{p + first,
                              g + first,
                              m + first,
                              v + first,
                              master ? master + first : nullptr,
                              std::min(kBlock, op.elements - first),
                              op.first + first};
    if (op.stochastic) {
      SLUICE_LOOP(machine.isa, template update<true>, u, e);
    } else {
      SLUICE_LOOP(machine.isa, template update<false>, u, e);
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

}  // namespace sluice::cpu
