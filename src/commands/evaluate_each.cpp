// SPDX-License-Identifier: Apache-2.0
#include "commands/evaluate_each.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/input_text.h"
#include "dataset/byte_tokenizer.h"
#include "records/recognise.h"
#include "text/json.h"
#include "tokenizer/beside.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

constexpr std::string_view kSpaces = " \t\n\v\f\r";

class Lines {
 public:
  static Result<Lines> open(const EachRequest& request) {
    Lines out(request);
    if (request.tokenizer.empty()) return out;
    SLUICE_ASSIGN(out.tokenizer_, Tokenizer::open(request.tokenizer));
    SLUICE_ASSIGN(const BesideTokenizer beside,
                  read_beside_tokenizer(std::filesystem::path(request.tokenizer).parent_path()));
    for (const char* name : {"bos_token", "eos_token"}) {
      const auto token = beside.special.find(name);
      if (token == beside.special.end()) continue;
      const int32_t id = out.tokenizer_->id(token->second);
      if (id >= 0 && !out.beginning_) out.beginning_ = id;
    }
    return out;
  }

  Status add(const nlohmann::json& line, EachTexts& to) const {
    const auto text_of = [&](const char* key) -> std::optional<std::string> {
      const auto it = line.find(key);
      if (it == line.end() || !it->is_string()) return std::nullopt;
      return it->get<std::string>();
    };
    const auto prompt = text_of("prompt"), completion = text_of("completion"), text = text_of("text");
    const bool pair = prompt && completion && line.size() == 2, whole = text && line.size() == 1;
    if (!pair && !whole)
      return error(R"(allowed are the strings "prompt" and "completion", or "text", and no other keys)");
    return pair ? add_pair(*prompt, *completion, to) : add_text(*text, to);
  }

 private:
  explicit Lines(const EachRequest& request) : request_(request) {}

  // `special`: between the tokens that the tokenizer puts around a text.
  Result<std::vector<int32_t>> encode(std::string_view text, bool special) const {
    std::vector<int32_t> ids;
    if (tokenizer_) {
      SLUICE_TRY(tokenizer_->encode(text, special, ids));
    } else {
      ids = ByteTokenizer::encode(text);
    }
    SLUICE_TRY(check_vocab(ids, request_.vocab));
    return ids;
  }

  Result<int32_t> beginning() const {
    if (beginning_) return *beginning_;
    return error(
        "nothing stands before its first token, and the tokenizer's files name neither a first nor a last "
        "token; give it a prompt");
  }

  static void add(std::vector<int32_t> ids, size_t first, EachTexts& to) {
    to.texts.push_back({std::move(ids), first});
    to.line_of.push_back(to.lines);
  }

  Status add_pair(std::string prompt, std::string completion, EachTexts& to) const {
    const size_t end = prompt.find_last_not_of(kSpaces) + 1;
    completion.insert(0, prompt, end);
    prompt.resize(end);
    SLUICE_ASSIGN(std::vector<int32_t> ids, encode(prompt + completion, !prompt.empty()));
    size_t first = 0;
    if (!prompt.empty()) {
      SLUICE_ASSIGN(const std::vector<int32_t> before, encode(prompt, true));
      first = before.size();
    } else {
      SLUICE_ASSIGN(const int32_t begins, beginning());
      if (ids.empty() || ids.front() != begins) ids.insert(ids.begin(), begins);
      first = 1;
    }
    if (first >= ids.size()) return error("its completion adds no token to its prompt");
    const size_t most = size_t(request_.seq_len) + 1;
    if (ids.size() > most) {
      const size_t cut = ids.size() - most;
      if (!request_.cut_prompts || cut >= first)
        return error("it has {} tokens, {} of its completion, and a row has {}; {}", ids.size(),
                     ids.size() - first, request_.seq_len,
                     cut >= first
                         ? "--seq-len says more"
                         : "--seq-len says more, and --cut-prompts leaves out what its prompt begins with");
      ids.erase(ids.begin(), ids.begin() + long(cut));
      first -= cut;
      ++to.cut;
    }
    add(std::move(ids), first, to);
    return {};
  }

  Status add_text(const std::string& text, EachTexts& to) const {
    SLUICE_ASSIGN(std::vector<int32_t> ids, encode(text, true));
    if (ids.empty()) return error("it is empty");
    SLUICE_ASSIGN(const int32_t begins, beginning());
    ids.insert(ids.begin(), begins);
    const size_t row = size_t(request_.seq_len), all = ids.size();
    for (size_t done = 1; done < all;) {
      const size_t end = std::min(done + row, all), begin = end > row ? end - row - 1 : 0;
      add({ids.begin() + long(begin), ids.begin() + long(end)}, done - begin, to);
      done = end;
    }
    return {};
  }

  const EachRequest& request_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<int32_t> beginning_;
};

}  // namespace

int64_t EachTexts::tokens() const {
  int64_t sum = 0;
  for (const CountedText& text : texts) sum += std::ssize(text.ids) - 1;
  return sum;
}

Result<EachTexts> read_each(const EachRequest& request) {
  SLUICE_ASSIGN(const Lines lines, Lines::open(request));
  SLUICE_ASSIGN(const std::string content, read_input(request.path));
  EachTexts out;
  int64_t number = 0;
  for (size_t begin = mark_bytes(content); begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    const std::string line = content.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(kSpaces) == std::string::npos) continue;
    const std::string where = fmt::format("--each {}, line {}", request.path, number);
    const auto object = parse_json(line);
    if (!object.ok()) return error_at(where, object.error());
    if (!object->is_object()) return error("{}: a JSON object is needed", where);
    if (const Status added = lines.add(*object, out); !added.ok()) return error_at(where, added.error());
    ++out.lines;
  }
  if (out.lines == 0) return error("--each {}: there is no line in it", request.path);
  return out;
}

std::string each_as_json(const EachTexts& each, std::span<const TextScore> scores) {
  std::vector<TextScore> of_lines(each.lines);
  for (size_t i = 0; i < scores.size(); ++i) {
    TextScore& line = of_lines[each.line_of[i]];
    line.log_prob += scores[i].log_prob;
    line.tokens += scores[i].tokens, line.likeliest += scores[i].likeliest;
  }
  std::string out;
  for (const TextScore& line : of_lines) {
    out += nlohmann::ordered_json{{"log_likelihood", line.log_prob},
                                  {"tokens", line.tokens},
                                  {"greedy", line.likeliest == line.tokens}}
               .dump() +
           "\n";
  }
  return out;
}

}  // namespace sluice::core
