// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels/kernels.h"
#include "ops/embed.h"

#define SLUICE_LOOPS "backend/cpu/kernels/embed_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kTokensPerTask = 64;
constexpr int64_t kEntriesPerTask = 16;

Status check_ids(const int32_t* ids, int64_t tokens, int64_t vocab) {
  const int32_t* bad = std::find_if(ids, ids + tokens, [&](int32_t id) { return id < 0 || id >= vocab; });
  if (bad == ids + tokens) return {};
  return error("token {} has id {}, but the vocabulary has {} entries", bad - ids, *bad, vocab);
}

// Tokens by id: those with id v are order[start[v]] to order[start[v + 1] - 1], in token order.
struct Buckets {
  int32_t* start;
  int32_t* order;

  Buckets(const EmbedBwd& op, Carver& workspace)
      : start(workspace.take<int32_t>(op.vocab + 2)), order(workspace.take<int32_t>(op.tokens)) {}

  void fill(const EmbedBwd& op, const int32_t* ids) {
    // While filling, start[v + 1] is the next free place of v.
    std::fill_n(start, op.vocab + 2, 0);
    for (int64_t t = 0; t < op.tokens; ++t) ++start[ids[t] + 2];
    for (int64_t v = 0; v < op.vocab; ++v) start[v + 2] += start[v + 1];
    for (int64_t t = 0; t < op.tokens; ++t) order[start[ids[t] + 1]++] = static_cast<int32_t>(t);
  }
};

}  // namespace

Status launch(const Embed& op, const Args& args, const KernelContext& context) {
  const auto* ids = args.in<int32_t>(Embed::kIds);
  SLUICE_TRY(check_ids(ids, op.tokens, op.vocab));
  if (op.scale != 1 || op.has_residual) {
    with_type(op.dtype, [&](auto type) {
      using T = decltype(type);
      const T* table = args.in<T>(Embed::kTable);
      const T* residual = op.has_residual ? args.in<T>(Embed::kResidual) : nullptr;
      T* y = args.out<T>(Embed::kY);
      context.for_rows(op.tokens, kTokensPerTask, [&](int64_t first, int64_t count) {
        for (int64_t t = first; t < first + count; ++t)
          SLUICE_LOOP(context.isa, scale_row, table + ids[t] * op.dim, op.scale,
                      residual == nullptr ? nullptr : residual + t * op.dim, op.dim, y + t * op.dim);
      });
    });
    return {};
  }
  const auto* table = args.in<std::byte>(Embed::kTable);
  auto* y = args.out<std::byte>(Embed::kY);
  const int64_t row = op.dim * size_of(op.dtype);
  context.for_rows(op.tokens, kTokensPerTask, [&](int64_t first, int64_t count) {
    for (int64_t t = first; t < first + count; ++t)
      std::memcpy(y + t * row, table + ids[t] * row, static_cast<size_t>(row));
  });
  return {};
}

int64_t workspace_of(const EmbedBwd& op) {
  Carver size(nullptr);
  (void)Buckets(op, size);
  return size.used();
}

int64_t scratch_of(const EmbedBwd& op) {
  return op.dim * int64_t{sizeof(float)};
}

Status launch(const EmbedBwd& op, const Args& args, const KernelContext& context) {
  const auto* ids = args.in<int32_t>(EmbedBwd::kIds);
  SLUICE_TRY(check_ids(ids, op.tokens, op.vocab));
  Carver workspace(args.workspace);
  Buckets buckets(op, workspace);
  buckets.fill(op, ids);
  with_types(op.dtype, op.grad_dtype, [&](auto dy_type, auto grad_type) {
    const auto* dy = args.in<decltype(dy_type)>(EmbedBwd::kDy);
    auto* grad = args.out<decltype(grad_type)>(EmbedBwd::kDTable);
    context.pool.parallel_for(ceil_div(op.vocab, kEntriesPerTask), [&](int64_t task, int worker) {
      auto* sum = reinterpret_cast<float*>(context.scratch[static_cast<size_t>(worker)]);
      const int64_t end = std::min(op.vocab, (task + 1) * kEntriesPerTask);
      for (int64_t v = task * kEntriesPerTask; v < end; ++v) {
        const int64_t count = buckets.start[v + 1] - buckets.start[v];
        if (count == 0 && op.accumulate) continue;
        SLUICE_LOOP(context.isa, sum_rows, dy, buckets.order + buckets.start[v], count, op.dim, sum);
        SLUICE_LOOP(context.isa, put_row, sum, op.scale, op.accumulate, op.dim, grad + v * op.dim);
      }
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
