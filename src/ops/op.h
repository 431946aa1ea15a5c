// The schema of every op: attributes, operands with their access, FLOPs and bytes. No kernels here.
//
// An op is a plain struct of attributes. Its operands come in a fixed order, named by the struct's enum; the
// same order is used by Task::uses in a Program and by the operand span a backend receives. Matrices are
// row-major; weights are [out, in] as in Hugging Face checkpoints; `tokens` counts all rows of a chunk.
//
// Every op is a pure function of the operands it reads: running it again on the same bytes writes the same
// bits (on one backend). Recomputation and bit-identical results under every plan rest on this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "ops/step_args.h"

namespace sluice {

enum class Access : uint8_t {
  Read,
  Write,       // overwrites every byte; the old content does not matter
  Accumulate,  // reads the old content and writes the new one
};

struct Operand {
  std::string_view name;
  Access access;
  DType dtype;
  int64_t elements;

  int64_t bytes() const { return elements * size_of(dtype); }
};
using Operands = std::vector<Operand>;

constexpr Access write_or(bool accumulate) {
  return accumulate ? Access::Accumulate : Access::Write;
}

// y[t, :] = table[ids[t], :]
struct Embed {
  static constexpr std::string_view kName = "embed";
  enum { kIds, kTable, kY };
  int64_t tokens, vocab, dim;
  DType dtype;

  Operands operands() const;
  double flops() const { return 0; }
  double traffic() const;
  void fields(auto&& f) const { f("tokens", tokens), f("vocab", vocab), f("dim", dim), f("dtype", dtype); }
};

// dtable[v, :] (+)= sum over t with ids[t] == v of dy[t, :], in token order, summed in fp32.
struct EmbedBwd {
  static constexpr std::string_view kName = "embed_bwd";
  enum { kIds, kDy, kDTable };
  int64_t tokens, vocab, dim;
  DType dtype, grad_dtype;
  bool accumulate;

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const {
    f("tokens", tokens), f("vocab", vocab), f("dim", dim), f("dtype", dtype), f("grad", grad_dtype),
        f("acc", accumulate);
  }
};

// y = x / sqrt(mean(x^2) + eps) * w, row by row, computed in fp32.
struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm";
  enum { kX, kW, kY };
  int64_t tokens, dim;
  float eps;
  DType dtype;

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const { f("tokens", tokens), f("dim", dim), f("eps", eps), f("dtype", dtype); }
};

// dx = d(loss)/dx through RmsNorm, plus `dres` (the gradient that came along the residual) when has_residual.
// dw (+)= sum over rows. The row statistics are computed again from x.
struct RmsNormBwd {
  static constexpr std::string_view kName = "rms_norm_bwd";
  enum { kX, kW, kDy, kDx, kDw, kDres };
  int64_t tokens, dim;
  float eps;
  DType dtype, grad_dtype;
  bool accumulate;    // dw
  bool has_residual;  // kDres is there

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("eps", eps), f("dtype", dtype), f("grad", grad_dtype),
        f("acc", accumulate), f("res", has_residual);
  }
};

// y = x w^T (+ residual). With rope_heads > 0 the first rope_heads * head_dim columns of y are rotated by
// rotary position embedding (halves paired: i with i + head_dim/2) with angle pos[t] * inv_freq[i]; a
// residual and a rotation never come together.
struct Linear {
  static constexpr std::string_view kName = "linear";
  enum { kX, kW, kY, kResidual = 3, kPos = 3, kInvFreq = 4 };
  int64_t tokens, in, out;
  DType dtype;
  bool has_residual = false;
  int64_t rope_heads = 0, head_dim = 0;

  Operands operands() const;
  double flops() const { return 2.0 * double(tokens) * double(in) * double(out); }
  void fields(auto&& f) const {
    f("tokens", tokens), f("in", in), f("out", out), f("dtype", dtype), f("res", has_residual),
        f("rope", rope_heads), f("hd", head_dim);
  }
};

// dx (+)= dy w. Accumulating, a backend may round the product to dx's type before it is added: libraries do
// so in some of their kernels. The sum itself is fp32 either way, rounded once more as it is stored.
struct LinearDgrad {
  static constexpr std::string_view kName = "linear_dgrad";
  enum { kDy, kW, kDx };
  int64_t tokens, in, out;
  DType dtype;
  bool accumulate;

  Operands operands() const;
  double flops() const { return 2.0 * double(tokens) * double(in) * double(out); }
  void fields(auto&& f) const {
    f("tokens", tokens), f("in", in), f("out", out), f("dtype", dtype), f("acc", accumulate);
  }
};

// dw (+)= dy^T x, accumulated as in LinearDgrad.
struct LinearWgrad {
  static constexpr std::string_view kName = "linear_wgrad";
  enum { kDy, kX, kDw };
  int64_t tokens, in, out;
  DType dtype, grad_dtype;
  bool accumulate;

  Operands operands() const;
  double flops() const { return 2.0 * double(tokens) * double(in) * double(out); }
  void fields(auto&& f) const {
    f("tokens", tokens), f("in", in), f("out", out), f("dtype", dtype), f("grad", grad_dtype),
        f("acc", accumulate);
  }
};

