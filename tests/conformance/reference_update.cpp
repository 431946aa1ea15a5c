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

// One element's new moments.
struct Moments {
  Approx m, v;
};

Moments updated(float beta1, float beta2, double clip, double g, double m, double v) {
  const Approx b1(double{beta1}), b2(double{beta2}), one(1);
  const Approx grad = Approx(clip) * Approx(g);
  return {b1 * Approx(m) + (one - b1) * grad, b2 * Approx(v) + (one - b2) * (grad * grad)};
}

Approx updated(const AdamW& op, const StepArgs& args, const Moments& moments, double w) {
  const Approx root = sqrt(moments.v / Approx(double{args.bias2})) + Approx(double{op.eps});
  const Approx step =
      (moments.m / Approx(double{args.bias1})) / root + Approx(double{op.weight_decay}) * Approx(w);
  return Approx(w) - Approx(double{args.learning_rate}) * step;
}

// The operands' random draws, where they round stochastically.
struct Draws {
  std::vector<uint32_t> p, m, v;
};

Draws draws(uint64_t object, int64_t first, int64_t elements, const StepArgs& args) {
  Draws all;
  const uint64_t key = rounding_key(args.seed, object);
  for (int64_t i = first; i < first + elements; ++i) {
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
    const Moments moments = skip ? Moments{m[i], v[i]} : updated(op.beta1, op.beta2, clip, g[i], m[i], v[i]);
    const Approx weight = skip ? Approx(w[i]) : updated(op, args, moments, w[i]);
    out_p.values.push_back(skip ? Approx(p[i]) : weight);
    out_m.values.push_back(moments.m);
    out_v.values.push_back(moments.v);
    out_master.values.push_back(weight);
  }
  if (op.stochastic && !skip) {
    Draws random = draws(op.object, op.first, op.elements, args);
    if (op.dtype == DType::BF16 && !op.master) out_p.draws = std::move(random.p);
    if (op.state_dtype == DType::BF16) {
      out_m.draws = std::move(random.m);
      out_v.draws = std::move(random.v);
    }
  }
  Outputs out{out_p};
  if (op.moments) out.insert(out.end(), {out_m, out_v});
  if (op.master) out.push_back(out_master);
  return out;
}

Outputs expect(const AdamWMoments& op, Inputs in) {
  const auto g = in[AdamWMoments::kG].values(), m = in[AdamWMoments::kM].values(),
             v = in[AdamWMoments::kV].values();
  const StepArgs args = step_args(in[AdamWMoments::kArgs]);
  const double clip = in[AdamWMoments::kClip].at(1);
  Expected out_m{AdamWMoments::kM}, out_v{AdamWMoments::kV};
  const bool skip = args.update == 0 || clip == 0;
  for (size_t i = 0; i < g.size(); ++i) {
    const Moments moments = skip ? Moments{m[i], v[i]} : updated(op.beta1, op.beta2, clip, g[i], m[i], v[i]);
    out_m.values.push_back(moments.m);
    out_v.values.push_back(moments.v);
  }
  if (op.stochastic && !skip && op.state_dtype == DType::BF16) {
    Draws random = draws(op.object, op.first, op.elements, args);
    out_m.draws = std::move(random.m);
    out_v.draws = std::move(random.v);
  }
  return {out_m, out_v};
}

}  // namespace sluice::conformance
