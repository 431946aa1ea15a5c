// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

// The one place where the activation is computed, so that forward and backward give the same bits.
SLUICE_INLINE F16 activate(F16 gate, F16 sig, F16 up) {
  return gate * sig * up;
}

template <class T>
void forward(const T* gu, T* y, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, gu += 2 * dim, y += dim) {
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 gate = load(gu + i, part), up = load(gu + dim + i, part);
      store(y + i, activate(gate, sigmoid(gate), up), part);
    });
  }
}

template <class T>
void backward(const T* gu, const T* dy, T* dgu, T* y, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, gu += 2 * dim, dgu += 2 * dim, dy += dim, y += dim) {
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 gate = load(gu + i, part), up = load(gu + dim + i, part), g = load(dy + i, part);
      const F16 sig = sigmoid(gate), silu = gate * sig;
      store(y + i, activate(gate, sig, up), part);
      store(dgu + i, g * up * (sig + silu * (1.0f - sig)), part);
      store(dgu + dim + i, g * silu, part);
    });
  }
}
