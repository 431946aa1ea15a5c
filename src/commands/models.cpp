// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/nearest.h"
#include "commands/commands.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "model/families/families.h"

namespace sluice::core {
namespace {

constexpr std::string_view kThere =
    "Each loads, trains, saves, exports, generates, plans and estimates. Proof of each: its fixtures "
    "(tests/fixtures), of which logits, loss, every gradient and ten steps are those of transformers, and "
    "greedy texts (tests/generate); two devices, little memory and frozen parts (tests/equivalence); random "
    "configurations and exports that transformers loads (tests/transformers)";

std::vector<std::string> fixtures_of(const AboutFamily& about) {
  std::istringstream in{std::string(about.fixtures)};
  return {std::istream_iterator<std::string>(in), {}};
}

// The Markdown of the table, without its marks.
std::string plain(std::string_view markdown) {
  std::string out(markdown);
  std::erase(out, '`');
  return out;
}

std::string text_of(std::span<const FamilyFacts> families) {
  std::string out = fmt::format("{}.\n", kThere);
  for (const auto& [type, about] : families) {
    out += fmt::format("\n{}: {}\n    keys of its own: {}\n    fixtures: {}{}\n", type, plain(about.models),
                       plain(about.keys), about.fixtures,
                       about.llama_cpp ? "\n    exports were tried with llama.cpp" : "");
  }
  return out;
}

std::string markdown_of(std::span<const FamilyFacts> families) {
  std::string out = "| `model_type` | models | keys of its own | fixtures |\n|---|---|---|---|\n";
  for (const auto& [type, about] : families) {
    out += fmt::format("| `{}` | {} | {} | {}{} |\n", type, about.models, about.keys,
                       fixtures_of(about).size(), about.llama_cpp ? "; llama.cpp" : "");
  }
  return out + fmt::format("\n{}. Where the table says so, exports were tried with llama.cpp.\n", kThere);
}

std::string json_of(std::span<const FamilyFacts> families) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& [type, about] : families) {
    out.push_back({{"model_type", type},
                   {"models", about.models},
                   {"keys", about.keys},
                   {"fixtures", fixtures_of(about)},
                   {"llama_cpp", about.llama_cpp}});
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
  } else if (request.markdown) {
    say_result(markdown_of(families));
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
