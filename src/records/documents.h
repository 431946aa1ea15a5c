// SPDX-License-Identifier: Apache-2.0
// Records as tokens with what is learnt of them: by several threads, in bounded memory, in their order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "chat/learnt.h"
#include "records/record.h"

namespace sluice::core {

// Whether a question and its answer become turns of a chat template, or one text.
enum class Pairs : uint8_t {
  Auto,  // turns where they are called so and there is a template, else one text: as Alpaca's, or as it
         // stands
  Chat,
  Text,
};
// "auto", "chat", "text".
Result<Pairs> parse_pairs(std::string_view text);

// Settings that make tokens of records.
struct TokenMaking {
  const Tokenizer* tokenizer = nullptr;
  // Null: conversations are refused, for the reason in no_template.
  const ChatTemplate* chat_template = nullptr;
  std::string no_template;
  bool without_template = false;  // the model has none, of any kind
  Pairs pairs = Pairs::Auto;
  Compares compares = Compares::Nothing;
  bool open_ends = false;  // what is learnt may leave out the token that ends it
  Learn learn = Learn::Assistant;
  bool thoughts = true;          // whether those are learnt
  std::vector<int32_t> special;  // special tokens that stay such in what the data says
  int32_t end = -1;  // the token that ends a text or a completion, unless it does so itself; -1: none
};

// The conversation that a record becomes; nothing: it is one text.
std::optional<Conversation> conversation_of(Record& record, const TokenMaking& making);
// Text of a record in which the characters of special tokens are but text; empty: it is a conversation, or
// was rendered elsewhere.
std::string_view plain_text_of(Record& record, const TokenMaking& making);

// Whether a token is white space alone.
bool is_blank(int32_t id, const Tokenizer& tokenizer);

struct Document {
  Record::Kind kind = Record::Kind::Text;
  int64_t line = 0;   // of its file; 0: it is all of it
  int64_t place = 0;  // its own in the file: RawRecord::place
  LearntTokens tokens;
  // Parts of it that the chat template does not show.
  bool lacks_tools = false, lacks_tool_calls = false, lacks_messages = false, lacks_reasoning = false;
  bool rendered = false;            // by the chat template
  std::string form;                 // what it was taken as, with its file's form: "messages (JSONL)"
  std::vector<std::string> unused;  // Record::unused
  // A turn of a chat that was rendered elsewhere, with which plain text, or a message, begins; empty: none.
  std::string rendered_turn;
  bool typed_end = false;  // an answer ends with a special token that is written out, which is text there
  // Sluice 0.1.0 would have learnt something else; and so would the version after it.
  bool learnt_anew = false, learnt_later = false;
};

// A document of answers that are compared has sides: each a prompt, which is context, and its answer, which
// is learnt up to its end. One of a pair has the chosen side first. The first token of a side is nobody's
// target: it is context, but where an answer is marked as bad. Errors: the reason, without its place.
Result<Document> document_of(Record record, const TokenMaking& making);

struct ReadingOptions {
  RecordOptions records;
  int threads = 1;
  // Records of so many bytes are taken up at once for each thread; a larger one alone.
  int64_t batch_bytes = int64_t{1} << 20;
  // Told of bytes of records that have become tokens since the last time: of compressed files more than those
  // of the file.
  std::function<void(int64_t bytes)> progress;
};

// Calls `take` with every record of a file, in order, until it returns an error, and `skip` with the place
// and the reason of those that are skipped. A record that cannot become tokens is malformed like one that
// cannot be read. Errors name file, line and reason.
Status read_documents(const std::filesystem::path& path, const TokenMaking& making,
                      const ReadingOptions& options, const std::function<Status(Document&)>& take,
                      const RecordReader::OnSkipped& skip = {});

// The turn of a chat with which a text begins that was rendered elsewhere, such as "<|im_start|>" or
// "[INST]". It is a special token of the tokenizer, or what is known of others. Empty: none.
std::string_view rendered_turn_of(std::string_view text, const Tokenizer& tokenizer);
// The same of plain text, in which lines of "USER:" and "ASSISTANT:" are turns.
std::string_view rendered_text_of(std::string_view text, const Tokenizer& tokenizer);

}  // namespace sluice::core
