// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

template <class X, class Y>
void convert(const X* x, Y* y, int64_t n) {
  for_each_vector(n, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(y + i, load(x + i, part), part); });
}

// Elements [begin, end), of which blocks of `block` have a scale each.
template <class Number, class Scale, class Y>
void expand_codes(const Number& number, const Scale& scale, int64_t block, Y* y, int64_t begin, int64_t end) {
  constexpr int64_t kFloats = 512;
  alignas(64) float values[kFloats];
  for (int64_t first = begin; first < end; first += kFloats) {
    const int64_t last = std::min(end, first + kFloats);
    for (int64_t at = first, next = 0; at < last; at = next) {
      next = std::min(last, (at / block + 1) * block);
      const float s = scale(at / block);
      for (int64_t i = at; i < next; ++i) values[i - first] = number(i) * s;
    }
    convert(values, y + first, last - first);
  }
}

template <class T>
uint32_t magnitude_bits(T x) {
  return bits_of_float(static_cast<float>(x)) & 0x7fffffffu;
}

template <class F8, class T>
void quantize_rows(F8, const T* x, int64_t rows, int64_t cols, uint8_t* y, float* scales) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    uint32_t most = 0;
    for (int64_t c = 0; c < cols; ++c) most = std::max(most, magnitude_bits(x[c]));
    scales[r] = F8::scale(float_of_bits(most));
    const float inverse = 1 / scales[r];
    for (int64_t c = 0; c < cols; ++c) y[c] = F8::code(static_cast<float>(x[c]) * inverse);
  }
}

// The first `count` columns of x, at most kTile; each becomes a row of y.
template <class F8, class T>
void quantize_columns(F8, const T* x, int64_t rows, int64_t stride, int64_t count, uint8_t* y,
                      float* scales) {
  constexpr int64_t kTile = 64;
  uint32_t most[kTile] = {};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < count; ++c) most[c] = std::max(most[c], magnitude_bits(x[r * stride + c]));
  }
  float inverse[kTile];
  for (int64_t c = 0; c < count; ++c) {
    scales[c] = F8::scale(float_of_bits(most[c]));
    inverse[c] = 1 / scales[c];
  }
  uint8_t tile[kTile][kTile];
  for (int64_t first = 0; first < rows; first += kTile) {
    const int64_t n = std::min(kTile, rows - first);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < count; ++c)
        tile[c][r] = F8::code(static_cast<float>(x[(first + r) * stride + c]) * inverse[c]);
    }
    for (int64_t c = 0; c < count; ++c) std::memcpy(y + c * rows + first, tile[c], static_cast<size_t>(n));
  }
}

template <class T>
void scale(const T* x, float s, T* y, int64_t n) {
  for_each_vector(
      n, [&](int64_t i, auto part) SLUICE_INLINE_BODY { store(y + i, load(x + i, part) * s, part); });
}
