// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "jinja/cursor.h"
#include "jinja/filters.h"
#include "jinja/syntax.h"

namespace sluice::core::jinja {
namespace {

constexpr int kMostDepth = 400;

class Parser : Cursor {
 public:
  explicit Parser(std::vector<Token> tokens) : Cursor(std::move(tokens)), syntax_(new Syntax) {}

  Result<std::unique_ptr<Syntax>> run() {
    syntax_->body = statements({});
    if (error()) return *error();
    return std::move(syntax_);
  }

 private:
  using Nodes = std::vector<NodePtr>;

  NodePtr fail(const Token& at, std::string_view what) {
    set_error(at.line, at.column, what);
    return make(Op::Constant, at);
  }
  NodePtr make(Op op, const Token& at) {
    auto node = std::make_unique<Node>();
    node->op = op;
    node->line = at.line;
    node->column = at.column;
    return node;
  }
  // An outer node is deeper than its inner ones.
  NodePtr around(NodePtr node) {
    const auto deepen = [&](const Nodes& nodes) {
      for (const NodePtr& kid : nodes) node->depth = std::max(node->depth, kid ? kid->depth + 1 : 1);
    };
    deepen(node->kids);
    deepen(node->body);
    deepen(node->otherwise);
    for (const Argument& argument : node->arguments) {
      if (argument.value) node->depth = std::max(node->depth, argument.value->depth + 1);
    }
    if (node->depth > kMostDepth)
      set_error(node->line, node->column, fmt::format("nested more than {} deep", kMostDepth));
    return node;
  }
  NodePtr make(Op op, const Token& at, NodePtr a, NodePtr b = nullptr) {
    NodePtr node = make(op, at);
    node->kids.push_back(std::move(a));
    if (b) node->kids.push_back(std::move(b));
    return around(std::move(node));
  }
  NodePtr constant(const Token& at, Value value) {
    NodePtr node = make(Op::Constant, at);
    node->value = std::move(value);
    return node;
  }
  int id_of(const std::string& name) {
    const auto [it, added] = syntax_->ids.emplace(name, int(syntax_->names.size()));
    if (added) syntax_->names.push_back(name);
    return it->second;
  }
  NodePtr variable(const Token& at) {
    NodePtr node = make(Op::Name, at);
    node->name = at.text;
    node->id = id_of(at.text);
    read_.caller |= at.text == "caller";
    read_.varargs |= at.text == "varargs";
    read_.kwargs |= at.text == "kwargs";
    return node;
  }

  // Depth of calls of the parser itself.
  struct Level {
    explicit Level(Parser& p) : parser(p) {
      if (++parser.level_ > kMostDepth) parser.fail(parser.now(), "nested too deep");
    }
    ~Level() { --parser.level_; }
    Parser& parser;
  };

  // ---- expressions

  NodePtr expression(bool condition = true) {
    const Level level(*this);
    if (failed()) return make(Op::Constant, now());
    return condition ? conditional() : either();
  }

  NodePtr conditional() {
    NodePtr value = either();
    while (!failed() && is_name("if")) {
      const Token at = take();
      NodePtr node = make(Op::If, at, either(), std::move(value));
      if (skip_name("else")) {
        const Level level(*this);
        if (!failed()) node->kids.push_back(conditional());
      }
      value = around(std::move(node));
    }
    return value;
  }

  template <class Next>
  NodePtr chain(Next next, std::initializer_list<std::pair<std::string_view, Op>> operators, bool words) {
    NodePtr left = next();
    while (!failed()) {
      const auto it = std::find_if(operators.begin(), operators.end(), [&](const auto& row) {
        return words ? is_name(row.first) : is_sign(row.first);
      });
      if (it == operators.end()) break;
      const Token at = take();
      left = make(it->second, at, std::move(left), next());
    }
    return left;
  }

