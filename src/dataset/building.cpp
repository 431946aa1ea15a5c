// SPDX-License-Identifier: Apache-2.0
#include "dataset/building.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>

#include "base/counts.h"
#include "base/hash.h"
#include "base/order.h"
#include "base/philox.h"
#include "dataset/byte_tokenizer.h"
#include "dataset/split.h"
#include "dataset/tokenize.h"
#include "io/file.h"
#include "io/pieces.h"
#include "records/recognise.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Uniform in (0, 1), by the document's place and the seed. `line`: 0 for a file that is one document.
double draw(const Source& source, int64_t line, uint64_t seed) {
  return uniform_open(philox(seed, Hash().add(source.name).value(), uint64_t(line)).v[0]);
}

using Told = std::function<void(int64_t)>;
using Noticed = std::function<void(const TextRange&, const EncodeCounts&)>;

// A token file in the making, and the text that waits for its turn.
class Side {
 public:
  static Result<std::unique_ptr<Side>> create(const fs::path& path, int token_bytes,
                                              const CorpusOptions& options, const Told& told) {
    SLUICE_ASSIGN(TokenFileWriter writer, TokenFileWriter::create(path, token_bytes));
    return std::unique_ptr<Side>(new Side(std::move(writer), options, told));
  }

  void add(TextRange range, const DocumentPlace& place) {
    waiting_.push_back(std::move(range));
    places_.push_back(place);
  }
  // Waiting documents come before anything else.
  Status flush(const Noticed& noticed) {
    SLUICE_TRY(options_.making.tokenizer == nullptr ? write_bytes() : write_tokens(noticed));
    waiting_.clear();
    return {};
  }
  Status add(const LearntTokens& tokens, int64_t times, const DocumentPlace& place) {
    for (int64_t i = 0; i < times; ++i) {
      SLUICE_TRY(writer_.append(tokens.ids, tokens.learnt));
      writer_.end_document();
      places_.push_back(place);
    }
    learnt_bytes += times * tokens.learnt_bytes;
    return {};
  }
  // Adds tokens [begin, end) of a file as one document.
  Status add(const TokenFile& file, int64_t begin, int64_t end, const DocumentPlace& place) {
    places_.push_back(place);
    constexpr int64_t kPiece = int64_t{1} << 18;
    std::vector<int32_t> tokens, targets;
    std::vector<uint8_t> learnt;
    for (; begin < end; begin += kPiece) {
      const auto count = size_t(std::min(kPiece, end - begin));
      tokens.resize(count), targets.resize(count), learnt.resize(count);
      file.read(begin, tokens);
      file.read_targets(begin, targets);
      for (size_t i = 0; i < count; ++i) learnt[i] = targets[i] >= 0 ? 1 : 0;
      SLUICE_TRY(writer_.append(tokens, learnt));
    }
    writer_.end_document();
    return {};
  }
  Status commit() {
    if (places_.empty())
      return error("data: no document is left to train on, with data.weights = [{}] and data.heldout = {}",
                   fmt::join(options_.weights, ", "), options_.heldout);
    if (writer_.tokens() == 0) return error("data: the tokenizer makes no token of any document");
    return writer_.commit();
  }
  // Documents without tokens, by how many were added before them, ascending.
  const std::vector<int64_t>& empty() const { return writer_.empty_documents(); }
  std::span<const int64_t> boundaries() const { return writer_.boundaries(); }
  // The documents that have tokens. Nothing is added afterwards.
  std::vector<DocumentPlace> take_places() {
    size_t kept = 0, skip = 0;
    for (size_t i = 0; i < places_.size(); ++i) {
      if (skip < empty().size() && empty()[skip] == int64_t(i)) {
        ++skip;
      } else {
        places_[kept++] = places_[i];
      }
    }
    places_.resize(kept);
    return std::move(places_);
  }

  int64_t learnt_bytes = 0;

 private:
  Side(TokenFileWriter writer, const CorpusOptions& options, const Told& told)
      : writer_(std::move(writer)), options_(options), told_(told) {}

