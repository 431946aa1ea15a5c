// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "backend/registry/registry.h"
#include "base/counts.h"
#include "commands/bench.h"
#include "commands/commands.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "config/aliases.h"
#include "config/config.h"
#include "cost/card.h"
#include "estimate/memory.h"
#include "model/families/families.h"
#include "run/prepare/manifest.h"
#include "search/passes/runner.h"

namespace sluice::core {
namespace {

bool has(std::string_view text, std::string_view part) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

std::string section_of(const std::string& key) {
  return key.substr(0, key.find('.'));
}

}  // namespace

Outcome keys(const std::string& filter) {
  std::string section, out;
  for (const Key& key : all_keys()) {
    if (!has(key.name, filter) && !has(key.meaning, filter)) continue;
    if (section_of(key.name) != section) {
      out += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", section_of(key.name));
      section = section_of(key.name);
    }
    out += fmt::format("{} = {}\n    {} ({})\n", key.name, key.value, key.meaning, key.allowed);
  }
  if (out.empty()) {
    const std::string found = key_meant_by(filter);
    return {Ending::Failed, fmt::format("no key has '{}' in its name or meaning{}", filter,
                                        found.empty() ? "" : fmt::format("; did you mean '{}'?", found))};
  }
  show_text(out);
  return {};
}

std::string tokens_in_digits(const std::string& text) {
  const auto count = parse_count(text);
  return count.ok() ? fmt::format("{}", *count) : "";
}

std::vector<Key> all_keys() {
  std::vector<Key> keys;
  for (KeyHelp& key : config_keys()) keys.push_back({key.name, key.value, key.meaning, key.allowed});
  return keys;
}

Names names() {
  Names n;
  for (const std::string_view machine : card_names()) n.machines.emplace_back(machine);
  n.models = model_presets();
  n.backends = {"auto"};
  for (const BackendKind* kind : backends()) {
    if (kind->is_built == nullptr || kind->is_built()) n.backends.emplace_back(kind->name);
  }
  for (size_t i = 0; i < kPassCount; ++i) {
    if (const PassFacts& pass = facts_of(Pass(i)); pass.optional) n.passes.emplace_back(pass.name);
  }
  n.allowed = words_of_allow();
  n.benches = bench_names();
  for (const Recipe& recipe : recipes()) n.recipes.emplace_back(recipe.name);
  return n;
}

}  // namespace sluice::core
