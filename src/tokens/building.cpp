// SPDX-License-Identifier: Apache-2.0
#include "tokens/building.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "base/hash.h"
#include "base/philox.h"
#include "io/file.h"
#include "io/pieces.h"
#include "tokenizer/tokenizer.h"
#include "tokens/byte_tokenizer.h"
#include "tokens/tokenize.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Uniform in (0, 1), by the document's place and the seed. `line`: 0 for a file that is one document.
double draw(const Source& source, int64_t line, uint64_t seed) {
  return uniform_open(philox(seed, Hash().add(source.name).value(), uint64_t(line)).v[0]);
}

// The draws of documents so far: with which limit both sides get one.
struct Draws {
  int64_t count = 0, below = 0;
  double least = 1, most = 0;

  void add(double draw, double limit) {
    ++count;
    below += draw < limit ? 1 : 0;
    least = std::min(least, draw);
    most = std::max(most, draw);
  }
  // The limit that is nearest to this one.
  double limit(double wanted) const {
    if (below == 0) return std::nextafter(least, 2.0);
    return below == count ? most : wanted;
  }
};

using Told = std::function<void(int64_t)>;

// A token file in the making, and the text that waits for its turn.
class Side {
 public:
  static Result<std::unique_ptr<Side>> create(const fs::path& path, int token_bytes,
                                              const CorpusOptions& options, const Told& told) {
    SLUICE_ASSIGN(TokenFileWriter writer, TokenFileWriter::create(path, token_bytes));
    return std::unique_ptr<Side>(new Side(std::move(writer), options, told));
  }

  void add(TextRange range) { waiting_.push_back(std::move(range)); }
  // What waits comes before anything else.
  Status flush(int64_t& dropped) {
    SLUICE_TRY(options_.making.tokenizer == nullptr ? write_bytes() : write_tokens(dropped));
    waiting_.clear();
    return {};
  }
  Status add(const LearntTokens& tokens, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      SLUICE_TRY(writer_.append(tokens.ids, tokens.learnt));
      writer_.end_document();
    }
    learnt_bytes += tokens.learnt_bytes;
    return {};
  }
  // Tokens [begin, end) of a file, as one document.
  Status add(const TokenFile& file, int64_t begin, int64_t end) {
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
    if (writer_.tokens() == 0) return error("corpus: the tokenizer makes no token of any document");
    return writer_.commit();
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
  Status write_tokens(int64_t& dropped) {
    TokenizeOptions tokenizing;
    tokenizing.threads = options_.threads;
    tokenizing.part_bytes = options_.room.part_bytes;
    tokenizing.most_bytes = options_.room.most_part_bytes;
    tokenizing.why = options_.room.why;
    tokenizing.end = options_.making.end;
    tokenizing.progress = told_;
    EncodeCounts counts;
    SLUICE_TRY(tokenize(waiting_, *options_.making.tokenizer, tokenizing, writer_, counts));
    dropped += counts.dropped;
    for (const TextRange& range : waiting_) learnt_bytes += range.end - range.begin;
    return {};
  }

  TokenFileWriter writer_;
  const CorpusOptions& options_;
  const Told& told_;
  std::vector<TextRange> waiting_;
};

// Both sides, document after document.
class Building {
 public:
  Building(const CorpusOptions& options, double limit, const Told& told)
      : options_(options), limit_(limit), told_(told), making_(options.making) {}

  Status open(const TokenPaths& paths, int token_bytes, bool holds_out) {
    if (making_.tokenizer == nullptr) {
      // Records are JSON, hence UTF-8, and go the way of any other tokenizer.
      SLUICE_ASSIGN(bytes_, byte_tokenizer(options_.room.tokenizer));
      making_.tokenizer = &*bytes_;
    }
    SLUICE_ASSIGN(train_, Side::create(paths.train, token_bytes, options_, told_));
    if (!holds_out) return {};
    SLUICE_ASSIGN(heldout_, Side::create(paths.heldout, token_bytes, options_, told_));
    return {};
  }

