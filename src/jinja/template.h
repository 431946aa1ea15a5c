// SPDX-License-Identifier: Apache-2.0
// Chat templates in the dialect of Jinja that transformers runs: jinja2's immutable sandbox with trim_blocks,
// lstrip_blocks, loop controls and {% generation %}, and its own tojson, raise_exception and strftime_now.
// Nothing of a template reaches files, the network or this program.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/value.h"

namespace sluice::core::jinja {

struct Syntax;

struct Day {
  int year = 0, month = 0, day = 0;
};

struct Inputs {
  std::vector<std::pair<std::string, Value>> variables;
  std::optional<Day> today;  // for strftime_now, at midnight
  int64_t bytes = 0;         // of what the values hold: a render may hold some times as much
};

struct Rendering {
  Text text;
  bool printed_list = false;  // a list or a dictionary stands in the text as Python prints it
  std::vector<Origin> asked;  // strings of the caller of which the template asked whether they are some
};

// Equal for texts that differ in comments, in white space inside of tags and in quotes.
Result<uint64_t> fingerprint(std::string_view text);

// Immutable; any thread may use it.
class Template {
 public:
  // Errors name line and column.
  static Result<Template> parse(std::string_view text);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // Whether a variable of this name is in the template.
  bool reads(std::string_view name) const;
  // Errors name line and column; what raise_exception() was told has the detail "raised".
  Result<Rendering> render(const Inputs& inputs) const;

 private:
  explicit Template(std::unique_ptr<Syntax> syntax);

  std::unique_ptr<Syntax> syntax_;
};

}  // namespace sluice::core::jinja
