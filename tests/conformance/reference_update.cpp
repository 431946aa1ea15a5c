// SPDX-License-Identifier: Apache-2.0
// Gradient norm and the optimizers' updates.
#include <array>
#include <cmath>

#include "conformance/reference_ops.h"
#include "ops/rounding.h"

namespace sluice::core::conformance {

Outputs expect(const SumSq& op, Inputs in) {
  Sum sum;
  for (const double g : in[SumSq::kG].values()) sum.add(Approx(g), g);
  const Old old(!op.first, in[SumSq::kSums]);
  Expected sums{SumSq::kSums};
  for (int64_t i = 0; i < op.slots; ++i) {
    sums.values.push_back(i == op.slot ? sum.total() : Approx(old[static_cast<size_t>(i)]));
  }
  return {sums};
}

Outputs expect(const AddGradients&, Inputs in) {
  Expected sum{AddGradients::kSum};
  const std::vector<double> left = in[AddGradients::kLeft].values(),
                            right = in[AddGradients::kRight].values();
  for (size_t i = 0; i < left.size(); ++i) sum.values.push_back(Approx(left[i]) + Approx(right[i]));
  return {sum};
}

// Of one process: what it has.
Outputs expect(const SumOverProcesses& op, Inputs in) {
  const Tensor& own = in[op.apart ? SumOverProcesses::kOwn : SumOverProcesses::kG];
  Expected g{SumOverProcesses::kG}, sums{SumOverProcesses::kSums};
  Sum sum;
  for (const double value : own.values()) {
    const Approx rounded =
        op.apart && op.dtype == DType::BF16 ? Approx(double(float(Bf16(float(value))))) : Approx(value);
    g.values.push_back(rounded);
    sum.add(Approx(rounded.value), rounded.value);
  }
  const Old old(!op.first, in[SumOverProcesses::kSums]);
  for (int64_t i = 0; i < op.slots; ++i)
    sums.values.push_back(i == op.slot ? sum.total() : Approx(old[static_cast<size_t>(i)]));
  Outputs out{g, sums};
  if (op.apart) {
    Expected same{SumOverProcesses::kOwn};
    for (const double value : own.values()) same.values.emplace_back(value);
    out.push_back(same);
  }
  return out;
}

// Of one process: what it has.
Outputs expect(const ShareWeight&, Inputs in) {
  Expected p{ShareWeight::kP};
  for (const double value : in[ShareWeight::kP].values()) p.values.emplace_back(value);
  return {p};
}

Outputs expect(const ClipScale& op, Inputs in) {
  Sum sum;
  for (const double s : in[ClipScale::kSums].values()) sum.add(s);
  const Approx norm = sqrt(sum.total(unit_of(DType::F64)));
  if (!std::isfinite(norm.value)) return {{ClipScale::kClip, {Approx(NAN), Approx(0)}}};
  const Approx limit = Approx(double{op.max_norm}) / (norm + Approx(1e-6));
  const bool clips = op.max_norm != 0 && limit.value < 1;
  return {{ClipScale::kClip, {norm, clips ? limit : Approx(1)}}};
}

namespace {

// One element's state: m, and AdamW's v.
using State = std::array<Approx, 2>;

Approx mean(float beta, const Approx& old, const Approx& x) {
  const Approx b(double{beta});
  return b * old + (Approx(1) - b) * x;
}

// The new state from the old one, the clipped gradient and the old weight.
template <class AnyAdamW>
State advanced_moments(const AnyAdamW& op, const State& s, const Approx& g) {
  return {mean(op.beta1, s[0], g), mean(op.beta2, s[1], g * g)};
}
State advanced(const AdamW& op, const State& s, const Approx& g, double) {
  return advanced_moments(op, s, g);
}
State advanced(const AdamWMoments& op, const State& s, const Approx& g, double) {
  return advanced_moments(op, s, g);
}
Approx decayed(const SgdMomentum& op, const Approx& g, double w) {
  return op.weight_decay == 0 ? g : g + Approx(double{op.weight_decay}) * Approx(w);
}
State advanced(const SgdMomentum& op, const State& s, const Approx& g, double w) {
  return {Approx(double{op.momentum}) * s[0] + decayed(op, g, w)};
}
State advanced(const SgdMomentumState& op, const State& s, const Approx& g, double) {
  return {Approx(double{op.momentum}) * s[0] + g};
}
State advanced(const Lion& op, const State& s, const Approx& g, double) {
  return {mean(op.beta2, s[0], g)};
}
State advanced(const LionState& op, const State& s, const Approx& g, double) {
  return {mean(op.beta2, s[0], g)};
}

// What comes off the old weight, before the learning rate.
Approx direction(const AdamW& op, const StepArgs& args, const State&, const State& now, const Approx&,
                 double w) {
  const auto bias = [&](double beta) {
    return stored(Approx(1 - std::pow(beta, double(args.updates))), DType::F32);
  };
  const Approx root = sqrt(now[1] / bias(op.beta2)) + Approx(double{op.eps});
  return (now[0] / bias(op.beta1)) / root + Approx(double{op.weight_decay}) * Approx(w);
}
Approx direction(const SgdMomentum& op, const StepArgs&, const State&, const State& now, const Approx& g,
                 double w) {
  return op.nesterov ? decayed(op, g, w) + Approx(double{op.momentum}) * now[0] : now[0];
}
Approx direction(const Lion& op, const StepArgs&, const State& old, const State&, const Approx& g, double w) {
  return sign(mean(op.beta1, old[0], g)) + Approx(double{op.weight_decay}) * Approx(w);
}

// The operands' random draws, where they round stochastically.
struct Draws {
  std::vector<uint32_t> p;
  std::array<std::vector<uint32_t>, 2> state;
};

Draws draws(uint64_t object, int64_t first, int64_t elements, const StepArgs& args) {
  Draws all;
  const uint64_t key = rounding_key(args.seed, object);
  for (int64_t i = first; i < first + elements; ++i) {
    const RoundingBits bits = rounding_bits(rounding_pair(key, args.step, i / 2), i % 2 == 1);
    all.p.push_back(bits.p);
    all.state[0].push_back(bits.m);
    all.state[1].push_back(bits.v);
  }
  return all;
}

// Of weights with their state, or of the state alone.
template <class Update>
Outputs expect_update(const Update& op, Inputs in) {
  constexpr bool kWeights = requires {
    Update::kP;
  };
  constexpr size_t kStates = Update::kClip - Update::kM;
  const auto g = in[Update::kG].values();
  std::vector<double> p, w;
  auto master = MasterWeights::Off;
  bool writes_state = true;
  if constexpr (kWeights) {
    p = in[Update::kP].values();
    master = op.master, writes_state = op.moments;
    w = master == MasterWeights::F32  ? in[Update::kMaster].values()
        : master == MasterWeights::I8 ? masters(in[Update::kP], in[Update::kMaster])
                                      : p;
  }
  std::array<std::vector<double>, kStates> before;
  for (size_t k = 0; k < kStates; ++k) before[k] = in[Update::kM + k].values();
  const StepArgs args = step_args(in[Update::kArgs]);
  const double clip = in[Update::kClip].at(1);
  const bool skip = args.update == 0 || clip == 0;

  std::vector<Approx> weights;
  std::array<std::vector<Approx>, kStates> states;
  for (size_t i = 0; i < g.size(); ++i) {
    State old{}, now{};
    for (size_t k = 0; k < kStates; ++k) old[k] = now[k] = before[k][i];
    if (!skip) {
      const Approx grad = Approx(clip) * Approx(g[i]);
      now = advanced(op, old, grad, kWeights ? w[i] : 0);
      if constexpr (kWeights) {
        const Approx rate(double{args.learning_rate});
        weights.push_back(Approx(w[i]) - rate * direction(op, args, old, now, grad, w[i]));
      }
    }
    for (size_t k = 0; k < kStates; ++k) states[k].push_back(now[k]);
  }

  Draws random;
  if (op.stochastic && !skip) random = draws(op.object, op.first, op.elements, args);
  Outputs out;
  if constexpr (kWeights) {
    const bool joined = master == MasterWeights::I8;
    const std::vector<double>& before_it = joined ? w : p;
    out.push_back({Update::kP, skip ? std::vector<Approx>(before_it.begin(), before_it.end()) : weights});
    if (op.dtype == DType::BF16 && master == MasterWeights::Off) out.back().draws = random.p;
    if (joined) out.back().residual = Update::kMaster;
  }
  for (size_t k = 0; writes_state && k < kStates; ++k) {
    out.push_back({Update::kM + static_cast<int>(k), states[k]});
    if (op.state_dtype == DType::BF16) out.back().draws = random.state[k];
  }
  if constexpr (kWeights) {
    if (master == MasterWeights::F32)
      out.push_back({Update::kMaster, skip ? std::vector<Approx>(w.begin(), w.end()) : weights});
  }
  return out;
}

}  // namespace

Outputs expect(const AdamW& op, Inputs in) {
  return expect_update(op, in);
}
Outputs expect(const AdamWMoments& op, Inputs in) {
  return expect_update(op, in);
}
Outputs expect(const SgdMomentum& op, Inputs in) {
  return expect_update(op, in);
}
Outputs expect(const SgdMomentumState& op, Inputs in) {
  return expect_update(op, in);
}
Outputs expect(const Lion& op, Inputs in) {
  return expect_update(op, in);
}
Outputs expect(const LionState& op, Inputs in) {
  return expect_update(op, in);
}

}  // namespace sluice::core::conformance
