// SPDX-License-Identifier: Apache-2.0
#include "records/survey.h"

#include <algorithm>
#include <bit>

#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

void count_document(const LearntTokens& tokens, const RenderedChat& chat, const SurveyOptions& options,
                    Survey& survey) {
  const Tokenizer& tokenizer = *options.tokenizer;
  const auto size = int64_t(tokens.ids.size());
  const auto is_end = [&](int32_t id) { return id == options.end || tokenizer.is_special(id); };
  int64_t learnt = 0;
  bool ends = true;  // every stretch that is learnt
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.learnt[i] == 0) continue;
    ++learnt;
    if (i + 1 == tokens.ids.size() || tokens.learnt[i + 1] == 0) ends = ends && is_end(tokens.ids[i]);
  }
  ++survey.documents;
  survey.tokens += size;
  survey.learnt += learnt;
  survey.straddling += tokens.straddling;
  survey.without_learnt += learnt == 0 ? 1 : 0;
  survey.without_end += learnt > 0 && !ends ? 1 : 0;
  survey.longest = std::max(survey.longest, size);
  survey.longer_than_sequence += options.sequence > 0 && size > options.sequence ? 1 : 0;
  if (size > 0) ++survey.lengths[size_t(std::bit_width(uint64_t(size))) - 1];
  if (size > 1 && tokens.ids[0] == tokens.ids[1] && tokenizer.is_special(tokens.ids[0])) ++survey.two_begins;
  survey.lack_tools += chat.lacks_tools ? 1 : 0;
  survey.lack_tool_calls += chat.lacks_tool_calls ? 1 : 0;
  survey.lack_messages += chat.lacks_messages > 0 ? 1 : 0;
}

Result<Survey::Example> example_of(const LearntTokens& tokens, std::string place,
                                   const Tokenizer& tokenizer) {
  constexpr size_t kMostTokens = 1000;
  Survey::Example example{std::move(place), {}};
  const size_t size = std::min(tokens.ids.size(), kMostTokens);
  for (size_t begin = 0, end = 0; begin < size; begin = end) {
    end = begin;
    while (end < size && tokens.learnt[end] == tokens.learnt[begin]) ++end;
    SLUICE_ASSIGN(std::string text,
                  tokenizer.decode(std::span(tokens.ids).subspan(begin, end - begin), false));
    example.runs.push_back({std::move(text), tokens.learnt[begin] == 1});
  }
  if (size < tokens.ids.size())
    example.runs.push_back({fmt::format("... {} tokens more", tokens.ids.size() - size), false});
  return example;
}

Status survey_file(const std::filesystem::path& path, const SurveyOptions& options, Survey& survey) {
  SLUICE_ASSIGN(RecordReader reader, RecordReader::open(path, options.records));
  const int64_t before = survey.documents;
  int64_t unusable = 0;
  Record record;
  while (true) {
    SLUICE_ASSIGN(const bool more, reader.next(record));
    if (!more) break;
    const std::string place =
        reader.line() > 0 ? fmt::format("{}: line {}", path.string(), reader.line()) : path.string();
    RenderedChat chat;
    const auto tokens = tokens_of(record, options, &chat);
    if (!tokens.ok()) {
      if (!options.records.skip_malformed) return error_at(place, tokens.error());
      ++unusable;
      if (survey.first_malformed.empty()) survey.first_malformed = error_at(place, tokens.error()).message;
      continue;
    }
    ++survey.kinds[size_t(record.kind)];
    count_document(*tokens, chat, options, survey);
    if (int64_t(survey.examples.size()) < options.examples) {
      SLUICE_ASSIGN(Survey::Example example, example_of(*tokens, place, *options.tokenizer));
      survey.examples.push_back(std::move(example));
    }
  }
  ++survey.files;
  survey.malformed += reader.malformed() + unusable;
  if (survey.first_malformed.empty()) survey.first_malformed = reader.first_malformed();
  if (reader.line() > 0 && survey.documents == before + 1) ++survey.lonely_files;
  return {};
}

}  // namespace

Result<LearntTokens> tokens_of(const Record& record, const SurveyOptions& options, RenderedChat* chat) {
  const Tokenizer& tokenizer = *options.tokenizer;
  const bool everything = options.learn == Learn::Everything || options.learn == Learn::Turns;
  switch (record.kind) {
    case Record::Kind::Text:
      return learnt_tokens(record.text, 0, options.end, tokenizer);
    case Record::Kind::Pair:
      return learnt_tokens(record.text, everything ? 0 : record.completion, options.end, tokenizer);
    case Record::Kind::Marked:
      return learnt_tokens(record.text, record.learnt, tokenizer);
    case Record::Kind::Chat:
      break;
  }
  if (options.chat_template == nullptr) return error("a conversation: {}", options.no_template);
  SLUICE_ASSIGN(RenderedChat rendered, options.chat_template->render(record.chat));
  auto tokens = learnt_tokens(record.chat, rendered, options.learn, tokenizer);
  if (chat != nullptr) *chat = std::move(rendered);
  return tokens;
}

std::vector<std::string> Survey::warnings() const {
  std::vector<std::string> lines;
  const auto say = [&](int64_t count, std::string_view what) {
    if (count > 0)
      lines.push_back(fmt::format("{} of {} {}", count, documents, what));
  };
  say(without_learnt, "documents have nothing that is learnt");
  say(without_end,
      "documents have an answer that no special token ends: a model does not learn to stop there");
  say(two_begins, "documents begin with the same special token twice");
  say(longer_than_sequence, "documents are longer than a sequence");
  say(lack_tools, "conversations have tools, which this chat template does not show");
  say(lack_tool_calls, "conversations have calls of tools, which this chat template does not show");
  say(lack_messages, "conversations have a message that this chat template does not show");
  if (straddling > 0)
    lines.push_back(fmt::format("{} tokens lie over the edge of what is learnt, and are not learnt",
                                straddling));
  if (lonely_files > 0)
    lines.push_back(fmt::format("{} of {} files are JSONL with one record", lonely_files, files));
  if (malformed > 0)
    lines.push_back(fmt::format("{} lines were skipped, first {}", malformed, first_malformed));
  return lines;
}

Result<Survey> survey(std::span<const std::filesystem::path> files, const SurveyOptions& options) {
  Survey survey;
  for (const std::filesystem::path& path : files) SLUICE_TRY(survey_file(path, options, survey));
  return survey;
}

}  // namespace sluice::core
