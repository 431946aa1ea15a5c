// SPDX-License-Identifier: Apache-2.0
// What every op must write, computed plainly in double precision from the bytes of its operands, and within
// what error (approx.h). Nothing here is shared with any backend but the schema of the ops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "conformance/approx.h"
#include "conformance/tensor.h"
#include "ops/op.h"

namespace sluice::core::conformance {

// What one operand holds afterwards.
struct Expected {
  int operand = 0;  // index in the op's schema
  // One per element, before the rounding to the operand's dtype. A value with bound 0 is exact; NaN means
  // NaN.
  std::vector<Approx> values;
  // Random bits of the stochastic rounding (ops/rounding.h), one draw per element; empty: rounds to nearest.
  std::vector<uint32_t> draws;
  // Of a bf16 operand: the one of bytes with which it is a master of 24 bits. `values` are those of both
  // together, before they are rounded.
  int residual = -1;
};
using Outputs = std::vector<Expected>;
using Inputs = std::span<const Tensor>;

// One Expected for each operand that `op` writes or accumulates into; one for both parts of a master.
// `operands` follow the op's schema and hold what they hold before it runs.
Outputs reference(const Op& op, Inputs operands);

// Natural log of the softmax denominator of every query over one block, [rows, q_heads, q_len]; -inf where
// no key is visible. For making operands of AttnBwd.
std::vector<double> block_lse(const AttnShape& shape, const Tensor& q, const Tensor& kv, const Tensor& pos);

}  // namespace sluice::core::conformance
