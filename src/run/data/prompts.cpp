// SPDX-License-Identifier: Apache-2.0
#include "run/data/prompts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/checksum.h"
#include "base/counts.h"
#include "dataset/byte_tokenizer.h"
#include "dataset/permutation.h"
#include "host/host_memory.h"
#include "io/file.h"
#include "run/inputs/paths.h"
#include "run/inputs/resolve.h"
#include "run/loaded/folder_defaults.h"
#include "text/json.h"

namespace sluice::core {
namespace {

using nlohmann::json;

// Keys of records, each with other programs' names for it.
const std::vector<std::string> kCompletions{"completions", "responses"}, kRewards{"rewards", "scores"},
    kLogProbs{"logps", "old_logps", "logprobs"};
// And those of a teacher's tokens.
const std::vector<std::string> kTopLogProbs{"logprobs", "top_logprobs", "target_logprobs"},
    kTopIds{"logprob_token_ids", "top_token_ids", "target_token_ids"}, kCompletion{"completion", "response"};

// The first of the names that a record has; null: none.
const json* said(const json& record, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto it = record.find(name);
    if (it != record.end() && !it->is_null()) return &*it;
  }
  return nullptr;
}
const json* said(const json& record, const char* name) {
  return said(record, std::vector<std::string>{name});
}

// A list of so many; null where the key is not there.
Result<const json*> list_of(const json& record, const std::vector<std::string>& names, size_t count) {
  const json* const list = said(record, names);
  if (list != nullptr && (!list->is_array() || list->size() != count))
    return error("{}: a list of {} is needed, one for each of completions", names.front(), count);
  return list;
}

template <class T>
Result<std::vector<T>> numbers_of(const json& list, std::string_view name) {
  std::vector<T> out;
  const bool good = list.is_array() && std::all_of(list.begin(), list.end(), [](const json& one) {
                      return std::is_integral_v<T> ? one.is_number_integer() : one.is_number();
                    });
  if (!good) return error("{}: a list of {}numbers is needed", name, std::is_integral_v<T> ? "whole " : "");
  for (const json& one : list) out.push_back(one.get<T>());
  return out;
}

// The words of an answer: a text, or one turn of the assistant.
Result<std::string> words_of(const json& answer) {
  if (answer.is_string()) return answer.get<std::string>();
  if (answer.is_array() && answer.size() == 1 && answer[0].is_object()) {
    const json* const content = said(answer[0], "content");
    if (content != nullptr && content->is_string() && answer[0].value("role", "") == "assistant")
      return content->get<std::string>();
  }
  return error("completions: each is a text, or a list of one message of the assistant");
}

// A record of one answer, as one of a list of answers.
void wrap_single(json& record) {
  const json *const answers = said(record, kCompletions), *const ids = said(record, "completion_ids");
  const bool flat = ids != nullptr && ids->is_array() && !ids->empty() && ids->front().is_number();
  if (answers != nullptr || !(flat || (ids == nullptr && said(record, kCompletion) != nullptr))) return;
  const auto wrap = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto it = record.find(name);
      if (it != record.end() && !it->is_null()) *it = json::array({std::move(*it)});
    }
  };
  for (const auto& names : {kTopLogProbs, kTopIds, {"completion_ids", "finished"}, kCompletion}) wrap(names);
}

struct TopToken {
  int64_t id;
  double log_prob;
};

// The number of a token that is written as {"token": "token_id:5"}, {"token_id": 5} or {"id": 5}.
Result<int64_t> id_of(const json& token) {
  for (const char* key : {"token_id", "id"}) {
    const auto it = token.find(key);
    if (it != token.end() && it->is_number_integer()) return it->get<int64_t>();
  }
  constexpr std::string_view kBefore = "token_id:";
  const auto it = token.find("token");
  const std::string text = it != token.end() && it->is_string() ? it->get<std::string>() : "";
  int64_t id = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with(kBefore) && std::from_chars(text.data() + kBefore.size(), end, id).ptr == end)
    return id;
  return error("a token is a number, under token_id, or as \"token_id:5\" under token");
}

