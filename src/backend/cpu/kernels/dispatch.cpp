// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/kernels/kernels.h"
#include "ops/op.h"

namespace sluice::core::cpu {

std::vector<GemmShape> products(const Op& op, bool exact) {
  std::vector<GemmShape> shapes = std::visit(
      [exact](const auto& o) -> std::vector<GemmShape> {
        if constexpr (requires { products_of(o, exact); }) return products_of(o, exact);
        if constexpr (requires { products_of(o); }) return products_of(o);
        return {};
      },
      op);
  for (GemmShape& shape : shapes) shape.exact = exact;
  return shapes;
}

int64_t own_workspace_bytes(const Op& op, bool exact) {
  return std::visit(
      [exact](const auto& o) -> int64_t {
        if constexpr (requires { workspace_of(o, exact); }) return workspace_of(o, exact);
        if constexpr (requires { workspace_of(o); }) return workspace_of(o);
        return 0;
      },
      op);
}

int64_t scratch_bytes(const Op& op, bool exact) {
  return std::visit(
      [exact](const auto& o) -> int64_t {
        if constexpr (requires { scratch_of(o, exact); }) return scratch_of(o, exact);
        if constexpr (requires { scratch_of(o); }) return scratch_of(o);
        return 0;
      },
      op);
}

Status launch(const Op& op, const Args& args, const KernelContext& context) {
  return std::visit([&](const auto& o) { return launch(o, args, context); }, op);
}

}  // namespace sluice::core::cpu
