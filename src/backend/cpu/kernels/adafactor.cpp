// SPDX-License-Identifier: Apache-2.0
// Adafactor. Rows are cut into as many blocks as the op says; sums of blocks are added in their order.
#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/kernels/weights.h"
#include "ops/adafactor_rate.h"
#include "ops/master.h"
#include "ops/step_args.h"
#include "ops/tensor_update.h"

#define SLUICE_LOOPS "backend/cpu/kernels/adafactor_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

struct Space {
  float *row_factors, *column_factors, *columns;  // columns: partial sums by block
  double *weights, *updates;                      // sums of squares by block
  int64_t used;

  Space(const Adafactor& op, std::byte* base) {
    Carver carver(base);
    const int64_t blocks = column_partials(op.rows);
    row_factors = carver.take<float>(op.rows);
    column_factors = carver.take<float>(op.cols);
    columns = carver.take<float>(blocks * op.cols);
    weights = carver.take<double>(blocks);
    updates = carver.take<double>(blocks);
    used = carver.used();
  }
};

double added_up(const double* sums, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += sums[i];
  return total;
}

template <class P, class G>
void update(const Adafactor& op, const StepArgs& step, const Update& u, const Args& args,
            const KernelContext& context) {
  const Space space(op, args.workspace);
  const G* g = args.in<G>(Adafactor::kG);
  const Weights<P> weights = weights_of<P>(op, args);
  float *row = args.out<float>(Adafactor::kRow), *col = args.out<float>(Adafactor::kCol);
  const int64_t blocks = column_partials(op.rows), rows_of_block = ceil_div(op.rows, blocks);
  const auto for_each_row = [&](auto&& begin, auto&& body) {
    context.pool.parallel_for(blocks, [&](int64_t block, int) {
      begin(block);
      const int64_t end = std::min(op.rows, (block + 1) * rows_of_block);
      for (int64_t i = block * rows_of_block; i < end; ++i) body(block, i);
    });
  };

  // The sums of rows are where their factors will be.
  for_each_row(
      [&](int64_t block) {
        std::fill_n(space.columns + block * op.cols, op.cols, 0.0f);
        space.weights[block] = 0;
      },
      [&](int64_t block, int64_t i) {
        space.row_factors[i] = SLUICE_LOOP(context.isa, add_squares, g + i * op.cols, u.clip, op.cols,
                                           space.columns + block * op.cols);
        if (op.scale_parameter)
          space.weights[block] +=
              double(SLUICE_LOOP(context.isa, squares_of_weights, weights.from(i * op.cols), op.cols));
      });

  const auto decay = float(adafactor_decay(op.decay_rate, step.updates));
  const auto mean = [&](float old, float sum, int64_t count) {
    return decay * old + (1.0f - decay) * (sum / float(count) + op.eps);
  };
  constexpr int64_t kColumns = 4096;
  context.pool.parallel_for(ceil_div(op.cols, kColumns), [&](int64_t task, int) {
    for (int64_t j = task * kColumns; j < std::min(op.cols, (task + 1) * kColumns); ++j) {
      float sum = 0;
      for (int64_t block = 0; block < blocks; ++block) sum += space.columns[block * op.cols + j];
      col[j] = mean(col[j], sum, op.rows);
      space.column_factors[j] = 1.0f / std::sqrt(col[j]);
    }
  });
  double rows = 0;
  for (int64_t i = 0; i < op.rows; ++i) rows += double(row[i] = mean(row[i], space.row_factors[i], op.cols));
  const auto row_mean = float(rows / double(op.rows));
  for (int64_t i = 0; i < op.rows; ++i) space.row_factors[i] = 1.0f / std::sqrt(row[i] / row_mean);

  for_each_row([&](int64_t block) { space.updates[block] = 0; },
               [&](int64_t block, int64_t i) {
                 space.updates[block] +=
                     double(SLUICE_LOOP(context.isa, squares_of_updates, g + i * op.cols, u.clip,
                                        space.row_factors[i], space.column_factors, op.cols));
               });
  const auto rms = [&](const double* squares) {
    return std::sqrt(added_up(squares, blocks) / double(op.elements()));
  };
  double rate = double(step.learning_rate) * adafactor_step(op.relative_step, op.warmup_init, step.updates);
  if (op.scale_parameter) rate *= std::max(double(op.eps_scale), rms(space.weights));
  const double size = std::max(1.0, rms(space.updates) / double(op.clip_threshold));
  for_each_row([](int64_t) {},
               [&](int64_t, int64_t i) {
                 SLUICE_LOOP(context.isa, apply_updates, u, g + i * op.cols, space.row_factors[i],
                             space.column_factors, float(rate / size), float(rate * double(op.weight_decay)),
                             op.cols, op.first + i * op.cols, weights.from(i * op.cols));
               });
}

}  // namespace

int64_t workspace_of(const Adafactor& op) {
  return Space(op, nullptr).used;
}

Status launch(const Adafactor& op, const Args& args, const KernelContext& context) {
  const StepArgs& step = *args.in<StepArgs>(Adafactor::kArgs);
  const float clip = args.in<float>(Adafactor::kClip)[1];
  if (step.update == 0 || clip == 0.0f) return {};
  const Update u{clip, rounding_key(step.seed, op.object), step.step, op.stochastic};
  with_type(op.grad_dtype, [&](auto grad) {
    with_type(op.dtype, [&](auto p) { update<decltype(p), decltype(grad)>(op, step, u, args, context); });
  });
  return {};
}

}  // namespace sluice::core::cpu