// The teacher's tokens in one place: {"5": -0.1} or {"5": {"logprob": -0.1}} as vLLM writes them. Or a list
// of
// {"token_id": 5, "logprob": -0.1}. Or a list of logarithms alone, where `ids` has their tokens.
Result<std::vector<TopToken>> top_tokens_of(const json& place, const json* ids) {
  std::vector<TopToken> out;
  if (place.is_null()) return out;
  const auto add = [&](const Result<int64_t>& id, const json& number) -> Status {
    SLUICE_TRY(id);
    const json& value = number.is_object() ? number.value("logprob", json()) : number;
    // Where there is no probability, others write null.
    if (!value.is_number() && !value.is_null()) return error("{} is no log-probability", value.dump());
    if (value.is_number()) out.push_back({*id, value.get<double>()});
    return {};
  };
  const json* list = &place;
  if (place.is_object() && place.contains("top_logprobs")) list = &place["top_logprobs"];
  if (list->is_object()) {
    for (const auto& [key, value] : list->items()) {
      int64_t id = 0;
      const char* const end = key.data() + key.size();
      if (std::from_chars(key.data(), end, id).ptr != end) return error("{} is no number of a token", key);
      SLUICE_TRY(add(id, value));
    }
    return out;
  }
  if (!list->is_array()) return error("a list, or an object, of the teacher's tokens is needed");
  if (ids != nullptr && (!ids->is_array() || ids->size() != list->size()))
    return error("{} has another number of tokens", kTopIds.front());
  for (size_t i = 0; i < list->size(); ++i) {
    const json& one = (*list)[i];
    if (one.is_object()) {
      SLUICE_TRY(add(id_of(one), one));
    } else if (ids == nullptr) {
      return error("{} is needed beside numbers, with the token of each", kTopIds.front());
    } else if (!(*ids)[i].is_number_integer()) {
      return error("{}: {} is no number of a token", kTopIds.front(), (*ids)[i].dump());
    } else {
      SLUICE_TRY(add((*ids)[i].get<int64_t>(), one));
    }
  }
  return out;
}

// Sets what a teacher recorded of an answer; `ids`: null: it stands beside each logarithm.
Status set_top(GradedAnswer& answer, const json& all, const json* ids, int64_t count, int64_t vocab) {
  const json& places = all.is_object() && all.contains("content") ? all["content"] : all;
  if (!places.is_array() || places.size() != answer.ids.size())
    return error(
        "a list of {} is needed, one for each token; {} are there, and completion_ids says which tokens "
        "they are of",
        answer.ids.size(), places.is_array() ? places.size() : 0);
  if (ids != nullptr && (!ids->is_array() || ids->size() != places.size()))
    return error("{}: a list of {} is needed, one for each token", kTopIds.front(), places.size());
  answer.top_ids.assign(places.size() * size_t(count), -1);
  answer.top_log_probs.assign(answer.top_ids.size(), -std::numeric_limits<float>::infinity());
  for (size_t t = 0; t < places.size(); ++t) {
    const auto place = [&] { return fmt::format("token {}", t + 1); };
    auto top = top_tokens_of(places[t], ids == nullptr ? nullptr : &(*ids)[t]);
    if (!top.ok()) return error_at(place(), top.error());
    std::set<int64_t> seen;
    double sum = 0;
    for (const TopToken& one : *top) {
      if (one.id < 0 || one.id >= vocab)
        return error_at(place(), error("the teacher's token {} is none of the model's {}", one.id, vocab));
      if (!seen.insert(one.id).second)
        return error_at(place(), error("the teacher's token {} is there twice", one.id));
      sum += std::exp(one.log_prob);
    }
    // As much as rounding to bf16 may add.
    constexpr double kMostSum = 1.02;
    if (!(sum <= kMostSum))
      return error_at(
          place(), error("the teacher's probabilities add up to {:.3g}; natural logarithms are needed", sum));
    std::stable_sort(top->begin(), top->end(),
                     [](const TopToken& a, const TopToken& b) { return a.log_prob > b.log_prob; });
    top->resize(std::min(top->size(), size_t(count)));
    for (size_t i = 0; i < top->size(); ++i) {
      answer.top_ids[t * size_t(count) + i] = int32_t((*top)[i].id);
      answer.top_log_probs[t * size_t(count) + i] = float((*top)[i].log_prob);
    }
  }
  return {};
}

