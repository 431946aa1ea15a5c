// SPDX-License-Identifier: Apache-2.0
#include "records/documents.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/nearest.h"
#include "base/parallel.h"
#include "records/chat_record.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

// Text is learnt as a whole, and may hold what no token stands for.
Result<LearntTokens> text_tokens(const std::string& text, const TokenMaking& making) {
  LearntTokens tokens;
  tokens.reserve_for(text);
  EncodeCounts counts;
  SLUICE_TRY(making.tokenizer->encode(text, /*special=*/true, tokens.ids, &counts,
                                      Tokenizer::Plain::everywhere(making.special)));
  if (making.end >= 0 && (tokens.ids.empty() || tokens.ids.back() != making.end))
    tokens.ids.push_back(making.end);
  tokens.learnt.assign(tokens.ids.size(), 1);
  tokens.learnt_bytes = int64_t(text.size());
  tokens.dropped = counts.dropped;
  tokens.written = counts.written;
  return tokens;
}

// The special token that lies at the end of a text, or at its beginning; empty: none.
std::string_view special_token_of(std::string_view text, bool at_end, const Tokenizer& tokenizer) {
  constexpr size_t kLongest = 64;
  if (text.empty()) return {};
  const size_t begin = at_end ? text.find_last_of("<[") : 0;
  const size_t end = at_end ? text.size() - 1 : text.substr(0, kLongest).find_first_of(">]");
  if (begin == text.npos || end == text.npos || (text[begin] != '<' && text[begin] != '[')) return {};
  const std::string_view token = text.substr(begin, end + 1 - begin);
  const int32_t id = token.size() <= kLongest ? tokenizer.id(token) : -1;
  return id >= 0 && tokenizer.is_special(id) ? token : std::string_view();
}

bool ends_typed(const Conversation& chat, const TokenMaking& making) {
  return std::any_of(chat.messages.begin(), chat.messages.end(), [&](const ChatValue& message) {
    const ChatValue* const content = message.find("content");
    if (content == nullptr || message.find("role")->text != "assistant") return false;
    const std::string_view text = content->text;
    const size_t end = text.find_last_not_of(" \t\r\n");
    const std::string_view token = special_token_of(text.substr(0, end + 1), true, *making.tokenizer);
    const int32_t id = making.tokenizer->id(token);
    return !token.empty() &&
           std::find(making.special.begin(), making.special.end(), id) == making.special.end();
  });
}

Result<LearntTokens> chat_tokens(const Conversation& chat, const TokenMaking& making, Document& document) {
  if (making.chat_template == nullptr) return error("a conversation: {}", making.no_template);
  SLUICE_ASSIGN(const RenderedChat rendered, making.chat_template->render(chat));
  document.rendered = true;
  document.typed_end = ends_typed(chat, making);
  for (const auto& [variable, value] : chat.kwargs.members) {
    if (!making.chat_template->reads(variable)) document.unused.emplace_back("chat_template_kwargs");
  }
  document.lacks_tools = rendered.lacks_tools;
  document.lacks_tool_calls = rendered.lacks_tool_calls;
  document.lacks_messages = rendered.lacks_messages > 0;
  document.lacks_reasoning = rendered.lacks_reasoning;
  return learnt_tokens(chat, rendered, making.learn, *making.tokenizer, making.thoughts, making.special);
}

Conversation as_turns(Record& record) {
  Conversation chat;
  chat.tools = std::move(record.chat.tools);
  chat.documents = std::move(record.chat.documents);
  chat.kwargs = std::move(record.chat.kwargs);
  if (!record.system.empty()) chat.messages.push_back(turn_of("system", record.system));
  for (const auto& [question, answer] : record.history) {
    chat.messages.push_back(turn_of("user", question));
    chat.messages.push_back(turn_of("assistant", answer));
  }
  const std::string_view text = record.text;
  std::string asked(text.substr(0, record.completion));
  if (!record.context.empty()) asked += "\n\n" + record.context;
  chat.messages.push_back(turn_of("user", asked));
  chat.messages.push_back(turn_of("assistant", text.substr(record.completion)));
  record.text = {};
  return chat;
}

// The text before the answer.
std::string question_of(const Record& record, bool bare) {
  const std::string_view prompt = std::string_view(record.text).substr(0, record.completion);
  if (bare) {
    std::string text = record.system.empty() ? "" : record.system + "\n\n";
    text += prompt;
    return record.context.empty() ? text : text + "\n\n" + record.context;
  }
  // As Stanford's Alpaca has it.
  std::string text = record.system;
  if (text.empty())
    text = fmt::format(
        "Below is an instruction that describes a task{}. Write a response that appropriately "
        "completes the request.",
        record.context.empty() ? "" : ", paired with an input that provides further context");
  text += fmt::format("\n\n### Instruction:\n{}\n\n", prompt);
  if (!record.context.empty()) text += fmt::format("### Input:\n{}\n\n", record.context);
  return text + "### Response:\n";
}

