// SPDX-License-Identifier: Apache-2.0
#include "conformance/reference.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "conformance/reference_ops.h"

namespace sluice::core::conformance {

Outputs reference(const Op& op, Inputs in) {
  const Operands schema = operands(op);
  SLUICE_CHECK(in.size() == schema.size(), "{} operands given, {} has {}", in.size(), to_text(op),
               schema.size());
  for (size_t i = 0; i < schema.size(); ++i) {
    SLUICE_CHECK(in[i].format == schema[i].format && in[i].elements() == schema[i].elements,
                 "operand {} of {} has {} elements of {}, not {} of {}", schema[i].name, to_text(op),
                 in[i].elements(), to_text(in[i].format), schema[i].elements, to_text(schema[i].format));
  }
  Outputs outputs = std::visit([&](const auto& o) { return expect(o, in); }, op);
  const auto writes = [](const Operand& o) { return o.access != Access::Read; };
  const auto joined = [](const Expected& e) { return e.residual >= 0; };
  const auto given = std::ssize(outputs) + std::count_if(outputs.begin(), outputs.end(), joined);
  SLUICE_CHECK(std::count_if(schema.begin(), schema.end(), writes) == given, "{} operands expected of {}",
               outputs.size(), to_text(op));
  return outputs;
}

}  // namespace sluice::core::conformance
