// SPDX-License-Identifier: Apache-2.0
// Host side of the own kernels: one function per op family, defined in the .cu file of the same name. Sizes
// are in elements unless a name says bytes; every row length is a multiple of 8 and every base address of 16
// bytes. A function only queues work on `stream`; it returns what cudaLaunchKernel returned.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/limits.h"
#include "ops/draws.h"
#include "ops/gpu_partials.h"
#include "ops/step_args.h"

namespace sluice::core::cuda {

using bf16 = __nv_bfloat16;

// Where kernels are queued. A function that takes one instead of a stream may be told that its first kernel
// may begin early. It begins while the kernel before it still runs, if that is one of such a function, too,
// otherwise when its blocks have ended. Until it waits for that one it reads weights, constants, inputs, and
// what passes before left in a cache. The kernel before it writes none of them.
struct Queue {
  cudaStream_t stream;
  bool early = false;

  Queue(cudaStream_t on, bool begins_early = false) : stream(on), early(begins_early) {}
};
// Whether kernels can begin early: they were compiled for compute capability 9.0 or up.
bool kernels_begin_early();

// --- embed.cu ---
// T is bf16 or float, here and below. `residual` may be null.
template <class T>
cudaError_t embed(const int32_t* ids, const T* table, const T* residual, T* y, int64_t tokens, int64_t dim,
                  float scale, cudaStream_t stream);

// G, of gradients, is float or bf16, here and below; where T is float, it is float.
template <class T, class G>
cudaError_t embed_bwd(const int32_t* ids, const T* dy, G* dtable, void* workspace, int64_t tokens,
                      int64_t vocab, int64_t dim, float scale, bool accumulate, cudaStream_t stream);

// --- rms_norm.cu ---
// What is added before and multiplied: x / sqrt(mean(x^2) + eps) * (offset + w) * scale.
struct NormForm {
  float eps, offset, scale;
};

// `residual` is null when none is added.
template <class T>
cudaError_t rms_norm(const T* x, const T* w, const T* residual, T* y, int64_t tokens, int64_t dim,
                     const NormForm& form, Queue queue);

// The same in 8 bits (ops/norm.h), by row and turned, of a multiple of 8 tokens. `workspace` has 8 bytes for
// each token, and 4 for each column.
cudaError_t rms_norm_narrow(const bf16* x, const bf16* w, uint8_t* y, uint8_t* turned, void* workspace,
                            int64_t tokens, int64_t dim, const NormForm& form, cudaStream_t stream);

// `dres` is null when no residual gradient is added.
template <class T, class G>
cudaError_t rms_norm_bwd(const T* x, const T* w, const T* dy, const T* dres, T* dx, G* dw, void* workspace,
                         int64_t tokens, int64_t dim, const NormForm& form, bool accumulate,
                         cudaStream_t stream);

// --- layer_norm.cu ---
// w and bias are null where there are none.
cudaError_t layer_norm(const bf16* x, const bf16* w, const bf16* bias, bf16* y, int64_t tokens, int64_t dim,
                       float eps, float scale, Queue queue);

// w, dw, dbias and dres are null where there are none; w and dw go together.
template <class G>
struct LayerNormGradient {
  const bf16 *x, *w, *dy, *dres;
  bf16* dx;
  G *dw, *dbias;
  bool accumulate_dw, accumulate_dbias;
};
template <class G>
cudaError_t layer_norm_bwd(const LayerNormGradient<G>& g, void* workspace, int64_t tokens, int64_t dim,
                           float eps, float scale, cudaStream_t stream);

// --- dropout.cu ---
// Dropout of ops/dropout.h. Its width is a multiple of 8.
struct DropoutForm {
  int64_t width, seq_len, first;
  uint64_t target;
  float rate;
  bool accumulate;
};
template <class T>
cudaError_t dropout(const T* x, const DropoutArgs* args, T* y, int64_t tokens, const DropoutForm& form,
                    cudaStream_t stream);

// --- magnitude.cu ---
// Norms of the rows of w + scale * b a, of `rows` rows each of w, b and norms; a is [rank, in].
template <class T>
cudaError_t row_norms(const T* w, const T* a, const T* b, float* norms, int64_t rows, int64_t in,
                      int64_t rank, float scale, cudaStream_t stream);

// Columns of rows, of which `adapted` from `first` on are scaled, by m / norms (Magnitude of ops/low_rank.h).
struct MagnitudeForm {
  int64_t columns, first, adapted;
  const float *m, *norms;
};
// `bias` and `residual` may be null.
template <class T>
cudaError_t magnitude(const T* z, const T* bias, const T* residual, T* y, int64_t tokens,
                      const MagnitudeForm& form, cudaStream_t stream);
template <class T, class G>
cudaError_t magnitude_bwd(const T* dy, const T* z, T* dz, G* dm, void* workspace, int64_t tokens,
                          const MagnitudeForm& form, bool accumulate, cudaStream_t stream);

// --- rope.cu ---
// The rotation of rows: their positions, and the frequencies and the scale of all (Linear in ops/linear.h).
struct Rotary {
  const int32_t* pos;
  const float* inv_freq;
  float scale;
  float still_scale = 0;  // 0: scale
  // A token's temperature, as in ops/attention.h.
  float beta = 0;
  int64_t context = 1;
};

// Rotates the first `heads` heads of every row in place; rows are `stride` apart.
template <class T>
cudaError_t rope(T* y, const Rotary& rotary, int64_t tokens, int64_t stride, int64_t heads, int64_t head_dim,
                 Queue queue);

// Rotates back all heads of dq and the first half of the heads of dkv; In is float or bf16, and float where T
// is.
template <class In, class T>
cudaError_t rope_bwd(const In* dq_rotated, const In* dkv_rotated, const Rotary& rotary, T* dq, T* dkv,
                     int64_t tokens, int64_t q_heads, int64_t kv_heads, int64_t head_dim,
                     cudaStream_t stream);

// --- head_norm_rope.cu ---
// Columns of y behind `heads` heads: `normed` heads that are normalised alone, from x or, if `again`, the
// first heads of x once more; then `copied` ones of x. `whole`: all heads are one row, and w has an element
// for each of its; none are normed.
struct HeadShape {
  int heads, head_dim, normed;
  bool again, whole;
  int64_t copied;