  Status write_bytes() {
    for (const TextRange& range : waiting_) {
      SLUICE_TRY(read_pieces(range.path, range.begin, range.end, [&](std::string_view text) {
        told_(int64_t(text.size()));
        return writer_.append(ByteTokenizer::encode(text));
      }));
      learnt_bytes += range.end - range.begin;
      writer_.end_document();
    }
    return {};
  }
  Status write_tokens(const Noticed& noticed) {
    TokenizeOptions tokenizing;
    tokenizing.threads = options_.threads;
    tokenizing.part_bytes = options_.room.part_bytes;
    tokenizing.most_bytes = options_.room.most_part_bytes;
    tokenizing.why = options_.room.why;
    tokenizing.end = options_.making.end;
    tokenizing.progress = told_;
    tokenizing.special = options_.making.special;
    tokenizing.noticed = noticed;
    SLUICE_TRY(tokenize(waiting_, *options_.making.tokenizer, tokenizing, writer_));
    for (const TextRange& range : waiting_) learnt_bytes += range.end - range.begin;
    return {};
  }

  TokenFileWriter writer_;
  const CorpusOptions& options_;
  const Told& told_;
  std::vector<TextRange> waiting_;
  std::vector<DocumentPlace> places_;  // of every document that was added
};

// Both sides, document after document. Where documents are drawn that are held out, all go to a file of their
// own first, once each: which these are is known when all have their tokens.
class Building {
 public:
  Building(const CorpusOptions& options, std::span<const Source> sources, std::span<const Source> held,
           const TokenPaths& paths, int token_bytes, const Told& told)
      : options_(options),
        sources_(sources),
        held_sources_(held),
        paths_(paths),
        all_path_(fs::path(paths.train).concat(".all")),
        token_bytes_(token_bytes),
        told_(told),
        making_(options.making) {
    findings_.told = options.told;
    findings_.marks = Findings::kMarks;
  }
  ~Building() {
    std::error_code ignored;
    if (all_ != nullptr) fs::remove(all_path_, ignored);
  }

  Status open(bool holds_out, bool draws) {
    if (making_.tokenizer == nullptr) {
      // Records are JSON, hence UTF-8, and go the way of any other tokenizer.
      SLUICE_ASSIGN(bytes_, byte_tokenizer(options_.room.tokenizer));
      making_.tokenizer = &*bytes_;
    }
    if (draws) return create(all_, all_path_);
    return open_sides(holds_out);
  }

  // Notes an earlier omission.
  void skip(const Error& at) { findings_.skip(at); }
  // `held`: all of it is held out.
  Status add(const Source& source, bool held) {
    held_ = held;
    if (source.form == SourceForm::Text) {
      SLUICE_TRY(count_text(source));
      const Takes to = takes(source, {index_of(source)}, source.bytes - source.begin);
      add(source, source.begin, source.bytes, to);
      return {};
    }
    SLUICE_TRY(flush());
    return source.form == SourceForm::Records ? add_records(source) : add_tokens(source);
  }
  // A file that is one document, of which a part is held out.
  Status cut(const Source& source) {
    if (source.form == SourceForm::Text) return cut_text(source);
    knows_bytes_ = false;
    SLUICE_ASSIGN(const TokenFile file, TokenFile::open(source.path));
    findings_.take("tokens", source.name);
    const int64_t place = std::clamp<int64_t>(int64_t(double(file.tokens()) * (1 - options_.heldout)), 1,
                                              std::max<int64_t>(1, file.tokens() - 1));
    SLUICE_TRY(train_->add(file, 0, place, {index_of(source)}));
    return heldout_->add(file, place, file.tokens(), {index_of(source)});
  }
  Result<BuiltTokens> commit() {
    SLUICE_TRY(flush());
    const Found& malformed = findings_.found[size_t(FindingKind::Malformed)];
    const bool none =
        all_ != nullptr ? drawn_.empty() : options_.weights.empty() && train_->boundaries().size() < 2;
    if (none && malformed.count > 0)
      return error("data: every record of data.paths is malformed, and is skipped{}",
                   malformed.where(FindingKind::Malformed));
    if (all_ != nullptr) SLUICE_TRY(divide());
    SLUICE_TRY(train_->commit());
    BuiltTokens built{.findings = findings_,
                      .places = {.names = names(), .train = train_->take_places(), .heldout = {}},
                      .notices = std::move(notices_)};
    built.train_paths = paths_of(built.places.train, train_->boundaries());
    built.train_bytes = knows_bytes_ ? train_->learnt_bytes : 0;
    if (heldout_ == nullptr) return built;
    SLUICE_TRY(heldout_->commit());
    built.places.heldout = heldout_->take_places();
    built.heldout_paths = paths_of(built.places.heldout, heldout_->boundaries());
    built.heldout_bytes = knows_bytes_ ? heldout_->learnt_bytes : 0;
    return built;
  }

