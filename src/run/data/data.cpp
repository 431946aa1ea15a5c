// SPDX-License-Identifier: Apache-2.0
#include "run/data/data.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <set>

#include "base/counts.h"
#include "base/parallel.h"
#include "checkpoint/checkpoint.h"
#include "dataset/building.h"
#include "dataset/byte_tokenizer.h"
#include "dataset/corpus.h"
#include "host/host_memory.h"
#include "io/model_folder.h"
#include "run/data/folder.h"
#include "run/data/prompts.h"
#include "run/inputs/paths.h"
#include "run/inputs/resolve.h"
#include "run/loaded/folder_defaults.h"
#include "setup/prepared.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

BatchOptions batch_options(const RunConfig& c, int64_t vocab) {
  BatchOptions options;
  options.mode = batch_mode(c);
  options.long_documents = c.data.long_documents == "cut"    ? LongDocuments::Cut
                           : c.data.long_documents == "drop" ? LongDocuments::Drop
                                                             : LongDocuments::Continue;
  options.sequence = c.train.seq_len;
  options.rows = c.train.tokens_per_step / c.train.seq_len;
  options.seed = uint64_t(c.train.seed);
  options.vocab = vocab;
  options.respect_documents = c.data.respect_documents;
  options.compares = c.chosen_objective().compares;
  options.whole_targets = c.chosen_objective().whole_likelihood;
  return options;
}

// A single file of text, which is one document.
bool is_one_document(const std::vector<std::string>& paths) {
  std::error_code ignored;
  return paths.size() == 1 && std::filesystem::is_regular_file(paths.front(), ignored) &&
         form_of(paths.front()) == SourceForm::Text;
}

// Whether there is anything but tokens.
bool needs_tokenizer(const RunConfig& c) {
  SourceOptions all = sources_of(c);
  all.paths.insert(all.paths.end(), c.data.heldout_paths.begin(), c.data.heldout_paths.end());
  const auto sources = find_sources(all);
  return !sources.ok() || std::any_of(sources->begin(), sources->end(),
                                      [](const Source& source) { return source.form != SourceForm::Tokens; });
}

Inventory inventory_of(const TokenSet& tokens) {
  Inventory found{.documents = tokens.documents(), .tokens = tokens.tokens(), .learnt = tokens.learnt()};
  for (int64_t t = 0; t < tokens.tokens();) {
    const int64_t end = tokens.document_at(t).end;
    found.longest = std::max(found.longest, end - t);
    ++found.lengths[size_t(std::bit_width(uint64_t(end - t))) - 1];
    t = end;
  }
  return found;
}

// A key with the first of its paths, as people wrote it.
std::string name_of_paths(const RunConfig& c, std::string_view key, const std::vector<std::string>& paths) {
  const auto written = c.written_paths.find(paths.front());
  return fmt::format("{} = {}{}", key, written == c.written_paths.end() ? paths.front() : written->second,
                     paths.size() > 1 ? fmt::format(" and {} more", paths.size() - 1) : "");
}

// Paths as they are seen from here.
std::vector<std::string> seen_from_here(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    const auto near =
        std::filesystem::path(path).lexically_proximate(std::filesystem::current_path()).string();
    out.push_back(near.starts_with("..") ? path : near);
  }
  return out;
}

// Text before an answer, and the special token that ends it; -1: none does.
struct Answer {
  std::string prompt;
  int32_t end = -1;
};

