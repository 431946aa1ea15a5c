// SPDX-License-Identifier: Apache-2.0
// The output head: cross-entropy over sub-chunks of rows.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/token_loss.h"
#include "ops/cast.h"
#include "ops/loss.h"
#include "ops/step_args.h"

#define SLUICE_LOOPS "backend/cpu/kernels/head_loss_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRowsPerTask = 4;

// The products of a sub-chunk of `rows` rows; `first` is the one that begins dw. Copies in 8 bits lie as the
// sums run.
GemmShape logits_product(const HeadLoss& op, int64_t rows) {
  return {Layout::NT, rows, op.vocab, op.dim, op.dtype, DType::F32, false};
}
GemmShape dx_product(const HeadLoss& op, int64_t rows) {
  return {op.x_format ? Layout::NT : Layout::NN, rows, op.dim, op.vocab, op.dtype, op.dtype, false};
}
GemmShape dw_product(const HeadLoss& op, int64_t rows, bool first) {
  return {op.x_format ? Layout::NT : Layout::TN,
          op.vocab,
          op.dim,
          rows,
          op.dtype,
          op.grad_dtype,
          op.accumulate_dw || !first};
}

struct Workspace {
  float* logits;       // [sub_tokens, vocab]
  double* losses;      // [tokens]
  std::byte* dlogits;  // [sub_tokens, vocab] in dtype; the logits' own place in f32
  std::byte *x, *w;    // with x_format: in dtype, which holds 8 bits and their scale exactly
  std::byte *turned_w, *turned_x;
  std::byte* part_of_x;        // [dim, rows] of turned_x
  std::byte *by_row, *turned;  // of dlogits, in 8 bits, and then in dtype
  std::byte *expanded, *expanded_turned;
  std::byte* product;

  Workspace(const HeadLoss& op, Carver& carver) {
    const int64_t count = std::min(op.sub_tokens, op.tokens) * op.vocab;
    logits = carver.take<float>(count);
    losses = carver.take<double>(op.tokens);
    dlogits = op.forward_only || op.dtype == DType::F32 ? reinterpret_cast<std::byte*>(logits)
                                                        : carver.take<std::byte>(count * size_of(op.dtype));
    const auto take = [&](bool there, int64_t elements) {
      return there ? carver.take<std::byte>(elements * size_of(op.dtype)) : nullptr;
    };
    const bool narrow = op.x_format.has_value(), turns = op.reads_turned();
    x = take(narrow, op.tokens * op.dim);
    w = take(narrow, op.vocab * op.dim);
    turned_w = take(turns, op.vocab * op.dim);
    turned_x = take(turns && !op.frozen, op.tokens * op.dim);
    part_of_x = take(turns && !op.frozen, op.tokens * op.dim);
    expanded = take(turns, count);
    expanded_turned = take(turns && !op.frozen, count);
    const int64_t rows = std::min(op.sub_tokens, op.tokens);
    by_row = turns ? carver.take<std::byte>(kWideFloat8.over(op.vocab).bytes(count)) : nullptr;
    turned = turns && !op.frozen ? carver.take<std::byte>(kWideFloat8.over(rows).bytes(count)) : nullptr;
    product = carver.take<std::byte>(0);
  }
};

Status check_targets(const HeadLoss& op, const int32_t* targets, int64_t of_row) {
  const int64_t count = op.tokens * of_row;
  const int32_t* bad =
      std::find_if(targets, targets + count, [&](int32_t t) { return t < -1 || t >= op.vocab; });
  if (bad == targets + count) return {};
  return error("row {} has target {}, but the vocabulary has {} entries", (bad - targets) / of_row, *bad,
               op.vocab);
}

// The other tokens of a row, see HeadLoss::top.
struct TopRow {
  const int32_t* tokens;
  const float* weights;  // null: all 1, or there are no gradients
  float* log_probs;      // null: nobody asks

  TopRow(const HeadLoss& op, const Args& args, int64_t row)
      : tokens(args.in<int32_t>(op.top_tokens_operand()) + row * op.top),
        weights(op.weighted ? args.in<float>(op.top_weights_operand()) + row * op.top : nullptr),
        log_probs(op.log_probs ? args.out<float>(op.top_log_probs_operand()) + row * op.top : nullptr) {}

  float weight(int64_t j) const { return tokens[j] < 0 ? 0.0f : weights == nullptr ? 1.0f : weights[j]; }
};

