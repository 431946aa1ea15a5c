// SPDX-License-Identifier: Apache-2.0
#include "bench/precision.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/dtype.h"
#include "base/half.h"
#include "ops/rounding.h"

namespace sluice::core {
namespace {

constexpr int64_t kSeeds = 64, kPoints = 100;

float rounded(SumFormat format, float value) {
  switch (format) {
    case SumFormat::F32:
      return value;
    case SumFormat::F16:
      return float(F16(value));
    case SumFormat::BF16:
      return float(Bf16(value));
  }
  return value;
}

// A sum that grows. Sums of two floats of 16 bits are rounded to f32 first, which has more than twice their
// bits and two more, so that the second rounding changes nothing.
class Accumulator {
 public:
  Accumulator(const Accumulation& a, uint64_t seed)
      : format_(a.accumulator),
        summing_(a.summing),
        addend_(rounded(a.addend_format, float(a.addend))),
        key_(rounding_key(seed, 0)) {
    SLUICE_CHECK(summing_ != Summing::Stochastic || format_ == SumFormat::BF16,
                 "stochastic rounding is to bf16");
  }

  void add() {
    switch (summing_) {
      case Summing::Plain:
        sum_ = rounded(format_, sum_ + addend_);
        break;
      case Summing::Kahan: {
        const float corrected = rounded(format_, addend_ - lost_);
        const float next = rounded(format_, sum_ + corrected);
        lost_ = rounded(format_, rounded(format_, next - sum_) - corrected);
        sum_ = next;
        break;
      }
      case Summing::Stochastic: {
        // As an element of an object whose update is step `added_`.
        const uint32_t draw = rounding_bits(rounding_pair(key_, added_, 0), false).p;
        Bf16 next;
        next.bits = round_stochastic(std::bit_cast<uint32_t>(sum_ + addend_), draw);
        sum_ = float(next);
        break;
      }
    }
    ++added_;
  }
  float sum() const { return sum_; }

 private:
  const SumFormat format_;
  const Summing summing_;
  const float addend_;
  const uint64_t key_;
  float sum_ = 0, lost_ = 0;
  int64_t added_ = 0;
};

Table sums(double addend, int64_t times) {
  Table t{.key = fmt::format("sum_{}", times),
          .title = fmt::format("{} added {} times", addend, times),
          .row_title = "sum += addend"};
  t.columns = {{"sum", "sum", Form::Exact},
               {"error", "error", Form::Number},
               {"mean", fmt::format("mean of {} seeds", kSeeds), Form::Number},
               {"deviation", "deviation", Form::Number}};
  for (const Accumulation& a : accumulations()) {
    if (a.addend != addend || a.times != times) continue;
    const double sum = double(accumulate(a));
    Row row{.name = a.name(), .values = {sum, sum - a.exact(), std::nullopt, std::nullopt}};
    if (a.summing == Summing::Stochastic) {
      const OverSeeds all = over_seeds(a, kSeeds);
      row.values[2] = all.mean, row.values[3] = all.deviation;
    }
    t.rows.push_back(std::move(row));
  }
  return t;
}

Plot growth(double addend, int64_t times) {
  Plot plot{.title = fmt::format("{} added {} times", addend, times),
            .subtitle = "the sum so far",
            .x_label = "additions",
            .y_label = "sum"};
  const int64_t every = times / kPoints;
  for (const Accumulation& a : accumulations()) {
    if (a.addend != addend || a.times != times) continue;
    if (a.summing == Summing::Kahan && a.accumulator != SumFormat::BF16) continue;  // as the exact sum
    Series s{.name = a.name()};
    const std::vector<float> so_far = accumulate_in_steps(a, every);
    for (size_t i = 0; i < so_far.size(); ++i)
      s.points.push_back({double(i + 1) * double(every), double(so_far[i])});
    plot.series.push_back(std::move(s));
  }
  return plot;
}

}  // namespace

std::string_view name_of(SumFormat format) {
  switch (format) {
    case SumFormat::F32:
      return "f32";
    case SumFormat::F16:
      return "f16";
    case SumFormat::BF16:
      return "bf16";
  }
  return "";
}

std::string_view name_of(Summing summing) {
  switch (summing) {
    case Summing::Plain:
      return "to nearest";
    case Summing::Kahan:
      return "Kahan";
    case Summing::Stochastic:
      return "stochastic";
  }
  return "";
}

std::string Accumulation::name() const {
  std::string out = fmt::format("{} += {}", name_of(accumulator), name_of(addend_format));
  if (summing != Summing::Plain) out += fmt::format(", {}", name_of(summing));
  return out;
}

std::vector<Accumulation> accumulations() {
  using enum SumFormat;
  std::vector<Accumulation> out;
  for (const auto& [addend, times] : {std::pair{0.01, 1000}, {0.001, 10000}}) {
    const auto add = [&, x = addend, n = times](SumFormat accumulator, SumFormat addend_format,
                                                Summing summing = Summing::Plain) {
      out.push_back({x, n, accumulator, addend_format, summing});
    };
    add(F32, F32), add(F32, F16), add(F32, BF16);
    add(F16, F16), add(BF16, BF16);
    add(F32, F32, Summing::Kahan), add(F16, F16, Summing::Kahan), add(BF16, BF16, Summing::Kahan);
    add(BF16, F32, Summing::Stochastic);
  }
  return out;
}

float accumulate(const Accumulation& a, uint64_t seed) {
  return accumulate_in_steps(a, a.times, seed).back();
}

std::vector<float> accumulate_in_steps(const Accumulation& a, int64_t every, uint64_t seed) {
  Accumulator sum(a, seed);
  std::vector<float> out;
  for (int64_t i = 1; i <= a.times; ++i) {
    sum.add();
    if (i % every == 0 || i == a.times) out.push_back(sum.sum());
  }
  return out;
}

OverSeeds over_seeds(const Accumulation& a, int64_t count) {
  double sum = 0, squares = 0;
  for (int64_t seed = 1; seed <= count; ++seed) {
    const double value = double(accumulate(a, uint64_t(seed)));
    sum += value;
    squares += value * value;
  }
  const double n = double(count), mean = sum / n;
  return {mean, std::sqrt(std::max(0.0, (squares - n * mean * mean) / (n - 1)))};
}

Page precision_page(const std::string& model, const ModelSpec& spec) {
  Page page{
      .title = "Number formats",
      .legend = {
          "A sum of two formats is computed in f32 and rounded to the accumulator's. Kahan keeps the error "
          "of the sum in the same format. Stochastic rounding is that of Sluice's bf16 weights."}};
  Section s{.key = "accumulation", .title = "What formats do to long sums"};
  for (const auto& [addend, times] : {std::pair{0.01, 1000}, {0.001, 10000}}) {
    s.tables.push_back(sums(addend, times));
    s.plots.push_back(growth(addend, times));
  }
  page.sections.push_back(std::move(s));
  page.sections.push_back(formats_of_tensors(model, spec));
  return page;
}

}  // namespace sluice::core