  __host__ __device__ int x_heads() const { return heads + (again ? 0 : normed); }
  __host__ __device__ int64_t head_columns() const { return int64_t{heads} * head_dim; }
  __host__ __device__ int64_t x_columns() const { return int64_t{x_heads()} * head_dim + copied; }
  __host__ __device__ int64_t y_columns() const { return int64_t{heads + normed} * head_dim + copied; }
};
cudaError_t head_norm_rope(const bf16* x, const bf16* w, const Rotary& rotary, bf16* y, int64_t tokens,
                           const HeadShape& shape, const NormForm& form, Queue queue);

// D is float or bf16.
template <class D, class G>
cudaError_t head_norm_rope_bwd(const D* dy, const bf16* x, const bf16* w, const Rotary& rotary, bf16* dx,
                               G* dw, void* workspace, int64_t tokens, const HeadShape& shape,
                               const NormForm& form, bool accumulate, cudaStream_t stream);

// --- bias.cu ---
// dbias (+)= the sum of the rows of dy
template <class G>
cudaError_t bias_grad(const bf16* dy, G* dbias, void* workspace, int64_t tokens, int64_t out, bool accumulate,
                      cudaStream_t stream);

// --- swiglu.cu ---
enum class Activation : uint8_t { Silu, GeluTanh, Gelu, QuickGelu };
struct GateForm {
  Activation activation;
  float limit;  // 0: none
};
// Rows of gates and of ups are `stride` apart, and so are those of their gradients; `up` is null where there
// is none.
template <class T>
struct GateRows {
  const T* gate;
  const T* up;
  int64_t stride;
};
// Where T is float, the activation is Silu.
template <class T>
cudaError_t swiglu(const GateRows<T>& rows, T* y, int64_t tokens, int64_t dim, const GateForm& form,
                   Queue queue);
template <class T>
cudaError_t swiglu_bwd(const GateRows<T>& rows, const T* dy, T* d_gate, T* d_up, T* y, int64_t tokens,
                       int64_t dim, const GateForm& form, cudaStream_t stream);

// The same with results in 8 bits (ops/mlp.h): y by row, of at most most_row_of_8_bits() columns; dgu by row
// and turned, and y turned, of a multiple of 8 tokens. Rows of gates and of ups lie in one matrix.
// `workspace` has 4 bytes for each token, for each column of dgu and for each of y.
cudaError_t swiglu_narrow(const GateRows<bf16>& rows, uint8_t* y, int64_t tokens, int64_t dim,
                          const GateForm& form, cudaStream_t stream);
struct NarrowGlu {
  uint8_t *dgu, *dgu_turned, *y_turned;
};
cudaError_t swiglu_bwd_narrow(const GateRows<bf16>& rows, const bf16* dy, const NarrowGlu& out,
                              void* workspace, int64_t tokens, int64_t dim, const GateForm& form,
                              cudaStream_t stream);

// ExpertGluBwd's operands; bias and dout are null where there is no bias.
struct ExpertGlu {
  const bf16 *gu, *dy;
  const float* gates;
  const int32_t *begin, *choice;
  bf16 *dgu, *gated;
  float* dgates;
  const bf16 *bias, *dout;
  int64_t rows, dim, biased;
  int32_t experts, top_k;
};
cudaError_t expert_glu_bwd(const ExpertGlu& rows, const GateForm& form, cudaStream_t stream);

// --- cast.cu ---
template <class In, class Out>
cudaError_t cast(const In* x, Out* y, int64_t elements, cudaStream_t stream);
// Codes of f8e4m3, or of 4 bits with 16 numbers, and scales of blocks of a multiple of 8 (ops/packed.h).
struct PackedRows {
  const uint8_t* codes;
  const float* numbers;  // on the host; null: f8e4m3
  const float* scales;
  const uint8_t* powers;  // or these, of two
  int64_t block;          // 0: no scales
};
template <class Out>
cudaError_t expand(const PackedRows& x, Out* y, int64_t elements, cudaStream_t stream);
// y = x, or y += x
template <class T, class G>
cudaError_t add_gradient(const T* x, G* y, int64_t elements, bool accumulate, cudaStream_t stream);
// z = x + y, in f32
template <class X, class Y, class Z>
cudaError_t add_gradients(const X* x, const Y* y, Z* z, int64_t elements, cudaStream_t stream);
// y = x * factor[0]
template <class T>
cudaError_t scale_by(const T* x, const float* factor, T* y, int64_t elements, cudaStream_t stream);

// --- quantize.cu ---
// x[rows, cols], whose rows are `stride` apart, a multiple of 8, in f8e4m3, or f8e5m2, by row, and turned by
// column; null: not. Elements come first, and scales follow. Columns are a multiple of 8, and so are rows
// with `turned`. `workspace` has 4 bytes for each of both. Without `turned` columns are at most
// most_row_of_8_bits().
cudaError_t quantize(bool e5m2, const bf16* x, int64_t stride, uint8_t* y, uint8_t* turned, void* workspace,
                     int64_t rows, int64_t cols, cudaStream_t stream);

// The end of a product of 8 bits that the library does not scale: d = sums, times the scale of the row of
// either operand, + c + bias. What is null is absent. Columns and strides are multiples of 8. `d` may be
// `sums`.
template <class D>
struct ScaledSums {
  const float* sums;
  int64_t sums_stride;
  const float *of_rows, *of_columns;
  const D* c;  // as d
  const bf16* bias;
  D* d;
  int64_t rows, columns, stride;
};
template <class D>
cudaError_t scale_sums(const ScaledSums<D>& sums, cudaStream_t stream);

// --- add_by_tree.cu ---
// The values of so many ranks: those of `rank`, and those of the others, which lie behind one another in the
// order of ranks, each `stride` elements behind the one before, a multiple of 8.
struct TreeParts {
  int rank, ranks;
  int64_t stride;
};
// own = their sum, in f32 by the tree of sum_over_processes, rounded once. T is float or bf16; any number of
// elements.
template <class T>
cudaError_t add_by_tree(T* own, const T* received, const TreeParts& parts, int64_t elements,
                        cudaStream_t stream);

// --- loss.cu ---
// Per row of logits: row_loss = -log p(target), 0 where target < 0, with a minus where no logit is larger
// than the target's. With `gradients`, each row's memory, or in bf16 its first half, becomes loss_scale *
// weight * d(-log p(target))/d(logits) in G. Rows are `stride` floats apart, a multiple of 8. Weights are by
// row, here and below; null: all are 1. Logits are capped unless `softcap` is 0.
//
// top: so many other tokens of each row, as HeadLoss::top has them; log_probs may be null.
struct TopOfRows {
  const int32_t* tokens = nullptr;
  const float* weights = nullptr;
  float* log_probs = nullptr;
  int count = 0;
};
template <class G>
cudaError_t softmax_loss(float* logits, const int32_t* targets, const float* weights, const TopOfRows& top,
                         const StepArgs* args, float* row_loss, int64_t rows, int64_t vocab, int64_t stride,
                         float softcap, bool gradients, cudaStream_t stream);
// loss[0] = or += sum of weight * |row_loss|, loss[1] = or += how many have a minus
cudaError_t sum_loss(const float* row_loss, const float* weights, double* loss, int64_t rows, bool accumulate,
                     cudaStream_t stream);
// loss[row] = weight * |row_loss[row]|, loss[rows + row] = 1 where row_loss has a minus, else 0
cudaError_t token_losses(const float* row_loss, const float* weights, double* loss, int64_t rows,
                         cudaStream_t stream);
// out[row] = -|row_loss[row]|
cudaError_t log_probs(const float* row_loss, float* out, int64_t rows, cudaStream_t stream);
// See DrawTokens.
cudaError_t draw_tokens(const float* logits, const TokenDraw* draws, DrawnToken* drawn, int64_t rows,
                        int64_t vocab, cudaStream_t stream);

// --- norm.cu ---
template <class G>
cudaError_t sum_sq(const G* g, double* sums, void* workspace, int64_t elements, int64_t slot, int64_t slots,
                   bool first, cudaStream_t stream);
cudaError_t clip_scale(const double* sums, float* clip, int64_t slots, float max_norm, cudaStream_t stream);

// --- adamw.cu, sgd_momentum.cu, lion.cu ---
// Which elements of which parameter an update is of.
struct UpdateRange {
  int64_t elements, first;
  uint64_t object;
};
// An optimizer's rule: its parameters, how many parts its state has, and a bit for each of them
// that sums squares.
struct AdamWRule {
  static constexpr int kStates = 2;
  static constexpr unsigned kSquares = 0b10;
  float beta1, beta2, eps, weight_decay;
  double exact_beta1, exact_beta2;  // as their powers need them
};
struct SgdMomentumRule {
  static constexpr int kStates = 1;
  static constexpr unsigned kSquares = 0;
  float momentum, weight_decay;
  bool nesterov;
};
struct LionRule {
  static constexpr int kStates = 1;
  static constexpr unsigned kSquares = 0;
  float beta1, beta2, weight_decay;
};
// The rule of the direction alone; the rest is for muon_apply().
struct MuonRule {
  static constexpr int kStates = 1;
  static constexpr unsigned kSquares = 0;
  float momentum, scale, weight_decay;
  bool nesterov;
};
// The type of compact state (ops/compact.h): bytes, then the groups' scales.
struct Compact {
  uint8_t byte;
};
// Master weights in f32 or of 8 bits (ops/master.h); both null: there are none.
struct Masters {
  float* f32;
  uint8_t* residual;
};
// G and S are the types of gradient and state. The state is written
// only with `moments`. With f32 masters `p` may be null: f32 parameters are masters without anything beside.
template <class Rule, class G, class S>
cudaError_t update_weights(const UpdateRange& range, const Rule& rule, bf16* p, const G* g,
                           S* const (&state)[Rule::kStates], const Masters& masters, const float* clip,
                           const StepArgs* args, bool stochastic, bool moments, cudaStream_t stream);
// The state alone; those of the rule's parameters that make weights do not matter.
template <class Rule, class G, class S>
cudaError_t update_state(const UpdateRange& range, const Rule& rule, const G* g,
                         S* const (&state)[Rule::kStates], const float* clip, const StepArgs* args,
                         bool stochastic, cudaStream_t stream);

// --- muon.cu ---
// x = u / the root of squares, at least eps
cudaError_t muon_scale(const float* u, const double* squares, float eps, bf16* x, int64_t elements,
                       cudaStream_t stream);
// b = linear + cubic a + quintic b, of square matrices
struct MuonPolynomial {
  float linear, cubic, quintic;
};
cudaError_t muon_polynomial(const MuonPolynomial& polynomial, const bf16* a, bf16* b, int64_t side,
                            cudaStream_t stream);
cudaError_t muon_apply(const UpdateRange& range, const MuonRule& rule, const bf16* x, bf16* p,
                       const Masters& masters, bool stochastic, const float* clip, const StepArgs* args,
                       cudaStream_t stream);

// --- adafactor.cu ---
// A matrix of the parameter's elements from `first` on.
struct AdafactorMatrix {
  int64_t rows, cols, first;
  uint64_t object;
};
struct AdafactorRule {
  double decay_rate;
  float eps, eps_scale, clip_threshold, weight_decay;
  bool scale_parameter, relative_step, warmup_init;
};
// Workspace: AdafactorParts.
struct AdafactorSpace {
  float *row_factors, *column_factors, *row_sums, *weight_sums, *column_sums, *scalars;
};
template <class G>
cudaError_t adafactor(const AdafactorMatrix& matrix, const AdafactorRule& rule, bf16* p, const G* g,
                      float* row, float* col, const Masters& masters, const AdafactorSpace& space,
                      const float* clip, const StepArgs* args, bool stochastic, cudaStream_t stream);

// --- few_rows.cu ---
// Products that are limited by reading the weights have at most so many rows.
constexpr int64_t kFewRows = 8;

// y[rows, out] = x[rows, in] w[out, in]^T + bias + residual, rotated as ops/linear.h says; what is null is
// absent.
struct FewRows {
  const bf16* x;
  const bf16* w;
  int64_t rows, out, in;
  const bf16* bias;
  const bf16* residual;
  Rotary rotary;
  int64_t rope_heads, head_dim;
  // With spans, row r of x is the last that counts of q_len rows (ops/generation.h).
  const int32_t* spans;
  int64_t q_len;
  float softcap;  // of y; 0: none
};
// REQUIRES: rows <= kFewRows
cudaError_t few_rows(const FewRows& product, bf16* y, Queue queue);
cudaError_t few_rows(const FewRows& product, float* y, Queue queue);
// Any number of rows. REQUIRES: spans
cudaError_t last_logits(FewRows product, float* logits, Queue queue);

// --- row_product.cu ---
// d[m, n] = x[m, k] w[n, k]^T + c + bias, rows of d and of c `stride` apart; what is null is absent. An
// element is summed up in the order of k, 16 at a time, however many rows there are: as grouped_linear() does
// it. REQUIRES: n and k are multiples of 8, the stride is even
template <class D>
struct RowProduct {
  const bf16 *x, *w;
  const D* c;
  const bf16* bias;
  D* d;
  int64_t m, n, k, stride;
};
template <class D>
cudaError_t row_product(const RowProduct<D>& product, cudaStream_t stream);
// The last rows that count of q_len each, by spans as FewRows has them, one after another. REQUIRES: columns
// are a multiple of 8
cudaError_t last_rows(const bf16* x, const int32_t* spans, bf16* to, int64_t rows, int64_t q_len,
                      int64_t columns, cudaStream_t stream);
// logit = cap tanh(logit / cap), as softmax_loss() has it.
cudaError_t cap_logits(float* logits, int64_t count, float cap, cudaStream_t stream);

// --- conv.cu ---
// As in ShortConv; `before` may be null, and so may be what is made or read of pieces beside this one. With
// two gates x has them, too: [tokens, 3, dim].
template <class T>
struct ConvBlock {
  const T* x;
  const T* w;
  const T* before;
  const int32_t* pos;
  int64_t tokens, dim, width;
};
cudaError_t short_conv(const ConvBlock<bf16>& block, bf16* y, bf16* tail, cudaStream_t stream);
template <class G>
cudaError_t short_conv_bwd(const ConvBlock<bf16>& block, const bf16* dy, bf16* dx, G* dw, bf16* d_before,
                           const bf16* d_tail, void* workspace, bool accumulate, cudaStream_t stream);
template <class T>
struct CachedConvBlock {
  const T* x;
  const T* w;
  const int32_t* spans;
  const int32_t* slots;  // of the cache, by text; null: in order. Here and below.
  T* cache;
  T* y;
  int64_t rows, q_len, dim, width;
};
cudaError_t cached_conv(const CachedConvBlock<bf16>& block, cudaStream_t stream);

// --- conv_silu.cu ---
// The same where the input is convolved as it is.
template <class T>
cudaError_t silu_conv(const ConvBlock<T>& block, T* y, T* tail, cudaStream_t stream);
template <class T, class G>
cudaError_t silu_conv_bwd(const ConvBlock<T>& block, const T* dy, T* dx, G* dw, T* d_before, const T* d_tail,
                          void* workspace, bool accumulate, cudaStream_t stream);
template <class T>
cudaError_t cached_silu_conv(const CachedConvBlock<T>& block, cudaStream_t stream);

// --- delta.cu, delta_bwd.cu ---
// As in DeltaRule and DeltaRuleBwd, with their workspace (DeltaParts). Null: `before`, where the chunk does
// not go on; `after` and `d_after`; `d_before`.
template <class T>
struct DeltaBlocks {
  int key_heads, value_heads, key_dim, value_dim, slices;
  float eps;
  int64_t tokens;
  const T* qkv;
  const float* gates;
  const int32_t* pos;
  const float* before;
  T* o;
  float* after;