// Bytes of a token of text; 0 for a special token.
Result<int64_t> text_bytes_of(int32_t id, const Tokenizer& tokenizer) {
  SLUICE_ASSIGN(const std::string text, tokenizer.decode(std::span(&id, 1), /*skip_special=*/true));
  if (text.find("\uFFFD") == text.npos) return std::ssize(text);
  // Part of a character: one of the tokens that name their bytes, by a letter each or by a number.
  const std::string name = tokenizer.token(id).value_or("");
  if (name.starts_with("<0x")) return 1;
  return std::count_if(name.begin(), name.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

// Bytes of text that a learnt token stands for which another one comes before, in the mean: of the others
// there is no loss. `bytes`: of all that are learnt; 0: unknown. Without a tokenizer a token is a byte.
Result<double> bytes_per_target(const TokenSet& set, int64_t bytes, bool documents_apart,
                                const Tokenizer* tokenizer) {
  if (bytes == 0) return 0.0;
  int64_t targets = set.learnt();
  for (int64_t at = 0; at < set.tokens(); at = documents_apart ? set.document_at(at).end : set.tokens()) {
    int32_t id = 0, target = 0;
    set.read(at, std::span(&id, 1));
    set.read_targets(at, std::span(&target, 1));
    if (target < 0) continue;
    SLUICE_ASSIGN(const int64_t first,
                  tokenizer == nullptr ? Result<int64_t>(1) : text_bytes_of(id, *tokenizer));
    bytes -= first;
    --targets;
  }
  return targets > 0 ? double(bytes) / double(targets) : 0.0;
}

// The first one behind at most so many tokens which the tokenizer makes of their text again, of the documents
// that come first. Nothing: no document begins with context.
Result<std::optional<Answer>> first_answer(const TokenSet& set, int64_t most_tokens,
                                           const Tokenizer& tokenizer) {
  constexpr int64_t kDocuments = 1000;
  std::vector<int32_t> ids, targets, again;
  for (int64_t at = 0, seen = 0; at < set.tokens() && seen < kDocuments; ++seen) {
    const TokenSet::Document document = set.document_at(at);
    at = document.end;
    ids.resize(size_t(std::min(document.end - document.begin, 16 * most_tokens)));
    targets.resize(ids.size());
    set.read(document.begin, ids);
    set.read_targets(document.begin, targets);
    const auto is_learnt = [](int32_t target) { return target >= 0; };
    const auto begin = std::find_if(targets.begin(), targets.end(), is_learnt);
    const auto length = begin - targets.begin();
    if (begin == targets.end() || length == 0 || length > most_tokens) continue;
    const int32_t last = ids[size_t(std::find_if_not(begin, targets.end(), is_learnt) - targets.begin()) - 1];
    ids.resize(size_t(length));
    SLUICE_ASSIGN(std::string prompt, tokenizer.decode(ids, /*skip_special=*/false));
    again.clear();
    SLUICE_TRY(tokenizer.encode(prompt, /*special=*/true, again));
    if (again == ids) return std::optional(Answer{std::move(prompt), tokenizer.is_special(last) ? last : -1});
  }
  return std::optional<Answer>();
}

// The special token that ends the first answer behind some context, however long that is; -1: none does.
int32_t end_of_answers(const TokenSet& set, const Tokenizer& tokenizer) {
  constexpr int64_t kDocuments = 1000, kMostTokens = 1 << 16;
  std::vector<int32_t> ids, targets;
  for (int64_t at = 0, seen = 0; at < set.tokens() && seen < kDocuments; ++seen) {
    const TokenSet::Document document = set.document_at(at);
    at = document.end;
    ids.resize(size_t(std::min(document.end - document.begin, kMostTokens)));
    targets.resize(ids.size());
    set.read(document.begin, ids);
    set.read_targets(document.begin, targets);
    const auto is_learnt = [](int32_t target) { return target >= 0; };
    const auto begin = std::find_if(targets.begin(), targets.end(), is_learnt);
    if (begin == targets.begin() || begin == targets.end()) continue;
    const auto end = std::find_if_not(begin, targets.end(), is_learnt);
    const int32_t last = ids[size_t(end - targets.begin()) - 1];
    return tokenizer.is_special(last) ? last : -1;
  }
  return -1;
}

// The host memory left to encoding.
EncodingRoom room_of(const RunConfig& c, const std::optional<std::filesystem::path>& tokenizer, int threads) {
  const int64_t cap = c.caps[kHost];
  if (cap == kUnlimited) return {};
  // Memory of reading and writing, and each thread of the tokenizer between texts.
  constexpr int64_t kBeside = int64_t{16} << 20, kBesideThread = int64_t{8} << 20;
  const int64_t held =
      resident_bytes() + (tokenizer ? tokenizer_bytes(*tokenizer) : 0) + kBeside + threads * kBesideThread;
  return EncodingRoom::of(
      std::max<int64_t>(0, cap - held), threads,
      fmt::format(", which is all that memory.host = {} leaves room for", format_bytes(cap)));
}

// Answers that are compared are whole: an error names the first record that no row holds.
Status check_whole(const RunConfig& c, const BatchSource& source, const PlacesFile& places, bool held) {
  const std::vector<int64_t> dropped = source.counts().dropped_documents;
  if (c.chosen_objective().compares == Compares::Nothing || dropped.empty() ||
      c.data.long_documents == "drop")
    return {};
  const std::string place = held ? places.heldout(dropped.front()) : places.train(dropped.front());
  return error(
      "{}: {} tokens, and a row has train.seq_len = {}: {} one row. data.long_documents = drop leaves out "
      "such "
      "records, of which there are {}",
      place.empty() ? fmt::format("document {}", dropped.front() + 1) : place,
      source.document(dropped.front()).ids.size(), c.train.seq_len,
      c.chosen_objective().compares == Compares::Pairs ? "both answers lie in" : "an answer lies in",
      dropped.size());
}

void note_no_row(const RowCounts& counts, const PlacesFile& places, RunData& data) {
  for (const int64_t document : counts.dropped_documents)
    data.findings.add(FindingKind::NoRow, 1, places.train(document));
  // Documents that teach nothing were named before.
  if (counts.dropped <= data.findings.count(FindingKind::NothingLearnt)) return;
  data.notices.push_back(
      fmt::format("data.paths: {} in no row{}", counted(counts.dropped, "document", "is", "are"),
                  data.findings.found[size_t(FindingKind::NoRow)].where(FindingKind::NoRow)));
}

// Checks the parts that a template must have.
Status check_template(const TokenMaking& making) {
  if (making.learn == Learn::Marked && making.chat_template != nullptr && !making.chat_template->marks())
    return error(
        "data.learn = marked: the chat template {} has no {{% generation %}}; data.learn = assistant learns "
        "what the assistant says, and needs none",
        making.chat_template->name());
  return {};
}

ShownChat shown(const Conversation& chat, const RenderedChat& rendered, const TokenMaking& making) {
  ShownChat shown;
  const std::vector<bool> learnt = learnt_pieces(chat, rendered, making.learn, making.thoughts);
  for (size_t i = 0; i < rendered.pieces.size(); ++i) {
    const ChatPiece& piece = rendered.pieces[i];
    const std::string by = !piece.data         ? "template"
                           : piece.message < 0 ? "record"
                                               : chat.messages[size_t(piece.message)].find("role")->text;
    const std::string_view text =
        std::string_view(rendered.text).substr(piece.begin, piece.end - piece.begin);
    if (shown.stretches.empty() || shown.stretches.back().by != by ||
        shown.stretches.back().learnt != learnt[i])
      shown.stretches.push_back({by, "", learnt[i]});
    shown.stretches.back().text += text;
  }
  return shown;
}

// Files have records of one kind: the first of each is looked at.
Result<std::optional<ShownChat>> first_chat(const CorpusOptions& options) {
  SLUICE_ASSIGN(const std::vector<Source> sources, find_sources(options.sources));
  for (const Source& source : sources) {
    if (source.form != SourceForm::Records) continue;
    SLUICE_ASSIGN(RecordReader reader, RecordReader::open(source.path, record_options_of(options)));
    RawRecord raw;
    SLUICE_ASSIGN(const bool more, reader.next(raw));
    auto record = more ? reader.parse(raw) : Result<Record>(error("there is none"));
    if (!record.ok()) continue;
    const auto chat = conversation_of(*record, options.making);
    const auto rendered =
        chat ? options.making.chat_template->render(*chat) : Result<RenderedChat>(error("it is one text"));
    if (!rendered.ok()) continue;
    ShownChat found = shown(*chat, *rendered, options.making);
    found.place = place_text(source.name, raw.line, raw.place);
    return std::optional(std::move(found));
  }
  return std::optional<ShownChat>();
}

// As RunData has it: a mistake of the data, or of the template.
std::string unlearnt_text(const Findings& findings, const RunConfig& c) {
  if (c.data.learn != "assistant" && c.data.learn != "completion" && c.data.learn != "last") return {};
  const auto text = [&](FindingKind kind, std::string_view what) {
    const Found& found = findings.found[size_t(kind)];
    if (found.count == 0) return std::string();
    return fmt::format("data.paths: in {} {}{}; training starts with data.allow_unlearnt = true",
                       counted(found.count, "conversation"), what, found.where(kind));
  };
  const std::string nothing = text(FindingKind::UnlearntChats, "nothing is learnt");
  return !nothing.empty() ? nothing
                          : text(FindingKind::LearntMarkup,
                                 "the assistant's header is learnt, as the template shows none in a prompt");
}

// Settings of records and rows that nothing goes by.
std::vector<std::string> idle_notices(const RunConfig& c, const Findings& findings) {
  std::vector<std::string> out;
  if (batch_mode(c) == BatchMode::Contiguous && c.data.long_documents != DataKeys().long_documents)
    out.push_back(fmt::format("data.long_documents = {} does not count: rows are contiguous (data.mode)",
                              c.data.long_documents));
  const auto& fields = c.data.fields;
  for (const auto& [key, name] :
       {std::pair{"text", &fields.text}, {"prompt", &fields.prompt}, {"messages", &fields.messages}}) {
    // A form begins with the key that it is read from.
    const auto reads = [&name = *name](const Findings::Taken& t) {
      return t.form.starts_with(name + " ") || t.form.starts_with(name + ",") ||
             t.form.starts_with("other forms");
    };
    if (!name->empty() && std::none_of(findings.taken.begin(), findings.taken.end(), reads))
      out.push_back(fmt::format("data.fields.{} = {}: no record is read by that key", key, *name));
  }
  return out;
}

// How a run's corpus is made, and the folder that renders it; null: bytes are tokens.
struct CorpusRequest {
  CorpusOptions options;
  std::unique_ptr<Folder> folder;
};

Status check_data_paths(const RunConfig& c) {
  for (const auto* paths : {&c.data.paths, &c.data.heldout_paths}) {
    for (const std::string& path : *paths) {
      const bool pattern = path.find_first_of("*?[") != path.npos;
      const char* key = paths == &c.data.paths ? "data.paths" : "data.heldout_paths";
      if (!pattern) SLUICE_TRY(check_input(c, key, path));
    }
  }
  for (const std::string* path : {&c.model.weights, &c.model.config}) {
    if (!path->empty()) SLUICE_TRY(check_downloaded(folder_of(*path), FolderUse::Text));
  }
  return {};
}

Status set_making(const RunConfig& c, const Folder* folder, TokenMaking& making) {
  if (folder != nullptr) {
    making = folder->making;
  } else {
    making.no_template = "a model of bytes has no chat template";
    making.without_template = true;
  }
  SLUICE_ASSIGN(making.learn, parse_learn(c.data.learn));
  SLUICE_ASSIGN(making.pairs, parse_pairs(c.data.pairs));
  making.compares = c.chosen_objective().compares;
  making.open_ends = c.data.open_ends;
  making.thoughts = c.data.learn_thoughts;
  SLUICE_ASSIGN(making.special, special_of(c, making.tokenizer));
  return check_template(making);
}

Result<CorpusRequest> corpus_request(const RunConfig& c, int64_t vocab, Observer& observer,
                                     const Findings::Told& told) {
  SLUICE_TRY(check_data_paths(c));
  const auto tokenizer_path = tokenizer_of(c);
  if (!tokenizer_path && vocab != ByteTokenizer::kVocab && needs_tokenizer(c))
    return no_tokenizer(c, vocab, "data.paths");
  CorpusRequest out;
  CorpusOptions& o = out.options;
  o.sources = sources_of(c);
  o.weights = c.data.weights;
  o.heldout_paths = c.data.heldout_paths;
  o.heldout = c.data.heldout;
  o.fields = {c.data.fields.text, c.data.fields.prompt, c.data.fields.completion, c.data.fields.messages};
  o.ignore = c.data.ignore;
  o.roles = c.data.roles;
  o.told = told;
  if (!c.checkpoint().empty()) {
    SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(c.checkpoint()));
    o.goes_on = value_of(info.manifest, "data.content");
  }
  o.skip_malformed = c.data.malformed == "skip";
  o.threads = c.run.threads > 0 ? int(c.run.threads) : search_threads();
  o.progress = [&observer](const char* what, int64_t done, int64_t all) {
    observer.progress({.what = what, .done = done, .total = all, .unit = Progress::Unit::Bytes});
  };
  o.room = room_of(c, tokenizer_path, o.threads);
  if (tokenizer_path) {
    SLUICE_ASSIGN(out.folder, open_folder(c, *tokenizer_path, o.room.tokenizer));
  }
  SLUICE_TRY(set_making(c, out.folder.get(), o.making));
  return out;
}

// Notes for samples and checkpoints what the folder says of the data.
Status note_folder(const RunConfig& c, const Folder& folder, const Corpus& corpus, DataUse use,
                   RunData& data) {
  const TokenSet& unseen = corpus.heldout ? *corpus.heldout : corpus.train;
  SLUICE_ASSIGN(auto answer, first_answer(unseen, sample_window_of(c) / 2, *folder.tokenizer));
  if (answer) {
    data.prompt = std::move(answer->prompt);
    data.answer_end = answer->end;
  }
  // A file that cannot be read is for who generates.
  const std::filesystem::path path = tokenizer_of(c)->parent_path();
  if (const auto defaults = generation_defaults_of(path); use != DataUse::Evaluate && defaults.ok()) {
    const int32_t end = end_of_answers(corpus.train, *folder.tokenizer);
    data.other_end = no_end_of_folder(path, *defaults, end, *folder.tokenizer);
    if (!data.other_end.empty()) {
      SLUICE_ASSIGN(data.model_texts["generation_config.json"], generation_config_with(path, *defaults, end));
    }
  }
  if (corpus.findings.rendered == 0) return {};
  data.chat_template = folder.chat_template->name();
  if (folder.chat_template->asks_date()) data.date = c.data.date;
  for (const std::string& variable : folder.chat_template->unread())
    data.heldout_notices.push_back(
        fmt::format("data.template_kwargs: the chat template {} reads no '{}'; sluice data "
                    "--show-template says what it reads",
                    data.chat_template, variable));
  if (!c.data.chat_template.empty() || !c.data.template_kwargs.empty())
    data.model_texts["chat_template.jinja"] = folder.chat_template->text();
  return {};
}

Status open_held_out(const RunConfig& c, BatchOptions options, TokenSet heldout, const PlacesFile& places,
                     RunData& data) {
  data.heldout_names = c.data.heldout_paths.empty() ? data.names : seen_from_here(c.data.heldout_paths);
  options.shares = {};
  options.rows = std::max<int64_t>(1, c.eval.rows);
  options.name = c.data.heldout_paths.empty()
                     ? fmt::format("data.heldout = {} of {}", c.data.heldout, options.name)
                     : name_of_paths(c, "data.heldout_paths", c.data.heldout_paths);
  options.tail = true;
  SLUICE_ASSIGN(data.heldout, make_batches(std::move(heldout), options));
  return check_whole(c, *data.heldout, places, /*held=*/true);
}

}  // namespace

