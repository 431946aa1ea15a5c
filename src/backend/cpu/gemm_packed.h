// SPDX-License-Identifier: Apache-2.0
// The frame of our own products: B is packed a group of columns at a time by all threads, then each thread
// multiplies slices of rows of A with it. An element of C is the sum over k in order, whatever the cut.
#pragma once

#include <algorithm>
#include <span>

#include "backend/cpu/gemm.h"
#include "base/bytes.h"

namespace sluice::core::cpu {

constexpr int64_t kPanel = 32;              // columns of B packed together, and rows of A multiplied together
constexpr int64_t kUnitsPerTask = 2;        // packed by one task
constexpr int64_t kPackedBytes = 4 * kMiB;  // of B at once, unless a single panel is more
constexpr int64_t kSliceBytes = 768 * kKiB;  // of A per task, so that it stays in a core's second-level cache
constexpr int64_t kMaxSlicePanels = 8;

// A packing of panels [first_panel, first_panel + panels) of B. A task takes some units: panels where the
// rows of B lie along k, else pieces of 32 along k. Either way it reads whole rows.
struct Packing {
  const GemmShape* shape;
  int64_t
      row;  // elements of a matrix's row along k: those of the shape, or of the product that it is a part of
  const void* b;
  void* packed;
  int64_t first_panel, panels;
};

// A product of rows [first_row, first_row + rows) of A with panels [first_panel, first_panel + panels) of B.
// a and c point to the first elements of their matrices.
struct Slice {
  const GemmShape* shape;
  int64_t row;  // as Packing has it
  const void *a, *packed;
  void* c;
  int64_t first_row, rows;
  int64_t first_panel, panels;
  void* packed_a;  // [rows, k], for a kernel that packs A
  float* sums;     // [rows, 32]
};

constexpr int64_t panels_of(int64_t n) {
  return (n + kPanel - 1) / kPanel;
}

// The sizes of a product whose packed elements along k take `k_bytes` for each row or column, padding
// included, and whose slices have a multiple of `grain` rows.
class PackedSizes {
 public:
  PackedSizes(const GemmShape& shape, int64_t k_bytes, int64_t grain)
      : shape_(shape), k_bytes_(k_bytes), grain_(grain) {}

  int64_t group_panels() const {
    return std::clamp<int64_t>(kPackedBytes / (kPanel * k_bytes_), 1, panels_of(shape_.n));
  }
  int64_t max_slice_rows() const {
    return std::clamp<int64_t>(kSliceBytes / (kPanel * k_bytes_), 1, kMaxSlicePanels) * kPanel;
  }
  // At least two slices per thread where there are enough rows, as many for each, all of about one size.
  int64_t slice_rows(int64_t threads) const {
    const int64_t least = std::max(2 * threads, (shape_.m + max_slice_rows() - 1) / max_slice_rows());
    return align_up((shape_.m + align_up(least, threads) - 1) / align_up(least, threads), grain_);
  }
  int64_t sums_bytes() const { return max_slice_rows() * kPanel * int64_t{sizeof(float)}; }
  int64_t workspace_bytes() const { return group_panels() * kPanel * k_bytes_; }
  int64_t scratch_bytes() const { return sums_bytes() + max_slice_rows() * k_bytes_; }

 private:
  GemmShape shape_;
  int64_t k_bytes_;
  int64_t grain_;
};

// `pack(packing, begin, end)` packs units [begin, end) of a group; `multiply(slice)` multiplies.
template <class Pack, class Multiply>
void multiply_packed(const GemmShape& s, int64_t row, const PackedSizes& sizes, ThreadPool& pool,
                     std::span<std::byte* const> scratch, const void* a, const void* b, void* c,
                     std::byte* workspace, const Pack& pack, const Multiply& multiply) {
  const int64_t panels = panels_of(s.n), group = sizes.group_panels();
  const int64_t rows = sizes.slice_rows(pool.threads()), slices = (s.m + rows - 1) / rows;
  for (int64_t first = 0; first < panels; first += group) {
    const int64_t count = std::min(group, panels - first);
    const int64_t units = s.layout == Layout::NT ? count : panels_of(s.k);
    pool.parallel_for((units + kUnitsPerTask - 1) / kUnitsPerTask, [&](int64_t task, int) {
      const int64_t begin = task * kUnitsPerTask;
      pack(Packing{&s, row, b, workspace, first, count}, begin, std::min(units, begin + kUnitsPerTask));
    });
    pool.parallel_for(slices, [&](int64_t slice, int worker) {
      std::byte* own = scratch[static_cast<size_t>(worker)];
      multiply(Slice{.shape = &s,
                     .row = row,
                     .a = a,
                     .packed = workspace,
                     .c = c,
                     .first_row = slice * rows,
                     .rows = std::min(rows, s.m - slice * rows),
                     .first_panel = first,
                     .panels = count,
                     .packed_a = own + sizes.sums_bytes(),
                     .sums = reinterpret_cast<float*>(own)});
    });
  }
}

}  // namespace sluice::core::cpu