// The prompts as rows, with the first answer of those that have any.
class PromptRows final : public BatchSource {
 public:
  PromptRows(std::shared_ptr<const Prompts> prompts, const RunConfig& c)
      : prompts_(std::move(prompts)), sequence_(c.train.seq_len) {
    const int64_t rows = c.train.tokens_per_step / c.train.seq_len;
    // An epoch has as many rows as its steps.
    rows_ = std::max<int64_t>(1, prompts_->count() * rows * c.rollout.num_iterations / prompts_->of_step());
  }

  int64_t sequence() const override { return sequence_; }
  int64_t epoch_rows() const override { return rows_; }
  RowCounts counts() const override { return {.rows = rows_, .all = rows_}; }
  bool packed() const override { return true; }
  void fill(int64_t, int64_t row, const RowsView& to) const override {
    to.fill_padding();
    const PromptGroup group = prompts_->group(row % prompts_->count());
    std::vector<int32_t> ids = group.prompt;
    if (!group.answers.empty())
      ids.insert(ids.end(), group.answers.front().ids.begin(), group.answers.front().ids.end());
    const auto count = std::min(std::ssize(ids), sequence_), asked = std::ssize(group.prompt);
    if (to.layout().has(BatchColumn::Tokens))
      std::copy_n(ids.begin(), count, to.column(BatchColumn::Tokens).begin());
    if (to.layout().has(BatchColumn::Targets) && count > asked)
      std::copy(ids.begin() + asked, ids.begin() + count,
                to.column(BatchColumn::Targets).begin() + asked - 1);
    to.part(0, count).fill_padding(BatchColumn::Positions);
    to.part(count, sequence_ - count).fill_padding(BatchColumn::Positions);
  }

 private:
  const std::shared_ptr<const Prompts> prompts_;
  const int64_t sequence_;
  int64_t rows_ = 0;
};

}  // namespace

Result<std::vector<int32_t>> Prompts::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  SLUICE_TRY(folder_->tokenizer->encode(text, /*special=*/false, ids, nullptr,
                                        Tokenizer::Plain::everywhere(folder_->making.special)));
  return ids;
}

Result<Prompts::Asked> Prompts::ask(const json& record) const {
  const TokenMaking& making = folder_->making;
  const json* const messages = said(record, "messages");
  const json* const prompt = messages != nullptr ? messages : said(record, "prompt");
  if (prompt == nullptr) return error("no prompt: a text or messages are needed");
  Asked out;
  if (prompt->is_string()) {
    const auto before = making.tokenizer->tokens_before();
    SLUICE_ASSIGN(const std::vector<int32_t> ids, encode(prompt->get_ref<const std::string&>()));
    out.ids.assign(before.begin(), before.end());
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    if (making.end >= 0) out.end = {making.end};
    return out;
  }
  if (!prompt->is_array()) return error("prompt: a text or messages are needed");
  if (making.chat_template == nullptr) return error("prompt: messages: {}", making.no_template);
  json chat{{"messages", *prompt}};
  for (const char* key : {"tools", "documents", "chat_template_kwargs"}) {
    if (const json* const value = said(record, key)) chat[key] = *value;
  }
  RecordOptions options{.ignore = config_.data.ignore, .roles = config_.data.roles};
  options.chat_template = making.chat_template;
  SLUICE_ASSIGN(const Record read, parse_record(chat.dump(), options));
  SLUICE_ASSIGN(const ChatPrompt asked, making.chat_template->prompt(read.chat));
  SLUICE_ASSIGN(LearntTokens tokens,
                learnt_tokens(read.chat, asked.chat, Learn::Everything, *making.tokenizer,
                              /*thoughts=*/true, making.special));
  out.ids = std::move(tokens.ids);
  SLUICE_TRY(making.tokenizer->encode(asked.end, /*special=*/false, out.end));
  return out;
}