bool becomes_turns(const Record& record, const TokenMaking& making) {
  return making.pairs == Pairs::Chat ||
         (making.pairs == Pairs::Auto && record.asks && !making.without_template);
}

void make_one_text(Record& record, const TokenMaking& making) {
  if (!record.asks) return;
  const std::string question = question_of(record, making.pairs == Pairs::Text);
  record.text.replace(0, record.completion, question);
  record.completion = question.size();
}

// One text has no earlier turns, and no place for tools.
Status check_one_text(const Record& record, const TokenMaking& making) {
  const std::string_view key = !record.history.empty()                ? "history"
                               : !record.chat.tools.items.empty()     ? "tools"
                               : !record.chat.documents.items.empty() ? "documents"
                               : !record.chat.kwargs.members.empty()  ? "chat_template_kwargs"
                                                                      : "";
  if (key.empty()) return {};
  Error refused =
      error("{}: it needs turns of a chat: {}; data.ignore = [\"{}\"] passes over it", key,
            making.pairs == Pairs::Text ? "data.pairs = text makes one text" : making.no_template, key);
  refused.details.emplace_back("key", key);
  refused.details.emplace_back("later", "yes");
  return refused;
}

Result<LearntTokens> pair_tokens(Record& record, const TokenMaking& making, Document& document) {
  const bool turns = becomes_turns(record, making);
  document.learnt_anew |= turns;
  const bool empty = record.completion == record.text.size();
  if (turns) {
    if (making.chat_template == nullptr)
      return error("a question and its answer: {}; data.pairs = text makes one text of them",
                   making.no_template);
    Conversation chat = as_turns(record);
    if (making.compares != Compares::Nothing) chat.answers_from = chat.messages.size() - 1;
    return chat_tokens(chat, making, document);
  }
  SLUICE_TRY(check_one_text(record, making));
  const bool all = making.learn == Learn::Everything || making.learn == Learn::AllTurns;
  make_one_text(record, making);
  SLUICE_ASSIGN(LearntTokens tokens, learnt_tokens(record.text, all ? 0 : record.completion, making.end,
                                                   *making.tokenizer, making.special));
  if (!empty || all) return tokens;
  // An answer that says nothing would teach to say nothing.
  document.learnt_anew |= std::find(tokens.learnt.begin(), tokens.learnt.end(), 1) != tokens.learnt.end();
  std::fill(tokens.learnt.begin(), tokens.learnt.end(), uint8_t{0});
  tokens.empty_answers = 1;
  return tokens;
}

// The data's own marks must cover the token that ends a turn.
Status check_ends(const LearntTokens& tokens, const Tokenizer& tokenizer) {
  for (size_t i = 0; i + 1 < tokens.ids.size(); ++i) {
    if (tokens.learnt[i] == 0 || tokens.learnt[i + 1] != 0 || tokenizer.is_special(tokens.ids[i])) continue;
    size_t next = i + 1;
    while (next + 1 < tokens.ids.size() && tokens.learnt[next] == 0 && is_blank(tokens.ids[next], tokenizer))
      ++next;
    if (tokens.learnt[next] != 0 || !tokenizer.is_special(tokens.ids[next])) continue;
    Error e = error(
        "what is learnt leaves out {}, which ends it: a model trained so never stops. Let it reach over that "
        "token, "
        "or set data.open_ends = true",
        tokenizer.token(tokens.ids[next]).value_or("the token"));
    e.details.emplace_back("key", "learnt");
    return e;
  }
  return {};
}

Result<LearntTokens> tokens_of(Record& record, const TokenMaking& making, Document& document) {
  switch (record.kind) {
    case Record::Kind::Text:
      return text_tokens(record.text, making);
    case Record::Kind::Pair:
      return pair_tokens(record, making, document);
    case Record::Kind::Marked: {
      SLUICE_ASSIGN(LearntTokens tokens, learnt_tokens(record.text, record.learnt, *making.tokenizer));
      if (!making.open_ends) SLUICE_TRY(check_ends(tokens, *making.tokenizer));
      return tokens;
    }
    case Record::Kind::Chat:
      break;
  }
  return chat_tokens(record.chat, making, document);
}

