// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (ops/delta.h). A task owns a document, or what of it the chunk has, and a key head
// with the value heads that share it: so each element has one owner.
//
// Within a block of n tokens, from whose state S all start, with G the sums of -decay up to each token,
//   A[i, j] = beta[i] exp(G[i] - G[j]) k[i].k[j] for j < i,   P[i, j] = exp(G[i] - G[j]) q[i].k[j] for j <= i
//   (1 + A) N = beta (V - exp(G) K S),   O = exp(G) Q S + P N,
//   S <- exp(G[n]) S + sum over j of exp(G[n] - G[j]) k[j] N[j]^T
#include <algorithm>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "ops/delta.h"

namespace sluice::core::cpu {
namespace {

// A document's tokens, from the first one on, which has `position` in it.
template <class T>
struct DeltaTask {
  DeltaSizes sizes;
  int64_t key_head, tokens, position;
  const T* qkv;
  const float* gates;
  const float* before;  // null: 0
  T* o;
  float* after;  // null: nobody wants it
  // Memory of the backward pass.
  const T* d_o;
  const float* d_after;  // null: 0
  T* dqkv;
  float* dgates;
  float* d_before;  // null: nobody wants it

  int64_t key_columns() const { return align_up(sizes.key_dim, 16); }
  int64_t value_columns() const { return align_up(sizes.value_dim, 16); }
  // Tokens of the block that begins with token `first`.
  int64_t block(int64_t first) const {
    return std::min(tokens - first, kDeltaBlock - (position + first) % kDeltaBlock);
  }
  int64_t head(int64_t of_group) const { return key_head * sizes.shared() + of_group; }
};

// Rows are padded to 16 columns with zeros.
struct DeltaScratch {
  float *k, *q;                  // [64, key columns], normalised
  float* k_t;                    // [key columns, 64]
  float *k_scale, *q_scale;      // [64], what they were normalised by
  float *kk, *qk;                // [64, 64]
  float *gamma, *minus_a, *p;    // [64, 64]
  float *beta, *g, *e_g, *left;  // [64]; e_g = exp(g), left = exp(g at the end - g)
  float *n, *x, *rows;           // [64, value columns]
  float* k_left;                 // [64, key columns]
  float* states;                 // [value heads of the key head, key columns, value columns]

  DeltaScratch(const DeltaSizes& s, Carver& carver) {
    const int64_t dk = align_up(s.key_dim, 16), dv = align_up(s.value_dim, 16);
    for (float** piece : {&k, &q, &k_t, &k_left}) *piece = carver.take<float>(kDeltaBlock * dk);
    for (float** piece : {&kk, &qk, &gamma, &minus_a, &p})
      *piece = carver.take<float>(kDeltaBlock * kDeltaBlock);
    for (float** piece : {&k_scale, &q_scale, &beta, &g, &e_g, &left})
      *piece = carver.take<float>(kDeltaBlock);
    for (float** piece : {&n, &x, &rows}) *piece = carver.take<float>(kDeltaBlock * dv);
    states = carver.take<float>(s.shared() * dk * dv);
  }
};

struct DeltaBackScratch {
  DeltaScratch forward;
  float* kept;                  // states before blocks, as forward.states, one set behind the other
  float* d_states;              // as forward.states
  float *dk, *dq;               // [64, key columns]
  float *u, *d_o, *dn, *d_x;    // [64, value columns]
  float* n_t;                   // [value columns, 64]
  float *s_t, *ds_t;            // [value columns, key columns]
  float *da, *dp;               // [64, 64]
  float *d_beta, *d_g, *given;  // [64]

