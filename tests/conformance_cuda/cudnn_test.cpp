// SPDX-License-Identifier: Apache-2.0
// Attention at lengths that go to cuDNN, which the shared cases are too short for.
#include <fmt/ranges.h>

#include <optional>

#include "base/bytes.h"
#include "conformance/compare.h"
#include "conformance/harness.h"
#include "conformance/reference.h"
#include "conformance_cuda/gpu.h"
#include "ops/op.h"

namespace sluice::core::conformance {
namespace {

constexpr int64_t kDeviceBytes = 64 * kMiB;

std::vector<AttnShape> shapes() {
  constexpr DType kDtype = DType::BF16;
  return {
      {3, 128, 128, 4, 2, 64, 0, false, kDtype},    // rows
      {1, 128, 128, 4, 1, 128, 0, false, kDtype},   // all query heads share a key head
      {1, 128, 128, 2, 2, 64, 0, false, kDtype},    // none does
      {1, 128, 256, 8, 4, 64, 256, false, kDtype},  // an earlier block
      {1, 256, 128, 4, 2, 128, 128, false, kDtype},
      {1, 128, 128, 2, 1, 32, 0, false, kDtype},
      {1, 128, 128, 2, 1, 80, 0, false, kDtype},
      {1, 128, 128, 2, 1, 96, 0, false, kDtype},
      {1, 128, 128, 4, 2, 256, 0, false, kDtype},
      {1, 128, 128, 2, 1, 200, 0, false, kDtype},
      {1, 128, 128, 2, 1, 256, 128, false, kDtype},
      {1, 256, 256, 4, 2, 64, 0, false, kDtype, 100},  // a window
      {1, 128, 128, 2, 1, 256, 0, false, kDtype, 60},
      {1, 128, 128, 4, 2, 128, 0, false, kDtype, 0, 2.0f},  // capped scores
      {1, 128, 128, 2, 1, 256, 0, false, kDtype, 0, 2.0f},
      {1, 128, 256, 4, 2, 64, 256, false, kDtype, 0, 2.0f},
      {1, 128, 128, 4, 2, 128, 0, false, kDtype, 60, 2.0f},
  };
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](Op op) { all.push_back({std::move(op), {.seed = 100 + all.size()}, ""}); };
  for (const AttnShape& shape : shapes()) {
    add(AttnFwd{shape, DType::BF16, false});
    add(AttnFwd{shape, DType::F32, true});
    add(AttnBwd{shape, DType::BF16, false, false});
    add(AttnBwd{shape, DType::F32, true, true});
  }
  return all;
}

class CudnnAttention : public testing::Test {
 protected:
  void SetUp() override { SLUICE_SKIP_WITHOUT_GPU(); }

  // The log says which kernels an op gets: all must be cuDNN's.
  static void make(CudaOptions options, std::unique_ptr<Backend>& backend, std::optional<Harness>& harness) {
    options.log = [](std::string_view line) { EXPECT_EQ(line.find("own kernels"), line.npos) << line; };
    auto made = make_cuda_backend(options);
    ASSERT_TRUE(made.ok()) << made.message();
    backend = std::move(*made);
    auto created = Harness::create(*backend, kDeviceBytes, {});
    ASSERT_TRUE(created.ok()) << created.message();
    harness.emplace(std::move(*created));
  }

  static void check_all(const CudaOptions& options) {
    std::unique_ptr<Backend> backend;
    std::optional<Harness> harness;
    make(options, backend, harness);
    if (HasFatalFailure()) return;
    for (const Case& test : cases()) {
      const Verdict verdict = harness->check(test);
      EXPECT_TRUE(verdict.findings.empty()) << test.name() << "\n"
                                            << fmt::format("{}", fmt::join(verdict.findings, "\n"));
    }
  }
};

TEST_F(CudnnAttention, DeterministicConforms) {
  check_all(untuned());
}

TEST_F(CudnnAttention, DeterministicConformsInParts) {
  CudaOptions options = untuned();
  options.attention_workspace_bytes = 700 * kKiB;  // a row at a time, or one key head of four
  check_all(options);
}

// Without demands on bits: the order of its atomic additions varies.
TEST_F(CudnnAttention, NondeterministicConforms) {
  CudaOptions options = untuned();
  options.deterministic = false;
  std::unique_ptr<Backend> backend;
  std::optional<Harness> harness;
  make(options, backend, harness);
  if (HasFatalFailure()) return;
  for (const Case& test : cases()) {
    const std::vector<Tensor> operands = make_operands(test.op, test.data);
    const auto got = harness->run(test.op, operands);
    ASSERT_TRUE(got.ok()) << test.name() << "\n" << got.message();
    const Operands schema = sluice::core::operands(test.op);
    for (const Expected& expected : reference(test.op, operands)) {
      const auto i = size_t(expected.operand);
      const Comparison comparison = compare(schema[i].name, (*got)[i], expected);
      EXPECT_TRUE(comparison.findings.empty()) << test.name() << "\n"
                                               << fmt::format("{}", fmt::join(comparison.findings, "\n"));
    }
  }
}

}  // namespace
}  // namespace sluice::core::conformance
