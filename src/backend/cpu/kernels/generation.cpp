// SPDX-License-Identifier: Apache-2.0
// Attention over a cache by the online softmax (Dao et al., 2022), in blocks of keys counted from the text's
// beginning. A token's result depends neither on how many come with it nor on the capacity.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "backend/cpu/gemm_few.h"
#include "backend/cpu/kernels/attention.h"
#include "backend/cpu/kernels/token_loss.h"
#include "ops/generation.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kTokensPerTask = 16;
constexpr int64_t kMostTokens = 4;  // whose scores are summed side by side

// Up to kTokensPerTask new tokens of one head of one row.
template <class T>
struct CachedQueries {
  const T* q;  // at this head's first column
  T* o;
  const T *k, *v;                   // of the row and the head: [capacity, head_dim]
  int64_t head_dim, padded, width;  // padded: of scratch rows; width: of rows of q and o
  int64_t position, count;          // of the first token, and tokens
  int64_t window;                   // 0: none
  float scale, softcap;             // of scores
  float sink;                       // -inf: none

  // The first key that the i-th token sees.
  int64_t oldest(int64_t i) const { return window > 0 ? std::max<int64_t>(position + i + 1 - window, 0) : 0; }
};

// Room for up to kTokensPerTask tokens.
struct CachedScratch {
  float *q, *o, *values;             // [tokens, padded]; values: of one block of keys, weighted
  float *maximum, *total, *rescale;  // [tokens]
  float* scores;                     // [tokens, kKeyBlock]
  float* lanes;                      // [kMostTokens, 16 keys, 16]: scores whose lanes are not yet summed
  float* v;                          // [kKeyBlock, padded]: rows that end within a vector

  CachedScratch(int64_t padded, Carver& carver)
      : q(carver.take<float>(kTokensPerTask * padded)),
        o(carver.take<float>(kTokensPerTask * padded)),
        values(carver.take<float>(kTokensPerTask * padded)),
        maximum(carver.take<float>(kTokensPerTask)),
        total(carver.take<float>(kTokensPerTask)),
        rescale(carver.take<float>(kTokensPerTask)),
        scores(carver.take<float>(kTokensPerTask * kKeyBlock)),
        lanes(carver.take<float>(kMostTokens * 16 * 16)),
        v(carver.take<float>(kKeyBlock * padded)) {}
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/generation_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

int64_t padded(const CachedAttention& op) {
  return align_up(op.head_dim, 16);
}

// A row's spans.
struct Span {
  int64_t held, count;
};
Span span_of(const int32_t* spans, int64_t row, int64_t q_len) {
  return {spans[2 * row], std::clamp<int64_t>(spans[2 * row + 1], 0, q_len)};
}

// The row of the cache that a text has.
class Slots {
 public:
  Slots(const CachedAttention& op, const Args& args)
      : slots_(op.cache_rows > 0 ? args.in<int32_t>(int(op.slots_operand())) : nullptr) {}
  int64_t operator[](int64_t row) const { return slots_ != nullptr ? slots_[row] : row; }

