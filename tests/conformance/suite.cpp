// SPDX-License-Identifier: Apache-2.0
#include "conformance/suite.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "conformance/cases.h"
#include "conformance/relations.h"

namespace sluice::core::conformance {
namespace {

// The backend under test: made when it is first needed, gone before the program ends.
class Bench : public ::testing::Environment {
 public:
  explicit Bench(Subject subject) : subject_(std::move(subject)) {}

  Result<Harness*> harness() {
    if (!harness_) {
      SLUICE_ASSIGN(backend_, subject_.make());
      SLUICE_ASSIGN(harness_, Harness::create(*backend_, subject_.device_bytes, subject_.demands));
    }
    return &*harness_;
  }

  void TearDown() override {
    harness_.reset();
    backend_.reset();
  }

 private:
  Subject subject_;
  std::unique_ptr<Backend> backend_;
  std::optional<Harness> harness_;
};

using Check = std::function<std::vector<std::string>(Harness&)>;

class ConformanceTest : public ::testing::Test {
 public:
  ConformanceTest(Bench& bench, Check check) : bench_(bench), check_(std::move(check)) {}

  void TestBody() override {
    const Result<Harness*> harness = bench_.harness();
    ASSERT_TRUE(harness.ok()) << harness.message();
    const std::vector<std::string> findings = check_(**harness);
    EXPECT_TRUE(findings.empty()) << fmt::format("{}", fmt::join(findings, "\n"));
  }

 private:
  Bench& bench_;
  Check check_;
};

Check check_of(Case test) {
  return [test = std::move(test)](Harness& harness) {
    Verdict verdict = harness.check(test);
    // How much of what is allowed was used.
    ::testing::Test::RecordProperty("elementwise", fmt::format("{:.3f}", verdict.elementwise));
    ::testing::Test::RecordProperty("normwise", fmt::format("{:.3f}", verdict.normwise));
    return std::move(verdict.findings);
  };
}

}  // namespace

void register_suite(Subject subject) {
  auto* bench = new Bench(subject);  // GoogleTest owns it
  ::testing::AddGlobalTestEnvironment(bench);
  const auto add = [&](const std::string& name, const Op& op, Check check) {
    if (!subject.takes(op)) return;
    ::testing::RegisterTest(subject.name.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [bench, check] { return new ConformanceTest(*bench, check); });
  };
  for (const Case& test : all_cases()) add(test.name(), test.op, check_of(test));
  for (const Relation& relation : all_relations()) add(relation.name, relation.example, relation.check);
}

}  // namespace sluice::core::conformance
