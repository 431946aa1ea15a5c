// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/op_table.h"

#include <bit>
#include <type_traits>

#include "base/hash.h"

namespace sluice::core::cpu {

void OpTable::add(const Op& op, int64_t workspace_bytes) {
  Sizes sizes;
  sizes.workspace = workspace_bytes;
  for (const Operand& operand : operands(op)) {
    SLUICE_CHECK(sizes.operands < kMaxOperands, "{} has more than {} operands", name_of(op), kMaxOperands);
    sizes.bytes[sizes.operands++] = operand.bytes();
  }
  table_.insert_or_assign(key_of(op), sizes);
}

Status OpTable::check(const Launch& launch) const {
  const auto found = table_.find(key_of(*launch.op));
  if (found == table_.end()) return error(ErrorKind::Internal, "{} was not prepared", to_text(*launch.op));
  const Sizes& sizes = found->second;
  if (launch.operands.size() != sizes.operands) {
    return error(ErrorKind::Internal, "{} takes {} operands, not {}", to_text(*launch.op), sizes.operands,
                 launch.operands.size());
  }
  for (size_t i = 0; i < sizes.operands; ++i) {
    if (launch.operands[i].bytes == sizes.bytes[i]) continue;
    return error(ErrorKind::Internal, "{}: operand {} has {} bytes, not {}", to_text(*launch.op),
                 operands(*launch.op)[i].name, launch.operands[i].bytes, sizes.bytes[i]);
  }
  if (launch.workspace.bytes < sizes.workspace) {
    return error(ErrorKind::Internal, "{}: its workspace has {} bytes, not {}", to_text(*launch.op),
                 launch.workspace.bytes, sizes.workspace);
  }
  return {};
}

size_t OpTable::KeyHash::operator()(const Key& key) const {
  Hash hash;
  hash.add(key.kind);
  for (size_t i = 0; i < key.count; ++i) hash.add(key.fields[i]);
  return hash.value();
}

OpTable::Key OpTable::key_of(const Op& op) {
  Key key;
  key.kind = op.index();
  const auto add = [&](std::string_view, auto value, auto... mark) {
    if constexpr ((std::is_same_v<decltype(mark), OfStep> || ...)) return;
    SLUICE_CHECK(key.count < kMaxFields, "{} has more than {} attributes", name_of(op), kMaxFields);
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      key.fields[key.count++] = std::bit_cast<uint64_t>(double{value});
    } else if constexpr (std::is_same_v<decltype(value), NumberFormat>) {
      key.fields[key.count++] = sluice::core::key_of(value);
    } else {
      key.fields[key.count++] = static_cast<uint64_t>(value);
    }
  };
  std::visit([&](const auto& o) { o.fields(add); }, op);
  return key;
}

}  // namespace sluice::core::cpu