  NodePtr either() {
    return chain([&] { return both(); }, {{"or", Op::Or}}, true);
  }
  NodePtr both() {
    return chain([&] { return negation(); }, {{"and", Op::And}}, true);
  }
  NodePtr negation() {
    const Level level(*this);
    if (!failed() && is_name("not")) {
      const Token at = take();
      return make(Op::Not, at, negation());
    }
    return comparison();
  }
  NodePtr comparison() {
    NodePtr node;
    NodePtr left = sum();
    while (!failed()) {
      const Token at = now();
      std::string sign;
      constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
      if (at.kind == Token::Kind::Sign &&
          std::find(std::begin(kSigns), std::end(kSigns), at.text) != std::end(kSigns)) {
        sign = take().text;
      } else if (skip_name("in")) {
        sign = "in";
      } else if (is_name("not") && ahead().kind == Token::Kind::Name && ahead().text == "in") {
        take();
        take();
        sign = "not in";
      } else {
        break;
      }
      if (!node) node = make(Op::Compare, at, std::move(left));
      node->operators.push_back(sign);
      node->kids.push_back(sum());
    }
    return node ? around(std::move(node)) : std::move(left);
  }
  NodePtr sum() {
    return chain([&] { return joined(); }, {{"+", Op::Add}, {"-", Op::Subtract}}, false);
  }
  NodePtr joined() {
    NodePtr first = product();
    if (!is_sign("~")) return first;
    NodePtr node = make(Op::Join, now(), std::move(first));
    while (!failed() && skip_sign("~")) node->kids.push_back(product());
    return around(std::move(node));
  }
  NodePtr product() {
    return chain([&] { return power(); },
                 {{"*", Op::Multiply}, {"/", Op::Divide}, {"//", Op::FloorDivide}, {"%", Op::Modulo}}, false);
  }
  NodePtr power() {
    return chain([&] { return unary(true); }, {{"**", Op::Power}}, false);
  }
  NodePtr unary(bool with_filters) {
    const Level level(*this);
    if (failed()) return make(Op::Constant, now());
    NodePtr node;
    if (is_sign("-") || is_sign("+")) {
      const Token at = take();
      node = make(at.text == "-" ? Op::Negative : Op::Positive, at, unary(false));
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    return with_filters ? filters(std::move(node)) : std::move(node);
  }

  NodePtr primary() {
    const Token at = now();
    switch (at.kind) {
      case Token::Kind::Name:
        take();
        if (at.text == "true" || at.text == "True") return constant(at, Value::of(true));
        if (at.text == "false" || at.text == "False") return constant(at, Value::of(false));
        if (at.text == "none" || at.text == "None") return constant(at, Value::none());
        return variable(at);
      case Token::Kind::String: {
        std::string text;
        while (now().kind == Token::Kind::String) text += take().text;
        return constant(at, Value::string(plain(text)));
      }
      case Token::Kind::Int: {
        take();
        int64_t number = 0;
        const char* end = at.text.data() + at.text.size();
        const auto [stop, failure] = std::from_chars(at.text.data(), end, number);
        if (failure != std::errc() || stop != end) return fail(at, "an integer beyond 64 bits");
        return constant(at, Value::of(number));
      }
      case Token::Kind::Float: {
        take();
        double number = 0;
        std::from_chars(at.text.data(), at.text.data() + at.text.size(), number);
        return constant(at, Value::of(number));
      }
      case Token::Kind::Sign:
        if (at.text == "(") {
          take();
          NodePtr node = tuple(true, true, {});
          expect_sign(")");
          return node;
        }
        if (at.text == "[") return list();
        if (at.text == "{") return dictionary();
        break;
      default:
        break;
    }
    return fail(at, fmt::format("a value is missing before {}", found()));
  }

  // Up to `close`, with commas between; one may stand behind the last, too.
  template <class One>
  void enclosed(std::string_view close, One one) {
    for (bool first = true; !failed() && !is_sign(close); first = false) {
      if (!first) expect_sign(",");
      if (!is_sign(close)) one();
    }
    expect_sign(close);
  }
  NodePtr list() {
    NodePtr node = make(Op::List, take());
    enclosed("]", [&] { node->kids.push_back(expression()); });
    return around(std::move(node));
  }
  NodePtr dictionary() {
    NodePtr node = make(Op::Dict, take());
    enclosed("}", [&] {
      node->kids.push_back(expression());
      expect_sign(":");
      node->kids.push_back(expression());
    });
    return around(std::move(node));
  }

  // Parts with commas between them, up to where `ends`. One alone, without a comma, is itself; nullptr: none.
  template <class One, class Ends>
  NodePtr row(One one, Ends ends) {
    NodePtr node = make(Op::Tuple, now());
    bool comma = false;
    while (!failed()) {
      if (!node->kids.empty()) {
        if (!skip_sign(",")) break;
        comma = true;
      }
      if (ends()) break;
      node->kids.push_back(one());
    }
    if (node->kids.empty()) return nullptr;
    return node->kids.size() == 1 && !comma ? std::move(node->kids.front()) : around(std::move(node));
  }
  // `empty`: none at all is allowed.
  NodePtr tuple(bool condition, bool empty, std::string_view end_word) {
    NodePtr node = row([&] { return expression(condition); }, [&] { return ends_tuple(end_word); });
    if (node) return node;
    return empty || failed() ? make(Op::Tuple, now())
                             : fail(now(), fmt::format("a value is missing before {}", found()));
  }
  bool ends_tuple(std::string_view end_word) const {
    return now().kind == Token::Kind::TagEnd || now().kind == Token::Kind::OutputEnd || is_sign(")") ||
           (!end_word.empty() && is_name(end_word));
  }

  NodePtr postfix(NodePtr node) {
    while (!failed()) {
      if (is_sign(".") || is_sign("[")) {
        node = subscript(std::move(node));
      } else if (is_sign("(")) {
        node = call(std::move(node));
      } else {
        break;
      }
    }
    return node;
  }

  NodePtr subscript(NodePtr object) {
    const Token at = take();
    if (at.text == ".") {
      const Token name = take();
      if (name.kind == Token::Kind::Name) {
        NodePtr node = make(Op::Attribute, name, std::move(object));
        node->name = name.text;
        return node;
      }
      int64_t index = 0;
      if (name.kind != Token::Kind::Int ||
          std::from_chars(name.text.data(), name.text.data() + name.text.size(), index).ec != std::errc())
        return fail(name, "a name or a number must follow '.'");
      return make(Op::Item, at, std::move(object), constant(name, Value::of(index)));
    }
    NodePtr key = is_sign(":") ? nullptr : expression();
    if (!is_sign(":")) {
      if (is_sign(",")) return fail(now(), "several keys between brackets");
      expect_sign("]");
      return make(Op::Item, at, std::move(object), std::move(key));
    }
    NodePtr node = make(Op::Slice, at, std::move(object));
    node->kids.push_back(std::move(key));
    for (int part = 0; part < 2; ++part) {
      const bool has = skip_sign(":") && !is_sign("]") && !is_sign(":");
      node->kids.push_back(has ? expression() : nullptr);
    }
    expect_sign("]");
    return around(std::move(node));
  }

  void arguments(Node& node) {
    expect_sign("(");
    enclosed(")", [&] {
      Argument argument;
      if (skip_sign("*")) {
        argument.stars = 1;
      } else if (skip_sign("**")) {
        argument.stars = 2;
      } else if (now().kind == Token::Kind::Name && ahead().kind == Token::Kind::Sign &&
                 ahead().text == "=") {
        argument.name = take().text;
        take();
      } else if (!node.arguments.empty() && !node.arguments.back().name.empty()) {
        fail(now(), "an argument without a name behind one with a name");
      }
      argument.value = expression();
      node.arguments.push_back(std::move(argument));
    });
  }
  NodePtr call(NodePtr callee) {
    NodePtr node = make(Op::Call, now(), std::move(callee));
    arguments(*node);
    return around(std::move(node));
  }

  NodePtr filters(NodePtr node) {
    while (!failed()) {
      if (is_sign("|")) {
        take();
        node = filter(std::move(node));
      } else if (is_name("is")) {
        node = test(std::move(node));
      } else if (is_sign("(")) {
        node = call(std::move(node));
      } else {
        break;
      }
    }
    return node;
  }
  NodePtr filter(NodePtr subject) {
    NodePtr node = make(Op::Filter, now());
    node->kids.push_back(std::move(subject));
    node->name = expect_name();
    while (!failed() && skip_sign(".")) node->name += "." + expect_name();
    node->filter = find_filter(node->name);
    if (is_sign("(")) arguments(*node);
    return around(std::move(node));
  }
  NodePtr test(NodePtr subject) {
    take();
    const Token at = now();
    const bool negated = skip_name("not");
    NodePtr node = make(Op::Test, now(), std::move(subject));
    node->name = expect_name();
    node->test = find_test(node->name);
    const Token::Kind next = now().kind;
    const bool value = next == Token::Kind::Name || next == Token::Kind::String || next == Token::Kind::Int ||
                       next == Token::Kind::Float || is_sign("[") || is_sign("{");
    if (is_sign("(")) {
      arguments(*node);
    } else if (value && !is_name("else") && !is_name("or") && !is_name("and")) {
      if (is_name("is")) return fail(now(), "tests in a row");
      Argument argument;
      const Level level(*this);
      if (!failed()) argument.value = postfix(primary());
      node->arguments.push_back(std::move(argument));
    }
    node = around(std::move(node));
    return negated ? make(Op::Not, at, std::move(node)) : std::move(node);
  }

  // ---- statements

  // Up to a tag that begins with one of these words, which is left as the current token; none: to the end.
  Nodes statements(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Nodes nodes;
    while (!failed()) {
      const Token at = now();
      if (at.kind == Token::Kind::Data) {
        NodePtr node = make(Op::Data, take());
        node->value = Value::string(plain(at.text));
        nodes.push_back(std::move(node));
      } else if (at.kind == Token::Kind::OutputBegin) {
        take();
        nodes.push_back(make(Op::Output, at, tuple(true, true, {})));
        expect(Token::Kind::OutputEnd, "}}");
      } else if (at.kind == Token::Kind::TagBegin) {
        take();
        const bool ended =
            std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return is_name(end); });
        if (ended) return nodes;
        nodes.push_back(statement());
        expect(Token::Kind::TagEnd, "%}");
      } else {
        if (ends.size() > 0) fail(at, fmt::format("{{% {} %}} is missing", fmt::join(ends, " or ")));
        break;
      }
    }
    return nodes;
  }
  // A body between %} and the tag that ends it, up to its %}.
  Nodes body(std::string_view end) {
    expect(Token::Kind::TagEnd, "%}");
    Nodes nodes = statements({end});
    take();
    return nodes;
  }

