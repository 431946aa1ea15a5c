// SPDX-License-Identifier: Apache-2.0
#include "io/event_file.h"

#include <fcntl.h>

#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <optional>
#include <system_error>

#include "host/unguessable.h"
#include "io/file.h"

namespace sluice::core {
namespace {

// A file's name is kName, the time, kOurs and a number.
constexpr std::string_view kName = "events.out.tfevents.", kOurs = ".sluice.";

// Little-endian, whatever the machine is.
template <class T>
void put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += char(value >> (8 * i) & 0xff);
}
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  out += char(value);
}

// Fields of a protobuf message: number and kind, then the value.
constexpr int kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5;
void put_key(std::string& out, int field, int kind) {
  put_varint(out, uint64_t(field << 3 | kind));
}
void put_double(std::string& out, int field, double value) {
  put_key(out, field, kDouble);
  put(out, std::bit_cast<uint64_t>(value));
}
void put_float(std::string& out, int field, float value) {
  put_key(out, field, kFloat);
  put(out, std::bit_cast<uint32_t>(value));
}
void put_bytes(std::string& out, int field, std::string_view value) {
  put_key(out, field, kBytes);
  put_varint(out, value.size());
  out += value;
}

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78u : 0);
    table[i] = c;
  }
  return table;
}();

constexpr int kSummary = 5, kSessionLog = 7;
std::string event_of(double time_s, int64_t step, int field, std::string_view content) {
  std::string event;
  put_double(event, 1, time_s);
  put_key(event, 2, kVarint);
  put_varint(event, uint64_t(step));
  put_bytes(event, field, content);
  return event;
}

uint32_t masked(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

uint64_t number_in(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    value |= uint64_t(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

// The step of an event as event_of() writes it; nothing: it has none, as the first of a file.
std::optional<uint64_t> step_of(std::string_view event) {
  constexpr size_t kTime = 9;
  if (event.size() <= kTime || event[kTime] != char(2 << 3 | kVarint)) return std::nullopt;
  uint64_t step = 0;
  for (size_t i = 0; i < 10 && kTime + 1 + i < event.size(); ++i) {
    const auto byte = static_cast<unsigned char>(event[kTime + 1 + i]);
    step |= uint64_t(byte & 0x7f) << (7 * i);
    if (byte < 0x80) return step;
  }
  return std::nullopt;
}

// How much of a file is whole records before the first one of that step or a later one.
struct Kept {
  int64_t bytes = 0, records = 0, of = 0;
};
Result<Kept> kept_before(const std::filesystem::path& path, int64_t first_step) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return file_error("open", path);
  Kept kept{.of = int64_t(in.tellg())};
  in.seekg(0);
  std::string head(12, '\0'), rest;
  while (in.read(head.data(), std::ssize(head))) {
    const std::string_view length = std::string_view(head).substr(0, 8);
    const auto left = uint64_t(kept.of - kept.bytes) - head.size();
    if (number_in(std::string_view(head).substr(8)) != masked(length) || number_in(length) > left) break;
    rest.resize(number_in(length) + 4);
    if (!in.read(rest.data(), std::ssize(rest))) break;
    const std::optional<uint64_t> step = step_of(std::string_view(rest).substr(0, number_in(length)));
    if (step && *step >= uint64_t(first_step)) break;
    kept.bytes += std::ssize(head) + std::ssize(rest);
    ++kept.records;
  }
  if (in.bad()) return file_error("read", path);
  return kept;
}

Status cut_off(const std::filesystem::path& path, int64_t first_step) {
  SLUICE_ASSIGN(const Kept kept, kept_before(path, first_step));
  if (kept.bytes == kept.of) return {};
  if (kept.records < 2) {  // it says what it is, and nothing else
    std::error_code failed;
    std::filesystem::remove(path, failed);
    return failed ? file_error("remove", path, failed.value()) : Status();
  }
  std::ifstream in(path, std::ios::binary);
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  std::string piece;
  for (int64_t at = 0; at < kept.bytes; at += std::ssize(piece)) {
    piece.resize(size_t(std::min<int64_t>(kept.bytes - at, 1 << 20)));
    if (!in.read(piece.data(), std::ssize(piece))) return file_error("read", path);
    SLUICE_TRY(file.write_at(at, piece));
  }
  return file.commit();
}

Status cut_off_all(const std::filesystem::path& directory, int64_t first_step) {
  std::vector<std::filesystem::path> files;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    std::error_code unknown;
    if (name.starts_with(kName) && name.find(kOurs) != std::string::npos && !name.ends_with(".tmp") &&
        entry->symlink_status(unknown).type() == std::filesystem::file_type::regular)
      files.push_back(entry->path());
  }
  if (failed) return file_error("read", directory, failed.value());
  for (const std::filesystem::path& file : files) SLUICE_TRY(cut_off(file, first_step));
  return {};
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t c = ~uint32_t{0};
  for (const char b : bytes) c = kTable[(c ^ static_cast<unsigned char>(b)) & 0xff] ^ (c >> 8);
  return ~c;
}

Result<EventFile> EventFile::create(const std::filesystem::path& directory, double time_s,
                                    int64_t first_step) {
  SLUICE_TRY(cut_off_all(directory, first_step));
  const std::filesystem::path path =
      directory / fmt::format("{}{}{}{}", kName, int64_t(time_s), kOurs, unguessable());
  SLUICE_ASSIGN(Descriptor fd, Descriptor::create(path, O_APPEND));
  EventFile file(AppendedFile(path, std::move(fd)));
  std::string event;
  put_double(event, 1, time_s);
  put_bytes(event, 3, "brain.Event:2");
  SLUICE_TRY(file.write(event));
  std::string start;
  put_key(start, 1, kVarint);
  put_varint(start, 1);
  SLUICE_TRY(file.write(event_of(time_s, first_step, kSessionLog, start)));
  return file;
}

Status EventFile::add(double time_s, int64_t step,
                      std::span<const std::pair<std::string_view, double>> values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    if (!std::isfinite(number)) continue;
    std::string value;
    put_bytes(value, 1, tag);
    put_float(value, 2, float(number));
    put_bytes(summary, 1, value);
  }
  return write(event_of(time_s, step, kSummary, summary));
}

Status EventFile::add(double time_s, int64_t step, std::string_view tag, std::span<const std::string> texts) {
  std::string plugin, metadata, size, shape, tensor, value, summary;
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_key(size, 1, kVarint);
  put_varint(size, texts.size());
  put_bytes(shape, 2, size);
  put_key(tensor, 1, kVarint);
  put_varint(tensor, 7);
  put_bytes(tensor, 2, shape);
  for (const std::string& text : texts) put_bytes(tensor, 8, text);
  put_bytes(value, 1, tag);
  put_bytes(value, 9, metadata);
  put_bytes(value, 8, tensor);
  put_bytes(summary, 1, value);
  return write(event_of(time_s, step, kSummary, summary));
}

Status EventFile::write(std::string_view event) {
  std::string record;
  put(record, uint64_t(event.size()));
  put(record, masked(record));
  record += event;
  put(record, masked(event));
  return file_.append(record);
}

}  // namespace sluice::core