// The loss of a row that counts, as cross_entropy() has it with the weight of the target alone, but for its
// gradients, which are of the others' losses, too. They come first as if all weight were the target's.
template <class T>
TokenLoss row_loss_with_top(const HeadLoss& op, const KernelContext& context, float* logits, int32_t target,
                            float scale, float weight, const TopRow& top, T* dlogits) {
  std::array<float, HeadLoss::kMostTop> chosen;  // logits, whose memory gradients take
  float all = weight;
  for (int64_t j = 0; j < op.top; ++j) {
    chosen[size_t(j)] = top.tokens[j] < 0 ? 0.0f : logits[top.tokens[j]];
    all += top.weight(j);
  }
  const float of_target = logits[target];
  const TokenLoss loss =
      SLUICE_LOOP(context.isa, cross_entropy, logits, op.vocab, target, scale * all, op.softcap, dlogits);
  const double log_sum = double{of_target} + loss.loss;
  for (int64_t j = 0; top.log_probs != nullptr && j < op.top; ++j)
    top.log_probs[j] = top.tokens[j] < 0 ? 0.0f : float(double{chosen[size_t(j)]} - log_sum);
  if (dlogits == nullptr) return loss;
  const auto place = [&](int32_t token, float logit) {
    float own = token == target ? weight : 0.0f;
    for (int64_t i = 0; i < op.top; ++i) own += top.tokens[i] == token ? top.weight(i) : 0.0f;
    const float t = op.softcap > 0 ? logit / op.softcap : 0.0f;
    dlogits[token] = T((float(std::exp(double{logit} - log_sum)) * all - own) * scale * (1.0f - t * t));
  };
  place(target, of_target);
  for (int64_t j = 0; j < op.top; ++j) {
    if (top.tokens[j] >= 0) place(top.tokens[j], chosen[size_t(j)]);
  }
  return loss;
}

// Losses of `rows` rows from row `first` on, and their dlogits; where forward_only instead of these which
// targets are the likeliest. Returns how many are.
int64_t rows_loss(const HeadLoss& op, const Args& args, const KernelContext& context, const Workspace& ws,
                  int64_t first, int64_t rows) {
  const auto* targets = args.in<int32_t>(HeadLoss::kTargets) + first;
  const auto* weights = op.weighted ? args.in<float>(op.weights_operand()) + first : nullptr;
  auto* log_probs = op.log_probs ? args.out<float>(op.log_probs_operand()) + first : nullptr;
  const float scale = args.in<StepArgs>(HeadLoss::kArgs)->loss_scale;
  std::atomic<int64_t> hits{0};
  with_type(op.dtype, [&](auto type) {
    using T = decltype(type);
    context.for_rows(rows, kRowsPerTask, [&](int64_t begin, int64_t count) {
      int64_t own_hits = 0;
      for (int64_t r = begin; r < begin + count; ++r) {
        T* dlogits = op.forward_only ? nullptr : reinterpret_cast<T*>(ws.dlogits) + r * op.vocab;
        TokenLoss loss{};
        const float weight = weights != nullptr ? weights[r] : 1.0f;
        if (targets[r] >= 0) {
          if (op.softcap > 0)
            SLUICE_LOOP(context.isa, cap_row, ws.logits + r * op.vocab, op.vocab, op.softcap);
          loss = op.top > 0 ? row_loss_with_top(op, context, ws.logits + r * op.vocab, targets[r], scale,
                                                weight, TopRow(op, args, first + r), dlogits)
                            : SLUICE_LOOP(context.isa, cross_entropy, ws.logits + r * op.vocab, op.vocab,
                                          targets[r], scale * weight, op.softcap, dlogits);
        } else {
          if (dlogits) std::fill_n(dlogits, op.vocab, T(0.0f));
          if (op.top > 0 && op.log_probs)
            std::fill_n(args.out<float>(op.top_log_probs_operand()) + (first + r) * op.top, op.top, 0.0f);
        }
        ws.losses[first + r] = loss.loss * double{weight};
        if (log_probs != nullptr) log_probs[r] = float(0 - loss.loss);
        own_hits += loss.is_top ? 1 : 0;
        if (op.forward_only) args.out<double>(HeadLoss::kLoss)[op.tokens + first + r] = loss.is_top ? 1 : 0;
      }
      hits += own_hits;
    });
  });
  return hits;
}

// Expands what there is of x and w in 8 bits.
void expand_operands(const HeadLoss& op, const Args& args, const KernelContext& context,
                     const Workspace& ws) {
  const auto expand = [&](int operand, int64_t row, int64_t elements, std::byte* to) {
    cast(op.x_format->in_rows_of(row), args.in<void>(operand), elements, op.dtype, to, context);
  };
  expand(HeadLoss::kX, op.dim, op.tokens * op.dim, ws.x);
  expand(HeadLoss::kW, op.dim, op.vocab * op.dim, ws.w);
  if (!op.reads_turned()) return;
  expand(op.turned_w_operand(), op.vocab, op.vocab * op.dim, ws.turned_w);
  if (!op.frozen) expand(op.turned_x_operand(), op.tokens, op.tokens * op.dim, ws.turned_x);
}

