// SPDX-License-Identifier: Apache-2.0
// JSONL that anybody may have written.
#include "dataset/byte_tokenizer.h"
#include "fuzz.h"
#include "records/documents.h"
#include "records/findings.h"
#include "records/line_reader.h"
#include "tokenizer/code_set.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core::fuzz {
namespace {

const Tokenizer& bytes() {
  static const Result<Tokenizer> tokenizer = byte_tokenizer();
  require(tokenizer.ok(), "the tokenizer of bytes does not open");
  return *tokenizer;
}

}  // namespace

void record(Bytes input) {
  static const auto chatml = ChatTemplate::parse(
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
      "'<|im_end|>' "
      "+ '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
      {});
  require(chatml.ok(), "the template is not known");
  const auto parsed = parse_record({reinterpret_cast<const char*>(input.data()), input.size()});
  if (!parsed.ok()) return;
  for (const Learn learn : {Learn::Assistant, Learn::Last, Learn::AllTurns, Learn::Everything}) {
    TokenMaking making;
    making.tokenizer = &bytes();
    making.chat_template = &*chatml;
    making.learn = learn;
    const auto document = document_of(*parsed, making);
    if (!document.ok()) continue;
    const LearntTokens& tokens = document->tokens;
    require(tokens.ids.size() == tokens.learnt.size(), "a token is neither learnt nor context");
    Findings findings;
    findings.add(*document, making, "a.jsonl");
    require(Findings::parse(findings.to_text()).ok(), "findings are not read back");
  }
}

void jsonl(Bytes input) {
  const MemoryFile memory(input);
  auto lines = LineReader::open(memory.path(), 1 << 20);
  if (!lines.ok()) return;
  std::string_view line;
  int64_t read = 0;
  while (true) {
    const auto more = lines->next(line);
    // What is compressed may be a thousand times as long.
    if (!more.ok() || !*more || (read += int64_t(line.size())) > (1 << 22)) break;
    require(line.find('\n') == line.npos, "a line has an end within");
    (void)parse_record(line);
  }
}

namespace {

// Reads a file of records through, as a corpus does; every row has its own place.
void read_through(Bytes input, const char* name) {
  const NamedFile file(input, name);
  RecordOptions options;
  options.most_line_bytes = 1 << 16;
  options.skip_malformed = !input.empty() && input[0] % 2 == 0;
  options.fields = {.text = "", .prompt = "f", .completion = "g", .messages = ""};
  auto reader = RecordReader::open(file.path(), options);
  if (!reader.ok()) return;
  RawRecord raw;
  int64_t last = 0;
  while (true) {
    const auto more = reader->next(raw);
    if (!more.ok() || !*more) break;
    require(raw.place > last && raw.line > 0, "a record has no place of its own");
    require(int64_t(raw.text.size()) <= options.most_line_bytes, "a record is longer than allowed");
    last = raw.place;
    const auto record = reader->parse(raw);
    if (record.ok())
      require(record->completion <= record->text.size(), "a completion begins behind its text");
    const auto taken = reader->accept(raw, record.ok() ? record->kind : Record::Kind::Text,
                                      record.ok() ? Status() : Status(record.error()));
    if (!taken.ok()) break;
  }
}

}  // namespace

void json_file(Bytes input) {
  read_through(input, "a.json");
}
void csv_file(Bytes input) {
  read_through(input, "a.csv");
}

std::string seed_json_file() {
  return "[{\"question\": \"a\", \"answer\": \"b ] \\\" \"},\n {\"f\": \"a\", \"g\": \"\"}]\n";
}
std::string seed_csv_file() {
  return "question,answer,f,g\r\nq,\"a, \"\"b\"\"\nc\",,\r\n\"x\",y,z,\n";
}

std::string seed_record() {
  return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}], "tools": "[]"})";
}
std::string seed_jsonl() {
  return "{\"text\": \"a\\u00e9\"}\n{\"conversations\": [{\"from\": \"human\", \"value\": \"x\"}]}\n"
         "{\"text\": \"abc\", \"learnt\": [[0, 2]]}\n";
}

}  // namespace sluice::core::fuzz
