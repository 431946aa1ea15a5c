// SPDX-License-Identifier: Apache-2.0
#include "dataset/corpus_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/checksum.h"
#include "dataset/corpus.h"
#include "io/sealed.h"

namespace sluice::core {
namespace {

// Values of a request by name; a repeated name has all of its values.
using Said = std::map<std::string, std::string, std::less<>>;

Said parse_request(std::string_view text) {
  Said said;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    const size_t equals = line.rfind(" = ");
    if (equals == line.npos) continue;
    std::string& value = said[std::string(line.substr(0, equals))];
    value += (value.empty() ? "" : ", ") + std::string(line.substr(equals + 3));
  }
  return said;
}

// Keys whose values people did not write themselves.
constexpr std::pair<std::string_view, std::string_view> kOpaque[] = {
    {"tokenizer", "the tokenizer"},
    {"end", "the token that ends a document"},
    {"split", "the rule by which documents are held out"},
    {"template", "the chat template"},
    {"byte order marks", "whether byte order marks are text"},
    {"share", "how a share of data.paths is drawn"}};
// And those that they did, by the names of the configuration.
constexpr std::pair<std::string_view, std::string_view> kSettings[] = {
    {"heldout", "data.heldout"},
    {"weight", "data.weights"},
    {"learn", "data.learn"},
    {"malformed", "data.malformed"},
    {"pairs", "data.pairs"},
    {"open ends", "data.open_ends"},
    {"thoughts", "data.learn_thoughts"},
    {"special in text", "data.special_in_text"},
    {"field text", "data.fields.text"},
    {"field prompt", "data.fields.prompt"},
    {"field completion", "data.fields.completion"},
    {"field messages", "data.fields.messages"},
    {"ignore", "data.ignore"},
    {"role", "data.roles"}};

std::string name_among(std::span<const std::pair<std::string_view, std::string_view>> names,
                       std::string_view name) {
  const auto it = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.first == name; });
  return it == names.end() ? "" : std::string(it->second);
}

// A number without its bits.
std::string plain(std::string_view value) {
  return std::string(value.substr(0, value.find(" (")));
}

std::string change_of(const std::string& name, const std::string* before, const std::string* now) {
  if (const std::string opaque = name_among(kOpaque, name); !opaque.empty())
    return opaque + " is another one";
  const std::string* any = now == nullptr ? before : now;
  if (Checksum::parse(any->substr(0, any->find(','))))
    return name + (before == nullptr ? " is new" : now == nullptr ? " is gone" : " has other text");
  const std::string key = name_among(kSettings, name);
  return fmt::format("{} is {}, it was {}", key.empty() ? name : key,
                     now == nullptr ? "not set" : plain(*now),
                     before == nullptr ? "not set" : plain(*before));
}

}  // namespace

std::string corpus_changes(const std::filesystem::path& cache, std::string_view before,
                           std::string_view now) {
  Said said[2];
  for (const auto& [content, side] : {std::pair(before, &said[0]), std::pair(now, &said[1])}) {
    // Behind the key may stand which reader it was (Corpus::content).
    const std::string_view key = content.substr(0, content.find('-'));
    // Keys are names of folders, and a checkpoint may say anything.
    if (!Checksum::parse(key)) return {};
    const auto request = read_sealed_request(corpus_file(cache, key), kCorpusKind);
    if (!request.ok()) return {};
    *side = parse_request(*request);
  }
  std::vector<std::string> changes;
  const auto find = [](const Said& from, const std::string& name) {
    const auto it = from.find(name);
    return it == from.end() ? nullptr : &it->second;
  };
  for (const auto& [name, value] : said[1]) {
    const std::string* old = find(said[0], name);
    if (old == nullptr || *old != value) changes.push_back(change_of(name, old, &value));
  }
  for (const auto& [name, value] : said[0]) {
    if (find(said[1], name) == nullptr) changes.push_back(change_of(name, &value, nullptr));
  }
  constexpr size_t kMost = 6;
  const size_t shown = std::min(changes.size(), kMost);
  std::string out = fmt::format("{}", fmt::join(changes.begin(), changes.begin() + long(shown), ", "));
  if (changes.size() > shown) out += fmt::format(", and {} more changes", changes.size() - shown);
  return out;
}

}  // namespace sluice::core