Status Prompts::check_ids(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_) return error("its token {} is none of the model's {}", id, vocab_);
  }
  return ids.empty() ? Status(error("it has no token of a prompt, or of an answer")) : Status();
}

Result<PromptGroup> Prompts::parse(std::string_view text, bool recorded) const {
  SLUICE_ASSIGN(json record, parse_json(text));
  if (!record.is_object()) return error("an object of JSON is needed");
  const bool taught = config_.chosen_objective().compares == Compares::Teacher;
  if (taught) wrap_single(record);
  PromptGroup group;
  const json* const ids = said(record, "prompt_ids");
  const json* completions = said(record, kCompletions);
  if (taught && completions == nullptr) completions = said(record, kCompletion);
  const json* const completion_ids = said(record, "completion_ids");
  Asked asked;
  if (ids != nullptr && completion_ids != nullptr && recorded) {
    SLUICE_ASSIGN(group.prompt, numbers_of<int32_t>(*ids, "prompt_ids"));
  } else {
    SLUICE_ASSIGN(asked, ask(record));
    group.prompt = asked.ids;
  }
  SLUICE_TRY(check_ids(group.prompt));
  if (!recorded) {
    for (const char* name : {"prompts", "completions", "completion_ids"}) {
      if (record.contains(name))
        return error("{}: rollout.rewards is called with what is sampled under that name", name);
    }
    return group;
  }
  for (const auto& [key, value] : record.items()) {
    const auto is_in = [&key = key](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), key) != names.end();
    };
    const bool known = is_in({"prompt", "messages", "tools", "documents", "chat_template_kwargs",
                              "prompt_ids", "completion_ids", "finished", "step"}) ||
                       is_in(kCompletions) || is_in(config_.data.ignore) ||
                       (taught ? is_in(kCompletion) || is_in(kTopLogProbs) || is_in(kTopIds)
                               : is_in(kRewards) || is_in(kLogProbs));
    if (!known) return error("{}: nothing reads it; data.ignore = [\"{}\"] passes over it", key, key);
  }
  const json* const answers = completion_ids != nullptr ? completion_ids : completions;
  if (taught && (answers == nullptr || !answers->is_array() || answers->empty()))
    return error("no completion: an answer is needed, with {} of its tokens", kTopLogProbs.front());
  if (answers == nullptr || !answers->is_array() || answers->empty())
    return error(
        "no completions: a list of answers, with a list of their rewards, is needed, or rollout.rewards = "
        "rewards.py:function, which samples them");
  const size_t count = answers->size();
  SLUICE_ASSIGN(const json* const rewards, list_of(record, kRewards, count));
  if (rewards == nullptr && !taught)
    return error("no rewards: a list of numbers is needed, one for each of completions");
  SLUICE_ASSIGN(const json* const log_probs, list_of(record, taught ? kTopLogProbs : kLogProbs, count));
  SLUICE_ASSIGN(const json* const top_ids, list_of(record, kTopIds, count));
  if (taught && log_probs == nullptr)
    return error("no {}: the teacher's likeliest tokens in the place of each token of an answer are needed",
                 kTopLogProbs.front());
  SLUICE_ASSIGN(const json* const finished, list_of(record, {"finished"}, count));
  for (size_t i = 0; i < count; ++i) {
    GradedAnswer& answer = group.answers.emplace_back();
    answer.finished = finished == nullptr || (*finished)[i] == true;
    if (completion_ids != nullptr) {
      SLUICE_ASSIGN(answer.ids, numbers_of<int32_t>((*answers)[i], "completion_ids"));
    } else {
      SLUICE_ASSIGN(const std::string words, words_of((*answers)[i]));
      SLUICE_ASSIGN(answer.ids, encode(words));
      if (answer.finished) answer.ids.insert(answer.ids.end(), asked.end.begin(), asked.end.end());
    }
    SLUICE_TRY(check_ids(answer.ids));
    if (taught) {
      const Status set = set_top(answer, (*log_probs)[i], top_ids == nullptr ? nullptr : &(*top_ids)[i],
                                 config_.objective.loss_top_k, vocab_);
      if (!set.ok()) return error_at(fmt::format("{}: answer {}", kTopLogProbs.front(), i + 1), set.error());
      continue;
    }
    const json& reward = (*rewards)[i];
    if (!reward.is_null() && !reward.is_number()) return error("rewards: {} is no number", reward.dump());
    if (reward.is_number()) answer.reward = reward.get<double>();
    if (log_probs == nullptr) continue;
    SLUICE_ASSIGN(answer.log_probs, numbers_of<float>((*log_probs)[i], kLogProbs.front()));
    if (answer.log_probs.size() != answer.ids.size())
      return error(
          "{}: answer {} has {} tokens and {} of these; completion_ids says which tokens they are of",
          kLogProbs.front(), i + 1, answer.ids.size(), answer.log_probs.size());
  }
  return group;
}

