// SPDX-License-Identifier: Apache-2.0
// The filters and tests of jinja2 that are known.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "jinja/value.h"

namespace sluice::core::jinja {

class Interpreter;
struct Arguments;
struct Bound;
struct Node;

// Parameters of a filter, a method or a function.
struct Parameters {
  std::array<std::string_view, 4> names = {};  // empty behind the last
  size_t required = 0;
};

struct FilterRow {
  std::string_view name;
  Parameters parameters;
  Value (*apply)(Interpreter&, Value subject, Bound&, const Node& at);
  // Takes what it is told as it stands.
  Value (*open)(Interpreter&, Value subject, Arguments, const Node& at) = nullptr;
};
struct TestRow {
  std::string_view name;
  bool (*passes)(Interpreter&, const Value& subject, const Arguments&, const Node& at);
};

// The row of this name among rows in the order of their names; nullptr: there is none.
template <class Row>
const Row* find_row(std::span<const Row> rows, std::string_view name) {
  const auto it = std::lower_bound(rows.begin(), rows.end(), name,
                                   [](const Row& row, std::string_view n) { return row.name < n; });
  return it != rows.end() && it->name == name ? &*it : nullptr;
}

// nullptr: there is none.
const FilterRow* find_filter(std::string_view name);
const TestRow* find_test(std::string_view name);

}  // namespace sluice::core::jinja
