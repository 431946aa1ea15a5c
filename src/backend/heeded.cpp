// SPDX-License-Identifier: Apache-2.0
#include "backend/heeded.h"

#include <algorithm>

#include "ops/compact_format.h"
#include "ops/op.h"
#include "ops/packed.h"

namespace sluice::core {

bool heeds(const Heeded& row, std::string_view attribute) {
  std::string_view rest = row.attributes;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == attribute) return true;
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  return false;
}

namespace {

bool takes(const Heeded& row, const Format& f) {
  if (f == compact_format(false) || f == compact_format(true)) return true;
  if (f.block == 0 && !is_code(f.type)) return true;
  return std::ranges::any_of(row.packed, [&](const Format& packed) {
    return f.type == packed.type && (f.block == 0 || f.scale == packed.scale) &&
           (packed.block == Format::kRow || packed.block == f.block);
  });
}

}  // namespace

Status check_heeded(std::span<const Heeded> table, std::string_view backend, const Op& op) {
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const Heeded& r) { return r.op == name_of(op); });
  if (row == table.end()) return error("the {} backend has no kernel for \"{}\"", backend, to_text(op));
  for (const Operand& operand : operands(op)) {
    if (!takes(*row, operand.format))
      return error("the {} backend cannot run \"{}\": operand {} is in {}, which no kernel takes", backend,
                   to_text(op), operand.name, to_text(operand.format));
  }
  Status status;
  std::visit(
      [&](const auto& o) {
        o.fields([&](std::string_view attribute, const auto&, auto...) {
          if (status.ok() && !heeds(*row, attribute))
            status = error("the {} backend cannot run \"{}\": its kernels do not heed '{}'", backend,
                           to_text(op), attribute);
        });
      },
      op);
  return status;
}

}  // namespace sluice::core
