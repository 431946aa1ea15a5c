// SPDX-License-Identifier: Apache-2.0
// Reading and writing safetensors files, single or sharded.
//
// A file is an 8-byte little-endian header length, a JSON header (safetensors_header.h) and the tensors'
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/status.h"
#include "io/file.h"
#include "io/safetensors_header.h"

namespace sluice::core {

// A tensor inside a mapped file: row-major, little-endian, not necessarily aligned to its element size.
struct SafeTensor {
  TensorInfo info;
  std::span<const std::byte> bytes;
};

// One mapped file. Views stay valid while the object, or what it was moved to, lives.
class SafeTensorsFile {
 public:
  static Result<SafeTensorsFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  std::span<const SafeTensor> tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // The byte of the file at which a tensor of its begins; nothing: it is of another file.
  std::optional<int64_t> place_of(const SafeTensor& tensor) const;
  // As MappedFile::release().
  void release() const { file_.release(); }

 private:
  explicit SafeTensorsFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::vector<SafeTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// The map from tensor to file name of a shard index, whose text may be anything. Names are plain: an index
// does not reach outside its directory.
Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view text);

// The prefix of a text model's tensors within another model.
constexpr std::string_view kTextPart = "language_model.", kTextOfModel = "model.language_model.";
// Whether a tensor of such a model is of its text model.
inline bool is_of_text(std::string_view name) {
  return name.starts_with(kTextPart) || name.starts_with(kTextOfModel);
}

// And what PEFT puts in front of names of adapters, and of what is trained beside them.
constexpr std::string_view kAdapterPart = "base_model.model.";

// The tensors of a checkpoint, wherever its files put them.
class TensorFiles {
 public:
  // `path` is a .safetensors file, a shard index (*.index.json), or a directory that holds model.safetensors
  // or model.safetensors.index.json: of both, as transformers does, the single file; or else an adapter's
  // file. Every tensor that an index lists must be in the file it names.
  static Result<TensorFiles> open(const std::filesystem::path& path);

  // Null when there is no such tensor. One whose file was written of the model without its head lacks the
  // first part of the name, up to a dot. One of a model that wraps it has kTextPart in front, or kTextOfModel
  // for its first part, and an adapter's kAdapterPart.
  const SafeTensor* find(std::string_view name) const;
  // The same with an error that names the checkpoint.
  Result<const SafeTensor*> get(std::string_view name) const;

  // Where a tensor of theirs begins.
  struct Place {
    const std::filesystem::path* file;
    int64_t offset;
  };
  Place place_of(const SafeTensor& tensor) const;

  // In order.
  std::vector<std::string_view> names() const;
  // As MappedFile::release(): to be called while loading, so that a checkpoint does not become resident as a
  // whole.
  void release() const {
    for (const SafeTensorsFile& file : files_) file.release();
  }
  const std::filesystem::path& path() const { return path_; }
  // A value of the first file's metadata; empty: there is none.
  std::string metadata(const std::string& key) const;
  // Names of what weights lie in the directory beside those that are read; rising.
  const std::vector<std::string>& passed_over() const { return passed_over_; }

 private:
  explicit TensorFiles(std::filesystem::path path) : path_(std::move(path)) {}
  Status add_file(const std::filesystem::path& file);
  Status add_shards(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::vector<std::string> passed_over_;
  std::vector<SafeTensorsFile> files_;
  std::map<std::string, const SafeTensor*, std::less<>> by_name_;
};

// Size and checksum of a file.
struct FileSum {
  int64_t bytes = 0;
  Checksum checksum;

  bool operator==(const FileSum&) const = default;
};

// Reads a file once, from its first byte to its last, in pieces: nothing is mapped, and what was read does
// not stay in the page cache. Calls `begin` with its header, then `piece` with the index of each tensor there
// and bytes of it from `offset` on, whole elements, in order. The first error of either ends it.
Result<FileSum> stream_tensors(
    const std::filesystem::path& path, const std::function<Status(const SafeTensorsHeader&)>& begin,
    const std::function<Status(size_t tensor, int64_t offset, std::span<const std::byte>)>& piece);

// Writes one file of tensors declared in advance, so that a checkpoint never has to be in memory whole. The
// file appears at its path on commit(), complete and durable (AtomicFile).
class SafeTensorsWriter {
 public:
  // Names must differ. Hugging Face readers want metadata {"format": "pt"}.
  static Result<SafeTensorsWriter> create(const std::filesystem::path& path,
                                          const std::vector<TensorInfo>& tensors,
                                          const std::map<std::string, std::string>& metadata = {});

  // Writes a piece of a declared tensor at byte `offset` inside it. Pieces come in any order; each byte once.
  Status write(std::string_view tensor, int64_t offset, std::span<const std::byte> bytes);

  // REQUIRES: every tensor is complete.
  Status commit();

  // The sum of the file that commit() makes. REQUIRES: so far, pieces came in the order of the file.
  FileSum sum() const;

 private:
  struct Slot {
    int64_t begin, bytes, written = 0;
  };
  explicit SafeTensorsWriter(AtomicFile file) : file_(std::move(file)) {}
  Status append(int64_t at, std::span<const std::byte> bytes);

  AtomicFile file_;
  Checksummer checksum_;  // of bytes [0, summed_bytes_)
  int64_t summed_bytes_ = 0, written_bytes_ = 0;
  std::map<std::string, Slot, std::less<>> slots_;
};

}  // namespace sluice::core