 private:
  const int32_t* slots_;
};

template <class T>
void append(const CachedAttention& op, const Args& args, const KernelContext& context) {
  const auto* spans = args.in<int32_t>(CachedAttention::kSpans);
  const Slots slots(op, args);
  const T* kv = args.in<T>(CachedAttention::kKv);
  T* cache = args.out<T>(CachedAttention::kCache);
  context.pool.parallel_for(op.rows * 2 * op.kv_heads, [&](int64_t task, int) {
    // Heads of V follow those of K in the new tokens and in the cache.
    const int64_t row = task / (2 * op.kv_heads), head = task % (2 * op.kv_heads);
    const Span span = span_of(spans, row, op.q_len);
    const T* from = kv + (row * op.q_len * 2 * op.kv_heads + head) * op.head_dim;
    T* to = cache + op.cache_at(slots[row], 0, head) + span.held * op.head_dim;
    for (int64_t i = 0; i < span.count; ++i) {
      std::memcpy(to + i * op.head_dim, from + i * 2 * op.kv_heads * op.head_dim,
                  static_cast<size_t>(op.head_dim) * sizeof(T));
    }
  });
}

template <class T>
void attend(const CachedAttention& op, const Args& args, const KernelContext& context) {
  const auto* spans = args.in<int32_t>(CachedAttention::kSpans);
  const Slots slots(op, args);
  const T* cache = args.in<T>(CachedAttention::kCache);
  const int64_t parts = ceil_div(op.q_len, kTokensPerTask), heads = op.rows * op.q_heads;
  context.pool.parallel_for(parts * heads, [&](int64_t task, int worker) {
    // The last tokens see the most keys: they go first, so that all threads end together.
    const int64_t first = (parts - 1 - task / heads) * kTokensPerTask;
    const int64_t row = task % heads / op.q_heads, head = task % op.q_heads;
    const int64_t kv_head = head / (op.q_heads / op.kv_heads), width = op.q_heads * op.head_dim;
    const Span span = span_of(spans, row, op.q_len);
    const int64_t offset = (row * op.q_len + first) * width + head * op.head_dim;
    const int64_t there = std::min(kTokensPerTask, op.q_len - first);
    CachedQueries<T> queries{
        .q = args.in<T>(CachedAttention::kQ) + offset,
        .o = args.out<T>(CachedAttention::kO) + offset,
        .k = cache + op.cache_at(slots[row], 0, kv_head),
        .v = cache + op.cache_at(slots[row], 1, kv_head),
        .head_dim = op.head_dim,
        .padded = padded(op),
        .width = width,
        .position = span.held + first,
        .count = std::clamp<int64_t>(span.count - first, 0, there),
        .window = op.window,
        .scale = 1.0f / std::sqrt(static_cast<float>(op.head_dim)),
        .softcap = op.softcap,
        .sink = op.has_sinks ? float(args.in<T>(CachedAttention::kSinks)[head]) : -INFINITY};
    for (int64_t i = queries.count; i < there; ++i) std::fill_n(queries.o + i * width, op.head_dim, T(0.0f));
    if (queries.count == 0) return;
    Carver carver(context.scratch[static_cast<size_t>(worker)]);
    SLUICE_LOOP(context.isa, attend_cached, queries, CachedScratch(queries.padded, carver));
  });
}

// One text's shape, and all that it may have.
AttnShape text_shape(const CachedAttention& op, int64_t held, int64_t count) {
  return {.rows = 1,
          .q_len = count,
          .kv_len = held + count,
          .q_heads = op.q_heads,
          .kv_heads = op.kv_heads,
          .head_dim = op.head_dim,
          .distance = held,
          .packed = false,
          .dtype = op.dtype,
          .window = op.window,
          .softcap = op.softcap};
}

// The same by training's kernel. Of one new token all heads that share keys are queries of one task.
template <class T>
void attend_exactly(const CachedAttention& op, const Args& args, const KernelContext& context) {
  const auto* spans = args.in<int32_t>(CachedAttention::kSpans);
  const Slots slots(op, args);
  const T* cache = args.in<T>(CachedAttention::kCache);
  const int64_t group = op.q_heads / op.kv_heads, width = op.q_heads * op.head_dim;
  const bool all_heads = op.q_len == 1 && !op.has_sinks && group <= kMostTextQueries;
  const int64_t together = all_heads ? group : 1, of_text = op.q_heads / together;
  const int64_t parts = ceil_div(op.q_len, kMostTextQueries);
  context.pool.parallel_for(parts * op.rows * of_text, [&](int64_t task, int worker) {
    const int64_t row = task / of_text % op.rows, head = task % of_text * together;
    const int64_t first = (parts - 1 - task / (of_text * op.rows)) * kMostTextQueries;
    const Span span = span_of(spans, row, op.q_len);
    const int64_t there = std::min(kMostTextQueries, op.q_len - first);
    const int64_t count = std::clamp<int64_t>(span.count - first, 0, there), kv_head = head / group;
    const int64_t offset = (row * op.q_len + first) * width + head * op.head_dim;
    T* o = args.out<T>(CachedAttention::kO) + offset;
    for (int64_t i = count; i < there; ++i) std::fill_n(o + i * width, together * op.head_dim, T(0.0f));
    if (count == 0) return;
    attend_to_text({.shape = text_shape(op, span.held + first, count),
                    .q = args.in<T>(CachedAttention::kQ) + offset,
                    .k = cache + op.cache_at(slots[row], 0, kv_head),
                    .v = cache + op.cache_at(slots[row], 1, kv_head),
                    .o = o,
                    .stride = all_heads ? op.head_dim : width,
                    .together = together,
                    .count = count * together,
                    .sink = op.has_sinks ? float(args.in<T>(CachedAttention::kSinks)[head]) : -INFINITY},
                   context.isa, context.scratch[static_cast<size_t>(worker)]);
  });
}

}  // namespace

