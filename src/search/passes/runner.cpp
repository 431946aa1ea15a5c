// SPDX-License-Identifier: Apache-2.0
#include "search/passes/runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace sluice::core {
namespace {

constexpr std::array<PassFacts, kPassCount> kPasses{{
    {"units", "which activations come back together, and what computing them again costs", false},
    {"overlap", "an order of tasks in which rounds overlap, beside the program's", true},
    {"prices", "what room and links are worth at every moment; programs of many tasks only", true},
    {"saves", "which activations go to the host and which are computed again; without: none before they must",
     true},
    {"unroll", "the task runs, recomputation included, and the lives of values in them", false},
    {"gaps", "which values leave the device between which uses", false},
    {"relief", "what is computed again because the host has no room for it", true},
    {"drain", "how long a stored value keeps its room", true},
    {"early", "how early a load begins", true},
    {"emit", "addresses, homes, actions and their waits", false},
    {"predict", "start and end of every action", false},
    {"refine", "changes to these decisions, one or two at a time; its time includes the passes it runs",
     true},
    {"submission", "the order in which actions are submitted", true},
}};

// A pass without a row would have no name.
static_assert(std::all_of(kPasses.begin(), kPasses.end(),
                          [](const PassFacts& f) { return !f.name.empty(); }));

}  // namespace

const PassFacts& facts_of(Pass pass) {
  return kPasses[size_t(pass)];
}

std::string optional_passes() {
  std::string out;
  for (const PassFacts& f : kPasses) {
    if (f.optional) out += fmt::format("{}{}", out.empty() ? "" : ", ", f.name);
  }
  return out;
}

Status PassRunner::skip(std::string_view names) {
  while (!names.empty()) {
    const size_t comma = std::min(names.find(','), names.size());
    const std::string_view name = names.substr(0, comma);
    names.remove_prefix(std::min(comma + 1, names.size()));
    bool found = false;
    for (size_t i = 0; i < kPassCount; ++i) {
      if (kPasses[i].optional && kPasses[i].name == name) found = records_[i].skipped = true;
    }
    if (!found) return error("pass '{}': those that can be left out are {}", name, optional_passes());
  }
  return {};
}

std::string PassRunner::table() const {
  std::string out =
      fmt::format("{:<11} {:>8} {:>10} {:>8}  {}\n", "pass", "runs", "ms", "checked", "decides");
  for (size_t i = 0; i < kPassCount; ++i) {
    const Record& r = records_[i];
    out += fmt::format("{:<11} {:>8} {:>10.1f} {:>8}  {}{}\n", kPasses[i].name,
                       r.skipped ? "left out" : fmt::to_string(r.runs.load()), 1e-6 * double(r.ns.load()),
                       r.checks, kPasses[i].decides, kPasses[i].optional ? "; can be left out" : "");
  }
  return out;
}

void PassRunner::require(Pass pass, const Status& status) {
  SLUICE_CHECK(status.ok(), "pass {}: {}", facts_of(pass).name, status.message());
}

}  // namespace sluice::core