  // What was left out before.
  void skip(const Skipped& skipped) { findings_.add(skipped); }
  // `held`: all of it is held out.
  Status add(const Source& source, bool held) {
    held_ = held;
    if (source.form == SourceForm::Text) {
      count_text(source);
      add(source, 0, source.bytes, takes(source, 0));
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
    SLUICE_TRY(train_->add(file, 0, place));
    return heldout_->add(file, place, file.tokens());
  }
  Result<BuiltTokens> commit() {
    SLUICE_TRY(flush());
    SLUICE_TRY(train_->commit());
    if (heldout_ != nullptr) SLUICE_TRY(heldout_->commit());
    return BuiltTokens{findings_, heldout_ != nullptr && knows_bytes_ ? heldout_->learnt_bytes : 0};
  }
  const Draws& draws() const { return draws_; }

 private:
  // How often a document comes on a side.
  struct Takes {
    Side* side;
    int64_t times;
  };
  Takes takes(const Source& source, int64_t line) {
    if (held_) return {heldout_.get(), 1};
    const double drawn = draw(source, line, options_.seed);
    draws_.add(drawn, limit_);
    if (drawn < limit_) return {heldout_.get(), 1};
    if (options_.weights.empty()) return {train_.get(), 1};
    const double weight = options_.weights[source.entry], whole = std::floor(weight);
    const bool once_more =
        draw(source, line, Hash().add("weights").add(options_.seed).value()) < weight - whole;
    return {train_.get(), int64_t(whole) + (once_more ? 1 : 0)};
  }
  void count_text(const Source& source) {
    ++findings_.kinds[size_t(Record::Kind::Text)];
    findings_.take("text", source.name);
  }
  static void add(const Source& source, int64_t begin, int64_t end, Takes to) {
    for (int64_t i = 0; i < to.times; ++i) to.side->add({source.path, begin, end, source.bytes});
  }
  Status cut_text(const Source& source) {
    if (source.bytes < 2) return error("corpus: {} is too short to hold a part out", source.path.string());
    int64_t place =
        std::clamp<int64_t>(int64_t(double(source.bytes) * (1 - options_.heldout)), 1, source.bytes - 1);
    if (options_.making.tokenizer != nullptr) {
      SLUICE_ASSIGN(const MappedFile file, MappedFile::open(source.path));
      place = place_between({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, place);
    }
    count_text(source);
    add(source, 0, place, {train_.get(), 1});
    add(source, place, source.bytes, {heldout_.get(), 1});
    return {};
  }
  Status add_records(const Source& source) {
    ReadingOptions reading;
    reading.records = options_.room.records;
    reading.records.skip_malformed = options_.skip_malformed;
    reading.records.fields = options_.fields;
    reading.records.ignore = options_.ignore;
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
    const auto skipped = read_documents(source.path, making_, reading, [&](Document& document) -> Status {
      ++documents;
      lines = document.form.ends_with("(JSONL)");
      findings_.add(document, making_, source.name);
      const Takes to = takes(source, document.place);
      return to.side->add(document.tokens, to.times);
    });
    if (!skipped.ok()) return skipped.error();
    findings_.add(*skipped);
    findings_.lonely_files += documents == 1 && lines ? 1 : 0;
    tell(left);
    return {};
  }
  Status add_tokens(const Source& source) {
    SLUICE_ASSIGN(const TokenFile file, TokenFile::open(source.path));
    constexpr size_t kReleased = 1024;  // documents that are read before their memory is given back
    knows_bytes_ = false;
    findings_.take("tokens", source.name);
    const auto boundaries = file.boundaries();
    for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
      if (i % kReleased == 0) file.release();
      const Takes to = takes(source, int64_t(i));
      for (int64_t time = 0; time < to.times; ++time)
        SLUICE_TRY(to.side->add(file, boundaries[i], boundaries[i + 1]));
    }
    told_(source.bytes);
    return {};
  }
  Status flush() {
    for (Side* side : {train_.get(), heldout_.get()}) {
      if (side != nullptr) SLUICE_TRY(side->flush(findings_.dropped));
    }
    return {};
  }

  const CorpusOptions& options_;
  const double limit_;  // documents that draw less are held out
  const Told& told_;
  std::optional<Tokenizer> bytes_;
  TokenMaking making_;
  std::unique_ptr<Side> train_, heldout_;
  bool held_ = false;
  bool knows_bytes_ = true;  // what tokens stand for
  Draws draws_;
  Findings findings_;
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
                                     Skipped& skipped) {
  std::vector<Source> kept;
  for (const Source& source : sources) {
    if (options.skip_malformed && options.making.tokenizer != nullptr && source.form == SourceForm::Text) {
      SLUICE_ASSIGN(const std::string why, why_not_utf8(source));
      if (!why.empty()) {
        if (skipped.records++ == 0) skipped.first = fmt::format("{}: {}", source.path.string(), why);
        continue;
      }
    }
    kept.push_back(source);
  }
  return kept;
}

bool all_text(std::span<const Source> sources) {
  return std::all_of(sources.begin(), sources.end(),
                     [](const Source& source) { return source.form == SourceForm::Text; });
}

// Of a token: what is made elsewhere may be any.
int width_of(const CorpusOptions& options, std::span<const Source> sources, std::span<const Source> held) {
  const auto is_made = [](const Source& source) { return source.form == SourceForm::Tokens; };
  if (std::any_of(sources.begin(), sources.end(), is_made) || std::any_of(held.begin(), held.end(), is_made))
    return 4;
  return options.making.tokenizer == nullptr ? 2 : token_bytes(*options.making.tokenizer);
}

}  // namespace