  NodePtr statement() {
    const Token at = now();
    if (at.kind != Token::Kind::Name)
      return fail(at, fmt::format("the name of a tag is missing before {}", found()));
    take();
    if (at.text == "if") return if_block(at);
    if (at.text == "for") return for_block(at);
    if (at.text == "set") return set_block(at);
    if (at.text == "macro") return macro(at);
    if (at.text == "call") return call_block(at);
    if (at.text == "filter") return filter_block(at);
    if (at.text == "with") return with_block(at);
    if (at.text == "generation") {
      NodePtr node = make(Op::Generation, at);
      node->body = body("endgeneration");
      return around(std::move(node));
    }
    if (at.text == "break" || at.text == "continue") {
      if (loops_ == 0) return fail(at, fmt::format("{} outside of a loop", at.text));
      return make(at.text == "break" ? Op::Break : Op::Continue, at);
    }
    return fail(at, fmt::format("the tag {} is not known", at.text));
  }

  NodePtr if_block(const Token& at) {
    NodePtr node = make(Op::IfBlock, at, tuple(false, false, {}));
    expect(Token::Kind::TagEnd, "%}");
    node->body = statements({"elif", "else", "endif"});
    const Token end = take();
    if (end.text == "elif") {
      const Level level(*this);
      if (!failed()) node->otherwise.push_back(if_block(end));
    } else if (end.text == "else") {
      node->otherwise = body("endif");
    }
    return around(std::move(node));
  }

