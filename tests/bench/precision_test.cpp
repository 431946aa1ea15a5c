// SPDX-License-Identifier: Apache-2.0
// Sums against PyTorch's, bit by bit, and the formats of a step against its Program.
#include "bench/precision.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "equivalence/rig/rig.h"
#include "model/families/families.h"

namespace sluice::core {
namespace {

using rig::must;

// By what is summed: the bits that PyTorch came to.
std::map<std::string, uint32_t> recorded() {
  std::map<std::string, uint32_t> out;
  std::ifstream in(SLUICE_BENCH_TESTS "/precision.txt");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string addend, times, accumulator, addend_format, way, bits;
    words >> addend >> times >> accumulator >> addend_format >> way >> bits;
    out[fmt::format("{} {} {} {} {}", addend, times, accumulator, addend_format, way)] =
        uint32_t(std::stoul(bits, nullptr, 16));
  }
  return out;
}

TEST(Precision, SumsArePyTorchsToTheBit) {
  const std::map<std::string, uint32_t> expected = recorded();
  const std::vector<Accumulation> all = accumulations();
  EXPECT_EQ(expected.size(), all.size());
  for (const Accumulation& a : all) {
    const std::string way = a.summing == Summing::Plain ? "to-nearest" : std::string(name_of(a.summing));
    const std::string key = fmt::format("{} {} {} {} {}", a.addend, a.times, name_of(a.accumulator),
                                        name_of(a.addend_format), way);
    const auto it = expected.find(key);
    ASSERT_NE(it, expected.end()) << key;
    const float sum = accumulate(a);
    EXPECT_EQ(std::bit_cast<uint32_t>(sum), it->second) << key << ": " << sum;
  }
}

TEST(Precision, StepsOfASumEndInIt) {
  for (const Accumulation& a : accumulations()) {
    const std::vector<float> steps = accumulate_in_steps(a, 300);
    EXPECT_EQ(steps.size(), size_t((a.times + 299) / 300)) << a.name();
    EXPECT_EQ(steps.back(), accumulate(a)) << a.name();
  }
}

// Each addition is rounded to one of two neighbours, at most a spacing apart, with the right mean: the
// variance of one is at most a quarter of the square of the spacing, which for sums up to 16 is 1/16.
TEST(Precision, StochasticRoundingIsRightInTheMean) {
  constexpr int64_t kSeeds = 256;
  for (const Accumulation& a : accumulations()) {
    if (a.summing != Summing::Stochastic) continue;
    const OverSeeds found = over_seeds(a, kSeeds);
    const double deviation_bound = std::sqrt(double(a.times)) / 32;
    EXPECT_LE(found.deviation, deviation_bound * 1.2) << a.name();  // 256 seeds tell it to 5 % or so
    EXPECT_NEAR(found.mean, a.exact(), 5 * deviation_bound / std::sqrt(double(kSeeds))) << a.name();
  }
}

TEST(Precision, FormatsAreThoseOfTheProgram) {
  const Section s = formats_of_tensors("tiny", must(model_preset("tiny")));
  std::map<std::string, std::string> formats;
  std::map<std::string, std::vector<std::optional<double>>> bytes;
  for (const Row& r : s.tables.front().rows) formats[r.name] = r.note, bytes[r.name] = r.values;
  EXPECT_EQ(formats["param"], "f32 | bf16 | bf16");
  EXPECT_EQ(formats["grad"], "f32 | f32 | bf16");
  EXPECT_EQ(formats["opt_state"], "f32 | f32 | bf16");
  EXPECT_EQ(formats["metric: loss"], "f64 | f64 | f64");
  // AdamW: two moments; masters beside bf16 weights.
  EXPECT_EQ(*bytes["opt_state"][0], 2 * *bytes["param"][0]);
  EXPECT_EQ(*bytes["opt_state"][1], 6 * *bytes["param"][1]);
  EXPECT_EQ(*bytes["opt_state"][2], 2 * *bytes["param"][2]);
}

TEST(Precision, ThePageHasEverySum) {
  const std::string text = to_text(precision_page("tiny", must(model_preset("tiny"))));
  for (const char* sum :
       {"10.000133514404297", "9.953125", "10.00213623046875", "10.009765625", "10.000411033630371"}) {
    EXPECT_NE(text.find(sum), std::string::npos) << sum << "\n" << text;
  }
}

}  // namespace
}  // namespace sluice::core
