// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/counts.h"
#include "commands/commands.h"
#include "commands/input_text.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "dataset/byte_tokenizer.h"
#include "io/directory.h"
#include "io/file.h"
#include "records/recognise.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Text to tokens by a model's tokenizer, or as bytes.
class Words {
 public:
  static Result<Words> open(const fs::path& folder) {
    Words words;
    words.path_ = folder / "tokenizer.json";
    std::error_code ignored;
    if (!fs::exists(words.path_, ignored)) {
      return error(ErrorKind::NotFound,
                   "{}: there is no tokenizer.json in it; without a folder, text is shown as bytes",
                   folder.string());
    }
    SLUICE_ASSIGN(words.tokenizer_, Tokenizer::open(words.path_));
    return words;
  }

  std::string name() const { return tokenizer_ ? path_.string() : "bytes"; }
  int64_t vocab() const { return tokenizer_ ? tokenizer_->vocab() : ByteTokenizer::kVocab; }

  Status encode(std::string_view text, std::vector<int32_t>& ids, EncodeCounts& counts) const {
    if (tokenizer_) return tokenizer_->encode(text, /*special=*/true, ids, &counts);
    ids = ByteTokenizer::encode(text);
    return {};
  }

  std::string piece(int32_t id) const {
    if (tokenizer_) return tokenizer_->token(id).value_or("");
    return id > ' ' && id < 0x7f ? std::string(1, static_cast<char>(id)) : fmt::format("<0x{:02X}>", id);
  }
  std::string_view note(int32_t id) const {
    return tokenizer_ && tokenizer_->is_special(id) ? "  special" : "";
  }

 private:
  std::optional<Tokenizer> tokenizer_;
  fs::path path_;
};

struct Encoded {
  std::string path;
  int64_t bytes = 0;
  std::vector<int32_t> ids;
  EncodeCounts counts;
};

Result<Encoded> encode_file(const Words& words, const std::string& path) {
  Encoded encoded{path, 0, {}, {}};
  SLUICE_ASSIGN(std::string text, read_input(path));
  text.erase(0, mark_bytes(text));
  encoded.bytes = int64_t(text.size());
  const Status status = words.encode(text, encoded.ids, encoded.counts);
  if (!status.ok()) return error_at(path, status.error());
  return encoded;
}

void show(const Words& words, const Encoded& file, int64_t most) {
  const auto tokens = int64_t(file.ids.size());
  const std::set<int32_t> different(file.ids.begin(), file.ids.end());
  say("{}: {} of {}", file.path, counted(tokens, "token"), counted(file.bytes, "byte"));
  if (tokens > 0)
    say(", {:.2f} bytes each, {} different", double(file.bytes) / double(tokens), different.size());
  if (file.counts.dropped > 0)
    say("; {} characters or bytes have no token and are left out", file.counts.dropped);
  say("\n");
  for (int64_t i = 0; i < std::min(most, tokens); ++i) {
    const int32_t id = file.ids[size_t(i)];
    // As JSON, so that nothing in it breaks the line.
    const nlohmann::json piece = words.piece(id);
    say("{:8} {:8}  {}{}\n", i, id, piece.dump(), words.note(id));
  }
  if (most > 0 && tokens > most) say("  {} more; --show {} shows all\n", tokens - most, tokens);
}

void show_json(const Words& words, const std::vector<Encoded>& files) {
  nlohmann::ordered_json out = {{"tokenizer", words.name()}, {"vocab", words.vocab()}};
  for (const Encoded& file : files) {
    nlohmann::ordered_json entry = {{"path", file.path},
                                    {"bytes", file.bytes},
                                    {"tokens", file.ids.size()},
                                    {"left_out", file.counts.dropped},
                                    {"ids", file.ids}};
    entry["pieces"] = nlohmann::ordered_json::array();
    for (const int32_t id : file.ids) entry["pieces"].push_back(words.piece(id));
    out["files"].push_back(std::move(entry));
  }
  // Names of files need not be UTF-8.
  say_result(out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

Status show_tokens(const TokensRequest& request) {
  std::vector<std::string> paths = request.paths;
  Words words;
  std::error_code ignored;
  if (!paths.empty() && fs::is_directory(followed(paths.front()), ignored)) {
    SLUICE_ASSIGN(words, Words::open(followed(paths.front())));
    paths.erase(paths.begin());
  }
  if (paths.empty()) return error("there is no file to show the tokens of");
  std::vector<Encoded> files;
  for (const std::string& path : paths) {
    SLUICE_ASSIGN(Encoded file, encode_file(words, path));
    files.push_back(std::move(file));
  }
  if (request.json) {
    show_json(words, files);
    return {};
  }
  say("{}, a vocabulary of {}\n", words.name(), words.vocab());
  int64_t bytes = 0, tokens = 0;
  for (const Encoded& file : files) {
    show(words, file, request.show);
    bytes += file.bytes;
    tokens += int64_t(file.ids.size());
  }
  if (files.size() > 1)
    say("{}: {} of {}\n", counted(int64_t(files.size()), "file"), counted(tokens, "token"),
        counted(bytes, "byte"));
  return {};
}

}  // namespace

Outcome tokens(const TokensRequest& request) {
  return outcome(show_tokens(request));
}

}  // namespace sluice::core
