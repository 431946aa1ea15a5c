// SPDX-License-Identifier: Apache-2.0
#include "dataset/batches.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/counts.h"
#include "base/hash.h"
#include "base/philox.h"
#include "dataset/permutation.h"

namespace sluice::core {
namespace {

// Keys one kind of random decision; decisions of different kinds do not depend on each other.
uint64_t key_for(std::string_view decision, uint64_t seed) {
  return Hash().add(decision).add(seed).value();
}

void check_row(int64_t sequence, const RowsView& to) {
  SLUICE_CHECK(to.tokens() == sequence, "{} tokens for a row of {}", to.tokens(), sequence);
}

// Rows that come more or less often than once an epoch: `taken` of them in each, from an endless order in
// which all come before one comes again.
struct DrawnRows {
  size_t entry;
  int64_t first, rows, taken;
  uint64_t key;
};

// The rows of an epoch, in an order of its own: those below `all`, and what is drawn of the others.
struct RowOrder {
  uint64_t key;
  int64_t rows_per_step, all, count;
  std::vector<DrawnRows> drawn;

  int64_t at(int64_t step, int64_t row) const {
    const int64_t index = step * rows_per_step + row, epoch = index / count;
    int64_t place = permuted(key, static_cast<uint64_t>(epoch), index % count, count);
    if (place < all) return place;
    place -= all;
    for (const DrawnRows& d : drawn) {
      if (place < d.taken) {
        const int64_t next = epoch * d.taken + place;
        return d.first + permuted(d.key, static_cast<uint64_t>(next / d.rows), next % d.rows, d.rows);
      }
      place -= d.taken;
    }
    SLUICE_CHECK(false, "row {} of {}", index % count, count);
    return 0;
  }
  std::vector<RowShare> shares() const {
    std::vector<RowShare> out;
    for (const DrawnRows& d : drawn) out.push_back({d.entry, d.rows, d.taken});
    return out;
  }
};

// Tokens of which all rows come once an epoch, or a share of them.
struct Stretch {
  int64_t begin, end;
  size_t entry;
  double share;  // 0: all
};

// The tokens that come once an epoch are first, where there are any; each share is behind them.
std::vector<Stretch> stretches_of(const TokenSet& tokens, const std::vector<double>& shares) {
  std::vector<Stretch> out;
  for (int64_t t = 0; t < tokens.tokens();) {
    const TokenSet::Path path = tokens.path_at(t);
    const double share = path.entry < shares.size() ? shares[path.entry] : 0;
    const bool goes_on =
        !out.empty() && out.back().share == share && (share == 0 || out.back().entry == path.entry);
    if (!goes_on) out.push_back({t, t, path.entry, share});
    out.back().end = t = path.end;
  }
  return out;
}

// The order of rows of which each stretch has some: one after another, as many as there are of each.
Result<RowOrder> order_of(std::string_view decision, const BatchOptions& options,
                          const std::vector<Stretch>& stretches, const std::vector<int64_t>& rows) {
  RowOrder order{key_for(decision, options.seed), options.rows, 0, 0, {}};
  int64_t first = 0;
  for (size_t i = 0; i < stretches.size(); first += rows[i++]) {
    const Stretch& s = stretches[i];
    if (s.share == 0) {
      order.all = order.count = rows[i];
      continue;
    }
    const auto taken = int64_t(std::llround(s.share * double(rows[i])));
    if (taken == 0) {
      Error none = error(
          "{} of {} of {} tokens is none: from {:.2g} on one comes in each epoch, and a smaller "
          "train.seq_len makes "
          "more rows",
          s.share, counted(rows[i], "row"), options.sequence, rows[i] > 0 ? 0.5 / double(rows[i]) : 1.0);
      return options.share_names.empty() ? none : error_at(options.share_names[s.entry], std::move(none));
    }
    order.drawn.push_back(
        {s.entry, first, rows[i], taken, Hash().add("shares").add(options.seed).add(s.entry).value()});
    order.count += taken;
  }
  return order;
}

// The entries of tokens [first, first + out.size()).
void fill_stretches(const TokenSet& tokens, int64_t first, std::span<int32_t> out) {
  while (!out.empty()) {
    const TokenSet::Path path = tokens.path_at(first);
    const auto count = std::min(out.size(), size_t(path.end - first));
    std::fill_n(out.begin(), count, int32_t(path.entry));
    out = out.subspan(count);
    first += int64_t(count);
  }
}

// A document, or a part of one that is longer than a row. There is one for every row of long documents, so
// that it is small.
class Piece {
 public:
  static constexpr int64_t kMostTokens = int64_t{1} << 24;       // of one
  static constexpr int64_t kMostInAll = (int64_t{1} << 38) - 1;  // where it may begin

