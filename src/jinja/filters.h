// SPDX-License-Identifier: Apache-2.0
// The filters and tests of jinja2 that are known.
#pragma once

#include <string_view>

#include "jinja/value.h"

namespace sluice::core::jinja {

class Interpreter;
struct Arguments;
struct Node;

struct FilterRow {
  std::string_view name;
  Value (*apply)(Interpreter&, Value subject, Arguments, const Node& at);
};
struct TestRow {
  std::string_view name;
  bool (*passes)(Interpreter&, const Value& subject, const Arguments&, const Node& at);
};

// nullptr: there is none.
const FilterRow* find_filter(std::string_view name);
const TestRow* find_test(std::string_view name);

}  // namespace sluice::core::jinja
