// SPDX-License-Identifier: Apache-2.0
// The CPU kernels: one launch() per op of ops/, which runs the op on a pool of threads, and what it needs
// beside its operands.
//
// However a kernel cuts its work, each result is summed up in an order that the op alone gives: it depends
// neither on scheduling nor on the number of threads. Elementwise arithmetic and sums are in f32 unless the
// op says otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "backend/buffer.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/thread_pool.h"
#include "base/bytes.h"
#include "base/format.h"
#include "base/network.h"
#include "ops/ops.h"

// The ops of ops/op.h. A kernel includes its own, so that an attribute of another does not compile it again.
namespace sluice::core {
// clang-format off
struct Embed; struct EmbedBwd; struct RmsNorm; struct RmsNormBwd; struct LayerNorm; struct LayerNormBwd;
struct Linear; struct LinearDgrad; struct LinearWgrad; struct AttnFwd; struct AttnBwd; struct Rope;
struct RopeBwd; struct Cast; struct Swiglu; struct SwigluBwd; struct HeadLoss; struct GatherWeights;
struct SumSq; struct ClipScale; struct AdamW; struct AdamWMoments; struct SgdMomentum;
struct SgdMomentumState; struct Lion; struct LionState; struct Adafactor; struct Muon; struct BiasGrad;
struct HeadNormRope; struct HeadNormRopeBwd; struct CachedAttention; struct LastLogits; struct AddGradients;
struct SumOverProcesses; struct ShareWeight; struct ShortConv; struct ShortConvBwd; struct CachedConv;
struct SinkGrad; struct Route; struct RouteBwd; struct RouterLoad; struct SortByExpert;
struct GroupedLinear; struct GroupedDgrad; struct GroupedWgrad; struct GroupedBiasGrad;
struct CombineExperts; struct ExpertGluBwd; struct GatedAdd; struct GatedAddBwd; struct LowRank;
struct LowRankDgrad; struct LowRankWgrad; struct RowNorms; struct Magnitude; struct MagnitudeBwd;
struct GroupedLowRank; struct GroupedLowRankDgrad; struct GroupedLowRankWgrad;
struct DeltaGates; struct DeltaGatesBwd; struct DeltaRule;
struct DeltaRuleBwd; struct CachedDelta; struct HeadGate; struct HeadGateBwd; struct ScaleBy;
struct ScaleGates; struct ScaleGatesBwd; struct Dropout; struct Quantize; struct CopyRows;
struct DrawTokens;
// clang-format on
}  // namespace sluice::core

namespace sluice::core::cpu {

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Threads, scratch and instructions that kernels run with.
struct KernelContext {
  ThreadPool& pool;
  std::span<std::byte* const> scratch;  // one block per thread of the pool
  CpuIsa isa;
  Network* network = nullptr;  // null: there are no other processes
  bool exact = false;          // passes that generate text have the bits of training (BackendOptions::exact)

  void multiply(GemmShape shape, const void* a, const void* b, void* c, std::byte* workspace) const {
    shape.exact = exact;
    cpu::multiply(isa, shape, pool, scratch, a, b, c, workspace);
  }

  // Calls f(first, count) for all ranges of at most `per_task` rows, each as a task.
  template <class F>
  void for_rows(int64_t rows, int64_t per_task, const F& f) const {
    pool.parallel_for(ceil_div(rows, per_task), [&](int64_t task, int) {
      const int64_t first = task * per_task;
      f(first, std::min(per_task, rows - first));
    });
  }
};

struct Args {
  std::span<const Buffer> operands;  // in the op's order
  std::byte* workspace;