  // `ends_document`: its last token has no target.
  Piece(int64_t begin, int64_t tokens, bool ends_document)
      : begin_(uint64_t(begin)), tokens_(uint64_t(tokens)), ends_document_(ends_document) {}

  int64_t begin() const { return int64_t(begin_); }
  int64_t tokens() const { return int64_t(tokens_); }
  bool ends_document() const { return ends_document_ != 0; }

 private:
  uint64_t begin_ : 38;
  uint64_t tokens_ : 25;
  uint64_t ends_document_ : 1;
};
static_assert(sizeof(Piece) == 8);

// Every column of a piece; `to` is as long.
void fill_piece(const TokenSet& tokens, const Piece& piece, const RowsView& to) {
  for (const BatchColumn column : to.layout().columns()) {
    switch (column) {
      case BatchColumn::Tokens:
        tokens.read(piece.begin(), to.column(column));
        break;
      case BatchColumn::Targets: {
        const std::span<int32_t> out = to.column(column);
        tokens.read_targets(piece.begin() + 1, out.first(out.size() - (piece.ends_document() ? 1 : 0)));
        if (piece.ends_document()) out.back() = -1;
        break;
      }
      case BatchColumn::Paths:
        fill_stretches(tokens, piece.begin(), to.column(column));
        break;
      case BatchColumn::Positions:
      case BatchColumn::Weights:  // token files have none: all count alike
      case BatchColumn::TopTokens:
      case BatchColumn::TopWeights:
        to.fill_padding(column);
        break;
    }
  }
}

class ContiguousBatches final : public BatchSource {
 public:
  // `windows`: of each stretch.
  ContiguousBatches(TokenSet tokens, const BatchOptions& options, std::vector<Stretch> stretches,
                    std::vector<int64_t> windows, RowOrder order)
      : tokens_(std::move(tokens)),
        sequence_(options.sequence),
        respect_documents_(options.respect_documents),
        stretches_(std::move(stretches)),
        windows_(std::move(windows)),
        order_(std::move(order)) {}

  int64_t sequence() const override { return sequence_; }
  int64_t epoch_rows() const override { return order_.count; }
  RowCounts counts() const override {
    RowCounts counts{.rows = order_.count};
    for (size_t i = 0; i < stretches_.size(); ++i) {
      const int64_t taken = windows_[i] * sequence_, all = stretches_[i].end - stretches_[i].begin;
      counts.all += windows_[i];
      counts.padding += std::max<int64_t>(0, taken - all);
      counts.left_out += std::max<int64_t>(0, all - taken);
    }
    return counts;
  }
  std::vector<RowShare> shares() const override { return order_.shares(); }
  bool packed() const override { return respect_documents_ && tokens_.documents() > 1; }

  void fill(int64_t step, int64_t row, const RowsView& to) const override {
    check_row(sequence_, to);
    int64_t window = order_.at(step, row);
    size_t i = 0;
    while (window >= windows_[i]) window -= windows_[i++];
    const int64_t begin = stretches_[i].begin + window * sequence_,
                  end = std::min(begin + sequence_, stretches_[i].end);
    for (int64_t t = begin, stop = end; t < end; t = stop) {
      const int64_t document_end = respect_documents_ ? tokens_.document_at(t).end : tokens_.tokens();
      stop = std::min(document_end, end);
      fill_piece(tokens_, {t, stop - t, document_end == stop}, to.part(t - begin, stop - t));
    }
    to.part(end - begin, sequence_ - (end - begin)).fill_padding();
    tokens_.release();
  }

