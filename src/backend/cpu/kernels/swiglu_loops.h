// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

// The sigmoid that a gate is multiplied by, and how fast its argument grows with the gate.
struct Silu {
  SLUICE_INLINE static F16 share(F16 gate) { return sigmoid(gate); }
  SLUICE_INLINE static F16 slope(F16) { return F16{} + 1.0f; }
};
struct GeluTanh {
  static constexpr float kTwice = 1.5957691216057308f, kCubic = 0.044715f;  // 2 sqrt(2/pi)
  // Beyond, the sigmoid is 0 or 1, and the cube of what is still finite may not be.
  static constexpr float kMost = 16;
  SLUICE_INLINE static F16 bounded(F16 gate) { return min(max(gate, F16{} - kMost), F16{} + kMost); }
  SLUICE_INLINE static F16 share(F16 gate) {
    const F16 x = bounded(gate);
    return sigmoid(kTwice * (x + kCubic * (x * x * x)));
  }
  SLUICE_INLINE static F16 slope(F16 gate) {
    const F16 x = bounded(gate);
    return kTwice * (1.0f + 3 * kCubic * (x * x));
  }
};

// The one place where the activation is computed, so that forward and backward give the same bits.
SLUICE_INLINE F16 activate(F16 gate, F16 sig, F16 up) {
  return gate * sig * up;
}

template <class Gate, class T>
void forward_of(const T* gu, T* y, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, gu += 2 * dim, y += dim) {
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 gate = load(gu + i, part), up = load(gu + dim + i, part);
      store(y + i, activate(gate, Gate::share(gate), up), part);
    });
  }
}

template <class T>
void forward(const T* gu, T* y, int64_t rows, int64_t dim, GateActivation activation) {
  const bool silu = activation == GateActivation::Silu;
  silu ? forward_of<Silu>(gu, y, rows, dim) : forward_of<GeluTanh>(gu, y, rows, dim);
}

template <class Gate, class T>
void backward_of(const T* gu, const T* dy, T* dgu, T* y, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, gu += 2 * dim, dgu += 2 * dim, dy += dim, y += dim) {
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 gate = load(gu + i, part), up = load(gu + dim + i, part), g = load(dy + i, part);
      const F16 sig = Gate::share(gate), act = gate * sig;
      store(y + i, activate(gate, sig, up), part);
      store(dgu + i, g * up * (sig + act * (1.0f - sig) * Gate::slope(gate)), part);
      store(dgu + dim + i, g * act, part);
    });
  }
}

template <class T>
void backward(const T* gu, const T* dy, T* dgu, T* y, int64_t rows, int64_t dim, GateActivation activation) {
  const bool silu = activation == GateActivation::Silu;
  silu ? backward_of<Silu>(gu, dy, dgu, y, rows, dim) : backward_of<GeluTanh>(gu, dy, dgu, y, rows, dim);
}
