// SPDX-License-Identifier: Apache-2.0
#include "io/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "base/stopwatch.h"
#include "io/descriptor.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Bytes that no file system makes smaller.
std::vector<std::byte> noise(size_t bytes) {
  std::vector<std::byte> out(bytes);
  uint64_t x = 0x9e3779b97f4a7c15;  // xorshift (Marsaglia)
  for (std::byte& b : out) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    b = std::byte(x >> 32);
  }
  return out;
}

}  // namespace

Result<int64_t> free_disk_bytes(const fs::path& path) {
  std::error_code code;
  fs::path there = fs::absolute(path, code).lexically_normal();
  while (!fs::exists(there, code) && there.has_relative_path()) there = there.parent_path();
  const fs::space_info space = fs::space(there, code);
  if (code) return file_error("ask what is free at", there, code.value());
  return int64_t(std::min<uintmax_t>(space.available, INT64_MAX));
}

Result<double> measure_disk(const fs::path& directory, int64_t most_bytes, double most_seconds) {
  const std::vector<std::byte> piece = noise(1 << 20);
  std::string name = (directory / ".disk-XXXXXX").string();
  const int made = ::mkostemp(name.data(), O_CLOEXEC);
  if (made < 0) return file_error("create a file in", directory);
  Descriptor fd(made);
  if (::unlink(name.c_str()) != 0) return file_error("remove", name);
  const Stopwatch watch;
  int64_t written = 0;
  while (written < most_bytes && watch.seconds() < most_seconds) {
    for (int i = 0; i < 16; ++i, written += int64_t(piece.size())) SLUICE_TRY(fd.write(piece, written, name));
    if (::fdatasync(fd.get()) != 0) return file_error("flush", name);
  }
  return double(written) / std::max(1e-9, watch.seconds());
}

}  // namespace sluice::core
