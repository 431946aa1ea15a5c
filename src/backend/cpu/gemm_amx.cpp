#include "backend/cpu/gemm_amx.h"

#include <algorithm>

#include "base/bytes.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kPackedBytes = 4 * kMiB;   // of B at once, unless a single panel is more
constexpr int64_t kSliceBytes = 768 * kKiB;  // of A per task, so that it stays in a core's second-level cache
constexpr int64_t kPanelsPerTask = 4;        // packed together, since they lie side by side
constexpr int64_t kPanel = 32;     // columns of B packed together, and rows of A multiplied together
constexpr int64_t kMaxChunk = 10;  // tiles along k that are multiplied before the next rows' turn

int64_t panels_of(int64_t n) {
  return (n + kPanel - 1) / kPanel;
}
int64_t depth_of(int64_t k) {
  return (k + 31) / 32;
}  // in tiles
int64_t panel_bytes(const GemmShape& s) {
  return depth_of(s.k) * 2 * kKiB;
}

int64_t panels_per_group(const GemmShape& s) {
  return std::clamp<int64_t>(kPackedBytes / panel_bytes(s), 1, panels_of(s.n));
}

int64_t max_slice_rows(const GemmShape& s) {
  return std::clamp<int64_t>(kSliceBytes / (depth_of(s.k) * 64) / kPanel, 1, 8) * kPanel;
}

// Rows per task: at least two tasks per thread where there are enough rows, all of about one size.
int64_t slice_rows(const GemmShape& s, int64_t threads) {
  const int64_t tasks = std::max(2 * threads, (s.m + max_slice_rows(s) - 1) / max_slice_rows(s));
  return panels_of((s.m + tasks - 1) / tasks) * kPanel;
}

// Where a task finds its share. All pointers are to the matrices' first elements.
struct Packing {
  const GemmShape* shape;
  const Bf16* b;
  Bf16* packed;
  int64_t first_panel;  // of the group
};
struct Slice {
  const GemmShape* shape;
  const Bf16* a;
  const Bf16* packed;
  void* c;
  int64_t first_row, rows;
  int64_t first_panel, panels;
  Bf16* packed_a;  // [rows, k] in tiles, if A needs packing
  float* sums;     // [rows, 32]
};

// A is read in place when its rows lie along k in whole tiles.
bool packs_a(const GemmShape& s) {
  return s.layout == Layout::TN || s.k % 32 != 0;
}

}  // namespace
}  // namespace sluice::cpu

#define SLUICE_LOOPS "backend/cpu/gemm_amx_loops.h"
#include "backend/cpu/amx_isa.h"

namespace sluice::cpu {

int64_t amx_workspace_bytes(const GemmShape& s) {
  return panels_per_group(s) * panel_bytes(s);
}

int64_t amx_scratch_bytes(const GemmShape& s) {
  // Slices are whole blocks, and a last block that is not full is packed even where A is read in place.
  const int64_t rows = max_slice_rows(s);
  return rows * depth_of(s.k) * 64 + rows * kPanel * int64_t{sizeof(float)};
}

void amx_multiply(const GemmShape& s, ThreadPool& pool, std::span<std::byte* const> scratch, const void* a,
                  const void* b, void* c, std::byte* workspace) {
  auto* packed = reinterpret_cast<Bf16*>(workspace);
  const int64_t panels = panels_of(s.n), group = panels_per_group(s);
  const int64_t rows = slice_rows(s, pool.threads()), slices = (s.m + rows - 1) / rows;
  for (int64_t first = 0; first < panels; first += group) {
    const int64_t count = std::min(group, panels - first);
    pool.parallel_for((count + kPanelsPerTask - 1) / kPanelsPerTask, [&](int64_t task, int) {
      const int64_t begin = task * kPanelsPerTask;
      const Packing packing{&s, static_cast<const Bf16*>(b), packed, first};
      SLUICE_AMX_LOOP(pack_panels, packing, begin, std::min(count, begin + kPanelsPerTask));
    });
    pool.parallel_for(slices, [&](int64_t slice, int worker) {
      std::byte* own = scratch[static_cast<size_t>(worker)];
      const Slice part{.shape = &s,
                       .a = static_cast<const Bf16*>(a),
                       .packed = packed,
                       .c = c,
                       .first_row = slice * rows,
                       .rows = std::min(rows, s.m - slice * rows),
                       .first_panel = first,
                       .panels = count,
                       .packed_a = reinterpret_cast<Bf16*>(own + rows * kPanel * int64_t{sizeof(float)}),
                       .sums = reinterpret_cast<float*>(own)};
      SLUICE_AMX_LOOP(multiply_slice, part);
    });
  }
}

}  // namespace sluice::cpu