 private:
  TokenSet tokens_;
  int64_t sequence_;
  bool respect_documents_;
  std::vector<Stretch> stretches_;
  std::vector<int64_t> windows_;
  RowOrder order_;
};

// Whether a piece has a target. `scratch` has room for a piece.
bool teaches(const TokenSet& tokens, const Piece& piece, std::span<int32_t> scratch) {
  const auto targets = scratch.first(size_t(piece.tokens()) - (piece.ends_document() ? 1 : 0));
  tokens.read_targets(piece.begin() + 1, targets);
  return std::any_of(targets.begin(), targets.end(), [](int32_t target) { return target >= 0; });
}

// All targets of a document; -1: context.
std::vector<int32_t> targets_of(const TokenSet& tokens, int64_t begin, int64_t count) {
  std::vector<int32_t> targets(static_cast<size_t>(count));
  tokens.read_targets(begin, targets);
  return targets;
}

// Checks a document of answers that are compared.
Status check_sides(const TokenSet& tokens, const TokenSet::Document& document, const BatchOptions& options) {
  const auto sides =
      sides_of(targets_of(tokens, document.begin, document.end - document.begin), options.compares);
  return sides.ok() ? Status()
                    : error("{}: document {}: {}", options.name, document.number + 1, sides.message());
}

// In document order. A last token alone has no target and is left out.
Result<std::vector<Piece>> cut_documents(const TokenSet& tokens, const BatchOptions& options,
                                         RowCounts& counts) {
  std::vector<Piece> pieces;
  // Unused reserved memory is never touched.
  pieces.reserve(size_t(tokens.tokens() / options.sequence + tokens.documents()));
  const bool all_learnt = tokens.learnt() == tokens.tokens();
  std::vector<int32_t> scratch(all_learnt ? 0 : size_t(options.sequence));
  constexpr int64_t kReleased = 1024;  // documents that are looked at before their memory is given back
  int64_t seen = 0;
  for (int64_t t = 0; t < tokens.tokens(); ++seen) {
    const TokenSet::Document document = tokens.document_at(t);
    const size_t before = pieces.size();
    const bool is_long = document.end - document.begin > options.sequence;
    const bool compared = options.compares != Compares::Nothing;
    const bool drop = is_long && (compared || options.long_documents == LongDocuments::Drop);
    if (compared) SLUICE_TRY(check_sides(tokens, document, options));
    for (; !drop && t + 1 < document.end; t += options.sequence) {
      const int64_t count = std::min(options.sequence, document.end - t);
      const bool ends = t + count == document.end;
      const Piece piece{t, count, ends || options.long_documents == LongDocuments::Cut};
      if (all_learnt || teaches(tokens, piece, scratch)) {
        pieces.push_back(piece);
        counts.left_out -= count;
      }
      if (options.long_documents == LongDocuments::Cut) break;
    }
    counts.left_out += document.end - document.begin;
    if (pieces.size() == before) counts.dropped_documents.push_back(seen);
    counts.cut += is_long && pieces.size() > before ? 1 : 0;
    t = document.end;
    if (!all_learnt && (seen + 1) % kReleased == 0) tokens.release();
  }
  counts.dropped = std::ssize(counts.dropped_documents);
  tokens.release();
  return pieces;
}

// Pieces side by side in rows.
struct Packing {
  std::vector<Piece> pieces;
  std::vector<size_t> rows;  // the first piece of each row, and their number

  void add(Packing more) {
    if (pieces.empty()) {
      *this = std::move(more);
      return;
    }
    if (more.pieces.empty()) return;
    rows.pop_back();
    for (const size_t row : more.rows) rows.push_back(pieces.size() + row);
    pieces.insert(pieces.end(), more.pieces.begin(), more.pieces.end());
  }
};

// Greedy first fit over the shuffled pieces. A row takes from the next kLookAhead pieces what fits, in order,
// so every piece is placed soon after its turn comes.
Packing pack(std::span<const Piece> pieces, int64_t sequence, uint64_t key) {
  constexpr size_t kLookAhead = 64;
  const auto count = static_cast<int64_t>(pieces.size());
  Packing packing;
  packing.pieces.reserve(pieces.size());
  packing.rows.reserve(pieces.size() + 1);
  std::vector<Piece> waiting;
  int64_t next = 0;
  const auto refill = [&] {
    while (waiting.size() < kLookAhead && next < count) {
      waiting.push_back(pieces[static_cast<size_t>(permuted(key, 0, next++, count))]);
    }
  };
  for (refill(); !waiting.empty(); refill()) {
    packing.rows.push_back(packing.pieces.size());
    int64_t room = sequence;
    for (size_t i = 0; i < waiting.size();) {
      if (waiting[i].tokens() > room) {
        ++i;
        continue;
      }
      room -= waiting[i].tokens();
      packing.pieces.push_back(waiting[i]);
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
      refill();
    }
  }
  packing.rows.push_back(packing.pieces.size());
  return packing;
}

class PackedBatches final : public BatchSource {
 public:
  PackedBatches(TokenSet tokens, const BatchOptions& options, Packing packing, RowCounts counts,
                RowOrder order)
      : tokens_(std::move(tokens)),
        sequence_(options.sequence),
        packing_(std::move(packing)),
        counts_(std::move(counts)),
        order_(std::move(order)),
        compares_(options.compares),
        whole_targets_(options.whole_targets) {
    counts_.rows = order_.count;
    counts_.all = int64_t(packing_.rows.size()) - 1;
    counts_.padding = counts_.all * sequence_ - (tokens_.tokens() - counts_.left_out);
  }