int64_t scratch_of(const CachedAttention& op, bool exact) {
  if (exact) return text_scratch_bytes(text_shape(op, 0, op.q_len));
  Carver size(nullptr);
  (void)CachedScratch(padded(op), size);
  return size.used();
}

Status launch(const CachedAttention& op, const Args& args, const KernelContext& context) {
  const auto* spans = args.in<int32_t>(CachedAttention::kSpans);
  for (int64_t row = 0; row < op.rows; ++row) {
    const Span span = span_of(spans, row, op.q_len);
    if (span.held < 0 || span.held + span.count > op.capacity) {
      return error("row {} would have {} tokens; its cache holds {}", row, span.held + span.count,
                   op.capacity);
    }
  }
  with_type(op.dtype, [&]<class T>(T) {
    append<T>(op, args, context);
    context.exact ? attend_exactly<T>(op, args, context) : attend<T>(op, args, context);
  });
  return {};
}

std::vector<GemmShape> products_of(const LastLogits& op, bool exact) {
  if (!exact) return {};
  return {{Layout::NT, op.rows, op.vocab, op.dim, op.dtype, DType::F32, false}};
}

// The last rows, one after another.
int64_t workspace_of(const LastLogits& op, bool exact) {
  return exact && op.q_len > 1 ? align_up(op.rows * op.dim * size_of(op.dtype), 64) : 0;
}

Status launch(const LastLogits& op, const Args& args, const KernelContext& context) {
  const auto* spans = args.in<int32_t>(LastLogits::kSpans);
  const int64_t bytes = op.dim * size_of(op.dtype);
  if (context.exact) {
    const auto* x = args.in<std::byte>(LastLogits::kX);
    std::byte* product = args.workspace;
    if (op.q_len > 1) {
      for (int64_t row = 0; row < op.rows; ++row) {
        const int64_t last = std::max<int64_t>(span_of(spans, row, op.q_len).count, 1) - 1;
        std::memcpy(args.workspace + row * bytes, x + (row * op.q_len + last) * bytes, size_t(bytes));
      }
      x = args.workspace;
      product += workspace_of(op, true);
    }
    context.multiply(products_of(op, true).front(), x, args.in<void>(LastLogits::kW),
                     args.out<float>(LastLogits::kLogits), product);
    cap_logits(args.out<float>(LastLogits::kLogits), op.rows * op.vocab, op.softcap, context);
    return {};
  }
  for (int64_t first = 0; first < op.rows; first += kFewRows) {
    const void* rows[kFewRows];
    const int64_t count = std::min(kFewRows, op.rows - first);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t last = std::max<int64_t>(span_of(spans, first + r, op.q_len).count, 1) - 1;
      rows[r] = args.in<std::byte>(LastLogits::kX) + ((first + r) * op.q_len + last) * bytes;
    }
    few_multiply(context.isa, op.dtype, std::span<const void* const>(rows, size_t(count)), op.vocab, op.dim,
                 context.pool, args.in<void>(LastLogits::kW),
                 args.out<float>(LastLogits::kLogits) + first * op.vocab);
  }
  cap_logits(args.out<float>(LastLogits::kLogits), op.rows * op.vocab, op.softcap, context);
  return {};
}

Status launch(const CopyRows& op, const Args& args, const KernelContext& context) {
  const auto* which = args.in<int32_t>(CopyRows::kWhich);
  auto* x = args.out<std::byte>(CopyRows::kX);
  const int64_t bytes = op.elements * size_of(op.dtype);
  context.pool.parallel_for(op.rows, [&](int64_t row, int) {
    if (which[row] != row) std::memcpy(x + row * bytes, x + which[row] * bytes, size_t(bytes));
  });
  return {};
}

Status launch(const DrawTokens& op, const Args& args, const KernelContext& context) {
  const auto* logits = args.in<float>(DrawTokens::kLogits);
  const auto* draws = args.in<TokenDraw>(DrawTokens::kDraws);
  auto* drawn = args.out<DrawnToken>(DrawTokens::kDrawn);
  context.pool.parallel_for(op.rows, [&](int64_t row, int) {
    drawn[row] = {-1, 0, 0};
    if (draws[row].text < 0) return;
    const std::span<const float> own(logits + int64_t(draws[row].text) * op.vocab, size_t(op.vocab));
    SLUICE_LOOP(context.isa, draw_token, own, draws[row], drawn[row]);
  });
  return {};
}

}  // namespace sluice::core::cpu
