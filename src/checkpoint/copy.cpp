// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/copy.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>

#include "base/bytes.h"
#include "base/parallel.h"
#include "checkpoint/compact.h"

namespace sluice::core {
namespace {

// The tile that one thread copies at a time, and that is given back at once.
constexpr int64_t kTileBytes = 8 << 20;

struct Tile {
  StoredPart part;
  int64_t offset, bytes;
};

std::vector<Tile> tiles_of(const CheckpointLayout& layout) {
  std::vector<Tile> out;
  for (const auto* file : {&layout.weights, &layout.state}) {
    for (const StoredTensor& tensor : *file) {
      for (const StoredPart& part : tensor.parts) {
        for (int64_t at = 0; at < part.bytes; at += kTileBytes)
          out.push_back({part, at, std::min(kTileBytes, part.bytes - at)});
      }
      for (const StoredPart& residual : tensor.residuals) out.push_back({residual, 0, residual.bytes});
    }
  }
  return out;
}

}  // namespace

Status read_part(const Executor& executor, const StoredPart& part, int64_t offset, std::span<std::byte> to) {
  if (!part.packed) return executor.read(part.object, to, part.offset + offset);
  constexpr int64_t kSize = size_of(DType::BF16);
  const Object& object = executor.program().object(part.object);
  const int64_t first = (part.offset + offset) / kSize, count = int64_t(to.size()) / kSize;
  const NumberFormat codes = object.format.type;
  const int64_t block = object.format.block, in_block = first % block, scale = size_of(object.format.scale);
  PackedBlocks blocks;
  blocks.elements.resize(size_t(codes.bytes(count)));
  blocks.scales.resize(size_t((in_block + count + block - 1) / block * scale));
  SLUICE_TRY(executor.read(part.object, blocks.elements, codes.bytes(first)));
  SLUICE_TRY(
      executor.read(part.object, blocks.scales, codes.bytes(object.elements()) + first / block * scale));
  std::vector<float> values(static_cast<size_t>(count));
  unpack(object.format, blocks, in_block, values);
  for (size_t i = 0; i < values.size(); ++i) {
    const Bf16 value(values[i]);
    std::memcpy(to.data() + i * sizeof value, &value, sizeof value);
  }
  return {};
}

PartReader reader_of(const Executor& executor) {
  auto piece = std::make_shared<std::vector<std::byte>>();
  return [piece, &executor](const StoredPart& part, int64_t offset,
                            int64_t bytes) -> Result<std::span<const std::byte>> {
    piece->resize(size_t(bytes));
    SLUICE_TRY(read_part(executor, part, offset, *piece));
    return std::span<const std::byte>(*piece);
  };
}

Result<StateCopy> StateCopy::take(const CheckpointLayout& layout, const Executor& executor) {
  const auto bytes = size_t(std::max<int64_t>(1, layout.part_bytes));
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return error(ErrorKind::Io, "a copy of the state: {} cannot be had: {}", format_bytes(layout.part_bytes),
                 std::generic_category().message(errno));
  }
  StateCopy copy({static_cast<std::byte*>(memory), bytes});
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // fewer faults, where the kernel can
  const std::vector<Tile> tiles = tiles_of(layout);
  std::mutex mutex;
  Status first_error;
  std::atomic<bool> stop = false;
  const auto take_tile = [&](int64_t index) {
    const Tile& tile = tiles[size_t(index)];
    const auto to = copy.memory_.subspan(size_t(tile.part.position + tile.offset), size_t(tile.bytes));
    const Status read = read_part(executor, tile.part, tile.offset, to);
    if (read.ok()) return;
    const std::lock_guard lock(mutex);
    if (first_error.ok()) first_error = read;
    stop = true;
  };
  const int threads = int(std::clamp<int64_t>(layout.part_bytes / kTileBytes, 1, search_threads()));
  for_each_parallel(int64_t(tiles.size()), threads, stop, take_tile);
  SLUICE_TRY(first_error);
  return copy;
}

StateCopy::~StateCopy() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

PartReader StateCopy::reader() {
  return [this](const StoredPart& part, int64_t offset, int64_t bytes) -> Result<std::span<const std::byte>> {
    const int64_t at = part.position + offset;
    const int64_t read = at / kTileBytes * kTileBytes;  // whole tiles, which are whole pages
    if (read > released_bytes_ && !part.again) {
      ::madvise(memory_.data() + released_bytes_, size_t(read - released_bytes_), MADV_DONTNEED);
      released_bytes_ = read;
    }
    return std::span<const std::byte>(memory_).subspan(size_t(at), size_t(bytes));
  };
}

}  // namespace sluice::core
