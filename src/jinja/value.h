// SPDX-License-Identifier: Apache-2.0
// What a template computes with: Python's values, as far as templates have them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/text.h"

namespace sluice::core::jinja {

struct Node;
struct Value;
struct String;
struct List;
struct Dict;
struct Namespace;
struct Function;
struct Loop;

enum class Kind : uint8_t {
  Undefined,
  None,
  Bool,
  Int,
  Float,
  Big,  // an integer beyond 64 bits, which is only written
  String,
  List,
  Dict,
  Namespace,
  Function,
  Loop,
};

// Memory of a render, in bytes.
struct Account {
  int64_t held = 0;
};

// An object that values share. An object counts in the account of the render that made it.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (account != nullptr) account->held -= bytes;
  }
  Account* account = nullptr;
  int64_t bytes = 0;
};

// Immutable, but for namespaces, loops and iterators.
struct Value {
  Kind kind = Kind::Undefined;
  // Who wrote a number, a boolean or None. A dictionary's is said to write what the template writes in a loop
  // while it stands at it.
  Origin origin = kTemplate;
  union {
    bool boolean;
    int64_t integer = 0;
    double real;
    const Node* missing;  // of Undefined: what was asked for; may be null
  };
  std::shared_ptr<Object> object;

  static Value none(Origin origin = kTemplate);
  static Value of(bool boolean, Origin origin = kTemplate);
  static Value of(int64_t integer, Origin origin = kTemplate);
  static Value of(double real, Origin origin = kTemplate);
  static Value of(std::shared_ptr<List> list);
  static Value of(std::shared_ptr<Dict> dict);
  static Value string(Text text);
  static Value big(std::string digits, Origin origin);

  bool is(Kind other) const { return kind == other; }
  bool is_string() const { return kind == Kind::String; }
  // Booleans are integers to Python.
  bool is_integer() const { return kind == Kind::Int || kind == Kind::Bool; }
  bool is_number() const { return is_integer() || kind == Kind::Float; }
  int64_t as_integer() const { return kind == Kind::Bool ? int64_t{boolean} : integer; }
  double as_real() const { return kind == Kind::Float ? real : double(as_integer()); }

  // REQUIRES: the kind.
  const String& str() const;
  const Text& text() const;
  List& list() const;
  const Dict& dict() const;
  Namespace& space() const;
  const Function& function() const;
  Loop& loop() const;
};

struct String : Object {
  Text text;
  bool markup = false;  // what `safe` made: text beside it is escaped for HTML
};

// Lists and dictionaries share values, so that a walk over one may be far longer than what it holds.
struct Container : Object {
  int depth = 1;      // of lists in lists
  int64_t steps = 0;  // of a walk over all of it; saturates

  // REQUIRES: called for each value once it is held.
  void holds(const Value& item);
};

struct List : Container {
  enum class Form : uint8_t { List, Tuple, Items, Range, Iterator };
  std::vector<Value> items;
  Form form = Form::List;
  size_t next = 0;  // of an Iterator: what was not taken yet

  bool has_index() const { return form == Form::List || form == Form::Tuple || form == Form::Range; }
};

// In the order of insertion; an equal key that comes later gives its value.
struct Dict : Container {
  std::vector<std::pair<Value, Value>> members;

  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  void set(Value key, Value value);
  // The cost of find(): a key that is no string is compared with each.
  int64_t steps_to_find(const Value& key) const;

 private:
  size_t index_of(const Value& key) const;
  std::unordered_map<std::string, size_t> places_;  // of keys that are strings, where there are many
};

struct Namespace : Object {
  Dict attributes;
};

struct Scope;

struct Function : Object {
  enum class What : uint8_t { Global, Method, Macro };
  What what = What::Global;
  std::string name;
  Value self;                  // of a Method
  const Node* node = nullptr;  // of a Macro, and a call's block
  Scope* scope = nullptr;      // where it was defined
  std::vector<Value> defaults = {};
};

// The object `loop`.
struct Loop : Object {
  std::vector<Value> items;
  size_t index = 0;
  int level = 0;
  Value changed;  // what `loop.changed` saw last
  const Node* node = nullptr;
  Scope* scope = nullptr;
};

std::string_view type_name(const Value& value);  // as Python has it
bool is_true(const Value& value);
// ==
bool equal(const Value& a, const Value& b);
// -1, 0, 1; false: they cannot be ordered.
bool compare(const Value& a, const Value& b, int& order);
bool hashable(const Value& value);
int depth_of(const Value& value);
// The cost of a walk over a value, such as those above; 0 for numbers and short strings.
int64_t steps_of(const Value& value);
// a * b for what is not negative; saturates where more can be added to it.
int64_t product(int64_t a, int64_t b);

// float.__repr__()
std::string real_text(double real);
// str() and repr(). Functions, namespaces, loops and iterators have none: false.
bool append_str(const Value& value, Text& out);
bool append_repr(const Value& value, Text& out);
// html.escape, as markupsafe writes it.
Text escaped(const Text& text);

struct JsonOptions {
  bool ascii = false, sorted = false;
  bool breaks = false;  // a line for each item
  std::string indent, comma, colon;
};
// json.dumps(). False: `why` names what has no JSON.
bool append_json(const Value& value, const JsonOptions& options, int depth, Text& out, std::string& why);

}  // namespace sluice::core::jinja