Result<BuiltTokens> build_tokens(const CorpusOptions& options, std::span<const Source> all,
                                 std::span<const Source> all_held, const TokenPaths& paths,
                                 const Told& told) {
  Skipped unreadable;
  SLUICE_ASSIGN(const std::vector<Source> sources, readable(options, all, unreadable));
  SLUICE_ASSIGN(const std::vector<Source> held, readable(options, all_held, unreadable));
  if (sources.empty() || (held.empty() && !all_held.empty()))
    return error("corpus: no file of {} is text: {}", sources.empty() ? "data.paths" : "data.heldout_paths",
                 unreadable.first);
  const bool draws = held.empty() && options.heldout > 0;
  const int width = width_of(options, sources, held);
  if (draws) {
    SLUICE_ASSIGN(const bool one, is_one_document(sources));
    if (one) {
      Building building(options, 0, told);
      building.skip(unreadable);
      SLUICE_TRY(building.open(paths, width, true));
      SLUICE_TRY(building.cut(sources[0]));
      return building.commit();
    }
  }
  double limit = draws ? options.heldout : 0;
  if (draws && all_text(sources)) {
    Draws known;
    for (const Source& source : sources) known.add(draw(source, 0, options.seed), limit);
    limit = known.limit(limit);
  }
  for (bool again = false;; again = true) {
    Building building(options, limit, told);
    building.skip(unreadable);
    SLUICE_TRY(building.open(paths, width, draws || !held.empty()));
    for (const Source& source : sources) SLUICE_TRY(building.add(source, false));
    for (const Source& source : held) SLUICE_TRY(building.add(source, true));
    const Draws& drawn = building.draws();
    if (!draws || (drawn.below > 0 && drawn.below < drawn.count)) return building.commit();
    if (again || drawn.count < 2)
      return error(
          "corpus: data.heldout = {}: there is but {} document; hold files out (data.heldout_paths), or "
          "nothing (data.heldout = 0)",
          options.heldout, drawn.count);
    // Of few records none may be below the limit, which is known when all are read.
    limit = drawn.limit(limit);
  }
}

}  // namespace sluice::core