Status Prompts::read_all() {
  const int64_t sequence = config_.train.seq_len;
  const bool sampled = config_.samples_answers();
  Checksummer sum;
  SLUICE_ASSIGN(const std::vector<Source> sources, find_sources(sources_of(config_)));
  int64_t bytes = 0, malformed = 0, dropped = 0;
  files_ = std::ssize(sources);
  for (const Source& source : sources) {
    if (source.form != SourceForm::Records)
      return error("{}: with train.objective = {}, files of JSON records are needed", source.path.string(),
                   config_.train.objective);
    SLUICE_ASSIGN(RecordReader reader, RecordReader::open(source.path, RecordOptions()));
    if (reader.container().find("JSON") == std::string_view::npos)
      return error("{}: it is {}; with train.objective = {}, JSON is needed", source.path.string(),
                   reader.container(), config_.train.objective);
    for (RawRecord raw;;) {
      SLUICE_ASSIGN(const bool more, reader.next(raw));
      if (!more) break;
      const std::string place = fmt::format("{}:{}", source.path.string(), raw.line);
      const auto group = parse(raw.text, !sampled);
      if (!group.ok() && config_.data.malformed != "skip") return error_at(place, group.error());
      if (!group.ok()) {
        ++malformed;
        continue;
      }
      const auto prompt = std::ssize(group->prompt);
      int64_t longest = sampled ? config_.rollout.max_tokens : 0;
      const int64_t count = sampled ? config_.rollout.samples : std::ssize(group->answers);
      int64_t learnt = longest * count;
      for (const GradedAnswer& a : group->answers)
        longest = std::max(longest, std::ssize(a.ids)), learnt += std::ssize(a.ids);
      const int64_t tokens = prompt + longest;
      // The last token is a target alone.
      if (tokens > sequence + 1) {
        if (config_.data.long_documents == "drop") {
          ++dropped;
          continue;
        }
        return error(
            "{}: {} tokens{}, and a row has train.seq_len = {}; data.long_documents = drop leaves out such "
            "prompts",
            place, tokens, sampled ? ", as many as rollout.max_tokens says with them" : "", sequence);
      }
      longest_ = std::max(longest_, tokens);
      most_answers_ = std::max(most_answers_, count);
      const int64_t all = prompt * count + learnt;
      inventory_.documents += 1, inventory_.tokens += all, inventory_.learnt += learnt;
      inventory_.longest = std::max(inventory_.longest, tokens);
      ++inventory_.lengths[size_t(std::bit_width(uint64_t(all))) - 1];
      sum.add(raw.text).add("\n");
      bytes += std::ssize(raw.text);
      if (const int64_t cap = config_.caps[kHost]; cap != kUnlimited && bytes > cap - resident_bytes())
        return error("memory.host = {}: data.paths does not fit, of which all records are held",
                     format_bytes(cap));
      records_.push_back(std::move(raw.text));
    }
  }
  if (records_.empty()) return error("data.paths: there is no prompt");
  for (const auto& [number, key] :
       {std::pair(malformed, "data.malformed = skip"), {dropped, "data.long_documents = drop"}}) {
    if (number > 0)
      notices_.push_back(
          fmt::format("data.paths: {} left out by {}", counted(number, "record", "is", "are"), key));
  }
  sum.add(fmt::format("{} {}", folder_->tokenizer->content(),
                      folder_->chat_template ? folder_->chat_template->identity() : ""));
  content_ = "prompts " + sum.value().to_text();
  return count_step();
}

