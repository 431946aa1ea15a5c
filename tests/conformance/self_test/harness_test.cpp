// SPDX-License-Identifier: Apache-2.0
// The harness passes a perfect backend and catches each way of being wrong, on every op.
#include "conformance/harness.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "backend/cuda/cuda_backend.h"
#include "base/bytes.h"
#include "conformance/relations.h"
#include "conformance/self_test/reference_backend.h"
#include "ops/rounding.h"

namespace sluice::core::conformance {
namespace {

constexpr int64_t kDeviceBytes = 4 * kMiB;

std::string joined(const std::vector<std::string>& findings) {
  return fmt::format("{}", fmt::join(findings, "\n"));
}

Harness harness_of(Backend& backend) {
  return *Harness::create(backend, kDeviceBytes, {});
}

std::vector<Case> cases_up_to(int64_t elements) {
  std::vector<Case> all = all_cases();
  std::erase_if(all, [=](const Case& test) {
    int64_t sum = 0;
    for (const Operand& operand : operands(test.op)) sum += operand.elements;
    return sum > elements;
  });
  return all;
}
// Small enough to run often.
std::vector<Case> small_cases() {
  return cases_up_to(2500);
}

size_t last_written(const Op& op) {
  const Operands schema = operands(op);
  for (size_t i = schema.size(); i-- > 0;) {
    if (schema[i].access != Access::Read) return i;
  }
  return 0;
}

// Every small case on `backend` that `applies` has a finding that contains `part`.
void expect_caught(Backend& backend, std::string_view part, const std::function<bool(const Op&)>& applies) {
  Harness harness = harness_of(backend);
  std::set<std::string_view> ops;
  for (const Case& test : small_cases()) {
    if (!applies(test.op)) continue;
    ops.insert(name_of(test.op));
    const std::string findings = joined(harness.check(test).findings);
    EXPECT_NE(findings.find(part), std::string::npos) << test.name() << "\n" << findings;
  }
  EXPECT_FALSE(ops.empty());
}
bool always(const Op&) {
  return true;
}

TEST(Cases, CoverEveryOp) {
  std::set<size_t> kinds, small;
  for (const Case& test : all_cases()) kinds.insert(test.op.index());
  for (const Case& test : small_cases()) small.insert(test.op.index());
  EXPECT_EQ(kinds.size(), std::variant_size_v<AnyOp>);
  EXPECT_EQ(small.size(), std::variant_size_v<AnyOp>);
}

TEST(Cases, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Case& test : all_cases()) EXPECT_TRUE(names.insert(test.name()).second) << test.name();
}

TEST(Cases, LeaveEveryOpToGpus) {
  std::set<size_t> kinds;
  for (const Case& test : all_cases()) {
    if (cuda_supports(test.op).ok()) kinds.insert(test.op.index());
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<AnyOp>);
}

TEST(Harness, PassesAPerfectBackend) {
  ReferenceBackend backend;
  Harness harness = harness_of(backend);
  for (const Case& test : cases_up_to(20000)) {
    const Verdict verdict = harness.check(test);
    EXPECT_TRUE(verdict.findings.empty()) << test.name() << "\n" << joined(verdict.findings);
    EXPECT_LE(verdict.normwise, 1) << test.name();
  }
}

TEST(Harness, RelationsHoldForAPerfectBackend) {
  ReferenceBackend backend;
  Harness harness = harness_of(backend);
  for (const Relation& relation : all_relations()) {
    EXPECT_EQ(joined(relation.check(harness)), "") << relation.name;
  }
}

TEST(Harness, ReportsAFailingBackend) {
  struct Failing : ReferenceBackend {
    std::optional<Fault> finish(std::vector<Interval>*) override { return Fault{0, Error{"out of luck"}}; }
  } backend;
  expect_caught(backend, "out of luck", always);
}

// Runs ops right, then lets `spoil` at the launch; it also gets the operands as they were before.
struct Spoiled : ReferenceBackend {
  using Spoil = std::function<void(const Launch&, const std::vector<Tensor>& before)>;