 private:
  // A document of the file of all.
  struct Drawn {
    DocumentPlace place;
    uint32_t learnt_bytes;  // of a record, which is shorter than what that counts
  };
  // How often a document comes on a side.
  struct Takes {
    Side* side;
    int64_t times;
    DocumentPlace place;
  };
  uint32_t index_of(const Source& source) const {
    const auto all = held_ ? held_sources_ : sources_;
    return uint32_t(&source - all.data()) + (held_ ? uint32_t(sources_.size()) : 0);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& all : {sources_, held_sources_}) {
      for (const Source& source : all) out.push_back(source.name);
    }
    return out;
  }
  // Which entries the documents of a side are of; none, if there is but one.
  std::vector<TokenSet::Path> paths_of(const std::vector<DocumentPlace>& places,
                                       std::span<const int64_t> boundaries) const {
    std::vector<TokenSet::Path> out;
    if (options_.sources.paths.size() < 2 && options_.heldout_paths.size() < 2) return out;
    for (size_t d = 0; d < places.size(); ++d) {
      const size_t index = places[d].source;
      const Source& source =
          index < sources_.size() ? sources_[index] : held_sources_[index - sources_.size()];
      const auto entry = uint32_t(source.entry);
      if (out.empty() || out.back().entry != entry) out.push_back({0, entry});
      out.back().end = boundaries[d + 1];
    }
    return out;
  }
  Status create(std::unique_ptr<Side>& side, const fs::path& path) {
    SLUICE_ASSIGN(side, Side::create(path, token_bytes_, options_, told_));
    return {};
  }
  Status open_sides(bool holds_out) {
    SLUICE_TRY(create(train_, paths_.train));
    return holds_out ? create(heldout_, paths_.heldout) : Status();
  }
  Takes takes(const Source& source, DocumentPlace place, int64_t learnt_bytes) {
    if (held_) return {heldout_.get(), 1, place};
    if (all_ == nullptr) return {train_.get(), times(source, place.place), place};
    drawn_.push_back({place, uint32_t(learnt_bytes)});
    return {all_.get(), 1, place};
  }
  int64_t times(const Source& source, int64_t place) const {
    if (options_.weights.empty()) return 1;
    const double weight = options_.weights[source.entry], whole = std::floor(weight);
    if (weight == whole) return int64_t(whole);
    if (options_.shares == ShareRule::Rows) return 1;
    const bool once_more =
        draw(source, place, Hash().add("weights").add(options_.seed).value()) < weight - whole;
    return int64_t(whole) + (once_more ? 1 : 0);
  }
  Status count_text(const Source& source) {
    ++findings_.kinds[size_t(Record::Kind::Text)];
    findings_.take("text", source.name);
    constexpr int64_t kBegin = 4096;
    std::string begin;
    SLUICE_TRY(read_pieces(source.path, source.begin, std::min(source.bytes, source.begin + kBegin),
                           [&](std::string_view piece) -> Status {
                             begin += piece;
                             return {};
                           }));
    if (begins_with_record(begin)) findings_.add(FindingKind::RecordsAsText, 1, source.name);
    if (making_.learn == Learn::Everything) return {};
    if (!rendered_text_of(begin, *making_.tokenizer).empty())
      findings_.add(FindingKind::RenderedChats, 1, source.name);
    return {};
  }
  static void add(const Source& source, int64_t begin, int64_t end, const Takes& to) {
    for (int64_t i = 0; i < to.times; ++i) to.side->add({source.path, begin, end, source.bytes}, to.place);
  }
  Status cut_text(const Source& source) {
    if (source.bytes - source.begin < 2)
      return error("data: {} is too short to hold a part out", source.path.string());
    int64_t place = std::clamp<int64_t>(int64_t(double(source.bytes) * (1 - options_.heldout)),
                                        source.begin + 1, source.bytes - 1);
    if (options_.making.tokenizer != nullptr) {
      SLUICE_ASSIGN(const MappedFile file, MappedFile::open(source.path));
      place = place_between({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, place);
    }
    SLUICE_TRY(count_text(source));
    add(source, source.begin, place, {train_.get(), 1, {index_of(source)}});
    add(source, place, source.bytes, {heldout_.get(), 1, {index_of(source)}});
    return {};
  }
  Status add_records(const Source& source) {
    ReadingOptions reading;
    reading.records = record_options_of(options_);
    reading.batch_bytes = options_.room.batch_bytes;
    reading.threads = options_.threads;
    // Never more than the file has, nor less in the end.
    int64_t left = source.bytes;
    const auto tell = [&](int64_t bytes) {
      told_(std::min(bytes, left));
      left -= std::min(bytes, left);
    };
    reading.progress = tell;
    findings_.reader = Findings::kReader;
    int64_t documents = 0;
    bool lines = false;  // it is JSONL
    const auto take = [&](Document& document) -> Status {
      ++documents;
      lines = document.form.ends_with("(JSONL)");
      findings_.add(document, making_, source.name);
      const DocumentPlace place{index_of(source), uint32_t(document.line), uint32_t(document.place)};
      const Takes to = takes(source, place, document.tokens.learnt_bytes);
      return to.side->add(document.tokens, to.times, to.place);
    };
    SLUICE_TRY(
        read_documents(source.path, making_, reading, take, [&](const Error& at) { findings_.skip(at); }));
    findings_.add(FindingKind::OneRecord, documents == 1 && lines ? 1 : 0, source.name);
    tell(left);
    return {};
  }
  Status add_tokens(const Source& source) {
    SLUICE_ASSIGN(const TokenFile file, TokenFile::open(source.path));
    knows_bytes_ = false;
    findings_.take("tokens", source.name);
    const auto boundaries = file.boundaries();
    for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
      if (i % kReleased == 0) file.release();
      const Takes to = takes(source, {index_of(source), 0, uint32_t(i)}, 0);
      for (int64_t time = 0; time < to.times; ++time)
        SLUICE_TRY(to.side->add(file, boundaries[i], boundaries[i + 1], to.place));
    }
    told_(source.bytes);
    return {};
  }
  Status flush() {
    const Noticed noticed = [&](const TextRange& range, const EncodeCounts& counts) {
      if (counts.dropped == 0 && counts.written < 0) return;
      for (const auto& all : {sources_, held_sources_}) {
        const auto it =
            std::find_if(all.begin(), all.end(), [&](const Source& s) { return s.path == range.path; });
        if (it == all.end()) continue;
        findings_.add(FindingKind::NoToken, counts.dropped, it->name);
        if (counts.written >= 0 && written_in_.insert(&*it).second)
          findings_.add_written(counts.written, *making_.tokenizer, it->name);
        return;
      }
    };
    for (Side* side : {all_.get(), train_.get(), heldout_.get()}) {
      if (side != nullptr) SLUICE_TRY(side->flush(noticed));
    }
    return {};
  }

  // From the file of all to the two.
  Status divide() {
    SLUICE_TRY(all_->commit());
    drop_empty();
    if (drawn_.size() < 2) {
      return error(
          "data: data.heldout = {}: there is but {} document; hold files out (data.heldout_paths), or "
          "nothing (data.heldout = 0)",
          options_.heldout, drawn_.size());
    }
    SLUICE_ASSIGN(const TokenFile all, TokenFile::open(all_path_));
    const auto boundaries = all.boundaries();
    SLUICE_CHECK(boundaries.size() == drawn_.size() + 1, "{} documents of {}", boundaries.size() - 1,
                 drawn_.size());
    const auto draw_of = [&](size_t d) {
      return draw(sources_[drawn_[d].place.source], drawn_[d].place.place, options_.seed);
    };
    const Split split = options_.split == SplitRule::Tokens
                            ? split_documents(boundaries, draw_of, options_.heldout)
                            : split_by_count(drawn_.size(), draw_of, options_.heldout);
    SLUICE_TRY(open_sides(true));
    for (size_t d = 0; d < drawn_.size(); ++d) {
      if (d % kReleased == 0) all.release();
      const DocumentPlace& place = drawn_[d].place;
      const Source& source = sources_[place.source];
      Side& side = split.held[d] ? *heldout_ : *train_;
      const int64_t often = split.held[d] ? 1 : times(source, place.place);
      for (int64_t n = 0; n < often; ++n) SLUICE_TRY(side.add(all, boundaries[d], boundaries[d + 1], place));
      side.learnt_bytes += often * (source.form == SourceForm::Text ? source.bytes - source.begin
                                                                    : int64_t{drawn_[d].learnt_bytes});
    }
    tell_of(split, boundaries);
    return {};
  }
  void drop_empty() {
    const auto& empty = all_->empty();
    for (auto it = empty.rbegin(); it != empty.rend(); ++it) drawn_.erase(drawn_.begin() + long(*it));
  }
  void tell_of(const Split& split, std::span<const int64_t> boundaries) {
    const auto name = [&](size_t d) {
      const DocumentPlace& place = drawn_[d].place;
      const Source& source = sources_[place.source];
      return place.place > 0 ? fmt::format("{}:{}", source.name, place.place) : source.name;
    };
    const auto tokens = [&](size_t d) { return boundaries[d + 1] - boundaries[d]; };
    constexpr size_t kNamed = 3;
    for (size_t i = 0; i < std::min(kNamed, split.too_long.size()); ++i) {
      const size_t d = split.too_long[i];
      const size_t more = i + 1 == kNamed ? split.too_long.size() - kNamed : 0;
      notices_.push_back(fmt::format(
          "data.heldout = {}: {} has {} of {}, more than three times what is held out: it "
          "stays in training{}",
          options_.heldout, name(d), fmt::group_digits(tokens(d)), counted(boundaries.back(), "token"),
          more > 0 ? fmt::format(", and so do {} more", more) : ""));
    }
    if (!split.only_shortest) return;
    const auto d = size_t(std::find(split.held.begin(), split.held.end(), true) - split.held.begin());
    notices_.push_back(
        fmt::format("data.heldout = {}: every document has more than three times that many tokens; held out "
                    "is the shortest, {}, "
                    "with {} of {}",
                    options_.heldout, name(d), tokens(d), boundaries.back()));
  }

  static constexpr size_t kReleased = 1024;  // documents that are read before their memory is given back

  const CorpusOptions& options_;
  const std::span<const Source> sources_, held_sources_;  // of the latter all is held out
  const TokenPaths& paths_;
  const fs::path all_path_;
  const int token_bytes_;
  const Told& told_;
  std::optional<Tokenizer> bytes_;
  TokenMaking making_;
  std::unique_ptr<Side> all_, train_, heldout_;
  std::vector<Drawn> drawn_;
  bool held_ = false;
  bool knows_bytes_ = true;  // what tokens stand for
  std::vector<std::string> notices_;
  Findings findings_;
  std::set<const Source*> written_in_;  // text with the characters of special tokens
};