BatchMode batch_mode(const RunConfig& c) {
  if (c.data.mode != "auto") return c.data.mode == "packed" ? BatchMode::Packed : BatchMode::Contiguous;
  if (c.data.paths.empty()) return BatchMode::Contiguous;
  const auto sources = find_sources(sources_of(c));
  const bool records =
      sources.ok() && std::any_of(sources->begin(), sources->end(),
                                  [](const Source& source) { return source.form == SourceForm::Records; });
  return records ? BatchMode::Packed : BatchMode::Contiguous;
}

bool packs_documents(const RunConfig& c) {
  if (c.data.paths.empty()) return false;
  return batch_mode(c) == BatchMode::Packed || (c.data.respect_documents && !is_one_document(c.data.paths));
}

bool reads_prompts(const RunConfig& c) {
  const Compares compares = c.chosen_objective().compares;
  return compares == Compares::Rewards || compares == Compares::Teacher;
}

bool holds_out(const RunConfig& c) {
  return !c.data.paths.empty() && !reads_prompts(c) && (c.data.heldout > 0 || !c.data.heldout_paths.empty());
}

Result<std::string> date_of(const RunConfig& c) {
  if (!c.data.date.empty()) {  // what no template asks for is the run's, too
    const auto parsed = ChatDate::parse(c.data.date);
    return parsed.ok() ? Result<std::string>(c.data.date) : error_at("data.date", parsed.error());
  }
  if (!c.checkpoint().empty()) {
    SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(c.checkpoint()));
    if (std::string kept = value_of(info.manifest, "data.date"); !kept.empty()) return kept;
  }
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

