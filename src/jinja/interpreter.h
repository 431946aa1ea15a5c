// SPDX-License-Identifier: Apache-2.0
// One render: values of expressions, and what statements write.
//
// The first error stays, and whatever is computed after it is dropped: loops and statements look at failed().
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/filters.h"
#include "jinja/syntax.h"
#include "jinja/template.h"

namespace sluice::core::jinja {

// Variables of a block. Macros keep the scope in which they were defined.
struct Scope {
  Scope* around = nullptr;
  std::vector<std::pair<int, Value>> variables;
  bool kept = false;  // a macro may look into it later
};

struct Arguments {
  std::vector<Value> places;
  std::vector<std::pair<std::string, Value>> names;
};

// Arguments by the places of parameters; those that are not given are undefined.
struct Bound {
  std::array<Value, 4> values = {};
  std::array<bool, 4> has = {};
  Value& operator[](size_t i) { return values[i]; }
};

class Interpreter {
 public:
  Interpreter(const Syntax& syntax, const Inputs& inputs);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Result<Rendering> run();

  bool failed() const { return error_.has_value(); }
  template <class... Args>
  Value fail(const Node& at, fmt::format_string<Args...> format, Args&&... args) {
    if (!error_) set_error(at, fmt::format(format, std::forward<Args>(args)...));
    return {};
  }

  // New values, which count.
  Value string(Text text, bool markup = false);
  Value list(std::vector<Value> items, List::Form form, const Node& at);
  Value dict(std::vector<std::pair<Value, Value>> members, const Node& at);
  // Work beside the evaluation of nodes, such as bytes that are copied.
  bool spend(int64_t steps, const Node& at);
  // Bytes that a piece of a string takes at least, with its place.
  static constexpr int64_t kPieceBytes = 64;
  // Whether so many bytes more may be held; false: it has failed.
  bool has_room(int64_t bytes, const Node& at);
  // The same for the places of all characters.
  bool has_room_for_places(std::string_view text, const Node& at) {
    return has_room(std::ssize(text) * int64_t(sizeof(size_t)), at);
  }
  int64_t room() const { return most_bytes_ - account_.held; }

  // A search for some bytes in others.
  bool spend_search(std::string_view text, std::string_view what, const Node& at);
  // equal() and compare(), of which the steps count. False, too, where they are too many.
  bool same(const Value& a, const Value& b, const Node& at);
  bool ordered(const Value& a, const Value& b, int& order, const Node& at);

  // str()
  Text text_of(const Value& value, const Node& at);
  Value string_of(const Value& value, const Node& at) {
    return value.is_string() ? value : string(text_of(value, at));
  }
  // Items of a value; an iterator is used up.
  std::vector<Value> items_of(const Value& value, const Node& at);
  int64_t length_of(const Value& value, const Node& at);
  Value attribute(const Value& object, std::string_view name, const Node& at);
  Value item(const Value& object, const Value& key, const Node& at);
  Value call(const Value& callee, Arguments arguments, const Node& at);
  Value apply(const FilterRow* filter, std::string_view name, Value subject, Arguments arguments,
              const Node& at);
  bool passes(const TestRow* test, std::string_view name, const Value& subject, const Arguments& arguments,
              const Node& at);
  Value binary(Op op, const Value& a, const Value& b, const Node& at);
  bool contains(const Value& container, const Value& item, const Node& at);
  bool is_callable(const Value& value) const;

  // Arguments by the names of parameters. False: they do not fit.
  bool bind(Arguments& given, const Parameters& parameters, Bound& bound, std::string_view what,
            const Node& at);

  void note_asked(const Value& value);
  const std::optional<Day>& today() const { return inputs_.today; }

 private:
  enum class Flow : uint8_t { Next, Break, Continue };
  static constexpr int kMostDepth = 2000;

  void set_error(const Node& at, std::string message);
  template <class T>
  std::shared_ptr<T> make(int64_t bytes) {
    auto object = std::make_shared<T>();
    object->account = &account_;
    object->bytes = bytes + int64_t(sizeof(T)) + 32;
    account_.held += object->bytes;
    return object;
  }

  Value evaluate(const Node& node);
  Value name(const Node& node);
  Value conditional(const Node& node);
  Value comparison(const Node& node);
  Value joined(const Node& node);
  Value slice(const Node& node);
  Value call_node(const Node& node);
  Arguments arguments_of(const Node& node);
  Value filtered(const Node& node, std::optional<Value> subject = std::nullopt);
  Value undefined(const Node& at) const;
  Error undefined_error(const Value& value) const;
  Value fail_undefined(const Value& value, const Node& at);
  Value call_macro(const Function& macro, Arguments arguments, const Node& at);
  Value call_global(std::string_view name, Arguments arguments, const Node& at);
  Value call_loop(Loop& loop, Arguments arguments, const Node& at);
  Value loop_attribute(const Value& value, std::string_view name, const Node& at);
  Value make_macro(const Node& node);
  static void keep(Scope* scope);

  Flow execute(const std::vector<NodePtr>& body, Text& out);
  Flow execute(const Node& node, Text& out);
  Flow loop(const Node& node, Text& out);
  Flow run_loop(const Node& node, Scope* scope, std::vector<Value> items, int level, Text& out);
  void assign(const Node& target, Value value);
  void set(int id, Value value);
  const Value* find(int id) const;
  void write(const Text& text, Text& out, const Node& at);

  // A block of its own variables, for as long as this lives.
  class Block {
   public:
    Block(Interpreter& interpreter, Scope* around);
    ~Block();
    Scope& scope() { return *scope_; }

   private:
    Interpreter& interpreter_;
    std::unique_ptr<Scope> scope_;
    Scope* before_;
  };

  const Syntax& syntax_;
  const Inputs& inputs_;
  Account account_;
  int64_t steps_ = 0, most_bytes_ = 0, most_steps_ = 0, usual_bytes_ = 0;
  int depth_ = 0;
  Origin owner_ = kTemplate;  // of what the template writes now
  std::optional<Error> error_;
  std::vector<std::optional<Value>> globals_;  // variables of the template itself, by their numbers
  Scope* scope_ = nullptr;                     // null: the template itself
  std::vector<std::unique_ptr<Scope>> kept_, spare_;
  std::vector<std::shared_ptr<Object>> cyclic_;  // namespaces, and loops: what may hold itself
  Rendering rendering_;
};

// Methods of strings, dictionaries and lists: methods.cpp.
bool has_method(const Value& object, std::string_view name);
Value call_method(Interpreter& in, const Value& self, std::string_view name, Arguments arguments,
                  const Node& at);

// format.cpp. `format % values`, and format.format(values).
Value format_percent(Interpreter& in, const Value& format, const Value& values, const Node& at);
Value format_braces(Interpreter& in, const Value& format, const Arguments& values, const Node& at);
// strftime() of a day at midnight. False: `bad` is the letter that is not known.
bool format_day(std::string_view format, const Day& day, std::string& out, char& bad);

}  // namespace sluice::core::jinja