  // The target of an assignment: a name, several, or `ns.name`.
  NodePtr target(std::string_view end_word) {
    const auto one = [&]() -> NodePtr {
      if (skip_sign("(")) {
        NodePtr node = target({});
        expect_sign(")");
        return node;
      }
      const Token at = now();
      const std::string name = expect_name();
      if (failed()) return make(Op::Constant, at);
      if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
          name == "None")
        return fail(at, fmt::format("'{}' cannot be assigned to", name));
      NodePtr node = variable(at);
      if (!skip_sign(".")) return node;
      NodePtr attribute = make(Op::Attribute, now(), std::move(node));
      attribute->name = expect_name();
      return attribute;
    };
    const Level level(*this);
    if (failed()) return make(Op::Constant, now());
    NodePtr node = row(one, [&] { return ends_tuple(end_word) || is_sign("="); });
    return node ? std::move(node) : fail(now(), "a name is missing");
  }

  NodePtr for_block(const Token& at) {
    NodePtr node = make(Op::For, at);
    node->id = id_of("loop");
    node->kids.push_back(target("in"));
    if (!skip_name("in")) return fail(now(), fmt::format("'in' is missing before {}", found()));
    node->kids.push_back(tuple(false, false, "recursive"));
    node->kids.push_back(skip_name("if") ? expression() : nullptr);
    node->recursive = skip_name("recursive");
    expect(Token::Kind::TagEnd, "%}");
    ++loops_;
    node->body = statements({"else", "endfor"});
    --loops_;
    if (take().text == "else") node->otherwise = body("endfor");
    return around(std::move(node));
  }

