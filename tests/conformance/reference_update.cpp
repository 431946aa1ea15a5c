// Gradient norm and AdamW.
#include <cmath>

#include "conformance/reference_ops.h"
#include "ops/rounding.h"

namespace sluice::conformance {

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

Outputs expect(const ClipScale& op, Inputs in) {
  Sum sum;
  for (const double s : in[ClipScale::kSums].values()) sum.add(s);
  const Approx norm = sqrt(sum.total(unit_of(DType::F64)));
  if (!std::isfinite(norm.value)) return {{ClipScale::kClip, {Approx(norm.value), Approx(0)}}};
  const Approx limit = Approx(double{op.max_norm}) / (norm + Approx(1e-6));
  const bool clips = op.max_norm != 0 && limit.value < 1;
  return {{ClipScale::kClip, {norm, clips ? limit : Approx(1)}}};
}

namespace {

// One element after the update.
struct Element {
  Approx w, m, v;
};

Element updated(const AdamW& op, const StepArgs& args, double clip, double w, double g, double m, double v) {
  const Approx beta1(double{op.beta1}), beta2(double{op.beta2}), one(1);
  const Approx grad = Approx(clip) * Approx(g);
  const Approx m2 = beta1 * Approx(m) + (one - beta1) * grad;
  const Approx v2 = beta2 * Approx(v) + (one - beta2) * (grad * grad);
  const Approx root = sqrt(v2 / Approx(double{args.bias2})) + Approx(double{op.eps});
  const Approx step = (m2 / Approx(double{args.bias1})) / root + Approx(double{op.weight_decay}) * Approx(w);
  return {Approx(w) - Approx(double{args.learning_rate}) * step, m2, v2};
}

// The operands' random draws, where they round stochastically.
struct Draws {
  std::vector<uint32_t> p, m, v;
};

Draws draws(const AdamW& op, const StepArgs& args) {
  Draws all;
  const uint64_t key = rounding_key(args.seed, op.object);
  for (int64_t i = op.first; i < op.first + op.elements; ++i) {
    const RoundingBits bits = rounding_bits(rounding_pair(key, args.step, i / 2), i % 2 == 1);
    all.p.push_back(bits.p);
    all.m.push_back(bits.m);
    all.v.push_back(bits.v);
  }
  return all;
}

}  // namespace

Outputs expect(const AdamW& op, Inputs in) {
  const auto p = in[AdamW::kP].values(), g = in[AdamW::kG].values(), m = in[AdamW::kM].values(),
             v = in[AdamW::kV].values();
  const auto w = op.master ? in[AdamW::kMaster].values() : p;
  const StepArgs args = step_args(in[AdamW::kArgs]);
  const double clip = in[AdamW::kClip].at(1);
  Expected out_p{AdamW::kP}, out_m{AdamW::kM}, out_v{AdamW::kV}, out_master{AdamW::kMaster};
  const bool skip = args.update == 0 || clip == 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const Element e = skip ? Element{w[i], m[i], v[i]} : updated(op, args, clip, w[i], g[i], m[i], v[i]);
    out_p.values.push_back(skip ? Approx(p[i]) : e.w);
    out_m.values.push_back(e.m);
    out_v.values.push_back(e.v);
    out_master.values.push_back(e.w);
  }
  if (op.stochastic && !skip) {
    Draws random = draws(op, args);
    if (op.dtype == DType::BF16 && !op.master) out_p.draws = std::move(random.p);
    if (op.state_dtype == DType::BF16) {
      out_m.draws = std::move(random.m);
      out_v.draws = std::move(random.v);
    }
  }
  Outputs out{out_p, out_m, out_v};
  if (op.master) out.push_back(out_master);
  return out;
}

}  // namespace sluice::conformance
