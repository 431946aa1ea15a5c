// SPDX-License-Identifier: Apache-2.0
#include "backend/support.h"

#include <algorithm>
#include <charconv>
#include <concepts>

#include "ops/compact_format.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

// Types that kernels read as they are.
constexpr DType kNumbers[] = {DType::F32, DType::BF16, DType::F64, DType::I32, DType::U8, DType::I8};

bool takes(const Support& row, const NumberFormat& f) {
  if (f == compact_format(false) || f == compact_format(true)) return true;
  if (f.block == 0 && std::ranges::find(kNumbers, f.type) != std::end(kNumbers)) return true;
  return std::ranges::any_of(row.packed, [&](const NumberFormat& packed) {
    return f.type == packed.type && (f.block == 0 || f.scale == packed.scale) &&
           (packed.block == NumberFormat::kRow || packed.block == f.block);
  });
}

// "bf16, f32 or i8" of "bf16,f32,i8".
std::string either(std::string_view types) {
  std::string out;
  for (const char c : types) out += c == ',' ? std::string(", ") : std::string(1, c);
  if (const size_t last = out.rfind(','); last != out.npos) out.replace(last, 1, " or");
  return out;
}

void examine(std::string_view name, DType type, std::string_view word, Objection& o) {
  const size_t mark = word.find(':');
  const std::string_view types = mark == word.npos ? "bf16,f32" : word.substr(mark + 1);
  for (std::string_view rest = types; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    if (one == name_of(type)) return;
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
  }
  o.require(false, fmt::format("{} = {}; {} is needed", name, name_of(type), either(types)));
}
void examine(std::string_view name, const std::integral auto& value, std::string_view word, Objection& o) {
  int64_t of = 1;
  if (const size_t mark = word.find('%'); mark != word.npos)
    std::from_chars(word.data() + mark + 1, word.data() + word.size(), of);
  o.multiple(name, int64_t(value), of);
}
void examine(std::string_view, const auto&, std::string_view, Objection&) {}

}  // namespace

Status check_support(std::span<const Support> table, std::string_view backend, const Op& op,
                     ComputeCapability capability) {
  const auto row = std::ranges::find(table, name_of(op), &Support::op);
  SLUICE_CHECK(row != table.end(), "no row for {}", to_text(op));
  Objection objection(capability);
  for (const Operand& operand : operands(op))
    objection.require(takes(*row, operand.format), fmt::format("operand {} is in {}, which no kernel takes",
                                                               operand.name, to_text(operand.format)));
  std::visit(
      [&](const auto& o) {
        o.fields([&](std::string_view name, const auto& value, auto...) {
          examine(name, value, word_of(row->attributes, name), objection);
        });
      },
      op);
  row->examine(op, objection);
  if (objection.text().empty()) return {};
  return error("the {} backend cannot run \"{}\": {}", backend, to_text(op), objection.text());
}

}  // namespace sluice::core