  const T* d_o;
  T* dqkv;
  float *dgates, *d_before;
  const float* d_after;

  int32_t* table;
  T* keys;
  float *scales, *sums;
  T *solved, *scores;
  T *changes, *d_changes, *states, *d_states;

  __host__ __device__ int64_t values() const { return int64_t{value_heads} * value_dim; }
  __host__ __device__ int64_t columns() const { return int64_t{2} * key_heads * key_dim + values(); }
  __host__ __device__ int shared() const { return value_heads / key_heads; }
  // Whether the first document began before the chunk, in one whose state there is. On the device.
  __host__ __device__ bool goes_on() const { return before != nullptr && pos[0] > 0; }
  // Blocks of threads for each head's blocks of tokens, of which there may be more, and for each share.
  unsigned block_grid() const { return unsigned(delta_kept_states(tokens)); }
  unsigned share_grid() const {
    const int64_t documents = tokens / 1024 < 1 ? 1 : tokens / 1024 < 16 ? tokens / 1024 : 16;
    return unsigned(slices * value_heads * documents);
  }
  __host__ __device__ const T* values_of(int head) const {
    return qkv + int64_t{2} * key_heads * key_dim + int64_t{head} * value_dim;
  }
  // q (0) or k (1) of a token, normalised.
  __host__ __device__ int64_t key_row(int64_t token, int which, int key_head) const {
    return (token * 2 + which) * key_heads + key_head;
  }
  __host__ __device__ T* key_rows(int64_t token, int which, int key_head, int columns) const {
    return keys + key_row(token, which, key_head) * columns;
  }
};
template <class T>
cudaError_t delta_rule(const DeltaBlocks<T>& block, cudaStream_t stream);
template <class T>
cudaError_t delta_rule_bwd(const DeltaBlocks<T>& block, cudaStream_t stream);
// Leaves what the way back reads: states before blocks, and changes.
template <class T>
cudaError_t delta_states(const DeltaBlocks<T>& block, cudaStream_t stream);

// --- cached_delta.cu ---
template <class T>
struct CachedDeltaBlock {
  int key_heads, value_heads, key_dim, value_dim, slices;
  float eps;
  const T* qkv;
  const float* gates;
  const int32_t* spans;
  const int32_t* slots;
  float* cache;
  T* o;
  int64_t rows, q_len;
};
template <class T>
cudaError_t cached_delta(const CachedDeltaBlock<T>& block, cudaStream_t stream);

// --- delta_gates.cu ---
cudaError_t delta_gates(const float* ba, const float* a_log, const float* dt_bias, float* gates,
                        int64_t tokens, int64_t heads, cudaStream_t stream);
template <class T, class G>
cudaError_t delta_gates_bwd(const float* ba, const float* a_log, const float* dt_bias, const float* dgates,
                            T* dba, G* da_log, G* ddt_bias, void* workspace, int64_t tokens, int64_t heads,
                            bool accumulate_a, bool accumulate_dt, cudaStream_t stream);

// --- head_gate.cu ---
// `w` is null where heads are not normalised.
template <class T>
struct HeadGates {
  const T *x, *z;
  const float* w;
  int64_t heads;  // of all tokens
  int head_dim;
  float eps;
};
template <class T>
cudaError_t head_gate(const HeadGates<T>& block, T* y, cudaStream_t stream);
template <class T, class G>
cudaError_t head_gate_bwd(const HeadGates<T>& block, const T* dy, T* dx, T* dz, G* dw, void* workspace,
                          int64_t tokens, bool accumulate, cudaStream_t stream);

// --- cached_attention.cu ---
// Tokens and heads as in CachedAttention; `partial` is its workspace, null and without splits where the keys
// are not split.
struct CachedBlock {
  const bf16* q;
  const bf16* kv;
  const int32_t* spans;
  const int32_t* slots;
  bf16* cache;
  bf16* o;
  float* partial;
  int64_t splits, rows, q_len, capacity, q_heads, kv_heads, head_dim, window;
  float scale;        // of the scores: 1 / sqrt(head_dim)
  float softcap;      // of the scores; 0: none
  const bf16* sinks;  // of query heads; null: none
  bool exact;         // with the bits of exact_attention_fwd(). REQUIRES: no splits, and no sinks
};
cudaError_t cached_attention(const CachedBlock& block, Queue queue);
// See CopyRows. REQUIRES: row_bytes is a multiple of 16
cudaError_t copy_rows(const int32_t* which, void* x, int64_t rows, int64_t row_bytes, cudaStream_t stream);

// --- attention.cu, attention_bwd.cu, attention_merge.cu ---
// One attention block, as in AttnShape. `pos` is read only when `packed`.
struct AttentionSizes {
  const int32_t* pos;
  int64_t rows, q_len, kv_len, q_heads, kv_heads, head_dim, distance;
  float scale;  // of the scores: 1 / sqrt(head_dim)
  bool packed;
  int64_t window;
  float softcap;  // of the scores; 0: none
};
template <class T>
struct AttentionBlock : AttentionSizes {
  const T* q;
  const T* kv;
};
cudaError_t attention_fwd(const AttentionBlock<bf16>& block, bf16* o, float* lse, cudaStream_t stream);
// The same with keys in tiles that are counted from a document's first. A query's bits depend neither on
// where its document lies nor on what is beside it. REQUIRES: distance is 0
cudaError_t exact_attention_fwd(const AttentionBlock<bf16>& block, bf16* o, float* lse, cudaStream_t stream);

// delta[row, head, i] = sum over the head of o * do
template <class T>
cudaError_t attention_delta(const AttentionSizes& block, const T* o, const T* d_o, float* delta,
                            cudaStream_t stream);
// dq and dkv are overwritten.
cudaError_t attention_bwd(const AttentionBlock<bf16>& block, const bf16* d_o, const float* lse,
                          const float* delta, bf16* dq, bf16* dkv, cudaStream_t stream);

// attention_f32.cu: the same in f32, without a soft cap.
cudaError_t attention_fwd(const AttentionBlock<float>& block, float* o, float* lse, cudaStream_t stream);
cudaError_t attention_bwd(const AttentionBlock<float>& block, const float* d_o, const float* lse,
                          const float* delta, float* dq, float* dkv, cudaStream_t stream);

// Merges a block's result into o and lse by log-sum-exp; lse is [rows, heads, q_len].
template <class T>
cudaError_t attention_merge(const T* block_o, const float* block_lse, float* o, float* lse, int64_t rows,
                            int64_t q_len, int64_t heads, int64_t head_dim, cudaStream_t stream);

// --- attention_sinks.cu ---
// Adds the heads' sinks to lse, and leaves of o its share.
cudaError_t add_sinks(const bf16* sinks, bf16* o, float* lse, int64_t rows, int64_t q_len, int64_t heads,
                      int64_t head_dim, cudaStream_t stream);
template <class G>
cudaError_t sink_grad(const bf16* sinks, const float* lse, const bf16* o, const bf16* d_o, G* d_sinks,
                      void* workspace, int64_t tokens, int64_t q_len, int64_t heads, int64_t head_dim,
                      bool accumulate, cudaStream_t stream);

// --- grouped.cu, experts.cu ---
// Rows of a routing (ops/experts.h), and the experts whose products are meant.
struct Grouping {
  const int32_t* routing;
  int64_t experts, rows, top_k;
  int64_t first, count;

