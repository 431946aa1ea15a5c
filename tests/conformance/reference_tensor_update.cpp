// SPDX-License-Identifier: Apache-2.0
// Updates of whole tensors.
#include <cmath>

#include "conformance/reference_ops.h"
#include "ops/rounding.h"

namespace sluice::core::conformance {
namespace {

// The weights that an update of a whole tensor changes, and how they are written.
template <class Update>
class UpdatedWeights {
 public:
  UpdatedWeights(const Update& op, Inputs in) : op_(op), p_(in[Update::kP].values()), before_(p_) {
    if (op.master == MasterWeights::F32) before_ = in[Update::kMaster].values();
    if (op.master == MasterWeights::I8) before_ = masters(in[Update::kP], in[Update::kMaster]);
  }
  const std::vector<double>& before() const { return before_; }

  // `now`: none where the update is skipped.
  void put(const std::vector<Approx>& now, const StepArgs& args, Outputs& out) const {
    const auto exact = [](const std::vector<double>& x) { return std::vector<Approx>(x.begin(), x.end()); };
    const bool skip = now.empty(), joined = op_.master == MasterWeights::I8;
    out.push_back({Update::kP, skip ? exact(joined ? before_ : p_) : now});
    if (joined) out.back().residual = Update::kMaster;
    if (!skip && op_.stochastic && op_.dtype == DType::BF16 && op_.master == MasterWeights::Off) {
      const uint64_t key = rounding_key(args.seed, op_.object);
      for (int64_t i = op_.first; i < op_.first + op_.elements(); ++i)
        out.back().draws.push_back(rounding_bits(rounding_pair(key, args.step, i / 2), i % 2 == 1).p);
    }
    if (op_.master == MasterWeights::F32) out.push_back({Update::kMaster, skip ? exact(before_) : now});
  }

 private:
  const Update& op_;
  std::vector<double> p_, before_;
};

// The larger of both, as near as they are.
Approx largest(const Approx& a, const Approx& b) {
  const Approx& larger = a.value < b.value ? b : a;
  return {larger.value, std::max(a.bound, b.bound), std::max(a.variance, b.variance)};
}

template <class Values>
Approx root_mean_square(const Values& values) {
  Sum squares;
  for (const auto& x : values) squares.add(Approx(x) * Approx(x));
  return sqrt(squares.total() / Approx(double(values.size())));
}

}  // namespace

Outputs expect(const Adafactor& op, Inputs in) {
  using A = Adafactor;
  const StepArgs args = step_args(in[A::kArgs]);
  const double clip = in[A::kClip].at(1);
  const UpdatedWeights weights(op, in);
  Expected row{A::kRow}, col{A::kCol};
  for (const double x : in[A::kRow].values()) row.values.emplace_back(x);
  for (const double x : in[A::kCol].values()) col.values.emplace_back(x);
  std::vector<Approx> w;
  if (args.update != 0 && clip != 0) {
    const auto rows = size_t(op.rows), cols = size_t(op.cols);
    std::vector<Approx> g;
    for (const double x : in[A::kG].values()) g.push_back(Approx(clip) * Approx(x));
    std::vector<Sum> of_rows(rows), of_cols(cols);
    for (size_t i = 0; i < g.size(); ++i) {
      const Approx square = g[i] * g[i];
      of_rows[i / cols].add(square), of_cols[i % cols].add(square);
    }
    const double t = double(args.updates);
    const Approx b = rounded(Approx(1 - std::pow(t, op.decay_rate)), kUnit);
    const auto mean = [&](const Approx& old, const Sum& sum, size_t count) {
      return b * old + (Approx(1) - b) * (sum.total() / Approx(double(count)) + Approx(double{op.eps}));
    };
    Sum all_rows;
    for (size_t i = 0; i < rows; ++i) all_rows.add(row.values[i] = mean(row.values[i], of_rows[i], cols));
    for (size_t j = 0; j < cols; ++j) col.values[j] = mean(col.values[j], of_cols[j], rows);
    const Approx row_mean = all_rows.total() / Approx(double(rows));
    std::vector<Approx> u;
    for (size_t i = 0; i < g.size(); ++i)
      u.push_back(g[i] / sqrt(row.values[i / cols] / row_mean) / sqrt(col.values[i % cols]));
    const Approx size = largest(Approx(1), root_mean_square(u) / Approx(double{op.clip_threshold}));
    Approx rate(double{args.learning_rate});
    if (op.scale_parameter)
      rate = rate * largest(Approx(double{op.eps_scale}), root_mean_square(weights.before()));
    if (op.relative_step) rate = rate * Approx(std::min(op.warmup_init ? 1e-6 * t : 1e-2, 1 / std::sqrt(t)));
    for (size_t i = 0; i < g.size(); ++i) {
      const Approx old(weights.before()[i]);
      w.push_back(old - rate * (u[i] / size + Approx(double{op.weight_decay}) * old));
    }
  }
  Outputs out{row, col};
  weights.put(w, args, out);
  return out;
}

}  // namespace sluice::core::conformance