  template <class T>
  const T* in(int i) const {
    return operands[static_cast<size_t>(i)].as<const T>();
  }
  template <class T>
  T* out(int i) const {
    return operands[static_cast<size_t>(i)].as<T>();
  }
};

// with_type() of both. Results and gradients are in f32, or in what is computed in: what is computed in f32
// is not rounded afterwards.
template <class F>
void with_types(DType computed, DType result, F&& f) {
  with_type(computed, [&](auto type) {
    if (result == DType::F32) return f(type, float{});
    if (result != computed) not_a_float(result);
    f(type, type);
  });
}

// The products an op runs; to size its workspace and scratch. `exact` is the context's, here and below.
std::vector<GemmShape> products(const Op& op, bool exact);
// Workspace beside that of the op's products.
int64_t own_workspace_bytes(const Op& op, bool exact);
// Scratch per thread.
int64_t scratch_bytes(const Op& op, bool exact);

// REQUIRES: operands and workspace have the sizes the op asks for.
Status launch(const Op& op, const Args& args, const KernelContext& context);

// The elementwise part of Muon: its state, and f32 directions. REQUIRES: the update is not skipped.
void muon_directions(const Muon& op, const Args& args, const KernelContext& context, float* directions);
// y = x, as Cast does it.
void cast(const NumberFormat& from, const void* x, int64_t elements, DType dtype, void* y,
          const KernelContext& context);
// logit = cap * tanh(logit / cap), of `count`; a cap of 0 leaves them.
void cap_logits(float* logits, int64_t count, float cap, const KernelContext& context);
Status launch(const Embed& op, const Args& args, const KernelContext& context);
Status launch(const EmbedBwd& op, const Args& args, const KernelContext& context);
Status launch(const RmsNorm& op, const Args& args, const KernelContext& context);
Status launch(const RmsNormBwd& op, const Args& args, const KernelContext& context);
Status launch(const LayerNorm& op, const Args& args, const KernelContext& context);
Status launch(const LayerNormBwd& op, const Args& args, const KernelContext& context);
Status launch(const Linear& op, const Args& args, const KernelContext& context);
Status launch(const LinearDgrad& op, const Args& args, const KernelContext& context);
Status launch(const LinearWgrad& op, const Args& args, const KernelContext& context);
Status launch(const AttnFwd& op, const Args& args, const KernelContext& context);
Status launch(const AttnBwd& op, const Args& args, const KernelContext& context);
Status launch(const Rope& op, const Args& args, const KernelContext& context);
Status launch(const RopeBwd& op, const Args& args, const KernelContext& context);
Status launch(const Cast& op, const Args& args, const KernelContext& context);
Status launch(const Swiglu& op, const Args& args, const KernelContext& context);
Status launch(const SwigluBwd& op, const Args& args, const KernelContext& context);
Status launch(const HeadLoss& op, const Args& args, const KernelContext& context);
Status launch(const GatherWeights& op, const Args& args, const KernelContext& context);
Status launch(const SumSq& op, const Args& args, const KernelContext& context);
Status launch(const ClipScale& op, const Args& args, const KernelContext& context);
Status launch(const AdamW& op, const Args& args, const KernelContext& context);
Status launch(const AdamWMoments& op, const Args& args, const KernelContext& context);
Status launch(const SgdMomentum& op, const Args& args, const KernelContext& context);
Status launch(const SgdMomentumState& op, const Args& args, const KernelContext& context);
Status launch(const Lion& op, const Args& args, const KernelContext& context);
Status launch(const LionState& op, const Args& args, const KernelContext& context);
Status launch(const Adafactor& op, const Args& args, const KernelContext& context);
Status launch(const Muon& op, const Args& args, const KernelContext& context);
Status launch(const BiasGrad& op, const Args& args, const KernelContext& context);
Status launch(const HeadNormRope& op, const Args& args, const KernelContext& context);
Status launch(const HeadNormRopeBwd& op, const Args& args, const KernelContext& context);
Status launch(const CachedAttention& op, const Args& args, const KernelContext& context);
Status launch(const LastLogits& op, const Args& args, const KernelContext& context);
Status launch(const CopyRows& op, const Args& args, const KernelContext& context);
Status launch(const DrawTokens& op, const Args& args, const KernelContext& context);
Status launch(const AddGradients& op, const Args& args, const KernelContext& context);
Status launch(const SumOverProcesses& op, const Args& args, const KernelContext& context);
Status launch(const ShareWeight& op, const Args& args, const KernelContext& context);
Status launch(const ShortConv& op, const Args& args, const KernelContext& context);
Status launch(const ShortConvBwd& op, const Args& args, const KernelContext& context);
Status launch(const CachedConv& op, const Args& args, const KernelContext& context);
Status launch(const SinkGrad& op, const Args& args, const KernelContext& context);
Status launch(const Route& op, const Args& args, const KernelContext& context);
Status launch(const RouteBwd& op, const Args& args, const KernelContext& context);
Status launch(const RouterLoad& op, const Args& args, const KernelContext& context);
Status launch(const SortByExpert& op, const Args& args, const KernelContext& context);
Status launch(const GroupedLinear& op, const Args& args, const KernelContext& context);
Status launch(const GroupedDgrad& op, const Args& args, const KernelContext& context);
Status launch(const GroupedWgrad& op, const Args& args, const KernelContext& context);
Status launch(const GroupedBiasGrad& op, const Args& args, const KernelContext& context);
Status launch(const CombineExperts& op, const Args& args, const KernelContext& context);
Status launch(const ExpertGluBwd& op, const Args& args, const KernelContext& context);
Status launch(const GatedAdd& op, const Args& args, const KernelContext& context);
Status launch(const GatedAddBwd& op, const Args& args, const KernelContext& context);
Status launch(const Dropout& op, const Args& args, const KernelContext& context);
Status launch(const LowRank& op, const Args& args, const KernelContext& context);
Status launch(const LowRankDgrad& op, const Args& args, const KernelContext& context);
Status launch(const LowRankWgrad& op, const Args& args, const KernelContext& context);
Status launch(const RowNorms& op, const Args& args, const KernelContext& context);
Status launch(const Magnitude& op, const Args& args, const KernelContext& context);
Status launch(const MagnitudeBwd& op, const Args& args, const KernelContext& context);
Status launch(const GroupedLowRank& op, const Args& args, const KernelContext& context);
Status launch(const GroupedLowRankDgrad& op, const Args& args, const KernelContext& context);
Status launch(const GroupedLowRankWgrad& op, const Args& args, const KernelContext& context);
Status launch(const DeltaGates& op, const Args& args, const KernelContext& context);
Status launch(const DeltaGatesBwd& op, const Args& args, const KernelContext& context);
Status launch(const DeltaRule& op, const Args& args, const KernelContext& context);
Status launch(const DeltaRuleBwd& op, const Args& args, const KernelContext& context);
Status launch(const CachedDelta& op, const Args& args, const KernelContext& context);
Status launch(const HeadGate& op, const Args& args, const KernelContext& context);
Status launch(const HeadGateBwd& op, const Args& args, const KernelContext& context);
Status launch(const ScaleBy& op, const Args& args, const KernelContext& context);
Status launch(const ScaleGates& op, const Args& args, const KernelContext& context);
Status launch(const ScaleGatesBwd& op, const Args& args, const KernelContext& context);
Status launch(const Quantize& op, const Args& args, const KernelContext& context);

// Only ops with products have an overload.
std::vector<GemmShape> products_of(const Linear& op);
std::vector<GemmShape> products_of(const LinearDgrad& op);
std::vector<GemmShape> products_of(const LinearWgrad& op);
std::vector<GemmShape> products_of(const HeadLoss& op);
std::vector<GemmShape> products_of(const Muon& op);
std::vector<GemmShape> products_of(const LastLogits& op, bool exact);
int64_t workspace_of(const EmbedBwd& op);
int64_t workspace_of(const RmsNorm& op);
int64_t workspace_of(const RmsNormBwd& op);
int64_t workspace_of(const LayerNormBwd& op);
int64_t workspace_of(const Linear& op);
int64_t workspace_of(const LinearDgrad& op);
int64_t workspace_of(const LinearWgrad& op);
int64_t workspace_of(const BiasGrad& op);
int64_t workspace_of(const HeadNormRopeBwd& op);
int64_t workspace_of(const AttnBwd& op);
int64_t workspace_of(const HeadLoss& op);
int64_t workspace_of(const Swiglu& op);
int64_t workspace_of(const SwigluBwd& op);
int64_t workspace_of(const SumSq& op);
int64_t workspace_of(const SumOverProcesses& op);
int64_t workspace_of(const Adafactor& op);
int64_t workspace_of(const Muon& op);
int64_t workspace_of(const RouterLoad& op);
int64_t workspace_of(const HeadGateBwd& op);
int64_t workspace_of(const ScaleGatesBwd& op);
int64_t workspace_of(const GroupedLinear& op, bool exact);
int64_t workspace_of(const LastLogits& op, bool exact);
int64_t workspace_of(const GroupedDgrad& op);
int64_t workspace_of(const GroupedWgrad& op);
int64_t scratch_of(const EmbedBwd& op);
int64_t scratch_of(const AttnFwd& op);
int64_t scratch_of(const AttnBwd& op);
int64_t scratch_of(const CachedAttention& op, bool exact);
int64_t scratch_of(const GroupedLinear& op, bool exact);
int64_t scratch_of(const GroupedDgrad& op);
int64_t scratch_of(const GroupedWgrad& op);
int64_t scratch_of(const GroupedBiasGrad& op);
int64_t scratch_of(const CombineExperts& op);
int64_t scratch_of(const LowRank& op);
int64_t scratch_of(const LowRankDgrad& op);
int64_t scratch_of(const LowRankWgrad& op);
int64_t scratch_of(const GroupedLowRank& op);
int64_t scratch_of(const GroupedLowRankDgrad& op);
int64_t scratch_of(const GroupedLowRankWgrad& op);
int64_t scratch_of(const DeltaRule& op);
int64_t scratch_of(const DeltaRuleBwd& op);
int64_t scratch_of(const CachedDelta& op);

// Hands out consecutive pieces of a workspace or scratch block, each aligned to 64 bytes; with a null base it
// only adds up.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    T* piece = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += align_up(count * int64_t{sizeof(T)}, 64);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

// Rows that one task sums up where something is summed over all: at most 64 partial sums, of at least 16
// rows.
constexpr int64_t summed_rows(int64_t tokens) {
  return ceil_div(tokens, 64) < 16 ? 16 : ceil_div(tokens, 64);
}

}  // namespace sluice::core::cpu
