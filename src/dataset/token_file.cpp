// SPDX-License-Identifier: Apache-2.0
#include "dataset/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/bytes.h"

namespace sluice::core {
namespace {

constexpr std::array<char, 8> kMagic{'s', 'l', 'u', 'i', 'c', 'e', 't', 'k'};
constexpr uint32_t kAllLearnt = 2, kWithContext = 3;  // versions
constexpr int64_t kHeaderBytes = sizeof(TokenFileHeader);

constexpr int64_t kLlmcHeaderBytes = 256 * sizeof(int32_t);
constexpr int32_t kLlmcMagic16 = 20240520, kLlmcMagic32 = 20240801, kLlmcVersion = 1;

template <class T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// Bytes that hold a bit for each token.
int64_t context_bytes(int64_t tokens) {
  return align_up((tokens + 7) / 8, 8);
}

// How much of a mapping is read before it is released.
constexpr size_t kPieceBytes = size_t{1} << 22;

// Adds the header, whose checksum is not part of it.
Checksum finished(Checksummer& sum, TokenFileHeader header) {
  header.checksum[0] = header.checksum[1] = 0;
  return sum.add(std::as_bytes(std::span(&header, 1))).value();
}

}  // namespace

Result<TokenFile> TokenFile::open(const std::filesystem::path& path) {
  SLUICE_ASSIGN(MappedFile mapped, MappedFile::open(path));
  TokenFile file(std::move(mapped));
  const auto bytes = file.file_.bytes();
  const bool own = bytes.size() >= size_t(kHeaderBytes) && load<TokenFileHeader>(bytes).magic == kMagic;
  const Status status = own ? file.open_own() : file.open_llmc();
  if (!status.ok()) return error_at(path.string(), status.error());
  return file;
}

Status TokenFile::open_own() {
  const auto bytes = file_.bytes();
  const auto header = load<TokenFileHeader>(bytes);
  if (header.version != kAllLearnt && header.version != kWithContext)
    return error("version {}; this build reads {} and {}", header.version, kAllLearnt, kWithContext);
  if (header.token_bytes != 2 && header.token_bytes != 4) {
    return error("{} bytes per token; allowed are 2 and 4", header.token_bytes);
  }
  // Bounded by the file's size before any arithmetic with them.
  const auto size = static_cast<int64_t>(bytes.size());
  if (header.tokens < 1 || header.tokens > size || header.documents < 1 || header.documents > header.tokens) {
    return error("{} tokens in {} documents cannot be in a file of {} bytes", header.tokens, header.documents,
                 size);
  }
  const int64_t boundaries_at = align_up(kHeaderBytes + header.tokens * header.token_bytes, 8);
  const int64_t context_at = boundaries_at + (header.documents + 1) * int64_t{sizeof(int64_t)};
  const int64_t expected =
      context_at + (header.version == kWithContext ? context_bytes(header.tokens) : int64_t{0});
  if (size != expected) {
    return error("{} bytes; {} tokens in {} documents take {}", size, header.tokens, header.documents,
                 expected);
  }
  token_bytes_ = header.token_bytes;
  tokens_ = header.tokens;
  data_ = bytes.data() + kHeaderBytes;
  boundaries_ = {reinterpret_cast<const int64_t*>(bytes.data() + boundaries_at),
                 size_t(header.documents) + 1};
  context_ = bytes.subspan(size_t(context_at));
  const bool rising =
      std::adjacent_find(boundaries_.begin(), boundaries_.end(), std::greater_equal<>()) == boundaries_.end();
  if (boundaries_.front() != 0 || boundaries_.back() != tokens_ || !rising) {
    return error("the document boundaries do not rise from 0 to {}", tokens_);
  }
  Checksummer sum;
  for (auto rest = bytes.subspan(kHeaderBytes); !rest.empty();) {
    const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
    sum.add(piece);
    file_.release();
    rest = rest.subspan(piece.size());
  }
  checksum_ = {header.checksum[0], header.checksum[1]};
  if (finished(sum, header) != checksum_) return error("damaged: its bytes do not match their checksum");
  learnt_ = tokens_;
  for (const std::byte bits : context_) learnt_ -= std::popcount(static_cast<uint8_t>(bits));
  for (auto token = size_t(tokens_); token < 8 * context_.size(); ++token) {
    if ((context_[token / 8] >> (token % 8) & std::byte{1}) != std::byte{0})
      return error("the bit of token {} is set, and there are {}", token, tokens_);
  }
  file_.release();
  SLUICE_TRY(find_max());
  if (max_token_ != header.max_token || max_token_index_ != header.max_token_index) {
    return error("the largest token is {} at index {}, not {} at {}", max_token_, max_token_index_,
                 header.max_token, header.max_token_index);
  }
  return {};
}

Status TokenFile::open_llmc() {
  const auto bytes = file_.bytes();
  const bool has_header = bytes.size() >= size_t(kLlmcHeaderBytes);
  const auto header = has_header ? load<std::array<int32_t, 3>>(bytes) : std::array<int32_t, 3>{};
  const auto [magic, version, tokens] = header;
  if (magic != kLlmcMagic16 && magic != kLlmcMagic32) {
    return error("not a token file: the magic number is neither Sluice's nor llm.c's");
  }
  if (version != kLlmcVersion) return error("llm.c version {}; this build reads {}", version, kLlmcVersion);
  token_bytes_ = magic == kLlmcMagic16 ? 2 : 4;
  tokens_ = tokens;
  const auto size = static_cast<int64_t>(bytes.size());
  if (tokens < 1 || size != kLlmcHeaderBytes + tokens_ * token_bytes_) {
    return error("{} bytes; a header of {} and {} tokens of {} bytes were expected", size, kLlmcHeaderBytes,
                 tokens, token_bytes_);
  }
  data_ = bytes.data() + kLlmcHeaderBytes;
  learnt_ = tokens_;
  whole_ = {0, tokens_};
  boundaries_ = whole_;
  return find_max();
}

Status TokenFile::find_max() {
  const auto find = [&]<class T>(T) -> Status {
    int64_t largest = -1;
    for (int64_t first = 0; first < tokens_;) {
      const int64_t count = std::min(tokens_ - first, int64_t{kPieceBytes / sizeof(T)});
      const std::span<const T> piece(reinterpret_cast<const T*>(data_) + first, size_t(count));
      const auto it = std::max_element(piece.begin(), piece.end());
      if (int64_t{*it} > largest) {
        largest = *it;
        max_token_index_ = first + (it - piece.begin());
      }
      first += count;
      file_.release();
    }
    if (largest > INT32_MAX) {
      return error("token {} at index {}; at most {} is allowed", largest, max_token_index_, INT32_MAX);
    }
    max_token_ = static_cast<int32_t>(largest);
    return {};
  };
  return token_bytes_ == 2 ? find(uint16_t{}) : find(uint32_t{});
}

void TokenFile::read(int64_t first, std::span<int32_t> out) const {
  SLUICE_CHECK(first >= 0 && int64_t(out.size()) <= tokens_ - first, "{}: tokens [{}, +{}) of {}",
               path().string(), first, out.size(), tokens_);
  const auto copy = [&]<class T>(T) {
    std::copy_n(reinterpret_cast<const T*>(data_) + first, out.size(), out.begin());
  };
  token_bytes_ == 2 ? copy(uint16_t{}) : copy(uint32_t{});
}

void TokenFile::read_targets(int64_t first, std::span<int32_t> out) const {
  read(first, out);
  if (context_.empty()) return;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t token = size_t(first) + i;
    if ((context_[token / 8] >> (token % 8) & std::byte{1}) != std::byte{0}) out[i] = -1;
  }
}