Status Prompts::count_step() {
  const int64_t rows = config_.train.tokens_per_step / config_.train.seq_len;
  const int64_t in_row = std::max<int64_t>(1, config_.train.seq_len / (longest_ - 1));
  const int64_t most = rows * in_row / most_answers_, wanted = config_.rollout.prompts;
  of_step_ = wanted == 0 ? std::min(most, count()) : wanted;
  if (of_step_ > 0 && of_step_ <= most) return {};
  const int64_t texts = std::max<int64_t>(1, wanted) * most_answers_, need = (texts + in_row - 1) / in_row;
  return error(
      "train.tokens_per_step = {}: {} of up to {} tokens need {} of train.seq_len = {}, which are {} tokens",
      config_.train.tokens_per_step, counted(texts, "answer"), longest_, counted(need, "row"),
      config_.train.seq_len, need * config_.train.seq_len);
}

Result<std::unique_ptr<Prompts>> Prompts::open(const RunConfig& c, int64_t vocab) {
  std::unique_ptr<Prompts> prompts(new Prompts(c, vocab));
  if (const auto path = tokenizer_of(c)) {
    SLUICE_ASSIGN(prompts->folder_, open_folder(c, *path));
    SLUICE_ASSIGN(const GenerationDefaults defaults, generation_defaults_of(path->parent_path()));
    prompts->ends_ = defaults.stop_tokens;
  } else if (vocab == ByteTokenizer::kVocab) {
    prompts->folder_ = std::make_unique<Folder>();
    SLUICE_ASSIGN(prompts->folder_->tokenizer, byte_tokenizer());
    prompts->folder_->making.tokenizer = &*prompts->folder_->tokenizer;
    prompts->folder_->making.no_template = "a model of bytes has no chat template";
    prompts->folder_->making.without_template = true;
  } else {
    return no_tokenizer(c, vocab, "data.paths");
  }
  TokenMaking& making = prompts->folder_->making;
  SLUICE_ASSIGN(making.special, special_of(c, making.tokenizer));
  SLUICE_TRY(prompts->read_all());
  if (making.end >= 0) prompts->ends_.push_back(making.end);
  return prompts;
}

PromptGroup Prompts::group(int64_t number) const {
  auto parsed = parse(record(number), !config_.samples_answers());
  SLUICE_CHECK(parsed.ok(), "{}", parsed.message());
  return std::move(*parsed);
}

int64_t Prompts::number_of(int64_t index) const {
  return permuted(uint64_t(config_.train.seed), uint64_t(index / count()), index % count(), count());
}

Result<std::string> Prompts::text_of(std::span<const int32_t> ids) const {
  return folder_->tokenizer->decode(ids, /*skip_special=*/true);
}

Result<std::string> Prompts::arguments(std::span<const int64_t> numbers,
                                       std::span<const PromptGroup> groups) const {
  json out{{"prompts", json::array()}, {"completions", json::array()}, {"completion_ids", json::array()}};
  size_t count = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    SLUICE_ASSIGN(const json record, parse_json(this->record(numbers[g])));
    const bool text = said(record, "messages") == nullptr && record["prompt"].is_string();
    for (const GradedAnswer& answer : groups[g].answers) {
      SLUICE_ASSIGN(const std::string words, text_of(answer.ids));
      out["completions"].push_back(text ? json(words)
                                        : json::array({{{"role", "assistant"}, {"content", words}}}));
      out["completion_ids"].push_back(answer.ids);
      out["prompts"].push_back(record.contains("prompt") ? record["prompt"] : record["messages"]);
      for (const auto& [key, value] : record.items()) {
        if (key == "prompt") continue;
        json& column = out.emplace(key, json::array()).first.value();
        column.get_ref<json::array_t&>().resize(count);  // null of records without it
        column.push_back(value);
      }
      ++count;
    }
  }
  for (auto& [key, column] : out.items()) column.get_ref<json::array_t&>().resize(count);
  return out.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