// With what turns begin in the text that chat templates make.
constexpr std::string_view kTurns[] = {"<|im_start|>",
                                       "<|start_header_id|>",
                                       "<|header_start|>",
                                       "<|start_of_role|>",
                                       "<|START_OF_TURN_TOKEN|>",
                                       "<start_of_turn>",
                                       "<|turn>",
                                       "[INST]",
                                       "[SYSTEM_PROMPT]",
                                       "<|start|>",
                                       "<|user|>",
                                       "<|system|>",
                                       "<s>[INST]",
                                       "<s><|user|>",
                                       "<bos><start_of_turn>",
                                       "<|begin_of_text|><|start_header_id|>",
                                       "### Human:",
                                       "### Instruction:",
                                       "Below is an instruction that describes a task"};
// Words of special tokens that begin a turn, whatever the model.
constexpr std::string_view kTurnWords[] = {"user", "human", "assistant", "system",
                                           "turn", "inst",  "role",      "header"};

// Who speaks in a text of lines, and who answers: the first begins a line, the other stands behind it.
constexpr std::pair<std::string_view, std::string_view> kSpeakers[] = {
    {"USER:", "ASSISTANT:"}, {"User:", "Assistant:"},
    {"user:", "assistant:"}, {"Human:", "Assistant:"},
    {"Human:", "AI:"},       {"HUMAN:", "ASSISTANT:"},
    {"User:", "AI:"},        {"### User:", "### Assistant:"}};

// The one who asks; empty: nobody does. Vicuna's instructions stand before that in its line.
std::string_view speaker_of(std::string_view text) {
  constexpr size_t kLongest = 4096;
  text = text.substr(0, kLongest);
  for (const auto& [asks, answers] : kSpeakers) {
    const size_t at = text.find(asks);
    if (at == text.npos) continue;
    const char before = at == 0 ? '\n' : text[at - 1];
    if (before != '\n' && !(before == ' ' && asks == "USER:")) continue;
    if (text.find(answers, at) != text.npos) return asks;
  }
  return {};
}

// Looks at plain text, and at what becomes turns of a chat, which would be rendered twice.
std::string_view rendered_turn_in(const Record& record, const Tokenizer& tokenizer) {
  if (record.kind == Record::Kind::Text) return rendered_text_of(record.text, tokenizer);
  if (record.kind == Record::Kind::Pair && record.asks) return rendered_turn_of(record.text, tokenizer);
  std::string_view found;
  for (const ChatValue& message : record.chat.messages) {
    const ChatValue* content = message.find("content");
    if (content != nullptr && found.empty()) found = rendered_turn_of(content->text, tokenizer);
  }
  return found;
}

// A record on its way.
struct Job {
  RawRecord raw;
  std::optional<Result<Document>> made;
};

}  // namespace

std::optional<Conversation> conversation_of(Record& record, const TokenMaking& making) {
  if (record.kind == Record::Kind::Chat) return std::move(record.chat);
  if (record.kind == Record::Kind::Pair && becomes_turns(record, making)) return as_turns(record);
  return std::nullopt;
}

std::string_view plain_text_of(Record& record, const TokenMaking& making) {
  const bool one = record.kind == Record::Kind::Pair && !becomes_turns(record, making);
  if (one) make_one_text(record, making);
  return one || record.kind == Record::Kind::Text ? std::string_view(record.text) : std::string_view();
}

bool is_blank(int32_t id, const Tokenizer& tokenizer) {
  const auto text = tokenizer.decode({&id, 1}, /*skip_special=*/false);
  return text.ok() && !text->empty() && text->find_first_not_of(" \t\r\n") == text->npos;
}

std::string_view rendered_text_of(std::string_view text, const Tokenizer& tokenizer) {
  const std::string_view turn = rendered_turn_of(text, tokenizer);
  return turn.empty() ? speaker_of(text) : turn;
}

std::string_view rendered_turn_of(std::string_view text, const Tokenizer& tokenizer) {
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    for (const std::string_view turn : kTurns) {
      if (text.starts_with(turn)) return turn;
    }
    const std::string_view token = special_token_of(text, false, tokenizer);
    if (token.empty()) return {};
    const std::string plain = plain_name(token);
    const auto is_in = [&](std::string_view word) { return plain.find(word) != plain.npos; };
    if (std::any_of(std::begin(kTurnWords), std::end(kTurnWords), is_in)) return token;
    text.remove_prefix(token.size());  // as the token that begins a text
  }
}

Result<Pairs> parse_pairs(std::string_view text) {
  constexpr std::string_view kNames[] = {"auto", "chat", "text"};
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), text);
  if (found == std::end(kNames)) return error("'{}'; allowed are {}", text, fmt::join(kNames, ", "));
  return Pairs(found - std::begin(kNames));
}

