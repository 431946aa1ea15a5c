// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/model_folder.h"
#include "io/shards.h"
#include "text/json.h"

namespace sluice::core {
namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the file formats are little-endian");

namespace {

constexpr size_t kLengthBytes = 8;

Error impossible_length(const fs::path& path, uint64_t length, int64_t file_bytes) {
  if (is_lfs_pointer(std::as_bytes(std::span(&length, 1)))) return lfs_pointer(path);
  return error("{}: header length {} is not possible in a safetensors file of {} bytes (limit {})",
               path.string(), length, file_bytes, kMaxSafeTensorsHeader);
}

}  // namespace

Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view text) {
  SLUICE_ASSIGN(const nlohmann::json document, parse_json(text));
  const auto map = document.is_object() ? document.find("weight_map") : document.end();
  if (map == document.end() || !map->is_object()) return error("no object 'weight_map'");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    // A plain name: an index must not reach outside its directory.
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    const bool plain = !name.empty() && name.find('\0') == name.npos && fs::path(name).filename() == name &&
                       name != "." && name != "..";
    if (!plain) {
      return error("tensor '{}': {} is not a file name", tensor,
                   file.is_string() ? "'" + name + "'" : std::string(file.type_name()));
    }
    files[tensor] = name;
  }
  return files;
}

Result<SafeTensorsFile> SafeTensorsFile::open(const fs::path& path) {
  SLUICE_ASSIGN(MappedFile mapped, MappedFile::open(path));
  SafeTensorsFile file(std::move(mapped));
  const auto bytes = file.file_.bytes();
  uint64_t length = 0;
  if (bytes.size() < kLengthBytes) {
    return error("{}: {} bytes are too few for a safetensors file", path.string(), bytes.size());
  }
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxSafeTensorsHeader || length > bytes.size() - kLengthBytes) {
    return impossible_length(path, length, int64_t(bytes.size()));
  }
  const auto header = bytes.subspan(kLengthBytes, length);
  const auto data = bytes.subspan(kLengthBytes + length);
  auto parsed = parse_safetensors_header({reinterpret_cast<const char*>(header.data()), header.size()},
                                         static_cast<int64_t>(data.size()));
  if (!parsed.ok()) return error_at(path.string(), parsed.error());
  file.metadata_ = std::move(parsed->metadata);
  file.tensors_.reserve(parsed->tensors.size());
  for (auto& [info, begin, end] : parsed->tensors) {
    file.tensors_.push_back({std::move(info), data.subspan(size_t(begin), size_t(end - begin))});
  }
  return file;
}

std::optional<int64_t> SafeTensorsFile::place_of(const SafeTensor& tensor) const {
  const auto bytes = file_.bytes();
  const std::byte* const begin = tensor.bytes.data();
  if (std::less<>()(begin, bytes.data()) || std::less<>()(bytes.data() + bytes.size(), begin))
    return std::nullopt;
  return begin - bytes.data();
}

namespace {

// The piece that is read at once, and then dropped from the page cache.
constexpr int64_t kPieceBytes = 8 << 20;

// A file that is read once, front to back.
class ReadOnce {
 public:
  static Result<ReadOnce> open(const fs::path& path) {
    SLUICE_ASSIGN(Descriptor fd, Descriptor::open_to_read(path));
    SLUICE_ASSIGN(const int64_t bytes, fd.size(path));
    return ReadOnce(path, std::move(fd), bytes);
  }

  // The next bytes, into memory of the caller.
  Status read(std::span<std::byte> to) {
    const int64_t from = sum_.bytes;
    for (std::span<std::byte> rest = to; !rest.empty();) {
      SLUICE_ASSIGN(const size_t n, fd_.read(rest, path_));
      if (n == 0) return error(ErrorKind::Io, "{}: it became shorter while it was read", path_.string());
      rest = rest.subspan(n);
    }
    sum_.bytes += int64_t(to.size());
    checksum_.add(to);
    ::posix_fadvise(fd_.get(), from, int64_t(to.size()), POSIX_FADV_DONTNEED);
    return {};
  }

  int64_t file_bytes() const { return file_bytes_; }
  FileSum sum() const { return {sum_.bytes, checksum_.value()}; }

 private:
  ReadOnce(fs::path path, Descriptor fd, int64_t bytes)
      : path_(std::move(path)), fd_(std::move(fd)), file_bytes_(bytes) {}

  fs::path path_;
  Descriptor fd_;
  int64_t file_bytes_;
  FileSum sum_;
  Checksummer checksum_;
};

}  // namespace

