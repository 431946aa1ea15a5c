// SPDX-License-Identifier: Apache-2.0
// Slices of packed products (gemm_packed.h). Included by loops, inside the namespace of each instruction set,
// behind block_product.h.

// `depth` packed elements along k, `chunk` of which are multiplied before the next rows' turn. A is packed in
// blocks of 32 rows, each [k][row], or lies in place, as rows of `row_elements`.
template <class Mac, class C>
SLUICE_INLINE void multiply_slice_to(const Slice& s, int64_t depth, int64_t row_elements, int64_t chunk,
                                     bool packs_a, C* c) {
  const GemmShape& shape = *s.shape;
  const int64_t chunks = (depth + chunk - 1) / chunk, longest = (depth + chunks - 1) / chunks;
  for (int64_t panel = 0; panel < s.panels; ++panel) {
    const int64_t column = (s.first_panel + panel) * kPanel, cols = std::min(kPanel, shape.n - column);
    const float* b = static_cast<const float*>(s.packed) + panel * depth * kPanel;
    for (int64_t k = 0; k < depth; k += longest) {
      const int64_t count = std::min(longest, depth - k);
      for (int64_t block = 0; block < panels_of(s.rows); ++block) {
        const int64_t row = s.first_row + block * kPanel, rows = std::min(kPanel, s.first_row + s.rows - row);
        const Strided a =
            packs_a ? Strided{static_cast<const float*>(s.packed_a) + (block * depth + k) * kPanel, 1, kPanel}
                    : Strided{static_cast<const float*>(s.a) + row * row_elements + k, row_elements, 1};
        C* to = c + row * shape.n + column;
        if constexpr (std::is_same_v<C, float>) {
          if (cols == kPanel) {
            multiply_blocks<Mac>(rows, kPanel, count, a, b + k * kPanel, kPanel, to, shape.n,
                                 shape.accumulate || k > 0);
            continue;
          }
        }
        float* sums = s.sums + block * kPanel * kPanel;
        multiply_blocks<Mac>(rows, kPanel, count, a, b + k * kPanel, kPanel, sums, kPanel, k > 0);
        if (k + count == depth) put_block(sums, rows, cols, shape.accumulate, to, shape.n);
      }
    }
  }
}
template <class Mac>
SLUICE_INLINE void multiply_slice_by(const Slice& s, int64_t depth, int64_t row_elements, int64_t chunk,
                                     bool packs_a) {
  if (s.shape->out == DType::F32) {
    multiply_slice_to<Mac>(s, depth, row_elements, chunk, packs_a, static_cast<float*>(s.c));
  } else {
    multiply_slice_to<Mac>(s, depth, row_elements, chunk, packs_a, static_cast<Bf16*>(s.c));
  }
}
