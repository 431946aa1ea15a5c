// SPDX-License-Identifier: Apache-2.0
// The members of ops, counted by the compiler: fields() must name each of them. Included where that is
// checked.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/format.h"

namespace sluice::core {

template <class T>
concept NamesFields = requires(const T& t) {
  t.fields([](std::string_view, const auto&, auto...) {});
};
template <class T>
constexpr bool is_optional = false;
template <class T>
constexpr bool is_optional<std::optional<T>> = true;
template <class T>
concept FieldType = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, NumberFormat> ||
    is_optional<T> || NamesFields<T>;

// Becomes any member, with a value that is nobody's default, and counts it; a member that names fields of its
// own counts as these.
struct AnyField {
  int* count;
  template <FieldType T>
  constexpr operator T() const;  // NOLINT(google-explicit-constructor): that is what it is for
};
template <size_t>
using AnyFieldAt = AnyField;

template <class T, size_t N, class = std::make_index_sequence<N>>
constexpr bool has_members = false;
template <class T, size_t N, size_t... I>
constexpr bool has_members<T, N, std::index_sequence<I...>> = requires {
  T{AnyFieldAt<I>{}...};
};

// As members have defaults, a T takes any number of values up to theirs: it is halved for.
constexpr size_t kMostMembers = 31;
template <class T, size_t Least = 0, size_t Most = kMostMembers>
constexpr size_t members_of() {
  if constexpr (Least == Most) {
    return Least;
  } else {
    constexpr size_t half = (Least + Most + 1) / 2;
    if constexpr (has_members<T, half>) {
      return members_of<T, half, Most>();
    } else {
      return members_of<T, Least, half - 1>();
    }
  }
}

template <class T, size_t... I>
constexpr T filled(int& count, std::index_sequence<I...>) {
  return T{((void)I, AnyField{&count})...};
}
// A T none of whose members has its default.
template <class T>
constexpr T filled(int& count) {
  return filled<T>(count, std::make_index_sequence<members_of<T>()>());
}

template <FieldType T>
constexpr AnyField::operator T() const {
  if constexpr (NamesFields<T>) {
    return filled<T>(*count);
  } else {
    ++*count;
    if constexpr (is_optional<T> || std::is_same_v<T, NumberFormat>) {
      return T(DType::BF16);
    } else {
      return T(2);
    }
  }
}

template <class T>
consteval bool names_every_member() {
  int members = 0, named = 0;
  const T op = filled<T>(members);
  op.fields([&](std::string_view, const auto&, auto...) { ++named; });
  return members == named;
}

}  // namespace sluice::core