  int64_t sequence() const override { return sequence_; }
  int64_t epoch_rows() const override { return order_.count; }
  RowCounts counts() const override { return counts_; }
  std::vector<RowShare> shares() const override { return order_.shares(); }
  bool packed() const override { return true; }

  void fill(int64_t step, int64_t row, const RowsView& to) const override {
    check_row(sequence_, to);
    const auto packed_row = static_cast<size_t>(order_.at(step, row));
    int64_t at = 0;
    for (size_t p = packing_.rows[packed_row]; p < packing_.rows[packed_row + 1]; ++p) {
      const Piece& piece = packing_.pieces[p];
      fill_piece(tokens_, piece, to.part(at, piece.tokens()));
      if (compares_ != Compares::Nothing) part_sides(piece, to.part(at, piece.tokens()));
      at += piece.tokens();
    }
    to.part(at, sequence_ - at).fill_padding();
    tokens_.release();
  }

  std::vector<RowSide> sides(int64_t step, int64_t row) const override {
    std::vector<RowSide> out;
    if (compares_ == Compares::Nothing) return out;
    const auto packed_row = static_cast<size_t>(order_.at(step, row));
    int64_t at = 0;
    for (size_t p = packing_.rows[packed_row]; p < packing_.rows[packed_row + 1]; ++p) {
      const Piece& piece = packing_.pieces[p];
      const Sides sides = sides_in(piece);
      for (int i = 0; i < sides.count; ++i) {
        const AnswerSide& s = sides.side[size_t(i)];
        out.push_back({tokens_.document_at(piece.begin()).number, i, sides.bad, at + s.begin, at + s.answer,
                       at + s.end});
      }
      at += piece.tokens();
    }
    return out;
  }
  SidedDocument document(int64_t number) const override {
    const TokenSet::Document document = tokens_.document(number);
    const Piece piece{document.begin, document.end - document.begin, true};
    SidedDocument out{std::vector<int32_t>(static_cast<size_t>(piece.tokens())), sides_in(piece)};
    tokens_.read(document.begin, out.ids);
    return out;
  }
  int64_t documents() const override { return tokens_.documents(); }

 private:
  Sides sides_in(const Piece& piece) const {
    auto sides = sides_of(targets_of(tokens_, piece.begin(), piece.tokens()), compares_);
    SLUICE_CHECK(sides.ok(), "a document without sides is in a row");
    return *sides;
  }
  // Each side is a document of its own to the model.
  void part_sides(const Piece& piece, const RowsView& to) const {
    const Sides sides = sides_in(piece);
    for (const BatchColumn column : to.layout().columns()) {
      if (column == BatchColumn::Positions) {
        for (int i = 0; i < sides.count; ++i) {
          const AnswerSide& s = sides.side[size_t(i)];
          to.part(s.begin, s.end - s.begin).fill_padding(column);
        }
      } else if (column == BatchColumn::Targets && whole_targets_) {
        const int64_t last = sides.side[0].end - 1;
        tokens_.read(piece.begin() + 1, to.column(column).first(static_cast<size_t>(last)));
      }
    }
  }

  TokenSet tokens_;
  int64_t sequence_;
  Packing packing_;
  RowCounts counts_;
  RowOrder order_;
  Compares compares_;
  bool whole_targets_;
};

// One endless document of independent tokens, cut into rows.
class RandomBatches final : public BatchSource {
 public:
  explicit RandomBatches(const BatchOptions& options)
      : options_(options), key_(key_for("tokens", options.seed)) {}

  int64_t sequence() const override { return options_.sequence; }
  int64_t epoch_rows() const override { return std::numeric_limits<int64_t>::max(); }
  RowCounts counts() const override { return {.rows = epoch_rows()}; }
  bool packed() const override { return false; }

  void fill(int64_t step, int64_t row, const RowsView& to) const override {
    check_row(options_.sequence, to);
    const int64_t begin = (step * options_.rows + row) * options_.sequence;
    to.fill_padding();  // what a row of one document has in most columns
    for (const BatchColumn column : {BatchColumn::Tokens, BatchColumn::Targets}) {
      if (!to.layout().has(column)) continue;
      const std::span<int32_t> out = to.column(column);
      const int64_t first = begin + (column == BatchColumn::Targets ? 1 : 0);
      for (size_t i = 0; i < out.size(); ++i) out[i] = token(first + int64_t(i));
    }
  }

