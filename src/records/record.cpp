// SPDX-License-Identifier: Apache-2.0
#include "records/record.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "records/line_reader.h"
#include "records/recognise.h"
#include "records/table_reader.h"
#include "records/value_reader.h"
#include "tokenizer/code_set.h"

namespace sluice::core {
namespace {

constexpr std::string_view kNames[] = {"text", "prompt and completion", "messages",
                                       "text with what is learnt"};

}  // namespace

std::string_view name_of(Record::Kind kind) {
  return kNames[size_t(kind)];
}

bool is_compressed(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".gz") || name.ends_with(".zst");
}

bool has_records(const std::filesystem::path& path) {
  constexpr std::string_view kEndings[] = {".jsonl", ".ndjson", ".json", ".csv", ".tsv"};
  return std::find(std::begin(kEndings), std::end(kEndings), name_before_compression(path).extension()) !=
         std::end(kEndings);
}

class RecordReader::Impl {
 public:
  static Result<std::unique_ptr<Impl>> open(const std::filesystem::path& path, const RecordOptions& options) {
    SLUICE_ASSIGN(ByteSource source, ByteSource::open(path));
    SLUICE_TRY(check_compression(path, source.compression()));
    SLUICE_ASSIGN(const std::string_view first, source.first());
    SLUICE_TRY(check_format(path, first));
    const Container container = container_of(path, first.substr(mark_bytes(first)));
    const char separator = separator_of(path, first.substr(0, first.find('\n')));
    if (container != Container::Text && (first.starts_with("\xff\xfe") || first.starts_with("\xfe\xff")))
      return error("{}: UTF-16, which Sluice does not read; iconv -f UTF-16 -t UTF-8 makes UTF-8 of it",
                   path.string());
    const bool marked = source.drop_mark();
    auto impl = std::unique_ptr<Impl>(new Impl(path, options, container, std::move(source)));
    impl->separator_ = separator;
    impl->marked_ = marked && container == Container::Text;
    if (container == Container::Table) SLUICE_TRY(impl->read_header());
    return impl;
  }

  Result<bool> next(RawRecord& raw) {
    SLUICE_ASSIGN(const bool more, read(raw));
    raw.place = container_ == Container::Lines ? raw.line : container_ == Container::Text ? 0 : ++number_;
    return more;
  }
  Result<Record> parse(RawRecord& raw) const {
    if (container_ == Container::Text) return parse_text(raw);
    auto record = container_ == Container::Table ? parse_row(raw.text, separator_, header_, options_)
                                                 : parse_record(raw.text, options_);
    raw.text = {};
    if (record.ok()) record->read_anew |= container_ != Container::Lines;
    return record;
  }
  Result<bool> accept(const RawRecord& raw, Record::Kind kind, const Status& made, const OnSkipped& skipped) {
    if (made.ok() && kind_ && kind != *kind_) {
      return at(raw, error("{}, where line {} has {}: a file has records of one kind", name_of(kind),
                           first_line_, name_of(*kind_)));
    }
    if (made.ok()) {
      if (!kind_) first_line_ = raw.line;
      kind_ = kind;
      return true;
    }
    if (!options_.skip_malformed) return at(raw, made.error());
    ++malformed_;
    if (skipped) skipped(at(raw, made.error()));
    return false;
  }
  Result<bool> next(Record& record) {
    RawRecord raw;
    while (true) {
      SLUICE_ASSIGN(const bool more, next(raw));
      if (!more) return false;
      Result<Record> parsed = parse(raw);
      const bool good = parsed.ok();
      SLUICE_ASSIGN(const bool taken, accept(raw, good ? parsed->kind : Record::Kind::Text,
                                             good ? Status() : Status(parsed.error()), {}));
      if (!taken) continue;
      record = std::move(*parsed);
      return true;
    }
  }
  std::string_view container() const {
    if (container_ == Container::Table) return separator_ == '\t' ? "TSV" : "CSV";
    constexpr std::string_view kContainers[] = {"text", "JSONL", "a JSON list", "JSON over several lines"};
    return kContainers[size_t(container_)];
  }
  int64_t line() const { return line_; }
  int64_t malformed() const { return malformed_; }

 private:
  using Reader = std::variant<LineReader, ValueReader, TableReader>;

  Impl(std::filesystem::path path, const RecordOptions& options, Container container, ByteSource source)
      : path_(std::move(path)),
        options_(options),
        container_(container),
        reader_(make_reader(std::move(source), container, options)) {}