  explicit Spoiled(Spoil s) : spoil(std::move(s)) {}
  void run(const Launch& launch) override {
    const std::vector<Tensor> before = read(launch);
    ReferenceBackend::run(launch);
    spoil(launch, before);
  }
  Spoil spoil;
};

TEST(Harness, CatchesAWrongElement) {
  Spoiled backend([](const Launch& launch, const std::vector<Tensor>&) {
    std::vector<Tensor> operands = Spoiled::read(launch);
    Tensor& tensor = operands[last_written(*launch.op)];
    const int64_t middle = tensor.elements() / 2;
    if (tensor.format.block > 0) {  // its elements have a byte each
      tensor.bytes[static_cast<size_t>(middle)] ^= std::byte{0x30};
    } else {
      tensor.set(middle, std::abs(tensor.at(middle) - 3) < 1 ? 7 : 3);
    }
    Spoiled::write(launch, operands);
  });
  // A master's byte is less than what the rounding of Muon's products in bf16 may make of a weight.
  expect_caught(backend, "wrong", [](const Op& op) {
    const auto* muon = std::get_if<Muon>(&op);
    return muon == nullptr || muon->master != MasterWeights::I8;
  });
}

TEST(Harness, CatchesAnUnwrittenElement) {
  Spoiled backend([](const Launch& launch, const std::vector<Tensor>& before) {
    const size_t i = last_written(*launch.op);
    const auto size = static_cast<size_t>(size_of(before[i].format.type)),
               offset = before[i].bytes.size() - size;
    std::memcpy(launch.operands[i].data + offset, before[i].bytes.data() + offset, size);
  });
  expect_caught(backend, "wrong", [](const Op& op) {
    return operands(op)[last_written(op)].access == Access::Write && !std::holds_alternative<SumSq>(op);
  });
}

TEST(Harness, CatchesForgottenAccumulation) {
  struct Forgetful : ReferenceBackend {
    void run(const Launch& launch) override {
      std::vector<Tensor> before = read(launch);
      const Operands schema = operands(*launch.op);
      for (size_t i = 0; i < schema.size(); ++i) {
        if (schema[i].access == Access::Accumulate) std::ranges::fill(before[i].bytes, std::byte{0});
      }
      write(launch, results(*launch.op, before));
    }
  } backend;
  expect_caught(backend, "wrong", [](const Op& op) {
    const Operands schema = operands(op);
    // SumSq overwrites its only slot.
    if (const auto* sum = std::get_if<SumSq>(&op); sum && sum->slots == 1) return false;
    return std::ranges::any_of(schema, [](const Operand& o) { return o.access == Access::Accumulate; });
  });
}

TEST(Harness, CatchesAWriteBehindAnOperand) {
  Spoiled backend([](const Launch& launch, const std::vector<Tensor>&) {
    const Buffer& buffer = launch.operands[last_written(*launch.op)];
    buffer.data[buffer.bytes] = std::byte{0};
  });
  expect_caught(backend, "guard before", always);
}

TEST(Harness, CatchesAWriteBeforeTheFirstOperand) {
  Spoiled backend(
      [](const Launch& launch, const std::vector<Tensor>&) { launch.operands[0].data[-1] = std::byte{0}; });
  expect_caught(backend, "guard before", always);
}

TEST(Harness, CatchesAWriteBehindTheWorkspace) {
  Spoiled backend([](const Launch& launch, const std::vector<Tensor>&) {
    launch.workspace.data[launch.workspace.bytes] = std::byte{0};
  });
  expect_caught(backend, "guard after the workspace", always);
}

TEST(Harness, CatchesAChangedInput) {
  Spoiled backend(
      [](const Launch& launch, const std::vector<Tensor>&) { launch.operands[0].data[0] ^= std::byte{1}; });
  expect_caught(backend, "read-only operand",
                [](const Op& op) { return operands(op)[0].access == Access::Read; });
}

// The lowest bit of an element is within many tolerances, but must be the same every time.
void flip_lowest_bit(const Launch& launch) {
  launch.operands[last_written(*launch.op)].data[0] ^= std::byte{1};
}

TEST(Harness, CatchesResultsThatVary) {
  int runs = 0;
  Spoiled backend([&](const Launch& launch, const std::vector<Tensor>&) {
    if (runs++ % 3 == 1) flip_lowest_bit(launch);
  });
  expect_caught(backend, "in a second run", always);
}

TEST(Harness, CatchesResultsThatDependOnOldContent) {
  Spoiled backend([](const Launch& launch, const std::vector<Tensor>&) {
    if (launch.workspace.data[0] == std::byte{0x55}) flip_lowest_bit(launch);
  });
  expect_caught(backend, "in a second run", always);
}

TEST(Harness, CatchesResultsThatDependOnAddresses) {
  int runs = 0;
  Spoiled backend([&](const Launch& launch, const std::vector<Tensor>&) {
    if (runs++ % 3 == 2) flip_lowest_bit(launch);
  });
  expect_caught(backend, "at other addresses", always);
}

// Rounds bf16 results towards zero where the contract says to nearest.
TEST(Harness, CatchesTruncation) {
  struct Truncating : ReferenceBackend {
    void run(const Launch& launch) override {
      std::vector<Tensor> operands = read(launch);
      for (const Expected& expected : reference(*launch.op, operands)) {
        Tensor& tensor = operands[static_cast<size_t>(expected.operand)];
        for (size_t i = 0; i < expected.values.size(); ++i) {
          const auto value = static_cast<float>(expected.values[i].value);
          if (tensor.format == DType::BF16) {
            tensor.as<Bf16>()[i].bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
          } else {
            tensor.set(static_cast<int64_t>(i), expected.values[i].value);
          }
        }
      }
      write(launch, operands);
    }
  } backend;
  expect_caught(backend, "wrong", [](const Op& op) {
    const auto* linear = std::get_if<Linear>(&op);
    // Sums of products in 8 bits may lose as much.
    const bool narrow = linear && linear->x_format;
    return linear && !narrow && linear->dtype == DType::BF16 && linear->tokens > 1 && linear->rope_heads == 0;
  });
}

// Operands of products with the ten bits behind the point that tensor cores take of f32.
TEST(Harness, CatchesProductsInTf32) {
  struct Tf32 : ReferenceBackend {
    void run(const Launch& launch) override {
      const std::vector<Tensor> exact = read(launch);
      std::vector<Tensor> rounded = exact;
      const Operands schema = operands(*launch.op);
      for (size_t i = 0; i < schema.size(); ++i) {
        if (schema[i].access != Access::Read || schema[i].format != DType::F32) continue;
        for (uint32_t& bits : rounded[i].as<uint32_t>()) bits = (bits + 0x1000) & ~0x1fffu;
      }
      rounded = results(*launch.op, rounded);
      for (size_t i = 0; i < schema.size(); ++i) {
        if (schema[i].access == Access::Read) rounded[i] = exact[i];
      }
      write(launch, rounded);
    }
  } backend;
  const auto of_f32 = [](const auto* op) { return op != nullptr && op->dtype == DType::F32; };
  expect_caught(backend, "expected", [&](const Op& op) {
    return of_f32(std::get_if<Linear>(&op)) || of_f32(std::get_if<LinearDgrad>(&op)) ||
           of_f32(std::get_if<LinearWgrad>(&op));
  });
  Harness harness = harness_of(backend);
  int64_t longest = 0;
  for (const Case& test : all_cases()) {
    const auto* linear = std::get_if<Linear>(&test.op);
    if (!of_f32(linear) || linear->in < 2048) continue;
    longest = std::max(longest, linear->in);
    const Verdict verdict = harness.check(test);
    EXPECT_GT(verdict.normwise, 10) << test.name();
  }
  EXPECT_GE(longest, 2048);
}

// An error that stays within the bound of every element, and is there in all of them.
TEST(Harness, CatchesASystematicErrorByItsNorm) {
  struct Biased : ReferenceBackend {
    void run(const Launch& launch) override {
      std::vector<Tensor> operands = read(launch);
      for (const Expected& expected : reference(*launch.op, operands)) {
        for (size_t i = 0; i < expected.values.size(); ++i) {
          const Approx& a = expected.values[i];
          operands[static_cast<size_t>(expected.operand)].set(static_cast<int64_t>(i),
                                                              a.value + 0.9 * a.bound);
        }
      }
      write(launch, operands);
    }
  } backend;
  Harness harness = harness_of(backend);
  const AttnFwd op{{1, 129, 129, 4, 1, 64, 0, false, DType::BF16}, DType::BF16, false};
  const Verdict verdict = harness.check({op, {}, ""});
  EXPECT_LT(verdict.elementwise, 1);
  EXPECT_NE(joined(verdict.findings).find("o: error of norm"), std::string::npos) << joined(verdict.findings);
}

// Document boundaries are what `pos` says, not only in cases where nothing depends on it.
TEST(Harness, CatchesIgnoredDocuments) {
  struct Blind : ReferenceBackend {
    void run(const Launch& launch) override {
      std::vector<Tensor> operands = read(launch);
      const auto& shape = std::get<AttnFwd>(*launch.op).shape;
      for (int64_t i = 0; i < operands[AttnFwd::kPos].elements(); ++i) {
        operands[AttnFwd::kPos].set(i, double(shape.distance + i % shape.q_len));
      }
      operands = results(*launch.op, std::move(operands));
      operands[AttnFwd::kPos] = read(launch)[AttnFwd::kPos];
      write(launch, operands);
    }
  } backend;
  expect_caught(backend, "wrong", [](const Op& op) {
    const auto* forward = std::get_if<AttnFwd>(&op);
    return forward && forward->shape.packed;
  });
}

TEST(Relations, CatchDroppedAccumulationAcrossChunks) {
  struct Dropping : ReferenceBackend {
    void run(const Launch& launch) override {
      AttnBwd op = std::get<AttnBwd>(*launch.op);
      op.accumulate_dkv = false;
      write(launch, results(op, read(launch)));
    }
  } backend;
  Harness harness = harness_of(backend);
  int caught = 0;
  for (const Relation& relation : all_relations()) {
    if (std::holds_alternative<AttnBwd>(relation.example)) caught += relation.check(harness).empty() ? 0 : 1;
  }
  EXPECT_EQ(caught, 8);
}

// Over random numbers rounding to nearest is as unbiased; what gives it away is every single case.
TEST(Harness, CatchesRoundingToNearestForStochastic) {
  struct Nearest : ReferenceBackend {
    void run(const Launch& launch) override {
      AdamW op = std::get<AdamW>(*launch.op);
      op.stochastic = false;
      write(launch, results(op, read(launch)));
    }
  } backend;
  Harness harness = harness_of(backend);
  const AdamW op{
      77, 3, 11, 0.9f, 0.999f, 1e-8f, 0.1f, DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true};
  EXPECT_EQ(harness.check({op, {}, ""}).findings.size(), 3u);  // p, m and v
}

// Moments that are updated later must take the draws that AdamW would have given them.
TEST(Relations, CatchLateMomentsOfOtherDraws) {
  struct Shifted : ReferenceBackend {
    void run(const Launch& launch) override {
      Op op = *launch.op;
      if (auto* moments = std::get_if<AdamWMoments>(&op)) ++moments->object;
      write(launch, results(op, read(launch)));
    }
  } backend;
  Harness harness = harness_of(backend);
  int caught = 0;
  for (const Relation& relation : all_relations()) {
    if (relation.name.find("two_steps_is_whole_bf16_stochastic") == std::string::npos) continue;
    caught += relation.check(harness).size() == 2 ? 1 : 0;  // m and v
  }
  EXPECT_EQ(caught, 2);  // f32 state is not rounded
}

// Adds the random bits to a number that was rounded up by half a unit before.
TEST(Relations, CatchBiasedStochasticRounding) {
  struct Biased : ReferenceBackend {
    void run(const Launch& launch) override {
      std::vector<Tensor> operands = read(launch);
      for (const Expected& expected : reference(*launch.op, operands)) {
        Tensor& tensor = operands[static_cast<size_t>(expected.operand)];
        for (size_t i = 0; i < expected.values.size(); ++i) {
          const auto bits = std::bit_cast<uint32_t>(static_cast<float>(expected.values[i].value));
          const uint32_t draw = expected.draws[i] + (0xffff - expected.draws[i]) / 32;
          tensor.as<Bf16>()[i].bits = round_stochastic(bits, draw);
        }
      }
      write(launch, operands);
    }
  } backend;
  Harness harness = harness_of(backend);
  for (const Relation& relation : all_relations()) {
    if (relation.name != "adamw_stochastic_rounding_is_unbiased") continue;
    const std::vector<std::string> findings = relation.check(harness);
    EXPECT_EQ(findings.size(), 3u) << joined(findings);  // p, m and v
  }
}

}  // namespace
}  // namespace sluice::core::conformance
