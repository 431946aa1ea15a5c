// SPDX-License-Identifier: Apache-2.0
// Queues ops: one function per op that places its pieces and calls the kernels.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/cuda/attention.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/exchange.h"
#include "backend/cuda/products.h"

namespace sluice::core::cuda {

class Runner {
 public:
  // The device is current. `exchange` is what a network lane runs on.
  Runner(Products products, Attention attention, std::unique_ptr<Exchange> exchange);

  int64_t workspace_bytes(const Op& op) const;
  ComputeCapability capability() const { return attention_.libraries().capability; }

  // Chooses library algorithms for the op's products, timing them on `scratch`, and builds its attention
  // plans. `log` may be empty; it receives a line for each.
  Status prepare(const Op& op, const Scratch& scratch, cudaStream_t stream,
                 const std::function<void(std::string_view)>& log);

  // Queues the op on the stream. An op of few tokens may begin before the one queued last has ended
  // (kernels.h).
  Status run(const Launch& launch, cudaStream_t stream);
  // The next work begins when everything before it has ended.
  void part() { last_lets_begin_ = false; }
  Exchange& exchange() { return *exchange_; }

 private:
  struct Call;

  Status run(const Embed& op, const Call& call);
  Status run(const EmbedBwd& op, const Call& call);
  Status run(const RmsNorm& op, const Call& call);
  Status run(const RmsNormBwd& op, const Call& call);
  Status run(const LayerNorm& op, const Call& call);
  Status run(const LayerNormBwd& op, const Call& call);
  Status run(const Linear& op, const Call& call);
  Status run(const LinearDgrad& op, const Call& call);
  Status run(const LinearWgrad& op, const Call& call);
  Status run(const AttnFwd& op, const Call& call);
  Status run(const AttnBwd& op, const Call& call);
  Status run(const Rope& op, const Call& call);
  Status run(const RopeBwd& op, const Call& call);
  Status run(const Cast& op, const Call& call);
  Status run(const Quantize& op, const Call& call);
  Status run(const Swiglu& op, const Call& call);
  Status run(const SwigluBwd& op, const Call& call);
  Status run(const HeadLoss& op, const Call& call);
  Status run(const GatherWeights& op, const Call& call);
  Status run(const SumSq& op, const Call& call);
  Status run(const ClipScale& op, const Call& call);
  Status run(const AdamW& op, const Call& call);
  Status run(const AdamWMoments& op, const Call& call);
  Status run(const SgdMomentum& op, const Call& call);
  Status run(const SgdMomentumState& op, const Call& call);
  Status run(const Lion& op, const Call& call);
  Status run(const LionState& op, const Call& call);
  Status run(const Adafactor& op, const Call& call);
  Status run(const Muon& op, const Call& call);
  Status run(const BiasGrad& op, const Call& call);
  Status run(const HeadNormRope& op, const Call& call);
  Status run(const HeadNormRopeBwd& op, const Call& call);
  Status run(const CachedAttention& op, const Call& call);
  Status run(const ShortConv& op, const Call& call);
  Status run(const ShortConvBwd& op, const Call& call);
  Status run(const CachedConv& op, const Call& call);
  Status run(const SinkGrad& op, const Call& call);
  Status run(const LastLogits& op, const Call& call);
  Status run_exactly(const LastLogits& op, const Call& call);
  Status run(const CopyRows& op, const Call& call);
  Status run(const DrawTokens& op, const Call& call);
  Status run(const AddGradients& op, const Call& call);
  Status run(const Dropout& op, const Call& call);
  Status run(const SumOverProcesses& op, const Call& call);
  Status run(const ShareWeight& op, const Call& call);
  Status run(const Route& op, const Call& call);
  Status run(const RouteBwd& op, const Call& call);
  Status run(const RouterLoad& op, const Call& call);
  Status run(const SortByExpert& op, const Call& call);
  Status run(const GroupedLinear& op, const Call& call);
  Status run(const GroupedDgrad& op, const Call& call);
  Status run(const GroupedWgrad& op, const Call& call);
  Status run(const GroupedBiasGrad& op, const Call& call);
  Status run(const CombineExperts& op, const Call& call);
  Status run(const ExpertGluBwd& op, const Call& call);
  Status run(const GatedAdd& op, const Call& call);
  Status run(const GatedAddBwd& op, const Call& call);
  Status run(const LowRank& op, const Call& call);
  Status run(const LowRankDgrad& op, const Call& call);
  Status run(const LowRankWgrad& op, const Call& call);
  Status run(const RowNorms& op, const Call& call);
  Status run(const Magnitude& op, const Call& call);
  Status run(const MagnitudeBwd& op, const Call& call);
  Status run(const GroupedLowRank& op, const Call& call);
  Status run(const GroupedLowRankDgrad& op, const Call& call);
  Status run(const GroupedLowRankWgrad& op, const Call& call);
  Status run(const DeltaGates& op, const Call& call);
  Status run(const DeltaGatesBwd& op, const Call& call);
  Status run(const DeltaRule& op, const Call& call);
  Status run(const DeltaRuleBwd& op, const Call& call);
  Status run(const CachedDelta& op, const Call& call);
  Status run(const HeadGate& op, const Call& call);
  Status run(const HeadGateBwd& op, const Call& call);
  Status run(const ScaleBy& op, const Call& call);
  Status run(const ScaleGates& op, const Call& call);
  Status run(const ScaleGatesBwd& op, const Call& call);
  static Status run_update(const auto& op, const Call& call);

  Products products_;
  Attention attention_;
  std::unique_ptr<Exchange> exchange_;
  bool begin_early_;              // the GPU can
  bool last_lets_begin_ = false;  // the op queued last is one that another may overlap
};

}  // namespace sluice::core::cuda