  static Reader make_reader(ByteSource source, Container container, const RecordOptions& o) {
    switch (container) {
      case Container::Text:
      case Container::Lines:
        return LineReader(std::move(source), o.most_line_bytes, o.why);
      case Container::List:
        return ValueReader(std::move(source), ValueReader::Form::List, o.most_line_bytes, o.why);
      case Container::Values:
        return ValueReader(std::move(source), ValueReader::Form::Sequence, o.most_line_bytes, o.why);
      case Container::Table:
        break;
    }
    return TableReader(std::move(source), o.most_line_bytes, o.why);
  }

  Result<bool> read(RawRecord& raw) {
    raw.line = 0;
    if (container_ == Container::Text) {
      if (std::exchange(read_, true)) return false;
      SLUICE_ASSIGN(raw.text, std::get<LineReader>(reader_).rest(options_.most_text_bytes));
      return !raw.text.empty();
    }
    while (true) {
      SLUICE_ASSIGN(const bool more, read_some(raw.text));
      if (!more) return false;
      if (container_ != Container::Lines || raw.text.find_first_not_of(" \t\r") != raw.text.npos) break;
    }
    raw.line = line_;
    return true;
  }
  Result<bool> read_some(std::string& text) {
    const auto step = [&](auto& reader, auto... more) -> Result<bool> {
      auto read = reader.next(text, more...);
      line_ = reader.line();
      return read;
    };
    if (auto* lines = std::get_if<LineReader>(&reader_)) return step(*lines);
    if (auto* values = std::get_if<ValueReader>(&reader_)) return step(*values);
    return step(std::get<TableReader>(reader_), separator_);
  }
  Status read_header() {
    auto& table = std::get<TableReader>(reader_);
    std::string row;
    SLUICE_ASSIGN(const bool more, table.next(row, separator_));
    if (!more) return {};
    const auto wrong = [&](std::string_view what) {
      return error("{}: line {}: the header: {}", path_.string(), table.line(), what);
    };
    if (find_invalid_utf8(row) != row.npos) return wrong("it is not UTF-8");
    auto names = fields_of(row, separator_, TableReader::kMostColumns);
    if (!names.ok()) return wrong(names.message());
    header_ = std::move(*names);
    for (size_t i = 0; i < header_.size(); ++i) {
      if (header_[i].empty()) continue;
      if (std::find(header_.begin(), header_.begin() + std::ptrdiff_t(i), header_[i]) !=
          header_.begin() + std::ptrdiff_t(i))
        return wrong(fmt::format("two columns are called {}", header_[i]));
    }
    return {};
  }
  Result<Record> parse_text(RawRecord& raw) const {
    if (const size_t bad = find_invalid_utf8(raw.text); bad != raw.text.npos) {
      const auto line = 1 + std::count(raw.text.begin(), raw.text.begin() + std::ptrdiff_t(bad), '\n');
      return error("line {}: byte 0x{:02x} is not UTF-8", line, static_cast<unsigned char>(raw.text[bad]));
    }
    Record record;
    record.form = "text";
    record.text = std::move(raw.text);
    record.read_later = marked_;
    return record;
  }
  Error at(const RawRecord& raw, Error e) const {
    return error_at(raw.line > 0 ? fmt::format("{}: line {}", path_.string(), raw.line) : path_.string(),
                    std::move(e));
  }

  std::filesystem::path path_;
  RecordOptions options_;
  Container container_;
  Reader reader_;
  char separator_ = ',';
  std::vector<std::string> header_;
  bool read_ = false;
  bool marked_ = false;  // a text began with a byte order mark
  std::optional<Record::Kind> kind_;
  int64_t line_ = 0, number_ = 0, first_line_ = 0, malformed_ = 0;
};

Result<RecordReader> RecordReader::open(const std::filesystem::path& path, const RecordOptions& options) {
  SLUICE_ASSIGN(auto impl, Impl::open(path, options));
  return RecordReader(std::move(impl));
}

RecordReader::RecordReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RecordReader::RecordReader(RecordReader&&) noexcept = default;
RecordReader::~RecordReader() = default;
Result<bool> RecordReader::next(Record& record) {
  return impl_->next(record);
}
Result<bool> RecordReader::next(RawRecord& raw) {
  return impl_->next(raw);
}
Result<Record> RecordReader::parse(RawRecord& raw) const {
  return impl_->parse(raw);
}
Result<bool> RecordReader::accept(const RawRecord& raw, Record::Kind kind, const Status& made,
                                  const OnSkipped& skipped) {
  return impl_->accept(raw, kind, made, skipped);
}
std::string_view RecordReader::container() const {
  return impl_->container();
}
int64_t RecordReader::line() const {
  return impl_->line();
}
int64_t RecordReader::malformed() const {
  return impl_->malformed();
}

}  // namespace sluice::core
