// SPDX-License-Identifier: Apache-2.0
// Short convolutions (ops/conv.h). Forward tasks own tokens; in the backward pass they own
// channels, over all tokens, so that every element of dw has one owner.
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "ops/conv.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kTokensPerConvTask = 64, kChannelsPerConvTask = 64;

template <class T>
struct ConvInput {
  const T *bcx, *w;
  const T* before;  // null: nothing comes before the first token
  const int32_t* pos;
  int64_t tokens, dim, width;
  bool silu;

  int64_t columns() const { return silu ? dim : 3 * dim; }
  // How many tokens before t count for it.
  int64_t seen(int64_t t) const {
    const int64_t most = std::min<int64_t>(width - 1, pos[t]);
    return before == nullptr ? std::min(most, t) : most;
  }
};

template <class T>
struct ConvGradient {
  const T* dy;
  T* dbcx;
  void* dw;
  DType dw_dtype;
  T* d_before;      // null: none
  const T* d_tail;  // null: none
  bool accumulate;

  void add_to_dw(int64_t at, float x) const {
    with_type(dw_dtype, [&]<class G>(G) {
      G& to = static_cast<G*>(dw)[at];
      to = G(accumulate ? float(to) + x : x);
    });
  }
};

// New tokens of one text.
template <class T>
struct CachedConvRow {
  const T *bcx, *w;
  T *cache, *y;
  int64_t held, count, q_len, dim, width;
  bool silu;

  int64_t columns() const { return silu ? dim : 3 * dim; }
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/conv_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {

Status launch(const ShortConv& op, const Args& args, const KernelContext& context) {
  with_type(op.dtype, [&]<class T>(T) {
    const ConvInput<T> in{.bcx = args.in<T>(ShortConv::kBcx),
                          .w = args.in<T>(ShortConv::kW),
                          .before = op.has_before ? args.in<T>(op.before_operand()) : nullptr,
                          .pos = args.in<int32_t>(ShortConv::kPos),
                          .tokens = op.tokens,
                          .dim = op.dim,
                          .width = op.width,
                          .silu = op.silu};
    T* y = args.out<T>(ShortConv::kY);
    T* tail = op.has_tail ? args.out<T>(op.tail_operand()) : nullptr;
    context.pool.parallel_for(ceil_div(op.tokens, kTokensPerConvTask), [&](int64_t task, int) {
      const int64_t first = task * kTokensPerConvTask;
      SLUICE_LOOP(context.isa, convolve, in, first, std::min(op.tokens, first + kTokensPerConvTask), y, tail);
    });
  });
  return {};
}

Status launch(const ShortConvBwd& op, const Args& args, const KernelContext& context) {
  with_type(op.dtype, [&]<class T>(T) {
    const ConvInput<T> in{.bcx = args.in<T>(ShortConvBwd::kBcx),
                          .w = args.in<T>(ShortConvBwd::kW),
                          .before = op.has_before ? args.in<T>(op.before_operand()) : nullptr,
                          .pos = args.in<int32_t>(ShortConvBwd::kPos),
                          .tokens = op.tokens,
                          .dim = op.dim,
                          .width = op.width,
                          .silu = op.silu};
    const ConvGradient<T> out{.dy = args.in<T>(ShortConvBwd::kDy),
                              .dbcx = args.out<T>(ShortConvBwd::kDbcx),
                              .dw = args.out<std::byte>(ShortConvBwd::kDw),
                              .dw_dtype = op.grad_dtype,
                              .d_before = op.has_before ? args.out<T>(op.d_before_operand()) : nullptr,
                              .d_tail = op.has_tail ? args.in<T>(op.d_tail_operand()) : nullptr,
                              .accumulate = op.accumulate};
    context.pool.parallel_for(ceil_div(op.dim, kChannelsPerConvTask), [&](int64_t task, int) {
      const int64_t first = task * kChannelsPerConvTask;
      SLUICE_LOOP(context.isa, convolve_back, in, out, first, std::min(kChannelsPerConvTask, op.dim - first));
    });
  });
  return {};
}

Status launch(const CachedConv& op, const Args& args, const KernelContext& context) {
  const auto* spans = args.in<int32_t>(CachedConv::kSpans);
  const auto* slots = op.cache_rows > 0 ? args.in<int32_t>(CachedConv::kSlots) : nullptr;
  with_type(op.dtype, [&]<class T>(T) {
    context.pool.parallel_for(op.rows, [&](int64_t row, int) {
      const CachedConvRow<T> text{.bcx = args.in<T>(CachedConv::kBcx) + row * op.q_len * op.columns(),
                                  .w = args.in<T>(CachedConv::kW),
                                  .cache = args.out<T>(CachedConv::kCache) +
                                           (slots != nullptr ? slots[row] : row) * (op.width - 1) * op.dim,
                                  .y = args.out<T>(CachedConv::kY) + row * op.q_len * op.dim,
                                  .held = spans[2 * row],
                                  .count = std::clamp<int64_t>(spans[2 * row + 1], 0, op.q_len),
                                  .q_len = op.q_len,
                                  .dim = op.dim,
                                  .width = op.width,
                                  .silu = op.silu};
      SLUICE_LOOP(context.isa, convolve_cached, text);
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