Result<FileSum> stream_tensors(
    const fs::path& path, const std::function<Status(const SafeTensorsHeader&)>& begin,
    const std::function<Status(size_t tensor, int64_t offset, std::span<const std::byte>)>& piece) {
  SLUICE_ASSIGN(ReadOnce file, ReadOnce::open(path));
  uint64_t length = 0;
  if (file.file_bytes() < int64_t(kLengthBytes)) {
    return error("{}: {} bytes are too few for a safetensors file", path.string(), file.file_bytes());
  }
  SLUICE_TRY(file.read(std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMaxSafeTensorsHeader || int64_t(length) > file.file_bytes() - int64_t(kLengthBytes))
    return impossible_length(path, length, file.file_bytes());
  std::string text(size_t(length), '\0');
  SLUICE_TRY(file.read(std::as_writable_bytes(std::span(text))));
  const auto header =
      parse_safetensors_header(text, file.file_bytes() - int64_t(kLengthBytes) - int64_t(length));
  if (!header.ok()) return error_at(path.string(), header.error());
  SLUICE_TRY(begin(*header));
  std::vector<std::byte> bytes;
  for (size_t t = 0; t < header->tensors.size(); ++t) {
    const auto& [info, from, to] = header->tensors[t];
    for (int64_t at = from; at < to; at += kPieceBytes) {
      bytes.resize(size_t(std::min(kPieceBytes, to - at)));
      SLUICE_TRY(file.read(bytes));
      SLUICE_TRY(piece(t, at - from, bytes));
    }
  }
  return file.sum();
}

Result<TensorFiles> TensorFiles::open(const fs::path& path) {
  TensorFiles files(path);
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    SLUICE_TRY(path.extension() == ".json" ? files.add_shards(path) : files.add_file(path));
    return files;
  }
  SLUICE_TRY(check_downloaded(path, FolderUse::Weights));
  const bool whole = fs::exists(path / kWeightsName, ignored);
  const bool shards = fs::exists(path / kWeightsIndexName, ignored);
  files.passed_over_ = weights_in(path);
  if (whole) {
    SLUICE_TRY(files.add_file(path / kWeightsName));
    std::erase(files.passed_over_, kWeightsName);
  } else if (shards) {
    std::erase(files.passed_over_, kWeightsIndexName);
    SLUICE_TRY(files.add_shards(path / kWeightsIndexName));
  } else if (fs::exists(path / kAdapterName, ignored)) {
    SLUICE_TRY(files.add_file(path / kAdapterName));
    std::erase(files.passed_over_, kAdapterName);
  } else {
    return error(ErrorKind::NotFound, "{}: neither {} nor {} is there{}", path.string(), kWeightsName,
                 kWeightsIndexName, found_instead(path));
  }
  return files;
}

TensorFiles::Place TensorFiles::place_of(const SafeTensor& tensor) const {
  for (const SafeTensorsFile& file : files_) {
    if (const auto offset = file.place_of(tensor)) return {&file.path(), *offset};
  }
  SLUICE_CHECK(false, "tensor {} is of other files", tensor.info.name);
  return {};
}

Status TensorFiles::add_file(const fs::path& file) {
  SLUICE_ASSIGN(SafeTensorsFile opened, SafeTensorsFile::open(file));
  files_.push_back(std::move(opened));
  for (const SafeTensor& tensor : files_.back().tensors()) by_name_[tensor.info.name] = &tensor;
  return {};
}

Status TensorFiles::add_shards(const fs::path& index) {
  SLUICE_ASSIGN(const std::string text, read_file(index, kMaxSafeTensorsHeader));
  const auto weight_map = parse_safetensors_index(text);
  if (!weight_map.ok()) return error_at(index.string(), weight_map.error());
  std::map<std::string, std::map<std::string_view, const SafeTensor*>> shards;
  for (const auto& [tensor, file] : *weight_map) {
    const auto [shard, is_new] = shards.try_emplace(file);
    if (is_new) {
      std::erase(passed_over_, file);
      SLUICE_ASSIGN(SafeTensorsFile opened, SafeTensorsFile::open(index.parent_path() / file));
      files_.push_back(std::move(opened));
      for (const SafeTensor& t : files_.back().tensors()) shard->second[t.info.name] = &t;
    }
    const auto found = shard->second.find(tensor);
    if (found == shard->second.end()) {
      return error(ErrorKind::NotFound, "{}: tensor '{}' is not in {}", index.string(), tensor, file);
    }
    by_name_[tensor] = found->second;
  }
  // A loader that takes files whole finds what the index does not name, too.
  for (const auto& [file, tensors] : shards) {
    for (const auto& [name, tensor] : tensors) {
      const SafeTensor* const first = by_name_.try_emplace(std::string(name), tensor).first->second;
      if (first != tensor &&
          !std::equal(first->bytes.begin(), first->bytes.end(), tensor->bytes.begin(), tensor->bytes.end()))
        return error("{}: tensor '{}' is in {} and, with other numbers, in {}; keep one", index.string(),
                     name, weight_map->at(std::string(name)), file);
    }
  }
  return {};
}

