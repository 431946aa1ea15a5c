// SPDX-License-Identifier: Apache-2.0
// The text of a template as tokens, and as a tree.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "jinja/value.h"

namespace sluice::core::jinja {

struct Token {
  enum class Kind : uint8_t {
    Data,
    OutputBegin,
    OutputEnd,
    TagBegin,
    TagEnd,
    Name,
    String,
    Int,
    Float,
    Sign,
    End
  };
  Kind kind = Kind::End;
  std::string text;  // of a String: what it stands for
  int line = 1, column = 1;
};

// With trim_blocks and lstrip_blocks. Errors name line and column.
Result<std::vector<Token>> tokens_of(std::string_view text);

enum class Op : uint8_t {
  // Expressions
  Constant,
  Name,
  List,
  Tuple,
  Dict,
  Attribute,
  Item,
  Slice,
  Call,
  Filter,
  Test,
  Not,
  Negative,
  Positive,
  And,
  Or,
  If,
  Compare,
  Add,
  Subtract,
  Multiply,
  Divide,
  FloorDivide,
  Modulo,
  Power,
  Join,
  // Statements
  Data,
  Output,
  IfBlock,
  For,
  Set,
  SetBlock,
  Macro,
  CallBlock,
  FilterBlock,
  With,
  Generation,
  Break,
  Continue,
};

struct FilterRow;
struct TestRow;

struct Node;
using NodePtr = std::unique_ptr<Node>;

struct Argument {
  std::string name;  // empty: by place
  NodePtr value;
  int stars = 0;  // *list, **dict
};

struct Node {
  Op op = Op::Constant;
  int line = 1, column = 1;
  int depth = 1;
  int id = -1;       // of a Name, and of what a macro is called: its place in Syntax::names
  std::string name;  // of attributes, filters, tests, operators of Compare ("<", "in"), by their order
  Value value;       // of a Constant; of Data its text
  std::vector<NodePtr> kids;
  std::vector<Argument> arguments;          // of Call, Filter, Test; parameters of a Macro with defaults
  std::vector<NodePtr> body, otherwise;     // of statements
  std::vector<std::string> operators = {};  // of Compare
  const FilterRow* filter = nullptr;
  const TestRow* test = nullptr;
  bool recursive = false;  // of For
  // Whether the body of a Macro has these names.
  bool reads_caller = false, reads_varargs = false, reads_kwargs = false;
};

struct Syntax {
  std::vector<NodePtr> body;
  std::vector<std::string> names;  // of variables
  std::unordered_map<std::string, int> ids;
  // Whether a name is read somewhere, or a key or an attribute of that name.
  bool reads(std::string_view name) const { return ids.find(std::string(name)) != ids.end(); }
};

// Errors name line and column, and what is not known.
Result<std::unique_ptr<Syntax>> parse(std::string_view text);

}  // namespace sluice::core::jinja