TokenFileWriter::TokenFileWriter(AtomicFile file, int token_bytes)
    : file_(std::move(file)),
      header_{.magic = kMagic,
              .version = kAllLearnt,
              .token_bytes = static_cast<uint32_t>(token_bytes),
              .max_token = -1} {}

Result<TokenFileWriter> TokenFileWriter::create(const std::filesystem::path& path, int token_bytes) {
  SLUICE_CHECK(token_bytes == 2 || token_bytes == 4, "{}: {} bytes per token", path.string(), token_bytes);
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  return TokenFileWriter(std::move(file), token_bytes);
}

Status TokenFileWriter::append(std::span<const int32_t> tokens) {
  constexpr size_t kBlock = size_t{1} << 18;  // tokens whose bytes are made at once
  const size_t width = header_.token_bytes;
  for (; !tokens.empty(); tokens = tokens.subspan(std::min(tokens.size(), kBlock))) {
    const auto block = tokens.first(std::min(tokens.size(), kBlock));
    buffer_.resize(block.size() * width);
    for (size_t i = 0; i < block.size(); ++i) {
      const int32_t token = block[i];
      SLUICE_CHECK(token >= 0 && (width == 4 || token <= UINT16_MAX), "token {} in {} bytes", token, width);
      std::memcpy(buffer_.data() + i * width, &token, width);  // the low bytes come first
      if (token > header_.max_token) {
        header_.max_token = token;
        header_.max_token_index = header_.tokens + int64_t(i);
      }
    }
    SLUICE_TRY(file_.write_at(kHeaderBytes + header_.tokens * int64_t(width), buffer_));
    sum_.add(buffer_);
    header_.tokens += int64_t(block.size());
  }
  return {};
}

