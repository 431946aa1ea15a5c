// SPDX-License-Identifier: Apache-2.0
#include "run/data/folder.h"

namespace sluice::core {

Result<std::unique_ptr<Folder>> open_folder(const RunConfig& c, const std::filesystem::path& tokenizer,
                                            const TokenizerOptions& options) {
  auto folder = std::make_unique<Folder>();
  const std::filesystem::path path = tokenizer.parent_path();
  SLUICE_ASSIGN(folder->tokenizer, Tokenizer::open(tokenizer, options));
  folder->making.tokenizer = &*folder->tokenizer;
  std::optional<ChatDate> date;
  if (!c.data.date.empty()) {
    auto parsed = ChatDate::parse(c.data.date);
    if (!parsed.ok()) return error_at("data.date", parsed.error());
    date = *parsed;
  }
  SLUICE_ASSIGN(const ChatSettings tokens, special_tokens_of(path));
  if (tokens.eos) folder->making.end = folder->tokenizer->id(*tokens.eos);
  auto opened = ChatTemplate::open(path, c.data.chat_template, date, c.data.template_kwargs);
  if (opened.ok()) {
    folder->chat_template = std::move(*opened);
    folder->making.chat_template = &*folder->chat_template;
  } else {
    folder->making.no_template = opened.message();
    folder->making.without_template = !opened.error().detail("template").empty();
  }
  return folder;
}

Result<std::vector<int32_t>> special_of(const RunConfig& c, const Tokenizer* tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string& token : c.data.special_in_text) {
    ids.push_back(tokenizer == nullptr ? -1 : tokenizer->id(token));
    if (ids.back() < 0 || !tokenizer->is_special(ids.back()))
      return error("data.special_in_text: '{}' is no special token of the tokenizer", token);
  }
  return ids;
}

}  // namespace sluice::core