Result<RunData> open_data(const RunConfig& c, int64_t vocab, Observer& observer, DataUse use,
                          const Findings::Told& told) {
  if (reads_prompts(c)) return open_prompts(c, vocab);
  BatchOptions options = batch_options(c, vocab);
  RunData data;
  if (c.data.paths.empty() && c.chosen_objective().compares != Compares::Nothing)
    return error("train.objective = {}: data.paths is empty, and random tokens are no answers to compare",
                 c.train.objective);
  if (c.data.paths.empty()) {
    data.train = make_random_batches(options);
    data.content = "random tokens";
    return data;
  }
  SLUICE_ASSIGN(CorpusRequest request, corpus_request(c, vocab, observer, told));
  std::unique_ptr<Folder>& folder = request.folder;
  SLUICE_ASSIGN(Corpus corpus, open_corpus(request.options, c.data.cache));
  if (!c.data.allow_unlearnt && request.options.goes_on.empty())
    data.unlearnt = unlearnt_text(corpus.findings, c);
  data.heldout_notices = std::move(corpus.notices);
  if (folder != nullptr) SLUICE_TRY(note_folder(c, *folder, corpus, use, data));
  if (corpus.findings.rendered > 0 && folder != nullptr && use == DataUse::Look) {
    SLUICE_ASSIGN(data.first_chat, first_chat(request.options));
  }
  for (std::string& notice : idle_notices(c, corpus.findings)) data.notices.push_back(std::move(notice));
  const Tokenizer* const tokenizer = folder != nullptr ? &*folder->tokenizer : nullptr;
  const bool apart = options.mode == BatchMode::Packed || options.respect_documents;
  if (use == DataUse::Evaluate) {
    SLUICE_ASSIGN(data.train_bytes_per_token,
                  bytes_per_target(corpus.train, corpus.train_bytes, apart, tokenizer));
  }
  if (corpus.heldout && options.compares == Compares::Nothing) {
    SLUICE_ASSIGN(data.heldout_bytes_per_token,
                  bytes_per_target(*corpus.heldout, corpus.heldout_bytes, apart, tokenizer));
  }
  // Its memory is the run's.
  folder.reset();
  release_freed_memory();
  data.content = corpus.content;
  data.contents_before = std::move(corpus.contents_before);
  data.names = seen_from_here(c.data.paths);
  if (!corpus.notice.empty()) data.notices.push_back(corpus.notice);
  if (!data.other_end.empty()) data.notices.push_back(data.other_end);
  for (std::string& warning : corpus.findings.warnings())
    data.notices.push_back("data.paths: " + std::move(warning));
  data.findings = std::move(corpus.findings);
  data.findings.told = told;
  const PlacesFile places = corpus.places();
  data.files = corpus.files;
  data.train_documents = inventory_of(corpus.train);
  if (corpus.heldout) data.heldout_documents = inventory_of(*corpus.heldout);
  options.name = name_of_paths(c, "data.paths", c.data.paths);
  options.tail = use == DataUse::Evaluate;
  if (use != DataUse::Evaluate) options.shares = corpus.shares;
  for (size_t i = 0; i < c.data.weights.size(); ++i)
    options.share_names.push_back(fmt::format("data.weights = {} of {}", c.data.weights[i], data.names[i]));
  SLUICE_ASSIGN(data.train, make_batches(std::move(corpus.train), options));
  SLUICE_TRY(check_whole(c, *data.train, places, /*held=*/false));
  note_no_row(data.train->counts(), places, data);
  if (corpus.heldout) SLUICE_TRY(open_held_out(c, options, std::move(*corpus.heldout), places, data));
  return data;
}