 private:
  int32_t token(int64_t index) const {
    const uint64_t bits = philox(key_, static_cast<uint64_t>(index), 0).v[0];
    return static_cast<int32_t>(bits * static_cast<uint64_t>(options_.vocab) >> 32);
  }

  BatchOptions options_;
  uint64_t key_;
};

}  // namespace

Result<std::unique_ptr<BatchSource>> make_batches(TokenSet tokens, const BatchOptions& options) {
  const int64_t sequence = options.sequence;
  if (sequence < 1 || sequence > Piece::kMostTokens)
    return error("sequence {}: allowed is 1 to {}", sequence, Piece::kMostTokens);
  if (options.rows < 1) return error("{} rows per step: at least 1 is needed", options.rows);
  SLUICE_TRY(tokens.check_vocab(options.vocab));
  const std::string what = options.name.empty()
                               ? tokens.to_text()
                               : fmt::format("{}: {} in {}", options.name, counted(tokens.tokens(), "token"),
                                             counted(tokens.documents(), "document"));
  if (tokens.tokens() > Piece::kMostInAll)
    return error("{}; at most {} can be dealt", what, Piece::kMostInAll);
  if (tokens.learnt() == 0) return error("{}; nothing of them is learnt (data.learn)", what);

  std::vector<Stretch> stretches = stretches_of(tokens, options.shares);
  std::vector<int64_t> rows;  // of each
  std::unique_ptr<BatchSource> source;
  if (options.mode == BatchMode::Contiguous) {
    for (const Stretch& s : stretches) {
      rows.push_back((s.end - s.begin - 1 + (options.tail ? sequence - 1 : 0)) / sequence);
      if (rows.back() > 0) continue;
      if (options.tail) return error("{}; a target needs a token before it", what);
      return error(
          "{}; one row of {} tokens and its targets need {}. A smaller train.seq_len takes them, or "
          "data.mode = packed",
          what, sequence, sequence + 1);
    }
    SLUICE_ASSIGN(RowOrder order, order_of("windows", options, stretches, rows));
    source = std::make_unique<ContiguousBatches>(std::move(tokens), options, std::move(stretches),
                                                 std::move(rows), std::move(order));
  } else {
    RowCounts counts;
    SLUICE_ASSIGN(const std::vector<Piece> pieces, cut_documents(tokens, options, counts));
    const bool whole = options.long_documents == LongDocuments::Drop || options.compares != Compares::Nothing;
    if (pieces.empty())
      return error("{}; packing needs a document of at least 2 tokens with one to learn{}", what,
                   whole ? fmt::format(", of {} at most ({})", sequence,
                                       options.compares == Compares::Nothing
                                           ? "data.long_documents = drop"
                                           : "answers that are compared lie in one row")
                         : "");
    Packing packing;
    auto begin = pieces.begin();
    for (const Stretch& s : stretches) {
      const auto end = std::find_if(begin, pieces.end(), [&](const Piece& p) { return p.begin() >= s.end; });
      Packing more = pack({begin, end}, sequence, key_for("packing", options.seed));
      rows.push_back(std::ssize(more.rows) - 1);
      packing.add(std::move(more));
      begin = end;
    }
    SLUICE_ASSIGN(RowOrder order, order_of("packed rows", options, stretches, rows));
    source = std::make_unique<PackedBatches>(std::move(tokens), options, std::move(packing),
                                             std::move(counts), std::move(order));
  }
  return source;
}

void fill_rows(const BatchSource& source, int64_t step, int64_t first, const RowsView& to) {
  const int64_t sequence = source.sequence(), rows = to.tokens() / sequence;
  SLUICE_CHECK(rows * sequence == to.tokens(), "{} tokens of rows of {}", to.tokens(), sequence);
  for (int64_t row = 0; row < rows; ++row) source.fill(step, first + row, to.part(row * sequence, sequence));
}

std::unique_ptr<BatchSource> make_random_batches(const BatchOptions& options) {
  SLUICE_CHECK(options.sequence > 0 && options.rows > 0 && options.vocab > 0 && options.vocab <= INT32_MAX,
               "sequence {}, rows {}, vocabulary {}", options.sequence, options.rows, options.vocab);
  return std::make_unique<RandomBatches>(options);
}

}  // namespace sluice::core
