// SPDX-License-Identifier: Apache-2.0
// Muon: a direction, products that make it nearly orthogonal, and the weights.
#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/kernels/weights.h"
#include "ops/master.h"
#include "ops/step_args.h"
#include "ops/tensor_update.h"

#define SLUICE_LOOPS "backend/cpu/kernels/muon_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kBlock = 16 * kKiB;  // elements per task

// x x^T of the smaller side, its square, and the next x.
struct MuonProducts {
  GemmShape gram, square, next;
};
MuonProducts muon_products(const Muon& op) {
  const int64_t n = op.side();
  const DType t = op.dtype;
  if (op.tall())
    return {{Layout::TN, n, n, op.rows, t, t, false},
            {Layout::NN, n, n, n, t, t, false},
            {Layout::NN, op.rows, n, n, t, t, false}};
  return {{Layout::NT, n, n, op.cols, t, t, false},
          {Layout::NN, n, n, n, t, t, false},
          {Layout::NN, n, op.cols, n, t, t, false}};
}

// Memory beside the products' own workspace.
struct Space {
  float* directions;  // every other x, when they were read
  std::byte *x, *a, *b;
  double* partials;
  int64_t used;

  Space(const Muon& op, std::byte* base) {
    Carver carver(base);
    const int64_t size = size_of(op.dtype);
    directions = carver.take<float>(op.elements());
    x = carver.take<std::byte>(op.elements() * size);
    a = carver.take<std::byte>(op.side() * op.side() * size);
    b = carver.take<std::byte>(op.side() * op.side() * size);
    partials = carver.take<double>(ceil_div(op.elements(), kBlock));
    used = carver.used();
  }
};

void for_each_block(const KernelContext& context, int64_t elements, auto&& body) {
  context.pool.parallel_for(ceil_div(elements, kBlock), [&](int64_t task, int) {
    body(task, task * kBlock, std::min(kBlock, elements - task * kBlock));
  });
}

template <class P>
Status update(const Muon& op, const StepArgs& step, const Update& u, const Args& args,
              const KernelContext& context) {
  const Space space(op, args.workspace);
  std::byte* const of_products = args.workspace + space.used;
  muon_directions(op, args, context, space.directions);
  for_each_block(context, op.elements(), [&](int64_t task, int64_t first, int64_t n) {
    space.partials[task] = double(SLUICE_LOOP(context.isa, squares, space.directions + first, n));
  });
  double total = 0;
  for (int64_t i = 0; i < ceil_div(op.elements(), kBlock); ++i) total += space.partials[i];
  const float inverse = 1.0f / std::max(float(std::sqrt(total)), Muon::kEps);
  P *x = reinterpret_cast<P*>(space.x), *next = reinterpret_cast<P*>(space.directions);
  P *a = reinterpret_cast<P*>(space.a), *b = reinterpret_cast<P*>(space.b);
  for_each_block(context, op.elements(), [&](int64_t, int64_t first, int64_t n) {
    SLUICE_LOOP(context.isa, scaled, space.directions + first, inverse, n, x + first);
  });
  const MuonProducts products = muon_products(op);
  const int64_t side = op.side();
  for (int i = 0; i < Muon::kSteps; ++i) {
    context.multiply(products.gram, x, x, a, of_products);
    context.multiply(products.square, a, a, b, of_products);
    for_each_block(context, side * side, [&](int64_t, int64_t first, int64_t n) {
      SLUICE_LOOP(context.isa, polynomial, a + first, Muon::kCubic, Muon::kQuintic, n, b + first);
    });
    for (int64_t k = 0; k < side; ++k) b[k * side + k] = P(float(b[k * side + k]) + Muon::kLinear);
    context.multiply(products.next, op.tall() ? x : b, op.tall() ? b : x, next, of_products);
    std::swap(x, next);
  }
  const Weights<P> weights = weights_of<P>(op, args);
  for_each_block(context, op.elements(), [&](int64_t, int64_t first, int64_t n) {
    SLUICE_LOOP(context.isa, apply_directions, u, x + first, step.learning_rate * op.scale,
                step.learning_rate * op.weight_decay, n, op.first + first, weights.from(first));
  });
  return {};
}

}  // namespace

std::vector<GemmShape> products_of(const Muon& op) {
  const MuonProducts products = muon_products(op);
  return {products.gram, products.square, products.next};
}

int64_t workspace_of(const Muon& op) {
  return Space(op, nullptr).used;
}

Status launch(const Muon& op, const Args& args, const KernelContext& context) {
  const StepArgs& step = *args.in<StepArgs>(Muon::kArgs);
  const float clip = args.in<float>(Muon::kClip)[1];
  if (step.update == 0 || clip == 0.0f) return {};
  const Update u{clip, rounding_key(step.seed, op.object), step.step, op.stochastic};
  return with_type(op.dtype, [&](auto p) { return update<decltype(p)>(op, step, u, args, context); });
}

}  // namespace sluice::core::cpu