// The shape of one attention block: queries of a chunk against one block of keys and values.
//
// A chunk is `rows` independent rows of q_len tokens. distance is the index of the first query minus that of
// the first key within the sequence: 0 is the diagonal block (q_len == kv_len, causal), otherwise the block
// lies wholly before the queries (distance >= kv_len) and rows is 1. Query i may look at key j exactly when
//     distance + i - pos[i] <= j <= distance + i,
// where pos[i] is the query's position inside its document: causal, and never across a document boundary.
// When !packed no document begins inside a row, so the lower bound holds for every j.
struct AttnShape {
  int64_t rows, q_len, kv_len, q_heads, kv_heads, head_dim, distance;
  bool packed;
  DType dtype;

  int64_t tokens() const { return rows * q_len; }
  // Query-key pairs when no document boundary cuts any off.
  double pairs() const {
    const double q = double(q_len), k = double(kv_len);
    return double(rows) * (distance == 0 ? q * (q + 1) / 2 : q * k);
  }
  void fields(auto&& f) const {
    f("rows", rows), f("q", q_len), f("kv", kv_len), f("hq", q_heads), f("hkv", kv_heads), f("hd", head_dim),
        f("dist", distance), f("packed", packed), f("dtype", dtype);
  }
};

// o = softmax(q k^T / sqrt(head_dim)) v over the keys of one block, lse = log of the softmax denominator
// (natural log, scores scaled). q and o are [tokens, q_heads * head_dim]; kv is [rows * kv_len, 2 * kv_heads
// * head_dim] with K in the first half of the columns and V in the second; lse is f32 [rows, q_heads, q_len].
// With merge, o (f32) and lse hold the result over other blocks and become the result over their union
// (log-sum-exp merge). A query with no visible key in the block contributes nothing: o = 0, lse = -inf.
struct AttnFwd {
  static constexpr std::string_view kName = "attn_fwd";
  enum { kQ, kKv, kPos, kO, kLse };
  AttnShape shape;
  DType out_dtype;  // F32 when blocks are merged, otherwise shape.dtype
  bool merge;

  Operands operands() const;
  double flops() const { return 4.0 * shape.pairs() * double(shape.q_heads * shape.head_dim); }
  void fields(auto&& f) const { shape.fields(f), f("out", out_dtype), f("merge", merge); }
};

// Gradients of AttnFwd over one block, given the *global* output and lse. dq is [tokens, q_heads * head_dim],
// dkv is laid out as kv; both are in grad_dtype (F32 when several blocks add up) and accumulate as told.
// They are gradients with respect to the rotated q and k; RopeBwd undoes the rotation.
struct AttnBwd {
  static constexpr std::string_view kName = "attn_bwd";
  enum { kQ, kKv, kPos, kO, kLse, kDo, kDq, kDkv };
  AttnShape shape;
  DType grad_dtype;
  bool accumulate_dq, accumulate_dkv;

  Operands operands() const;
  double flops() const { return 8.0 * shape.pairs() * double(shape.q_heads * shape.head_dim); }
  void fields(auto&& f) const {
    shape.fields(f), f("grad", grad_dtype), f("acc_dq", accumulate_dq), f("acc_dkv", accumulate_dkv);
  }
};

// Rotates the gradients of q and of the K half of kv back and casts them to dtype.
struct RopeBwd {
  static constexpr std::string_view kName = "rope_bwd";
  enum { kDqRotated, kDkvRotated, kPos, kInvFreq, kDq, kDkv };
  int64_t tokens, q_heads, kv_heads, head_dim;
  DType in_dtype, dtype;

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const {
    f("tokens", tokens), f("hq", q_heads), f("hkv", kv_heads), f("hd", head_dim), f("in", in_dtype),
        f("dtype", dtype);
  }
};

// y = x, converted (round to nearest even).
struct Cast {
  static constexpr std::string_view kName = "cast";
  enum { kX, kY };
  int64_t elements;
  DType in_dtype, dtype;

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const { f("n", elements), f("in", in_dtype), f("dtype", dtype); }
};

// y = silu(gate) * up, with gate = gu[:, :dim] and up = gu[:, dim:].
struct Swiglu {
  static constexpr std::string_view kName = "swiglu";
  enum { kGu, kY };
  int64_t tokens, dim;
  DType dtype;

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const { f("tokens", tokens), f("dim", dim), f("dtype", dtype); }
};

// dgu = gradient of Swiglu; y = its output again (bit-identical), which the down projection's weight gradient
// needs: reading gu once serves both.
struct SwigluBwd {
  static constexpr std::string_view kName = "swiglu_bwd";
  enum { kGu, kDy, kDgu, kY };
  int64_t tokens, dim;
  DType dtype;

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const { f("tokens", tokens), f("dim", dim), f("dtype", dtype); }
};

