// SPDX-License-Identifier: Apache-2.0
// Makes the rows of a table of support, and has the compiler check that they are complete.
#pragma once

#include <algorithm>
#include <type_traits>

#include "backend/support.h"
#include "ops/fields.h"
#include "ops/op.h"

namespace sluice::core {

struct TakesAll {
  void operator()(const auto&, Objection&) const {}
};

// Whether the words are the op's attributes, and those with types are types.
template <class T>
consteval bool names_attributes(std::string_view words) {
  int members = 0;
  bool all = true;
  std::ptrdiff_t named = 0;
  const T op = filled<T>(members);
  op.fields([&](std::string_view name, const auto& value, auto...) {
    const std::string_view word = word_of(words, name);
    const bool has_types = word.find(':') != word.npos;
    all = all && !word.empty() && (!has_types || std::is_same_v<std::decay_t<decltype(value)>, DType>);
    ++named;
  });
  return all && std::ranges::count(words, ' ') == named - 1;
}

// Is not constexpr, so that a row that calls it does not compile.
inline void attributes_are_not_those_of_fields() {}

// Examine is a lambda without captures: void(const T&, Objection&).
template <class T, class Examine = TakesAll>
consteval Support row(std::string_view attributes, Examine = {}, std::span<const NumberFormat> packed = {}) {
  if (!names_attributes<T>(attributes)) attributes_are_not_those_of_fields();
  return {T::kName, attributes,
          [](const Op& op, Objection& objection) { Examine{}(std::get<T>(op), objection); }, packed};
}

template <class... T>
consteval bool has_every_op(std::span<const Support> table, const std::variant<T...>*) {
  return table.size() == sizeof...(T) &&
         (std::ranges::any_of(table, [](const Support& row) { return row.op == T::kName; }) && ...);
}
consteval bool has_every_op(std::span<const Support> table) {
  return has_every_op(table, static_cast<const AnyOp*>(nullptr));
}

}  // namespace sluice::core