// Whether all of a corpus is one document that can be cut in two.
Result<bool> is_one_document(std::span<const Source> sources) {
  if (sources.size() != 1 || sources[0].form == SourceForm::Records) return false;
  if (sources[0].form == SourceForm::Text) return true;
  SLUICE_ASSIGN(const TokenFile file, TokenFile::open(sources[0].path));
  return file.boundaries().size() == 2;
}

// Files of text that are not UTF-8, where those are skipped, are left out and counted.
Result<std::vector<Source>> readable(const CorpusOptions& options, std::span<const Source> sources,
                                     std::vector<Error>& skipped) {
  std::vector<Source> kept;
  for (const Source& source : sources) {
    if (options.skip_malformed && options.making.tokenizer != nullptr && source.form == SourceForm::Text) {
      SLUICE_ASSIGN(const std::string why, why_not_utf8(source));
      if (!why.empty()) {
        skipped.push_back(error("{}: {}", source.path.string(), why));
        continue;
      }
    }
    kept.push_back(source);
  }
  return kept;
}

// The width of a token: files made elsewhere may have any.
int width_of(const CorpusOptions& options, std::span<const Source> sources, std::span<const Source> held) {
  const auto is_made = [](const Source& source) { return source.form == SourceForm::Tokens; };
  if (std::any_of(sources.begin(), sources.end(), is_made) || std::any_of(held.begin(), held.end(), is_made))
    return 4;
  return options.making.tokenizer == nullptr ? 2 : token_bytes(*options.making.tokenizer);
}

}  // namespace