const SafeTensor* TensorFiles::find(std::string_view name) const {
  auto found = by_name_.find(name);
  if (found == by_name_.end()) found = by_name_.find(name.substr(name.find('.') + 1));
  if (found == by_name_.end()) found = by_name_.find(std::string(kTextPart).append(name));
  if (found == by_name_.end())
    found = by_name_.find(std::string(kTextOfModel).append(name.substr(name.find('.') + 1)));
  if (found == by_name_.end()) found = by_name_.find(std::string(kAdapterPart).append(name));
  return found == by_name_.end() ? nullptr : found->second;
}

Result<const SafeTensor*> TensorFiles::get(std::string_view name) const {
  if (const SafeTensor* tensor = find(name)) return tensor;
  return error(ErrorKind::NotFound, "{}: no tensor '{}' among its {}", path_.string(), name, by_name_.size());
}

std::string TensorFiles::metadata(const std::string& key) const {
  const auto& all = files_.front().metadata();
  const auto found = all.find(key);
  return found == all.end() ? "" : found->second;
}

std::vector<std::string_view> TensorFiles::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, tensor] : by_name_) names.push_back(name);
  return names;
}

Result<SafeTensorsWriter> SafeTensorsWriter::create(const fs::path& path,
                                                    const std::vector<TensorInfo>& tensors,
                                                    const std::map<std::string, std::string>& metadata) {
  const std::string header = format_safetensors_header(tensors, metadata);
  if (int64_t(header.size()) > kMaxSafeTensorsHeader) {
    return error("{}: {} tensors need a header of {} bytes; the format allows {}", path.string(),
                 tensors.size(), header.size(), kMaxSafeTensorsHeader);
  }
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  const uint64_t length = header.size();
  SafeTensorsWriter writer(std::move(file));
  SLUICE_TRY(writer.append(0, std::as_bytes(std::span(&length, 1))));
  SLUICE_TRY(writer.append(kLengthBytes, std::as_bytes(std::span(header))));
  auto begin = static_cast<int64_t>(kLengthBytes + header.size());
  for (const TensorInfo& tensor : tensors) {
    const bool is_new = writer.slots_.try_emplace(tensor.name, Slot{begin, tensor.bytes()}).second;
    SLUICE_CHECK(is_new, "{}: tensor '{}' is declared twice", path.string(), tensor.name);
    begin += tensor.bytes();
  }
  return writer;
}

Status SafeTensorsWriter::write(std::string_view tensor, int64_t offset, std::span<const std::byte> bytes) {
  const auto slot = slots_.find(tensor);
  SLUICE_CHECK(slot != slots_.end(), "{}: tensor '{}' was not declared", file_.path().string(), tensor);
  auto& [begin, size, written] = slot->second;
  const auto count = static_cast<int64_t>(bytes.size());
  SLUICE_CHECK(offset >= 0 && count <= size - offset, "{}: tensor '{}' of {} bytes: write of {} bytes at {}",
               file_.path().string(), tensor, size, count, offset);
  written += count;
  return append(begin + offset, bytes);
}

Status SafeTensorsWriter::append(int64_t at, std::span<const std::byte> bytes) {
  if (at == summed_bytes_) {
    checksum_.add(bytes);
    summed_bytes_ += int64_t(bytes.size());
  }
  written_bytes_ += int64_t(bytes.size());
  return file_.write_at(at, bytes);
}

FileSum SafeTensorsWriter::sum() const {
  SLUICE_CHECK(summed_bytes_ == written_bytes_, "{}: {} of {} bytes came in order", file_.path().string(),
               summed_bytes_, written_bytes_);
  return {summed_bytes_, checksum_.value()};
}

Status SafeTensorsWriter::commit() {
  for (const auto& [name, slot] : slots_) {
    SLUICE_CHECK(slot.written == slot.bytes, "{}: tensor '{}': {} of {} bytes were written",
                 file_.path().string(), name, slot.written, slot.bytes);
  }
  return file_.commit();
}

}  // namespace sluice::core