// The gradients of a sub-chunk's logits, rounded to 8 bits by row, and by column where w is trained.
Status round_gradients(const HeadLoss& op, int64_t rows, const KernelContext& context, const Workspace& ws) {
  const int64_t count = rows * op.vocab;
  const NumberFormat by_row = kWideFloat8.over(op.vocab), by_column = kWideFloat8.over(rows);
  const Buffer buffers[] = {{ws.dlogits, count * size_of(op.dtype)},
                            {ws.by_row, by_row.bytes(count)},
                            {ws.turned, by_column.bytes(count)}};
  SLUICE_TRY(
      launch(Quantize{rows, op.vocab, op.dtype, kWideFloat8, true, !op.frozen}, {buffers, nullptr}, context));
  cast(by_row, ws.by_row, count, op.dtype, ws.expanded, context);
  if (!op.frozen) cast(by_column, ws.turned, count, op.dtype, ws.expanded_turned, context);
  return {};
}

// Copies the first `bytes` of each row of `stride` bytes.
void take_columns(const std::byte* from, int64_t stride, int64_t rows, int64_t bytes, std::byte* to) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * stride, bytes, to + r * bytes);
}

}  // namespace

std::vector<GemmShape> products_of(const HeadLoss& op) {
  std::vector<GemmShape> shapes;
  const int64_t sub = std::min(op.sub_tokens, op.tokens);
  for (const int64_t rows : {sub, op.tokens % sub}) {
    if (rows == 0) continue;
    shapes.push_back(logits_product(op, rows));
    if (op.forward_only) continue;
    shapes.push_back(dx_product(op, rows));
    if (op.frozen) continue;
    shapes.push_back(dw_product(op, rows, true));
    shapes.push_back(dw_product(op, rows, false));
  }
  return shapes;
}

int64_t workspace_of(const HeadLoss& op) {
  Carver size(nullptr);
  (void)Workspace(op, size);
  return size.used();
}

Status launch(const HeadLoss& op, const Args& args, const KernelContext& context) {
  SLUICE_TRY(check_targets(op, args.in<int32_t>(HeadLoss::kTargets), 1));
  if (op.top > 0) SLUICE_TRY(check_targets(op, args.in<int32_t>(op.top_tokens_operand()), op.top));
  Carver carver(args.workspace);
  const Workspace ws(op, carver);
  const int64_t row = op.dim * size_of(op.dtype);
  if (op.x_format) expand_operands(op, args, context, ws);
  const std::byte* all_x = op.x_format ? ws.x : args.in<std::byte>(HeadLoss::kX);
  const void* w = op.x_format ? ws.w : args.in<void>(HeadLoss::kW);
  int64_t hits = 0;
  for (int64_t first = 0; first < op.tokens; first += op.sub_tokens) {
    const int64_t rows = std::min(op.sub_tokens, op.tokens - first);
    const std::byte* x = all_x + first * row;
    context.multiply(logits_product(op, rows), x, w, ws.logits, ws.product);
    hits += rows_loss(op, args, context, ws, first, rows);
    if (op.forward_only) continue;
    if (op.x_format) SLUICE_TRY(round_gradients(op, rows, context, ws));
    context.multiply(dx_product(op, rows), op.x_format ? ws.expanded : ws.dlogits,
                     op.x_format ? ws.turned_w : w, args.out<std::byte>(HeadLoss::kDx) + first * row,
                     ws.product);
    if (op.frozen) continue;
    if (op.x_format) {
      const int64_t element = size_of(op.dtype);
      take_columns(ws.turned_x + first * element, op.tokens * element, op.dim, rows * element, ws.part_of_x);
      x = ws.part_of_x;
    }
    context.multiply(dw_product(op, rows, first == 0), op.x_format ? ws.expanded_turned : ws.dlogits, x,
                     args.out<void>(HeadLoss::kDw), ws.product);
  }
  auto* loss = args.out<double>(HeadLoss::kLoss);
  if (op.forward_only) {
    std::copy_n(ws.losses, op.tokens, loss);
    return {};
  }
  double total = op.accumulate_loss ? loss[0] : 0.0;
  for (int64_t t = 0; t < op.tokens; ++t) total += ws.losses[t];
  loss[0] = total;
  loss[1] = (op.accumulate_loss ? loss[1] : 0.0) + double(hits);
  return {};
}

Status launch(const GatherWeights& op, const Args& args, const KernelContext&) {
  auto* const all = args.out<float>(GatherWeights::kAll);
  if (op.first == 0) std::fill_n(all, 2 * op.round, 0.0f);
  std::copy_n(args.in<float>(GatherWeights::kWeights), op.tokens, all + op.first);
  std::copy_n(args.in<float>(GatherWeights::kLogProbs), op.tokens, all + op.round + op.first);
  return {};
}

void cap_logits(float* logits, int64_t count, float cap, const KernelContext& context) {
  if (cap == 0) return;
  constexpr int64_t kPerTask = 4096;
  context.pool.parallel_for(ceil_div(count, kPerTask), [&](int64_t task, int) {
    const int64_t first = task * kPerTask;
    SLUICE_LOOP(context.isa, cap_row, logits + first, std::min(kPerTask, count - first), cap);
  });
}

}  // namespace sluice::core::cpu
