#include "ops/op.h"

#include <fmt/format.h>

#include <type_traits>

namespace sluice {
namespace {

// Collects an op's attributes as " name=value".
struct Printer {
  std::string out;
  void operator()(std::string_view name, DType v) { out += fmt::format(" {}={}", name, name_of(v)); }
  void operator()(std::string_view name, bool v) { out += fmt::format(" {}={}", name, v ? 1 : 0); }
  void operator()(std::string_view name, auto v) { out += fmt::format(" {}={}", name, v); }
};

}  // namespace

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& o) { return o.kName; }, op);
}

Operands operands(const Op& op) {
  return std::visit([](const auto& o) { return o.operands(); }, op);
}

double flops(const Op& op) {
  return std::visit([](const auto& o) { return o.flops(); }, op);
}

double traffic(const Op& op) {
  return std::visit(
      [](const auto& o) {
        if constexpr (requires { o.traffic(); }) {
          return o.traffic();
        } else {
          double bytes = 0;
          for (const Operand& operand : o.operands()) {
            bytes += double(operand.bytes()) * (operand.access == Access::Accumulate ? 2 : 1);
          }
          return bytes;
        }
      },
      op);
}

std::string text(const Op& op) {
  return std::visit(
      [](const auto& o) {
        Printer print{std::string(o.kName)};
        o.fields(print);
        return std::move(print.out);
      },
      op);
}

std::string cost_key(const Op& op) {
  if (const auto* adamw = std::get_if<AdamW>(&op)) {
    AdamW plain = *adamw;
    plain.first = 0;
    plain.object = 0;
    return text(plain);
  }
  if (const auto* moments = std::get_if<AdamWMoments>(&op)) {
    AdamWMoments plain = *moments;
    plain.first = 0;
    plain.object = 0;
    return text(plain);
  }
  if (const auto* sum = std::get_if<SumSq>(&op)) {
    SumSq plain = *sum;
    plain.slot = 0;
    plain.slots = 0;
    plain.first = false;
    return text(plain);
  }
  return text(op);
}

}  // namespace sluice
