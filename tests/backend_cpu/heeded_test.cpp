// SPDX-License-Identifier: Apache-2.0
// Every attribute of every op is in the tables of the backends, or refused by them.
#include "backend/heeded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "ops/fields.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

constexpr std::pair<std::string_view, std::span<const Heeded> (*)()> kTables[] = {{"CPU", cpu_heeds},
                                                                                  {"CUDA", cuda_heeds}};

// Calls f with an op of every type, none of whose attributes has its default.
template <class F, class... T>
void for_each_op(F&& f, const std::variant<T...>*) {
  int members = 0;
  (f(filled<T>(members)), ...);
}
template <class F>
void for_each_op(F&& f) {
  for_each_op(f, static_cast<const AnyOp*>(nullptr));
}

TEST(Heeded, HasEveryAttributeOfEveryOp) {
  for (const auto& [backend, table] : kTables) {
    for_each_op([&](const auto& op) {
      const auto row =
          std::find_if(table().begin(), table().end(), [&](const Heeded& r) { return r.op == op.kName; });
      ASSERT_NE(row, table().end()) << backend << ": " << op.kName;
      op.fields([&](std::string_view attribute, const auto&, auto...) {
        EXPECT_TRUE(heeds(*row, attribute)) << backend << ": " << op.kName << ", " << attribute;
      });
    });
  }
}

TEST(Heeded, WhatIsInNoTableIsRefused) {
  LinearDgrad op{.tokens = 1, .in = 16, .out = 3, .dtype = DType::BF16, .accumulate = false};
  EXPECT_TRUE(check_heeded(cpu_heeds(), "CPU", op).ok());
  constexpr Heeded kFew[] = {{"linear_dgrad", "tokens in out dtype acc"}};
  EXPECT_TRUE(check_heeded(kFew, "CPU", op).ok());
  op.weight_format = DType::F32;
  EXPECT_EQ(check_heeded(kFew, "CPU", op).message(),
            "the CPU backend cannot run \"linear_dgrad tokens=1 in=16 out=3 dtype=bf16 acc=0 w=f32\": its "
            "kernels do not heed 'w'");
  op.weight_format = Format(DType::F4E2M1, 16, DType::F8E4M3);
  EXPECT_NE(check_heeded(cpu_heeds(), "CPU", op).message().find("operand w is in f4e2m1 by 16 with f8e4m3"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::core