RecordOptions record_options_of(const CorpusOptions& options) {
  RecordOptions records = options.room.records;
  records.skip_malformed = options.skip_malformed;
  records.fields = options.fields;
  records.ignore = options.ignore;
  records.roles = options.roles;
  records.compares = options.making.compares;
  records.chat_template = options.making.chat_template;
  return records;
}

Result<BuiltTokens> build_tokens(const CorpusOptions& options, std::span<const Source> all,
                                 std::span<const Source> all_held, const TokenPaths& paths,
                                 const Told& told) {
  std::vector<Error> unreadable;
  SLUICE_ASSIGN(std::vector<Source> sources, readable(options, all, unreadable));
  SLUICE_ASSIGN(const std::vector<Source> held, readable(options, all_held, unreadable));
  if (options.making.compares != Compares::Nothing) {
    for (const auto& side : {std::span<const Source>(sources), std::span<const Source>(held)}) {
      for (const Source& source : side) {
        if (source.form == SourceForm::Text)
          return error(
              "{}: plain text, where train.objective compares answers: records (JSON, CSV) or token files "
              "have "
              "them",
              source.path.string());
      }
    }
  }
  if (sources.empty() || (held.empty() && !all_held.empty()))
    return error("data: no file of {} is text: {}", sources.empty() ? "data.paths" : "data.heldout_paths",
                 unreadable.front().message);
  const bool draws = held.empty() && options.heldout > 0;
  // Paths that a share is drawn of stand behind the rest.
  const auto rank = [&](const Source& source) {
    return options.is_share(source.entry) ? source.entry + 1 : 0;
  };
  sort_by(sources, rank);
  Building building(options, sources, held, paths, width_of(options, sources, held), told);
  for (const Error& at : unreadable) building.skip(at);
  if (draws) {
    SLUICE_ASSIGN(const bool one, is_one_document(sources));
    if (one) {
      SLUICE_TRY(building.open(true, false));
      SLUICE_TRY(building.cut(sources[0]));
      return building.commit();
    }
  }
  SLUICE_TRY(building.open(!held.empty(), draws));
  for (const Source& source : sources) SLUICE_TRY(building.add(source, false));
  for (const Source& source : held) SLUICE_TRY(building.add(source, true));
  return building.commit();
}

}  // namespace sluice::core