RowSample sample_rows(const RunData& data) {
  constexpr int64_t kTokens = int64_t{1} << 18, kFewestRows = 4;
  const BatchSource& source = *data.train;
  RowSample sample{source.sequence(), {}};
  if (!source.packed()) return sample;
  const int64_t count = std::min(source.epoch_rows(), std::max(kFewestRows, kTokens / sample.sequence));
  Rows rows({BatchColumn::Positions}, count * sample.sequence);
  fill_rows(source, 0, 0, rows.part(0, rows.tokens()));
  const auto positions = rows.column(BatchColumn::Positions);
  sample.positions.assign(positions.begin(), positions.end());
  return sample;
}

std::vector<std::string> step_notices(const RunConfig& c, int64_t steps, const RunData& data) {
  if (c.data.paths.empty() || data.prompts != nullptr) return {};
  const int64_t rows = data.train->epoch_rows(), step = c.train.tokens_per_step / c.train.seq_len;
  if (rows >= step) return {};
  const double often = double(step) / double(rows);
  return {
      fmt::format("a step has {} and an epoch {}: what is learnt is learnt {:.3g} times in each step, {:.4g} "
                  "times in {}; train.tokens_per_step = {} makes an epoch a step",
                  counted(step, "row"), rows, often, often * double(steps), counted(steps, "step"),
                  rows * c.train.seq_len)};
}

}  // namespace sluice::core
