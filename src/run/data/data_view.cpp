// SPDX-License-Identifier: Apache-2.0
#include "run/data/data_view.h"

#include <algorithm>

#include "base/counts.h"
#include "dataset/byte_tokenizer.h"
#include "run/inputs/resolve.h"
#include "setup/settle.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

// Tokens as text.
class Speller {
 public:
  static Result<Speller> open(const RunConfig& config) {
    Speller speller;
    if (const auto path = tokenizer_of(config)) {
      SLUICE_ASSIGN(speller.tokenizer_, Tokenizer::open(*path));
      speller.name_ = path->string();
    }
    return speller;
  }
  const std::string& name() const { return name_; }
  bool is_special(int32_t id) const { return tokenizer_ && tokenizer_->is_special(id); }
  Result<std::string> spell(std::span<const int32_t> ids) const {
    return tokenizer_ ? tokenizer_->decode(ids, /*skip_special=*/false) : ByteTokenizer::decode(ids);
  }

 private:
  std::string name_ = "bytes";
  std::optional<Tokenizer> tokenizer_;
};

struct Row {
  explicit Row(int64_t n) : all(kPlainBatch, n) {}

  Rows all;
  std::span<const int32_t> tokens = all.column(BatchColumn::Tokens),
                           targets = all.column(BatchColumn::Targets),
                           positions = all.column(BatchColumn::Positions);

  // Whether somebody learns to say this token.
  bool learnt(size_t i) const { return i > 0 && positions[i] > 0 && targets[i - 1] >= 0; }
  // One past the piece of a document that begins here.
  size_t end_of(size_t begin) const {
    size_t end = begin + 1;
    while (end < tokens.size() && positions[end] != 0) ++end;
    return end;
  }
  bool is_padding(size_t begin, size_t end) const {
    const auto are = [&](std::span<const int32_t> values, int32_t value) {
      return std::all_of(values.begin() + long(begin), values.begin() + long(end),
                         [&](int32_t v) { return v == value; });
    };
    return end == tokens.size() && are(tokens, 0) && are(targets, -1);
  }
};

Result<ShownDocument> show(const Row& row, size_t begin, size_t end, const Speller& speller) {
  ShownDocument document;
  document.tokens = int64_t(end - begin);
  for (size_t at = begin, stop = begin; at < end; at = stop) {
    const bool learnt = row.learnt(at), special = speller.is_special(row.tokens[at]);
    stop = at + 1;
    while (!special && stop < end && row.learnt(stop) == learnt && !speller.is_special(row.tokens[stop]))
      ++stop;
    SLUICE_ASSIGN(std::string text, speller.spell(row.tokens.subspan(at, stop - at)));
    document.runs.push_back({std::move(text), learnt ? Part::Learnt : Part::Context, special});
    document.learnt += learnt ? int64_t(stop - at) : 0;
  }
  return document;
}

Result<ShownRow> show(const BatchSource& source, int64_t index, const Speller& speller) {
  Row row(source.sequence());
  fill_rows(source, 0, index, row.all.part(0, row.all.tokens()));
  ShownRow shown;
  for (size_t begin = 0, end = 0; begin < row.tokens.size(); begin = end) {
    end = row.end_of(begin);
    if (row.is_padding(begin, end)) {
      shown.padding = int64_t(end - begin);
      break;
    }
    SLUICE_ASSIGN(ShownDocument document, show(row, begin, end, speller));
    shown.documents.push_back(std::move(document));
  }
  return shown;
}

std::vector<std::string> warnings_of(const DataView& view) {
  constexpr double kMuchPadding = 0.3, kFewLearnt = 0.01;
  std::vector<std::string> lines = view.findings.warnings();
  const double padding = double(view.counts.padding) / double(view.counts.all * view.sequence);
  const double learnt = double(view.train.learnt) / double(std::max<int64_t>(1, view.train.tokens));
  if (padding > kMuchPadding)
    lines.push_back(fmt::format(
        "{:.0f} % of the rows is padding: the longest document has {} tokens, and train.seq_len is {}",
        100 * padding, view.train.longest, view.sequence));
  if (learnt < kFewLearnt)
    lines.push_back(fmt::format("only {:.2f} % of the tokens are learnt", 100 * learnt));
  // Documents that teach nothing were named before.
  if (view.counts.dropped > view.findings.count(FindingKind::NothingLearnt))
    lines.push_back(fmt::format("{} in no row{}", counted(view.counts.dropped, "document", "is", "are"),
                                view.findings.found[size_t(FindingKind::NoRow)].where(FindingKind::NoRow)));
  return lines;
}

}  // namespace

Result<DataView> view_data(const RunConfig& config, int64_t vocab, int64_t rows, Observer& observer,
                           const Findings::Told& told) {
  SLUICE_ASSIGN(RunData data, open_data(config, vocab, observer, DataUse::Look, told));
  SLUICE_ASSIGN(const int64_t steps, counted_steps(config, data.train->epoch_rows()));
  SLUICE_ASSIGN(const Speller speller, Speller::open(config));
  DataView view;
  for (const std::string& path : config.data.paths) {
    const auto written = config.written_paths.find(path);
    view.config +=
        (view.config.empty() ? "" : ", ") + (written == config.written_paths.end() ? path : written->second);
  }
  view.tokenizer = speller.name();
  view.chat_template = data.chat_template;
  view.files = data.files;
  view.findings = data.findings;
  view.train = data.train_documents;
  view.heldout = data.heldout_documents;
  if (data.heldout) {
    view.heldout_rows = data.heldout->epoch_rows();
    view.evaluated = count_rows(*data.heldout, config.eval.rows);
  }
  view.counts = data.train->counts();
  for (const RowShare& share : data.train->shares())
    view.shares.push_back({data.names[share.entry], share.rows, share.an_epoch});
  view.mode = batch_mode(config);
  view.long_documents = config.data.long_documents;
  view.sequence = config.train.seq_len;
  view.rows_per_step = config.train.tokens_per_step / config.train.seq_len;
  view.steps_per_epoch = (view.counts.rows + view.rows_per_step - 1) / view.rows_per_step;
  for (int64_t i = 0; i < std::min(rows, view.counts.rows); ++i) {
    SLUICE_ASSIGN(ShownRow row, show(*data.train, i, speller));
    view.rows.push_back(std::move(row));
  }
  if (rows > 0) view.first_chat = std::move(data.first_chat);
  view.warnings = warnings_of(view);
  for (const std::string& text : {data.unlearnt, data.other_end}) {
    if (!text.empty()) view.warnings.push_back(text);
  }
  view.warnings.insert(view.warnings.end(), data.heldout_notices.begin(), data.heldout_notices.end());
  view.step_notices = step_notices(config, steps, data);
  add_notices({idle_steps(config, steps)}, view.step_notices);
  return view;
}

}  // namespace sluice::core