  const int32_t* choices() const { return routing + experts + 1; }
  const int32_t* row_of_choice() const { return choices() + rows; }
};
// y[i] = x[i] w_e^T (+ bias_e), bias null where there is none; and dx[i] = dy[i] w_e. If `gathers`, the first
// matrix has rows of tokens. Without `accumulate` rows of other experts become 0.
cudaError_t grouped_linear(const Grouping& g, const bf16* x, const bf16* w, const bf16* bias, bf16* y,
                           int64_t out, int64_t in, bool gathers, bool accumulate, cudaStream_t stream);
cudaError_t grouped_dgrad(const Grouping& g, const bf16* dy, const bf16* w, bf16* dx, int64_t out, int64_t in,
                          bool gathers, bool accumulate, cudaStream_t stream);
template <class G>
cudaError_t grouped_wgrad(const Grouping& g, const bf16* dy, const bf16* x, G* dw, int64_t out, int64_t in,
                          bool gathers_dy, bool gathers_x, bool accumulate, cudaStream_t stream);
// Low-rank adapters of experts, of the sizes of ExpertRank in ops/experts.h, which says what these make.
struct RankForm {
  int64_t rank, parts, part, at, columns;
  float scale;
};
cudaError_t grouped_low_rank(const Grouping& g, const RankForm& form, const bf16* u, const bf16* b, bf16* y,
                             bool turned, cudaStream_t stream);
cudaError_t grouped_low_rank_dgrad(const Grouping& g, const RankForm& form, const bf16* dy, const bf16* b,
                                   bf16* du, bool gathers, bool accumulate, cudaStream_t stream);
template <class G>
cudaError_t grouped_low_rank_wgrad(const Grouping& g, const RankForm& form, const bf16* dy, const bf16* u,
                                   G* db, bool gathers, bool accumulate, cudaStream_t stream);
// Sums rows, or with gates the tokens' rows times these.
template <class G>
cudaError_t grouped_bias_grad(const Grouping& g, const bf16* dy, const float* gates, G* dbias, int64_t out,
                              bool accumulate, cudaStream_t stream);

struct RouterSizes {
  int64_t tokens, experts, top_k;
};
enum class RouterKind : uint8_t { Softmax, Chosen, Sigmoid };
struct RouterForm {
  RouterKind score;
  bool normalised;
  float scale;
};
// Terms of the gradient of logits: of each softmax score `balance` times the round's choices of its expert,
// and of the squares of log-sums `z`.
struct RouterTerms {
  bool wanted;
  double balance;
  float z;
};
// `bias` and `round` are null where there are none.
cudaError_t route(const float* logits, const float* bias, float* gates, int32_t* chosen, const RouterSizes& s,
                  const RouterForm& form, cudaStream_t stream);
cudaError_t route_bwd(const float* logits, const int32_t* chosen, const float* dgates, const double* round,
                      bf16* dlogits, const RouterSizes& s, const RouterForm& form, const RouterTerms& terms,
                      cudaStream_t stream);
cudaError_t router_load(const float* logits, const int32_t* chosen, double* layer, bool add_layer,
                        double* round, bool add_round, void* workspace, const RouterSizes& s,
                        cudaStream_t stream);
cudaError_t sort_by_expert(const int32_t* chosen, int32_t* routing, void* workspace, const RouterSizes& s,
                           cudaStream_t stream);
// `row` is of each choice; gates and residual are null where there are none.
cudaError_t combine_experts(const bf16* x, const int32_t* row, const float* gates, const bf16* residual,
                            bf16* y, int64_t tokens, int64_t dim, int64_t top_k, cudaStream_t stream);
// y[t] += bias, of tokens' logits.
cudaError_t add_bias(float* y, const bf16* bias, int64_t tokens, int64_t columns, cudaStream_t stream);
// As in ScaleGates and ScaleGatesBwd, whose dgates are scale_gates() of dy.
template <class T>
cudaError_t scale_gates(const float* x, const int32_t* chosen, const T* scales, float* y, int64_t rows,
                        cudaStream_t stream);
template <class G>
cudaError_t scales_grad(const float* gates, const int32_t* chosen, const float* dy, G* dscales,
                        const RouterSizes& s, bool accumulate, cudaStream_t stream);
cudaError_t gated_add(const bf16* x, const float* gate, const bf16* residual, bf16* y, int64_t tokens,
                      int64_t dim, cudaStream_t stream);
cudaError_t gated_add_bwd(const bf16* x, const float* gate, const bf16* dy, bf16* dx, bf16* dgate,
                          int64_t tokens, int64_t dim, cudaStream_t stream);

// --- tuning.cu ---
// Fills with bell-shaped random numbers of the given standard deviation.
cudaError_t fill_random(bf16* x, int64_t elements, float scale, uint64_t seed, cudaStream_t stream);
// The same in f8e4m3, of scale 1.
cudaError_t fill_random_e4m3(uint8_t* x, int64_t elements, uint64_t seed, cudaStream_t stream);
// hash[0] += a value that depends on every 4-byte word and its place.
cudaError_t hash_words(const uint32_t* words, int64_t count, uint64_t* hash, cudaStream_t stream);

}  // namespace sluice::core::cuda
