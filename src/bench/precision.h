// SPDX-License-Identifier: Apache-2.0
// What number formats do to long sums, and which format every tensor of a step has. Computed with the formats
// and the rounding that steps have; nothing is measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"
#include "pages/page.h"

namespace sluice::core {

enum class SumFormat : uint8_t { F32, F16, BF16 };
std::string_view name_of(SumFormat format);  // "f32"

enum class Summing : uint8_t {
  Plain,       // each sum is rounded to nearest
  Kahan,       // beside the sum its error is kept, in the same format
  Stochastic,  // each sum is rounded up or down at random, as bf16 weights are (ops/rounding.h)
};
std::string_view name_of(Summing summing);

// One number added to a sum again and again. Addends are rounded to their format first; a sum of two formats
// is computed in f32 and rounded to the accumulator's.
struct Accumulation {
  double addend = 0.01;
  int64_t times = 1000;
  SumFormat accumulator = SumFormat::F32, addend_format = SumFormat::F32;
  Summing summing = Summing::Plain;

  double exact() const { return addend * double(times); }
  std::string name() const;  // "bf16 += f32, stochastic"
};
// 0.01 a thousand times and 0.001 ten thousand times, in every way that is worth a look.
std::vector<Accumulation> accumulations();

// The sum. REQUIRES: Stochastic goes with a bf16 accumulator. `seed` is that of stochastic rounding.
float accumulate(const Accumulation& a, uint64_t seed = 1);
// The sum after every `every` additions, the last included.
std::vector<float> accumulate_in_steps(const Accumulation& a, int64_t every, uint64_t seed = 1);

// Mean and standard deviation of the sum over the seeds 1 ... count.
struct OverSeeds {
  double mean = 0, deviation = 0;
};
OverSeeds over_seeds(const Accumulation& a, int64_t count);

// The formats and bytes of the tensors of a step of `spec`, as a CPU with slow bf16 products, one with fast
// ones, and a GPU compute it by default. Those of weights are summed.
Section formats_of_tensors(const std::string& model, const ModelSpec& spec);

// The sums with their errors, a picture of how they grow, and formats_of_tensors().
Page precision_page(const std::string& model, const ModelSpec& spec);

}  // namespace sluice::core
