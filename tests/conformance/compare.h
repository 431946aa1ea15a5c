// SPDX-License-Identifier: Apache-2.0
// Whether an operand holds what the reference expects of it.
//
// Elementwise: a backend's result before its last rounding lies within value -+ bound, and rounding is
// monotone, so its stored element lies between the two ends rounded the same way (to nearest, or
// stochastically with the element's own random bits). Nothing is added for the output dtype: a bf16 element
// whose bound is small has one acceptable value, or two where the ends lie on either side of a tie.
//
// In norm: with independent errors E |error|^2 <= V, the sum of the variances and of the output's own
// rounding. Roundings are charged their largest error, 1.7 times their root mean square, so sqrt(V) is enough
// for many elements; for few, chance is given its three sigma: |error| <= (1 + 3 / sqrt(n)) sqrt(V). This
// sees systematic errors that hide in the elementwise bounds of ops with many roundings.
#pragma once

#include <string>
#include <vector>

#include "conformance/reference.h"

namespace sluice::core::conformance {

struct Comparison {
  std::vector<std::string> findings;  // empty: it conforms
  // Largest error over what is allowed, elementwise (before the output's rounding) and in norm: how tight
  // the check is. 0 where everything is exact.
  double elementwise = 0, normwise = 0;
};

Comparison compare(std::string_view name, const Tensor& got, const Expected& expected);
// Of both parts of masters (Expected::residual).
Comparison compare_masters(std::string_view name, const Tensor& parameters, const Tensor& residuals,
                           const Expected& expected);

}  // namespace sluice::core::conformance
