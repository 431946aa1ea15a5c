// SPDX-License-Identifier: Apache-2.0
// The references of single ops, one family per source file; reference() picks among them.
#pragma once

#include "conformance/reference.h"

namespace sluice::core::conformance {

// reference_basic.cpp
Outputs expect(const Embed& op, Inputs in);
Outputs expect(const EmbedBwd& op, Inputs in);
Outputs expect(const RmsNorm& op, Inputs in);
Outputs expect(const RmsNormBwd& op, Inputs in);
Outputs expect(const LayerNorm& op, Inputs in);
Outputs expect(const LayerNormBwd& op, Inputs in);
Outputs expect(const HeadNormRope& op, Inputs in);
Outputs expect(const HeadNormRopeBwd& op, Inputs in);
Outputs expect(const Cast& op, Inputs in);
Outputs expect(const ScaleBy& op, Inputs in);
Outputs expect(const Quantize& op, Inputs in);
Outputs expect(const Swiglu& op, Inputs in);
Outputs expect(const SwigluBwd& op, Inputs in);

// reference_linear.cpp
Outputs expect(const Linear& op, Inputs in);
Outputs expect(const LinearDgrad& op, Inputs in);
Outputs expect(const LinearWgrad& op, Inputs in);
Outputs expect(const BiasGrad& op, Inputs in);
Outputs expect(const Rope& op, Inputs in);
Outputs expect(const RopeBwd& op, Inputs in);
Outputs expect(const HeadLoss& op, Inputs in);
Outputs expect(const GatherWeights& op, Inputs in);

// reference_attention.cpp
Outputs expect(const AttnFwd& op, Inputs in);
Outputs expect(const AttnBwd& op, Inputs in);
Outputs expect(const SinkGrad& op, Inputs in);

// reference_generation.cpp
Outputs expect(const CachedAttention& op, Inputs in);
Outputs expect(const LastLogits& op, Inputs in);
Outputs expect(const CopyRows& op, Inputs in);
Outputs expect(const DrawTokens& op, Inputs in);
Outputs expect(const ShortConv& op, Inputs in);
Outputs expect(const ShortConvBwd& op, Inputs in);
Outputs expect(const CachedConv& op, Inputs in);

// reference_update.cpp
Outputs expect(const SumSq& op, Inputs in);
Outputs expect(const ClipScale& op, Inputs in);
Outputs expect(const AddGradients& op, Inputs in);
Outputs expect(const SumOverProcesses& op, Inputs in);
Outputs expect(const ShareWeight& op, Inputs in);
Outputs expect(const AdamW& op, Inputs in);
Outputs expect(const AdamWMoments& op, Inputs in);
Outputs expect(const SgdMomentum& op, Inputs in);
Outputs expect(const SgdMomentumState& op, Inputs in);
Outputs expect(const Lion& op, Inputs in);
Outputs expect(const Adafactor& op, Inputs in);
Outputs expect(const Muon& op, Inputs in);
Outputs expect(const LionState& op, Inputs in);

// reference_experts.cpp; ExpertGluBwd's stands beside SwigluBwd's
Outputs expect(const Route& op, Inputs in);
Outputs expect(const RouteBwd& op, Inputs in);
Outputs expect(const ScaleGates& op, Inputs in);
Outputs expect(const ScaleGatesBwd& op, Inputs in);
Outputs expect(const RouterLoad& op, Inputs in);
Outputs expect(const SortByExpert& op, Inputs in);
Outputs expect(const GroupedLinear& op, Inputs in);
Outputs expect(const GroupedDgrad& op, Inputs in);
Outputs expect(const GroupedWgrad& op, Inputs in);
Outputs expect(const GroupedBiasGrad& op, Inputs in);
Outputs expect(const CombineExperts& op, Inputs in);
Outputs expect(const ExpertGluBwd& op, Inputs in);
Outputs expect(const GatedAdd& op, Inputs in);
Outputs expect(const GatedAddBwd& op, Inputs in);
Outputs expect(const Dropout& op, Inputs in);
Outputs expect(const LowRank& op, Inputs in);
Outputs expect(const LowRankDgrad& op, Inputs in);
Outputs expect(const LowRankWgrad& op, Inputs in);
Outputs expect(const RowNorms& op, Inputs in);
Outputs expect(const Magnitude& op, Inputs in);
Outputs expect(const MagnitudeBwd& op, Inputs in);
Outputs expect(const GroupedLowRank& op, Inputs in);
Outputs expect(const GroupedLowRankDgrad& op, Inputs in);
Outputs expect(const GroupedLowRankWgrad& op, Inputs in);

// reference_delta.cpp
Outputs expect(const DeltaGates& op, Inputs in);
Outputs expect(const DeltaGatesBwd& op, Inputs in);
Outputs expect(const DeltaRule& op, Inputs in);
Outputs expect(const DeltaRuleBwd& op, Inputs in);
Outputs expect(const CachedDelta& op, Inputs in);
Outputs expect(const HeadGate& op, Inputs in);
Outputs expect(const HeadGateBwd& op, Inputs in);

// Rotates `heads` heads at the start of each row of x ([tokens, columns]) forwards, or back again.
void rotate(std::vector<Approx>& x, int64_t tokens, int64_t columns, int64_t heads, int64_t head_dim,
            std::span<const int32_t> pos, std::span<const float> inv_freq, float scale, bool back,
            float still_scale = 0, const Temperature& temperature = {});

// The old content of an operand that may be accumulated into: a term of every sum, zero when it is
// overwritten.
class Old {
 public:
  Old(bool accumulate, const Tensor& operand)
      : values_(accumulate ? operand.values() : std::vector<double>()) {}
  bool any() const { return !values_.empty(); }
  double operator[](size_t i) const { return values_.empty() ? 0.0 : values_[i]; }

 private:
  std::vector<double> values_;
};

}  // namespace sluice::core::conformance