Status Prompts::write(std::span<const PromptGroup> groups, int64_t step,
                      const std::filesystem::path& path) const {
  std::string lines;
  for (const PromptGroup& group : groups) {
    nlohmann::ordered_json line{{"step", step}};
    SLUICE_ASSIGN(line["prompt"], folder_->tokenizer->decode(group.prompt, /*skip_special=*/false));
    for (const GradedAnswer& a : group.answers) {
      SLUICE_ASSIGN(const std::string words, text_of(a.ids));
      line["completions"].push_back(words);
      line["rewards"].push_back(a.reward);  // NaN is written as null
      line["finished"].push_back(a.finished);
      line["completion_ids"].push_back(a.ids);
      line["logps"].push_back(a.log_probs);
    }
    line["prompt_ids"] = group.prompt;
    lines += line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  }
  return write_file(path, lines);
}

Result<std::vector<PromptGroup>> Prompts::read(const std::filesystem::path& path, int64_t step) const {
  std::vector<PromptGroup> groups;
  SLUICE_ASSIGN(const std::string lines, read_file(path));
  for (std::string_view rest = lines; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    SLUICE_ASSIGN(const json line, parse_json(rest.substr(0, end)));
    if (line.value("step", int64_t{-1}) != step)
      return error("{}: it has no answers of step {}, from which the run goes on", path.string(), step + 1);
    SLUICE_ASSIGN(groups.emplace_back(), parse(rest.substr(0, end), /*recorded=*/true));
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  return groups;
}

Result<RunData> open_prompts(const RunConfig& c, int64_t vocab) {
  if (c.data.paths.empty())
    return error("train.objective = {}: data.paths is empty, and random tokens are no prompts",
                 c.train.objective);
  for (const std::string& path : c.data.paths) {
    if (path.find_first_of("*?[") == path.npos) SLUICE_TRY(check_input(c, "data.paths", path));
  }
  const std::string &rewards = c.rollout.rewards, file = rewards.substr(0, rewards.rfind(':'));
  std::error_code ignored;
  if (c.samples_answers() && !std::filesystem::is_regular_file(file, ignored))
    return error("rollout.rewards = {}: there is no file {}", rewards, file);
  SLUICE_ASSIGN(auto opened, Prompts::open(c, vocab));
  RunData data;
  const std::shared_ptr<const Prompts> prompts = data.prompts = std::move(opened);
  data.train = std::make_unique<PromptRows>(prompts, c);
  data.content = prompts->content();
  data.names = c.data.paths;
  const std::optional<ChatTemplate>& chat = prompts->folder().chat_template;
  const PromptGroup first = prompts->group(0);
  SLUICE_ASSIGN(std::string prompt,
                prompts->folder().tokenizer->decode(first.prompt, /*skip_special=*/false));
  std::vector<int32_t> again;
  SLUICE_TRY(prompts->folder().tokenizer->encode(prompt, /*special=*/true, again));
  if (again == first.prompt) data.prompt = std::move(prompt);
  if (!prompts->ends().empty()) data.answer_end = prompts->ends().back();
  data.train_documents = prompts->inventory();
  data.files = prompts->files();
  data.notices = prompts->notices();
  if (chat) {
    data.chat_template = chat->name();
    if (chat->asks_date()) data.date = c.data.date;
    if (!c.data.chat_template.empty() || !c.data.template_kwargs.empty())
      data.model_texts["chat_template.jinja"] = chat->text();
  }
  return data;
}

}  // namespace sluice::core
