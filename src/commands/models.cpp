// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "commands/commands.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "model/families/families.h"

namespace sluice::core {
namespace {

bool tried(const AboutFamily& about) {
  return about.llama_cpp != LlamaCpp::NotTried;
}

// Markdown without its marks.
std::string plain(std::string_view markdown) {
  std::string out(markdown);
  std::erase(out, '`');
  return out;
}

std::string text_of(std::span<const FamilyFacts> families) {
  std::string out =
      "Each loads, trains, saves, exports, generates, plans and estimates. docs/models.md says how that is "
      "proved.\n";
  for (const auto& [type, about] : families) {
    out += fmt::format("\n{}: {}\n    keys of its own: {}\n{}", type, plain(about.models), plain(about.keys),
                       tried(about) ? "    exports were tried with llama.cpp\n" : "");
  }
  return out;
}

std::string json_of(std::span<const FamilyFacts> families) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& [type, about] : families) {
    out.push_back(
        {{"model_type", type}, {"models", about.models}, {"keys", about.keys}, {"llama_cpp", tried(about)}});
  }
  return out.dump(2) + "\n";
}

Status show(const ModelsRequest& request) {
  std::vector<FamilyFacts> families = family_facts();
  if (!request.family.empty()) {
    const auto it = std::ranges::find(families, request.family, &FamilyFacts::model_type);
    if (it == families.end()) {
      const std::string near = nearest(request.family, model_families());
      return error("model family '{}': allowed are {}{}", request.family, fmt::join(model_families(), ", "),
                   similar(request.family, near) ? fmt::format("; did you mean {}?", near) : "");
    }
    families = {*it};
  }
  if (request.json) {
    say_result(json_of(families));
  } else {
    show_text(text_of(families));
  }
  return {};
}

}  // namespace

Outcome models(const ModelsRequest& request) {
  return outcome(show(request));
}

}  // namespace sluice::core
