// SPDX-License-Identifier: Apache-2.0
// Updates of whole tensors.
#include <algorithm>
#include <cmath>
#include <random>

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

namespace {

using Floats = std::vector<double>;

// Of [n, k] and [k, m], in the order of k.
Floats product(const Floats& a, const Floats& b, size_t n, size_t m) {
  const size_t k = a.size() / n;
  Floats c(n * m);
  for (size_t i = 0; i < n; ++i) {
    for (size_t p = 0; p < k; ++p) {
      for (size_t j = 0; j < m; ++j) c[i * m + j] += a[i * k + p] * b[p * m + j];
    }
  }
  return c;
}

Floats transposed(const Floats& x, size_t rows) {
  const size_t cols = x.size() / rows;
  Floats out(x.size());
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) out[j * rows + i] = x[i * cols + j];
  }
  return out;
}

// Muon's iteration in f64, in which what a backend keeps between products is off by at most `error` of it, at
// random. The direction's own error comes first.
Floats orthogonalized(const Muon& op, Floats x, double of_direction, double error, std::mt19937_64& random) {
  const auto rows = size_t(op.rows), cols = size_t(op.cols), n = size_t(op.side());
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto disturb = [&](Floats& m, double by) {
    for (double& v : m) v *= 1 + by * uniform(random);
  };
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::max(std::sqrt(squares), double{Muon::kEps});
  disturb(x, of_direction + error);
  for (int step = 0; step < Muon::kSteps; ++step) {
    const Floats turned = transposed(x, rows);
    Floats a = op.tall() ? product(turned, x, n, n) : product(x, turned, n, n);
    disturb(a, error);
    Floats b = product(a, a, n, n);
    disturb(b, error);
    for (size_t i = 0; i < n * n; ++i) b[i] = double{Muon::kCubic} * a[i] + double{Muon::kQuintic} * b[i];
    disturb(b, error);
    for (size_t i = 0; i < n; ++i) b[i * n + i] += double{Muon::kLinear};
    disturb(b, error);
    x = op.tall() ? product(x, b, rows, cols) : product(b, x, rows, cols);
    disturb(x, error);
  }
  return x;
}

// Bounds that hold whatever the matrix are no use here: the iteration makes small singular values hundreds of
// times as large, and with them what was rounded. So errors are measured, on this matrix, as those of
// stochastic arithmetic are (Vignes, "A stochastic arithmetic for reliable scientific computation", 1993):
// from runs that are rounded at random by as much as a backend may. An element may be off by six deviations.
std::vector<Approx> orthogonalized(const Muon& op, const std::vector<Approx>& u) {
  constexpr int kRuns = 12;
  constexpr double kDeviations = 6;
  std::mt19937_64 random(op.object);
  Floats direction;
  for (const Approx& v : u) direction.push_back(v.value);
  // A sum in f32 is off by a unit in the last place of its length's root.
  const double sums = kSumUnit * std::sqrt(double(std::max(op.rows, op.cols)));
  const double error = (op.dtype == DType::BF16 ? unit_of(DType::BF16) : 0) + sums;
  const Floats exact = orthogonalized(op, direction, 0, 0, random);
  Floats squares(exact.size());
  double all = 0;
  for (int run = 0; run < kRuns; ++run) {
    const Floats off = orthogonalized(op, direction, 4 * kUnit, error, random);
    for (size_t i = 0; i < exact.size(); ++i) squares[i] += square(off[i] - exact[i]) / kRuns;
  }
  for (const double s : squares) all += s / double(squares.size());
  std::vector<Approx> out;
  // The deviation of twelve runs may be small by chance: that of the whole matrix counts as well.
  for (size_t i = 0; i < exact.size(); ++i)
    out.emplace_back(exact[i], kDeviations * std::sqrt(std::max(squares[i], all)),
                     2 * std::max(squares[i], all));
  return out;
}

}  // namespace

Outputs expect(const Muon& op, Inputs in) {
  const StepArgs args = step_args(in[Muon::kArgs]);
  const double clip = in[Muon::kClip].at(1);
  const bool skip = args.update == 0 || clip == 0;
  const UpdatedWeights weights(op, in);
  const auto g = in[Muon::kG].values(), before = in[Muon::kM].values();
  const Approx mu(double{op.momentum});
  Expected m{Muon::kM};
  std::vector<Approx> u, w;
  for (size_t i = 0; i < g.size(); ++i) {
    m.values.emplace_back(before[i]);
    if (skip) continue;
    const Approx grad = Approx(clip) * Approx(g[i]);
    const auto mean = [&](const Approx& old) { return mu * old + (Approx(1) - mu) * grad; };
    m.values.back() = mean(m.values.back());
    u.push_back(op.nesterov ? mean(m.values.back()) : m.values.back());
  }
  if (!skip) {
    const std::vector<Approx> x = orthogonalized(op, u);
    const Approx rate(double{args.learning_rate});
    for (size_t i = 0; i < x.size(); ++i) {
      const Approx old(weights.before()[i]);
      w.push_back(old - rate * (Approx(double{op.scale}) * x[i] + Approx(double{op.weight_decay}) * old));
    }
    if (op.stochastic && op.state_dtype == DType::BF16) {
      const uint64_t key = rounding_key(args.seed, op.object);
      for (int64_t i = op.first; i < op.first + op.elements(); ++i)
        m.draws.push_back(rounding_bits(rounding_pair(key, args.step, i / 2), i % 2 == 1).m);
    }
  }
  Outputs out{m};
  weights.put(w, args, out);
  return out;
}

}  // namespace sluice::core::conformance