Status TokenFileWriter::append(std::span<const int32_t> tokens, std::span<const uint8_t> learnt) {
  SLUICE_CHECK(tokens.size() == learnt.size(), "{} tokens, {} marks", tokens.size(), learnt.size());
  for (size_t i = 0; i < learnt.size(); ++i) {
    if (learnt[i] != 0) continue;
    const size_t token = size_t(header_.tokens) + i;
    context_.resize(token / 8 + 1);
    context_[token / 8] |= uint8_t(1U << token % 8);
  }
  return append(tokens);
}

void TokenFileWriter::end_document() {
  if (boundaries_.back() != header_.tokens) {
    boundaries_.push_back(header_.tokens);
  } else {
    empty_.push_back(int64_t(boundaries_.size() - 1 + empty_.size()));
  }
}

Status TokenFileWriter::commit() {
  SLUICE_CHECK(header_.tokens > 0, "{}: no tokens", file_.path().string());
  if (boundaries_.back() != header_.tokens) end_document();
  header_.documents = int64_t(boundaries_.size()) - 1;
  const int64_t boundaries_at = align_up(kHeaderBytes + header_.tokens * header_.token_bytes, 8);
  SLUICE_TRY(file_.write_at(boundaries_at, std::as_bytes(std::span(boundaries_))));
  const std::array<std::byte, 8> zeros{};
  sum_.add(
      std::span(zeros).first(size_t(boundaries_at - kHeaderBytes - header_.tokens * header_.token_bytes)));
  sum_.add(std::as_bytes(std::span(boundaries_)));
  if (!context_.empty()) {
    header_.version = kWithContext;
    context_.resize(size_t(context_bytes(header_.tokens)));
    const auto bits = std::as_bytes(std::span(context_));
    SLUICE_TRY(file_.write_at(boundaries_at + int64_t(std::as_bytes(std::span(boundaries_)).size()), bits));
    sum_.add(bits);
  }
  const Checksum checksum = finished(sum_, header_);
  header_.checksum[0] = checksum.high;
  header_.checksum[1] = checksum.low;
  SLUICE_TRY(file_.write_at(0, std::as_bytes(std::span(&header_, 1))));
  return file_.commit();
}

}  // namespace sluice::core
