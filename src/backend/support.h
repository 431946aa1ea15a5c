// SPDX-License-Identifier: Apache-2.0
// What a backend takes of every op: one table per backend, by which its prepare() goes. A row has the op's
// attributes, what each may be, formats of operands, and what joins several attributes.
//
// The compiler holds a table complete: each op has a row, and a row names each attribute of its op. So an
// attribute that is new compiles in no backend before its row says what the kernels do with it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "base/compute_capability.h"
#include "base/format.h"
#include "base/status.h"
#include "ops/ops.h"

namespace sluice::core {

// Collects the first objection to an op.
class Objection {
 public:
  // `capability`: of the device; left out: of none in particular.
  explicit Objection(ComputeCapability capability = {}) : capability_(capability) {}

  Objection& multiple(std::string_view name, int64_t value, int64_t of) {
    if (value % of != 0) object("{} = {}; a multiple of {} is needed", name, value, of);
    return *this;
  }
  Objection& most(std::string_view name, int64_t value, int64_t limit) {
    if (value > limit) object("{} = {}; at most {} is supported", name, value, limit);
    return *this;
  }
  // `otherwise` says what the op has, and what is needed.
  Objection& require(bool holds, std::string_view otherwise) {
    if (!holds) object("{}", otherwise);
    return *this;
  }
  ComputeCapability capability() const { return capability_; }
  const std::string& text() const { return text_; }

 private:
  template <class... Args>
  void object(fmt::format_string<Args...> format, Args&&... args) {
    if (text_.empty()) text_ = fmt::format(format, std::forward<Args>(args)...);
  }
  ComputeCapability capability_;
  std::string text_;
};

struct Support {
  std::string_view op;
  // The op's attributes as its fields() names them, with a space between. Behind a name stands what it may
  // be: "dim%8" a multiple of 8, "state:bf16,f32,i8" one of these types. Other types may be bf16 or f32.
  std::string_view attributes;
  // The rest, which these words cannot say.
  void (*examine)(const Op&, Objection&);
  // Formats of operands beside plain numbers and compact state (ops/compact.h); by row: of any block.
  std::span<const NumberFormat> packed = {};
};

// The row's word for an attribute, with what it may be; empty: there is none.
constexpr std::string_view word_of(std::string_view attributes, std::string_view name) {
  while (!attributes.empty()) {
    const size_t end = std::min(attributes.find(' '), attributes.size());
    const std::string_view word = attributes.substr(0, end);
    if (word.substr(0, word.find_first_of("%:")) == name) return word;
    attributes.remove_prefix(std::min(attributes.size(), end + 1));
  }
  return {};
}

// An error says what of the op the table's backend does not take, and what is allowed.
Status check_support(std::span<const Support> table, std::string_view backend, const Op& op,
                     ComputeCapability capability = {});

}  // namespace sluice::core
