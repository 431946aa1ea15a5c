// SPDX-License-Identifier: Apache-2.0
#include "text/json.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace sluice::core {
namespace {

using nlohmann::json;

// Values are compared by recursion.
constexpr size_t kMostDepth = 100;

std::string shown(const json& value) {
  constexpr size_t kMost = 40;
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  return value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, kMost);
}

class Builder final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    json& around = *open_.back();
    if (const auto it = around.find(key); it != around.end())
      twice_.push_back({&around, key, std::move(*it)});
    key_ = std::move(key);
    return true;
  }
  bool end_object() override {
    for (; !twice_.empty() && twice_.back().around == open_.back(); twice_.pop_back()) {
      const auto& [around, key, before] = twice_.back();
      const json& after = (*around)[key];
      if (problem.empty() && (deepest_ > kMostDepth || before != after))
        problem = fmt::format("key '{}' is there twice, with {} and with {}: keep one", key, shown(before),
                              shown(after));
    }
    return close();
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  json root;
  std::string problem;  // empty: every key says one thing

 private:
  struct Twice {
    json* around;
    std::string key;
    json before;
  };

  // Where the next value belongs. What is open lies in the last element of what is open around it, so that
  // nothing moves while it is.
  json& place(json value) {
    if (open_.empty()) return root = std::move(value);
    json& around = *open_.back();
    if (around.is_array()) return around.emplace_back(std::move(value));
    return around[key_] = std::move(value);
  }
  bool put(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    open_.push_back(&place(std::move(value)));
    deepest_ = std::max(deepest_, open_.size());
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<json*> open_;
  std::vector<Twice> twice_;
  size_t deepest_ = 0;
  std::string key_;
};

}  // namespace

Result<json> parse_json(std::string_view text) {
  Builder builder;
  if (!json::sax_parse(text, &builder)) return json(json::value_t::discarded);
  if (!builder.problem.empty()) return error("{}", builder.problem);
  return std::move(builder.root);
}

}  // namespace sluice::core