  DeltaBackScratch(const DeltaSizes& s, int64_t tokens, Carver& carver) : forward(s, carver) {
    const int64_t dk_ = align_up(s.key_dim, 16), dv = align_up(s.value_dim, 16);
    const int64_t set = s.shared() * dk_ * dv;
    kept = carver.take<float>((tokens / kDeltaBlock + 2) * set);
    d_states = carver.take<float>(set);
    for (float** piece : {&dk, &dq}) *piece = carver.take<float>(kDeltaBlock * dk_);
    for (float** piece : {&u, &d_o, &dn, &d_x, &n_t}) *piece = carver.take<float>(kDeltaBlock * dv);
    for (float** piece : {&s_t, &ds_t}) *piece = carver.take<float>(dk_ * dv);
    for (float** piece : {&da, &dp}) *piece = carver.take<float>(kDeltaBlock * kDeltaBlock);
    for (float** piece : {&d_beta, &d_g, &given}) *piece = carver.take<float>(kDeltaBlock);
  }
};

// Gates of one token after the other, of `heads` heads.
struct DeltaGateRows {
  const float *ba, *a_log, *dt_bias;
  int64_t heads;
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/delta_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kTokensPerGateTask = 64;

// Where each document's tokens begin, and their end.
std::vector<int64_t> documents_of(const int32_t* pos, int64_t tokens) {
  std::vector<int64_t> out{0};
  for (int64_t t = 1; t < tokens; ++t) {
    if (pos[t] == 0) out.push_back(t);
  }
  out.push_back(tokens);
  return out;
}

// The task of each document and key head, with what both directions read.
template <class T>
void for_each_document(const auto& op, const Args& args, const KernelContext& context, auto&& run) {
  using O = std::remove_cvref_t<decltype(op)>;
  const auto* pos = args.in<int32_t>(O::kPos);
  const std::vector<int64_t> documents = documents_of(pos, op.tokens);
  const auto count = std::ssize(documents) - 1;
  context.pool.parallel_for(count * op.sizes.key_heads, [&](int64_t i, int worker) {
    const int64_t document = i / op.sizes.key_heads, first = documents[size_t(document)];
    DeltaTask<T> task{.sizes = op.sizes,
                      .key_head = i % op.sizes.key_heads,
                      .tokens = documents[size_t(document) + 1] - first,
                      .position = pos[first],
                      .qkv = args.in<T>(O::kQkv) + first * op.sizes.columns(),
                      .gates = args.in<float>(O::kGates) + first * 2 * op.sizes.value_heads};
    const bool goes_on = op.has_before && document == 0 && pos[0] > 0;
    if (goes_on) task.before = args.in<float>(op.before_operand());
    run(task, first, document == count - 1, context.scratch[size_t(worker)]);
  });
}

}  // namespace

int64_t scratch_of(const DeltaRule& op) {
  Carver size(nullptr);
  DeltaScratch(op.sizes, size);
  return size.used();
}
int64_t scratch_of(const CachedDelta& op) {
  Carver size(nullptr);
  DeltaScratch(op.sizes, size);
  return size.used();
}
int64_t scratch_of(const DeltaRuleBwd& op) {
  Carver size(nullptr);
  DeltaBackScratch(op.sizes, op.tokens, size);
  return size.used();
}

Status launch(const DeltaRule& op, const Args& args, const KernelContext& context) {
  with_type(op.dtype, [&]<class T>(T) {
    for_each_document<T>(op, args, context,
                         [&](DeltaTask<T>& task, int64_t first, bool last, std::byte* memory) {
                           task.o = args.out<T>(DeltaRule::kO) + first * op.sizes.values();
                           if (last && op.has_after) task.after = args.out<float>(op.after_operand());
                           Carver carver(memory);
                           SLUICE_LOOP(context.isa, run_delta, task, DeltaScratch(op.sizes, carver));
                         });
  });
  return {};
}

Status launch(const DeltaRuleBwd& op, const Args& args, const KernelContext& context) {
  using O = DeltaRuleBwd;
  // Zeros for a state that the first document does not read.
  if (op.has_before && args.in<int32_t>(O::kPos)[0] == 0)
    std::fill_n(args.out<float>(op.d_before_operand()), op.sizes.state(), 0.0f);
  with_type(op.dtype, [&]<class T>(T) {
    for_each_document<T>(
        op, args, context, [&](DeltaTask<T>& task, int64_t first, bool last, std::byte* memory) {
          task.d_o = args.in<T>(O::kDo) + first * op.sizes.values();
          task.dqkv = args.out<T>(O::kDqkv) + first * op.sizes.columns();
          task.dgates = args.out<float>(O::kDgates) + first * 2 * op.sizes.value_heads;
          if (task.before != nullptr) task.d_before = args.out<float>(op.d_before_operand());
          if (last && op.has_after) task.d_after = args.in<float>(op.d_after_operand());
          Carver carver(memory);
          SLUICE_LOOP(context.isa, run_delta_back, task, DeltaBackScratch(op.sizes, op.tokens, carver));
        });
  });
  return {};
}

Status launch(const CachedDelta& op, const Args& args, const KernelContext& context) {
  const auto* spans = args.in<int32_t>(CachedDelta::kSpans);
  const auto* slots = op.cache_rows > 0 ? args.in<int32_t>(CachedDelta::kSlots) : nullptr;
  with_type(op.dtype, [&]<class T>(T) {
    context.pool.parallel_for(op.rows * op.sizes.key_heads, [&](int64_t i, int worker) {
      const int64_t row = i / op.sizes.key_heads, token = row * op.q_len;
      const int64_t held = spans[2 * row], count = std::clamp<int64_t>(spans[2 * row + 1], 0, op.q_len);
      auto* cache =
          args.out<float>(CachedDelta::kCache) + (slots != nullptr ? slots[row] : row) * op.sizes.state();
      const DeltaTask<T> task{.sizes = op.sizes,
                              .key_head = i % op.sizes.key_heads,
                              .tokens = count,
                              .position = held,
                              .qkv = args.in<T>(CachedDelta::kQkv) + token * op.sizes.columns(),
                              .gates = args.in<float>(CachedDelta::kGates) + token * 2 * op.sizes.value_heads,
                              .before = held > 0 ? cache : nullptr,
                              .o = args.out<T>(CachedDelta::kO) + token * op.sizes.values(),
                              .after = count > 0 ? cache : nullptr};
      Carver carver(context.scratch[size_t(worker)]);
      SLUICE_LOOP(context.isa, run_delta, task, DeltaScratch(op.sizes, carver));
      const int64_t columns = op.sizes.shared() * op.sizes.value_dim;
      for (int64_t t = count; t < op.q_len; ++t)
        std::fill_n(task.o + t * op.sizes.values() + task.key_head * columns, columns, T(0.0f));
    });
  });
  return {};
}

Status launch(const DeltaGates& op, const Args& args, const KernelContext& context) {
  context.pool.parallel_for(ceil_div(op.tokens, kTokensPerGateTask), [&](int64_t task, int) {
    const int64_t first = task * kTokensPerGateTask, offset = first * 2 * op.heads;
    const DeltaGateRows rows{args.in<float>(DeltaGates::kBa) + offset, args.in<float>(DeltaGates::kALog),
                             args.in<float>(DeltaGates::kDtBias), op.heads};
    SLUICE_LOOP(context.isa, gate_rows, rows, std::min(kTokensPerGateTask, op.tokens - first),
                args.out<float>(DeltaGates::kGates) + offset);
  });
  return {};
}

// A task owns heads, over all tokens.
Status launch(const DeltaGatesBwd& op, const Args& args, const KernelContext& context) {
  using O = DeltaGatesBwd;
  const DeltaGateRows rows{args.in<float>(O::kBa), args.in<float>(O::kALog), args.in<float>(O::kDtBias),
                           op.heads};
  with_types(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    context.pool.parallel_for(ceil_div(op.heads, 16), [&](int64_t task, int) {
      SLUICE_LOOP(context.isa, gate_rows_back, rows, op, 16 * task, args.in<float>(O::kDgates),
                  args.out<T>(O::kDba), args.out<G>(O::kDaLog), args.out<G>(O::kDdtBias));
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