  NodePtr set_block(const Token& at) {
    NodePtr to = target({});
    if (skip_sign("=")) return make(Op::Set, at, std::move(to), tuple(true, false, {}));
    NodePtr node = make(Op::SetBlock, at, std::move(to));
    // Its filters apply to a value that is put in later.
    if (is_sign("|")) node->kids.push_back(filters(make(Op::Constant, now())));
    node->body = body("endset");
    return around(std::move(node));
  }

  void parameters(Node& node) {
    expect_sign("(");
    enclosed(")", [&] {
      Argument argument;
      argument.name = expect_name();
      id_of(argument.name);
      if (skip_sign("=")) {
        argument.value = expression();
      } else if (!node.arguments.empty() && node.arguments.back().value) {
        fail(now(), "a parameter without a default behind one with a default");
      }
      node.arguments.push_back(std::move(argument));
    });
  }
  void macro_body(Node& node, std::string_view end) {
    const Read around = std::exchange(read_, {});
    const int loops = std::exchange(loops_, 0);
    node.body = body(end);
    loops_ = loops;
    node.reads_caller = read_.caller;
    node.reads_varargs = read_.varargs;
    node.reads_kwargs = read_.kwargs;
    read_ = {read_.caller || around.caller, read_.varargs || around.varargs, read_.kwargs || around.kwargs};
  }
  NodePtr macro(const Token& at) {
    NodePtr node = make(Op::Macro, at);
    node->name = expect_name();
    node->id = id_of(node->name);
    parameters(*node);
    macro_body(*node, "endmacro");
    return around(std::move(node));
  }
  NodePtr call_block(const Token& at) {
    NodePtr node = make(Op::CallBlock, at);
    node->name = "caller";
    node->id = id_of("caller");
    if (is_sign("(")) parameters(*node);
    NodePtr call = expression();
    if (!failed() && call->op != Op::Call) return fail(at, "what is called is missing");
    node->kids.push_back(std::move(call));
    macro_body(*node, "endcall");
    return around(std::move(node));
  }
  NodePtr filter_block(const Token& at) {
    NodePtr first = filter(make(Op::Constant, at));
    NodePtr node = make(Op::FilterBlock, at, filters(std::move(first)));
    node->body = body("endfilter");
    return around(std::move(node));
  }
  NodePtr with_block(const Token& at) {
    NodePtr node = make(Op::With, at);
    while (!failed() && now().kind != Token::Kind::TagEnd) {
      if (!node->kids.empty()) expect_sign(",");
      node->kids.push_back(target({}));
      expect_sign("=");
      node->kids.push_back(expression());
    }
    node->body = body("endwith");
    return around(std::move(node));
  }

  std::unique_ptr<Syntax> syntax_;
  int level_ = 0, loops_ = 0;
  // Names that a macro has beside its parameters, where its body reads them.
  struct Read {
    bool caller = false, varargs = false, kwargs = false;
  } read_;
};

}  // namespace

Result<std::unique_ptr<Syntax>> parse(std::string_view text) {
  SLUICE_ASSIGN(std::vector<Token> tokens, tokens_of(text));
  return Parser(std::move(tokens)).run();
}

}  // namespace sluice::core::jinja
