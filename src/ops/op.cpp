// SPDX-License-Identifier: Apache-2.0
#include "ops/op.h"

#include <fmt/format.h>

#include <concepts>
#include <utility>

#include "ops/fields.h"

namespace sluice::core {
namespace {

template <class T>
constexpr bool all_name_their_members = false;
template <class... T>
constexpr bool all_name_their_members<std::variant<T...>> = (names_every_member<T>() && ...);
static_assert(all_name_their_members<AnyOp>, "fields() of an op leaves out a member");

// Collects an op's attributes as " name=value".
struct Printer {
  std::string out;
  bool all = true;  // those that do not change how long the op takes, too
  template <class E>
  requires std::is_enum_v<E>
  void operator()(std::string_view name, E v) { put(name, name_of(v)); }
  // Costs that were measured, and programs' hashes, have always said 0 and 1.
  void operator()(std::string_view name, MasterWeights v) {
    put(name, v == MasterWeights::Off ? "0" : v == MasterWeights::F32 ? "1" : name_of(v));
  }
  void operator()(std::string_view name, const NumberFormat& v) { put(name, to_text(v)); }
  void operator()(std::string_view name, bool v) { put(name, v ? "1" : "0"); }
  void operator()(std::string_view name, std::integral auto v) {
    const fmt::format_int digits(v);
    put(name, {digits.data(), digits.size()});
  }
  void operator()(std::string_view name, auto v) { put(name, fmt::format("{}", v)); }
  void operator()(std::string_view name, auto v, NoCost) {
    if (all) (*this)(name, v);
  }
  void operator()(std::string_view name, auto v, OfStep) { (*this)(name, v); }
  // A step has tens of thousands of ops.
  void put(std::string_view name, std::string_view value) {
    out.append(" ").append(name).append("=").append(value);
  }
};

std::string print(const Op& op, bool all) {
  return std::visit(
      [&](const auto& o) {
        Printer printer{std::string(o.kName), all};
        o.fields(printer);
        return std::move(printer.out);
      },
      op);
}

}  // namespace

SharedOp::SharedOp(Op op) : op_(std::make_shared<const Op>(std::move(op))) {}

LaneKind lane_of(const Op& op) {
  return std::visit(
      [](const auto& o) {
        if constexpr (requires { o.kLane; }) return o.kLane;
        return LaneKind::Compute;
      },
      op);
}

double network_bytes(const Op& op) {
  return std::visit(
      [](const auto& o) -> double {
        if constexpr (requires { o.network_bytes(); }) return o.network_bytes();
        return 0;
      },
      op);
}

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& o) { return o.kName; }, op);
}

Operands operands(const Op& op) {
  return std::visit([](const auto& o) { return o.operands(); }, op);
}

Work work(const Op& op) {
  return std::visit(
      [](const auto& o) {
        if constexpr (requires { o.work(); }) return o.work();
        return Work();
      },
      op);
}

double flops(const Op& op) {
  return work(op).flops;
}

int64_t workspace_bytes(const Op& op, const GpuLibraries& libraries) {
  return std::visit(
      [&](const auto& o) {
        if constexpr (requires { o.workspace_bytes(libraries); }) return o.workspace_bytes(libraries);
        return int64_t{0};
      },
      op);
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

std::string to_text(const Op& op) {
  return print(op, true);
}

std::string cost_key(const Op& op) {
  return print(op, false);
}

}  // namespace sluice::core
