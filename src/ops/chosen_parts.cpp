// SPDX-License-Identifier: Apache-2.0
#include "ops/chosen_parts.h"

#include <cmath>
#include <variant>

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

}  // namespace

double ChosenParts::expected() const {
  const double others = 1 - double(mixture.top_k) / double(mixture.experts);
  return double(group.count) * (1 - power(others, mixture.tokens));
}

int64_t ChosenParts::expected_bytes(int64_t bytes) const {
  return int64_t(std::ceil(expected() / double(group.count) * double(bytes)));
}

std::optional<ChosenParts> chosen_parts(const Op& op) {
  const auto* product = std::get_if<GroupedLinear>(&op);
  if (product == nullptr) return std::nullopt;
  return ChosenParts{GroupedLinear::kW, GroupedLinear::kRouting, product->mixture, product->group};
}

}  // namespace sluice::core