namespace {

// Everything behind the first learnt token is the answer, as in TRL.
Status make_side(LearntTokens& tokens) {
  auto first = std::find(tokens.learnt.begin(), tokens.learnt.end(), 1);
  if (first == tokens.learnt.begin() && first != tokens.learnt.end()) ++first;  // there is no prompt
  if (first == tokens.learnt.end())
    return error("the answer says nothing, so that there is nothing to compare; leave such records out");
  std::fill(tokens.learnt.begin(), first, uint8_t{0});
  std::fill(first, tokens.learnt.end(), uint8_t{1});
  return {};
}

// Puts the side of another answer behind the first one.
void add_side(const Document& other, Document& document) {
  LearntTokens& tokens = document.tokens;
  tokens.ids.insert(tokens.ids.end(), other.tokens.ids.begin(), other.tokens.ids.end());
  tokens.learnt.insert(tokens.learnt.end(), other.tokens.learnt.begin(), other.tokens.learnt.end());
  tokens.straddling += other.tokens.straddling;
  tokens.learnt_bytes += other.tokens.learnt_bytes;
  tokens.dropped += other.tokens.dropped;
  tokens.markup |= other.tokens.markup;
  document.lacks_tool_calls |= other.lacks_tool_calls;
  document.lacks_reasoning |= other.lacks_reasoning;
  document.typed_end |= other.typed_end;
}

}  // namespace

Result<Document> document_of(Record record, const TokenMaking& making) {
  Document document;
  document.kind = record.kind;
  document.form = std::move(record.form);
  document.unused = std::move(record.unused);
  document.learnt_anew = record.read_anew;
  document.learnt_later = record.read_later;
  document.rendered_turn = rendered_turn_in(record, *making.tokenizer);
  SLUICE_ASSIGN(document.tokens, tokens_of(record, making, document));
  document.learnt_anew |= document.tokens.anew;
  if (making.compares == Compares::Nothing) return document;
  const Status made = make_side(document.tokens);
  if (!made.ok()) return record.worse.empty() ? made.error() : error_at("chosen", made.error());
  document.tokens.learnt.front() = record.bad ? 1 : 0;
  for (Record& worse : record.worse) {
    auto other = document_of(std::move(worse), making);
    if (!other.ok()) return error_at("rejected", other.error());
    add_side(*other, document);
  }
  return document;
}

Status read_documents(const std::filesystem::path& path, const TokenMaking& making,
                      const ReadingOptions& options, const std::function<Status(Document&)>& take,
                      const RecordReader::OnSkipped& skip) {
  SLUICE_ASSIGN(RecordReader reader, RecordReader::open(path, options.records));
  std::vector<Job> jobs;
  int64_t bytes = 0, held = 0;  // of their text, and with what else they take
  const auto finish = [&]() -> Status {
    for_each_parallel(int64_t(jobs.size()), options.threads, [&](int64_t i) {
      Job& job = jobs[size_t(i)];
      Result<Record> record = reader.parse(job.raw);
      job.made = record.ok() ? document_of(std::move(*record), making) : Result<Document>(record.error());
    });
    for (Job& job : jobs) {
      const bool good = job.made->ok();
      SLUICE_ASSIGN(const bool taken, reader.accept(job.raw, good ? (*job.made)->kind : Record::Kind::Text,
                                                    good ? Status() : Status(job.made->error()), skip));
      if (!taken) continue;
      Document& document = **job.made;
      document.line = job.raw.line;
      document.place = job.raw.place;
      if (reader.container() != document.form)
        document.form = fmt::format("{} ({})", document.form, reader.container());
      SLUICE_TRY(take(document));
    }
    jobs.clear();
    held = 0;
    if (options.progress) options.progress(std::exchange(bytes, 0));
    return {};
  };
  while (true) {
    Job job;
    const Result<bool> more = reader.next(job.raw);
    // Text before the place of an error comes first, as it may have one, too.
    if (!more.ok() || !*more) {
      SLUICE_TRY(finish());
      return more.ok() ? Status() : Status(more.error());
    }
    // A long one has the memory for itself, and short ones take more than their text.
    const auto size = int64_t(job.raw.text.size());
    if (size > options.batch_bytes) SLUICE_TRY(finish());
    bytes += size;
    held += size + int64_t(sizeof(Job));
    jobs.push_back(std::move(job));
    if (size <= options.batch_bytes && held < options.batch_bytes * options.threads) continue;
    SLUICE_TRY(finish());
  }
}

}  // namespace sluice::core
