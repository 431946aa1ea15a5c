// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_files.h"

#include <unistd.h>

#include <algorithm>

#include "base/checksum.h"
#include "io/file.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kNames[] = {
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.model.v1",
    "tokenizer.model.v2",
    "tokenizer.model.v3",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
};

// Names of models that take more than text.
constexpr std::string_view kNamesOfWholes[] = {
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
};

constexpr size_t kCopiedBytes = 1 << 20;

// Up to all of `bytes` from `offset` on; 0 at the end of the file.
Result<size_t> read_at(const Descriptor& fd, std::span<std::byte> bytes, int64_t offset,
                       const fs::path& path) {
  while (true) {
    const ssize_t n = ::pread(fd.get(), bytes.data(), bytes.size(), offset);
    if (n >= 0) return size_t(n);
    if (errno != EINTR) return file_error("read", path);
  }
}

Result<FileSum> copy_file(const Descriptor& fd, const fs::path& from, const fs::path& to) {
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::create(to));
  FileSum sum;
  Checksummer checksum;
  std::vector<std::byte> piece(kCopiedBytes);
  while (true) {
    SLUICE_ASSIGN(const size_t n, read_at(fd, piece, sum.bytes, from));
    if (n == 0) break;
    const auto bytes = std::span(piece).first(n);
    SLUICE_TRY(file.write_at(sum.bytes, bytes));
    checksum.add(bytes);
    sum.bytes += int64_t(n);
  }
  SLUICE_TRY(file.commit());
  sum.checksum = checksum.value();
  return sum;
}

// The target of a link out of the folder would be published with the model. Links of a Hugging Face cache,
// DIR/snapshots/COMMIT/NAME -> ../../blobs/SUM, stay inside of DIR.
Status check_link(const fs::path& folder, const fs::path& path) {
  std::error_code code;
  if (!fs::is_symlink(path, code)) return {};
  const fs::path target = fs::canonical(path, code), real = fs::canonical(folder, code);
  fs::path inside = real;
  if (real.parent_path().filename() == "snapshots") inside = real.parent_path().parent_path();
  const fs::path from = target.lexically_relative(inside);
  if (!code && !from.empty() && *from.begin() != "..") return {};
  return error(
      ErrorKind::Io,
      "{} is a link out of its folder, to {}: it would be copied into checkpoints and exports; put the file "
      "itself there",
      path.string(), target.string());
}

}  // namespace

Status ModelFiles::add(const fs::path& folder, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const fs::path path = folder / name;
    std::error_code ignored;
    const auto same = [&](const File& file) { return file.path.filename() == name; };
    if (!fs::exists(path, ignored) || std::ranges::any_of(files_, same)) continue;
    SLUICE_TRY(check_link(folder, path));
    SLUICE_ASSIGN(Descriptor fd, Descriptor::open_to_read(path));
    SLUICE_ASSIGN(const int64_t bytes, fd.size(path));
    files_.push_back({path, std::move(fd), bytes});
  }
  return {};
}

Result<ModelFiles> ModelFiles::open(std::span<const fs::path> folders) {
  ModelFiles out;
  for (const fs::path& folder : folders) {
    SLUICE_TRY(out.add(folder, kNames));
    if (!out.files_.empty()) break;
  }
  return out;
}

Status ModelFiles::add_of_whole(const fs::path& folder) {
  SLUICE_TRY(add(folder, kNamesOfWholes));
  return add(folder, kNames);
}

void ModelFiles::replace(const std::map<std::string, std::string>& texts) {
  for (const auto& [name, text] : texts) {
    std::erase_if(files_, [&](const File& file) { return file.path.filename() == name; });
    files_.push_back({name, std::nullopt, std::ssize(text), text});
  }
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> out;
  for (const File& file : files_) out.push_back(file.path.filename());
  return out;
}

int64_t ModelFiles::bytes() const {
  int64_t sum = 0;
  for (const File& file : files_) sum += file.bytes;
  return sum;
}

Result<std::map<std::string, FileSum>> ModelFiles::copy_to(const fs::path& dir) const {
  std::map<std::string, FileSum> out;
  for (const File& file : files_) {
    const std::string name = file.path.filename();
    if (file.fd) {
      SLUICE_ASSIGN(out[name], copy_file(*file.fd, file.path, dir / name));
      continue;
    }
    SLUICE_TRY(write_file(dir / name, file.text));
    out[name] = {file.bytes, checksum_of(std::as_bytes(std::span(file.text)))};
  }
  return out;
}

}  // namespace sluice::core
