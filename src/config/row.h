// SPDX-License-Identifier: Apache-2.0
// A row of a component's table: what a key means beside its name, its default and its bounds. Files, --set,
// the library, Python, the planner's page, help, manifests of checkpoints and the table of
// docs/reliability.md follow from the rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::core {

// The meaning of another value to a run that goes on.
struct GoesOn {
  enum class Change : uint8_t { SameBits, Refused, Allowed };
  Change change = Change::SameBits;
  std::string_view because = "";  // for people
  std::string_view word = "";     // of --allow
  std::string_view decides = "";  // the name in manifests of what it decides; empty: that of the key

  bool operator==(const GoesOn&) const = default;
};
constexpr GoesOn same_bits(std::string_view because) {
  return {GoesOn::Change::SameBits, because};
}
constexpr GoesOn refused(std::string_view because) {
  return {GoesOn::Change::Refused, because};
}
// With --allow and that word.
constexpr GoesOn allowed_by(std::string_view word, std::string_view because, std::string_view decides = "") {
  return {GoesOn::Change::Allowed, because, word, decides};
}

// Whether manifests of checkpoints have the value of a key under its own name.
enum class Recorded : uint8_t {
  Otherwise,  // no: it decides nothing, or what it leads to is recorded
  Always,
  Changed,  // where it is not the default, which a manifest without it means
};

// Whoever has a key as an option of its own.
enum class KeyOf : uint8_t {
  Run,   // sluice train alone
  Step,  // plan() and the planner's page, too: what a step computes, and how it is cut
  Data,  // Dataset::text(), too: what is learnt of text
};

struct KeyRow {
  std::string_view meaning;
  GoesOn goes_on = {};
  Recorded recorded = Recorded::Otherwise;
  KeyOf of = KeyOf::Run;
  std::string_view before = "";  // the value in manifests without it, where that is not the default
};

}  // namespace sluice::core
