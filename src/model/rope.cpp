// SPDX-License-Identifier: Apache-2.0
// Frequencies of rotary embedding (Su et al. 2021), and the ways of making them reach further: linear (Chen
// et al. 2023), dynamic (by the length of the sequence), Llama 3.1's, and YaRN (Peng et al. 2023).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/spec.h"

namespace sluice::core {
namespace {

// Wavelengths beyond the original context are stretched by `factor`, short ones are left, and those between
// are blended.
double llama3(const RopeScaling& rope, double f) {
  const double wavelength = 2 * std::numbers::pi / f;
  const double ratio = double(rope.original_context) / wavelength;
  const double blend = (ratio - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  if (ratio < rope.low_freq_factor) return f / rope.factor;
  return ratio <= rope.high_freq_factor ? (1 - blend) * f / rope.factor + blend * f : f;
}

// Frequency i of a head: those that turn more than beta_fast times within the original context are left,
// those that turn less than beta_slow times are divided by `factor`. Between them both are blended along i.
double yarn(const RopeScaling& rope, double f, double i, double head_dim) {
  // The frequency, counted along a head, that turns so often.
  const auto place = [&](double turns) {
    return head_dim * std::log(double(rope.original_context) / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = place(rope.beta_fast), high = place(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, head_dim - 1);
  if (low == high) high += 0.001;
  const double stretched = std::clamp((i - low) / (high - low), 0.0, 1.0);
  return f / rope.factor * stretched + f * (1 - stretched);
}

}  // namespace

std::vector<float> rope_inv_freq(const RopeScaling& rope, int64_t head_dim, int64_t seq_len,
                                 int64_t rotated) {
  if (rotated == 0) rotated = head_dim;
  const auto dim = double(rotated);
  double theta = rope.theta;
  if (rope.kind == RopeScaling::Dynamic && seq_len > rope.original_context) {
    const double longer = double(seq_len) / double(rope.original_context);
    theta *= std::pow(rope.factor * longer - (rope.factor - 1), dim / (dim - 2));
  }
  std::vector<float> out(static_cast<size_t>(head_dim / 2));
  const bool proportional = rope.kind == RopeScaling::Proportional;
  const auto turned = proportional ? int64_t(rope.turned * dim / 2) : rotated / 2;
  for (size_t i = 0; i < size_t(turned); ++i) {
    double f = std::pow(theta, -2.0 * double(i) / dim);
    if (rope.kind == RopeScaling::Linear || proportional) f /= rope.factor;
    if (rope.kind == RopeScaling::Llama3) f = llama3(rope, f);
    if (rope.kind == RopeScaling::Yarn) f = yarn(rope, f, double(i), dim);
    if (rope.kind == RopeScaling::Long)
      f /= (seq_len > rope.original_context ? rope.long_factors : rope.short_factors)[i];
    out[i] = static_cast<float>(f);
  }
  return out;
}

}  // namespace sluice::core
