// SPDX-License-Identifier: Apache-2.0
#include "ops/chosen_parts.h"

#include <cmath>
#include <variant>

#include "ops/experts.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

// By products alone, which are rounded alike everywhere: plans are the same on every machine.
double power(double base, int64_t exponent) {
  double out = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) out *= base;
  }
  return out;
}

// How many of `count` experts have rows where each token chooses at random, and all experts are alike:
//   count (1 - (1 - top_k / experts)^tokens)
double expected_experts(const Mixture& mixture, int64_t count) {
  const double others = 1 - double(mixture.top_k) / double(mixture.experts);
  return double(count) * (1 - power(others, mixture.tokens));
}

}  // namespace

int64_t ChosenParts::expected_bytes(int64_t bytes) const {
  return int64_t(std::ceil(expected / double(count) * double(bytes)));
}

// An expert without rows begins where the next one does.
bool ChosenParts::reads(std::span<const std::byte> told, int64_t part) const {
  const auto* const begin = reinterpret_cast<const int32_t*>(told.data()) + first + part;
  return begin[0] != begin[1];
}

std::optional<ChosenParts> chosen_parts(const Op& op) {
  const auto* product = std::get_if<GroupedLinear>(&op);
  if (product == nullptr) return std::nullopt;
  const Mixture& mixture = product->mixture;
  const ExpertGroup& group = product->group;
  static_assert(RoutingLayout{}.begin() == 0);
  return ChosenParts{.object = GroupedLinear::kW,
                     .chooser = GroupedLinear::kRouting,
                     .count = group.count,
                     .expected = expected_experts(mixture, group.count),
                     .told_bytes = (mixture.experts + 1) * int64_t(sizeof(int32_t)),
                     .first = group.first};
}

}  // namespace sluice::core
