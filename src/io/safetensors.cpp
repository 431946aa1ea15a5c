// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace sluice::core {
namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the file formats are little-endian");

namespace {

constexpr size_t kLengthBytes = 8;
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

// The map from tensor to file name of a shard index.
Result<std::map<std::string, std::string>> read_weight_map(const fs::path& index) {
  SLUICE_ASSIGN(const std::string text, read_file(index));
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto map = document.is_object() ? document.find("weight_map") : document.end();
  if (map == document.end() || !map->is_object()) return error("{}: no object 'weight_map'", index.string());
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    // A plain name: an index must not reach outside its directory.
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    const bool plain = !name.empty() && fs::path(name).filename() == name && name != "." && name != "..";
    if (!plain) return error("{}: tensor '{}': {} is not a file name", index.string(), tensor, file.dump());
    files[tensor] = name;
  }
  return files;
}

}  // namespace

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
    return error("{}: header length {} is not possible in a safetensors file of {} bytes (limit {})",
                 path.string(), length, bytes.size(), kMaxSafeTensorsHeader);
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

Result<TensorFiles> TensorFiles::open(const fs::path& path) {
  TensorFiles files(path);
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    SLUICE_TRY(path.extension() == ".json" ? files.add_shards(path) : files.add_file(path));
  } else if (fs::exists(path / kIndexName, ignored)) {
    SLUICE_TRY(files.add_shards(path / kIndexName));
  } else if (fs::exists(path / kSingleName, ignored)) {
    SLUICE_TRY(files.add_file(path / kSingleName));
  } else {
    return error(ErrorKind::NotFound, "{}: neither {} nor {} is there", path.string(), kSingleName,
                 kIndexName);
  }
  return files;
}

Status TensorFiles::add_file(const fs::path& file) {
  SLUICE_ASSIGN(SafeTensorsFile opened, SafeTensorsFile::open(file));
  files_.push_back(std::move(opened));
  for (const SafeTensor& tensor : files_.back().tensors()) by_name_[tensor.info.name] = &tensor;
  return {};
}

Status TensorFiles::add_shards(const fs::path& index) {
  SLUICE_ASSIGN(const auto weight_map, read_weight_map(index));
  std::map<std::string, std::map<std::string_view, const SafeTensor*>> shards;
  for (const auto& [tensor, file] : weight_map) {
    const auto [shard, is_new] = shards.try_emplace(file);
    if (is_new) {
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
  return {};
}

const SafeTensor* TensorFiles::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Result<const SafeTensor*> TensorFiles::get(std::string_view name) const {
  if (const SafeTensor* tensor = find(name)) return tensor;
  return error(ErrorKind::NotFound, "{}: no tensor '{}' among its {}", path_.string(), name, by_name_.size());
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
  SLUICE_TRY(file.write_at(0, std::as_bytes(std::span(&length, 1))));
  SLUICE_TRY(file.write_at(kLengthBytes, header));

  SafeTensorsWriter writer(std::move(file));
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
  return file_.write_at(begin + offset, bytes);
}

Status SafeTensorsWriter::commit() {
  for (const auto& [name, slot] : slots_) {
    SLUICE_CHECK(slot.written == slot.bytes, "{}: tensor '{}': {} of {} bytes were written",
                 file_.path().string(), name, slot.written, slot.bytes);
  }
  return file_.commit();
}

}  // namespace sluice::core