// Cross-entropy of x w^T against targets (-1: does not count), sub_tokens rows of logits at a time, so that
// logits never exist whole. loss[0] (+)= sum over counted rows of -log p(target), f64. Unless forward_only
// also the gradients of args.inv_targets * loss: dx, and dw (accumulated over the sub-chunks in grad_dtype,
// as in LinearDgrad).
struct HeadLoss {
  static constexpr std::string_view kName = "head_loss";
  enum { kX, kW, kTargets, kArgs, kLoss, kDx, kDw };
  int64_t tokens, dim, vocab, sub_tokens;
  DType dtype, grad_dtype;
  bool accumulate_loss, accumulate_dw, forward_only;

  Operands operands() const;
  double flops() const { return (forward_only ? 2.0 : 6.0) * double(tokens) * double(dim) * double(vocab); }
  void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("vocab", vocab), f("sub", sub_tokens), f("dtype", dtype),
        f("grad", grad_dtype), f("acc_loss", accumulate_loss), f("acc_dw", accumulate_dw),
        f("fwd", forward_only);
  }
};

// logits[v] = x[args.row, :] . w[v, :], f32. For sampling.
struct Logits {
  static constexpr std::string_view kName = "logits";
  enum { kX, kW, kArgs, kLogits };
  int64_t tokens, dim, vocab;
  DType dtype;

  Operands operands() const;
  double flops() const { return 2.0 * double(dim) * double(vocab); }
  double traffic() const;
  void fields(auto&& f) const { f("tokens", tokens), f("dim", dim), f("vocab", vocab), f("dtype", dtype); }
};

// sums[slot] = sum of squares of g, f64; with `first`, every other element of sums becomes 0.
struct SumSq {
  static constexpr std::string_view kName = "sum_sq";
  enum { kG, kSums };
  int64_t elements, slot, slots;
  DType dtype;
  bool first;

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const {
    f("n", elements), f("slot", slot), f("slots", slots), f("dtype", dtype), f("first", first);
  }
};

// clip[0] = norm = sqrt(sum of sums, in slot order); clip[1] = min(1, max_norm / (norm + 1e-6)), or 1 when
// max_norm is 0. A norm that is not finite gives clip[1] = 0, which AdamW takes as "skip this update".
struct ClipScale {
  static constexpr std::string_view kName = "clip_scale";
  enum { kSums, kClip };
  int64_t slots;
  float max_norm;

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const { f("slots", slots), f("max", max_norm); }
};

// AdamW (Loshchilov and Hutter) on `elements` consecutive elements of one parameter, element `first` onwards:
//   g' = clip[1] * g;  m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2
//   w -= lr * ((m / bias1) / (sqrt(v / bias2) + eps) + weight_decay * w)
// computed in fp32. With `master`, w is the f32 master copy and p its rounding to dtype (nearest). Without, w
// is p itself; bf16 p, m and v are then rounded stochastically when `stochastic`, by random bits keyed by
// (args.seed, args.step, object, element), else to nearest.
struct AdamW {
  static constexpr std::string_view kName = "adamw";
  enum { kP, kG, kM, kV, kClip, kArgs, kMaster };
  int64_t elements, first;
  uint64_t object;  // the parameter's key for random numbers
  float beta1, beta2, eps, weight_decay;
  DType dtype, grad_dtype, state_dtype;
  bool master, stochastic;
  bool moments = true;  // false: m and v are only read; the same new weights

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const {
    f("n", elements), f("first", first), f("object", object), f("b1", beta1), f("b2", beta2), f("eps", eps),
        f("wd", weight_decay), f("dtype", dtype), f("grad", grad_dtype), f("state", state_dtype),
        f("master", master), f("sr", stochastic), f("moments", moments);
  }
};

// What AdamW without `moments` left out: m and v become what AdamW makes of them, bit for bit.
struct AdamWMoments {
  static constexpr std::string_view kName = "adamw_moments";
  enum { kG, kM, kV, kClip, kArgs };
  int64_t elements, first;
  uint64_t object;  // as AdamW's
  float beta1, beta2;
  DType grad_dtype, state_dtype;
  bool stochastic;

  Operands operands() const;
  double flops() const { return 0; }
  void fields(auto&& f) const {
    f("n", elements), f("first", first), f("object", object), f("b1", beta1), f("b2", beta2),
        f("grad", grad_dtype), f("state", state_dtype), f("sr", stochastic);
  }
};

using Op =
    std::variant<Embed, EmbedBwd, RmsNorm, RmsNormBwd, Linear, LinearDgrad, LinearWgrad, AttnFwd, AttnBwd,
                 RopeBwd, Cast, Swiglu, SwigluBwd, HeadLoss, Logits, SumSq, ClipScale, AdamW, AdamWMoments>;

std::string_view name_of(const Op& op);
Operands operands(const Op& op);
// Multiply-adds count two; elementwise work counts nothing.
double flops(const Op& op);
// Bytes the op must move through memory at least: every operand once, accumulated ones twice.
double traffic(const Op& op);
// All attributes as text, "linear tokens=512 in=320 ...": for dumps and hashes.
std::string text(const Op& op);
// As text(), without attributes that do not change how long the op takes (an update's object and first
// element, SumSq's slot): ops with equal keys cost the same.
std::string cost_key(const Op& op);

}  // namespace sluice
