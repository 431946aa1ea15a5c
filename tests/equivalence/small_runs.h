// SPDX-License-Identifier: Apache-2.0
// Programs small enough to be run under many plans, with every feature that could differ between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "equivalence/rig/rig.h"
#include "ops/cast.h"

namespace sluice::core {

// Sanitizers slow programs down ten to twenty times and find what they find in a few rounds: where a test
// tries many cases of one kind, it tries one in so many.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int64_t kOneIn = 10;
#else
inline constexpr int64_t kOneIn = 1;
#endif

// Of that many random cases, those to try: all where SLUICE_SWEEP is set, a quarter by default.
inline uint64_t random_cases(int64_t all) {
  return uint64_t(all / std::max<int64_t>(kOneIn, std::getenv("SLUICE_SWEEP") != nullptr ? 1 : 4));
}

struct NamedDevices {
  const char* name;
  int count;
  bool joined;  // copies go from device to device
  friend void PrintTo(const NamedDevices& d, std::ostream* out) { *out << d.name; }
};

struct NamedShape {
  const char* name;
  StepShape shape;
  friend void PrintTo(const NamedShape& s, std::ostream* out) { *out << s.name; }
};
inline const NamedShape kShapes[] = {
    {"one_chunk", {16, 32, 1, 2, 16, false, 0, 0, 16}},  // of two sequences, and of one
    {"several_chunks", {16, 4, 4, 2, 4}},
    {"packed", {16, 8, 4, 1, 8, true}},
};

struct NamedNumerics {
  const char* name;
  Numerics numerics;
  ProductFormats products = {};
  bool narrow_head = false;
  friend void PrintTo(const NamedNumerics& n, std::ostream* out) { *out << n.name; }
};
inline const NamedNumerics kNumerics[] = {
    {"f32", {}},
    {"bf16_master", {DType::BF16, DType::F32, DType::F32, MasterWeights::F32, false}},
    {"bf16_compact", {DType::BF16, DType::BF16, DType::I8, MasterWeights::Off, true}},
    {"bf16_compact_master", {DType::BF16, DType::BF16, DType::I8, MasterWeights::I8, false}},
    {"bf16_stochastic", {DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true}},
};
// Products of dense layers and of the head read 8 bits. Beside the others as a sample, as all its ops take
// their time.
inline const NamedNumerics kFp8{"fp8",
                                {DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true},
                                {kFloat8, kFloat8, kFloat8},
                                true};

// Those that the backend under test takes.
inline std::vector<NamedNumerics> numerics_under_test() {
  std::vector<NamedNumerics> out;
  for (const NamedNumerics& n : kNumerics) {
    if (rig::takes(n.numerics)) out.push_back(n);
  }
  return out;
}

inline std::vector<NamedNumerics> fp8_under_test() {
  return rig::takes(kFp8.numerics) ? std::vector{kFp8} : std::vector<NamedNumerics>();
}

// When weights and moments of a step are updated: see OptimizerConfig.
enum class Updates { AtTheEnd, Deferred, LateMoments };
inline const char* name_of(Updates updates) {
  return updates == Updates::AtTheEnd   ? "at_the_end"
         : updates == Updates::Deferred ? "deferred"
                                        : "late_moments";
}

inline Question small_request(const StepShape& shape, const Numerics& numerics,
                              Updates updates = Updates::AtTheEnd) {
  Question request;
  request.model = model_of({32, 2, 4, 2, 8, 48, 61});
  request.shape = shape;
  request.threads = search_threads();
  request.quick = true;  // which plan it is does not matter
  request.numerics = numerics;
  request.optimizer.part_elements = 1000;  // weights of one, two and four parts
  request.optimizer.deferred = updates != Updates::AtTheEnd;
  request.optimizer.late_moments = updates == Updates::LateMoments;
  return request;
}

inline Question named_request(const StepShape& shape, const NamedNumerics& formats, Updates updates) {
  Question request = small_request(shape, formats.numerics, updates);
  request.model.products = formats.products;
  request.model.narrow_head = formats.narrow_head;
  if (formats.narrow_head) request.model.vocab = 64;  // a multiple of 16
  return request;
}

// The request with about the smallest device cap for which it can be planned.
inline Question tightest(Question request, const Backend& backend) {
  const Profile profile = rig::profile_of(backend);
  const BuiltProgram model =
      build_training(request.model, request.shape, request.numerics, request.optimizer);
  const int64_t least = rig::must(minimal_device_bytes(model.program, profile, {}));
  // A deferred update needs room beside the training program, which this minimum does not know of. More than
  // it are powers of two of a part; a cap that is too small takes longest to plan, so that few are tried.
  const auto cap = [&](int power) { return power < 0 ? least : least + ((least / 128) << power); };
  int fails = -2, works = 9;
  request.explain = false;
  request.least = true;
  while (works - fails > 1) {
    const int power = (works + fails) / 2;
    request.caps[kDevice] = cap(power);
    (make_stages(request, profile).ok() ? works : fails) = power;
  }
  request.caps[kDevice] = cap(works);
  request.explain = true;
  request.least = false;
  return request;
}

// What differs, in words: a map of byte vectors printed by GoogleTest would fill the screen.
inline void expect_same(const rig::History& got, const rig::History& expected) {
  EXPECT_EQ(got.losses, expected.losses);
  EXPECT_EQ(got.norms, expected.norms);
  for (const auto& [name, bytes] : expected.state) {
    const auto it = got.state.find(name);
    ASSERT_NE(it, got.state.end()) << name;
    EXPECT_TRUE(it->second == bytes) << name << " differs";
  }
}

}  // namespace sluice::core
