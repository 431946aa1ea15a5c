// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

// The share of a gate that is left of it, and what its derivative is times the gate, given that share and
// their product.
struct Silu {
  SLUICE_INLINE static F16 share(F16 gate) { return sigmoid(gate); }
  SLUICE_INLINE static F16 growth(F16, F16 share, F16 act) { return act * (1.0f - share) * (F16{} + 1.0f); }
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
  SLUICE_INLINE static F16 growth(F16 gate, F16 share, F16 act) {
    const F16 x = bounded(gate);
    return act * (1.0f - share) * (kTwice * (1.0f + 3 * kCubic * (x * x)));
  }
};
struct Gelu {
  // By the library's complement of the error function, which keeps its precision where little is left.
  SLUICE_INLINE static F16 share(F16 gate) {
    float x[kVec];
    store(x, gate);
    for (float& v : x) v = 0.5f * std::erfc(v * -0.7071067811865476f);
    return load(x);
  }
  SLUICE_INLINE static F16 growth(F16 gate, F16, F16) {
    return gate * (0.3989422804014327f * exp(gate * gate * -0.5f));  // 1 / sqrt(2 pi)
  }
};

struct QuickGelu {
  static constexpr float kSteep = 1.702f;
  SLUICE_INLINE static F16 share(F16 gate) { return sigmoid(kSteep * gate); }
  SLUICE_INLINE static F16 growth(F16, F16 share, F16 act) { return act * (1.0f - share) * (F16{} + kSteep); }
};

// What a limit makes of gates, of the columns beside them, and of gradients: 1 where it is not, else 0. A NaN
// stays one, which min would not let it.
struct Limit {
  float most;  // 0: none
  SLUICE_INLINE F16 gate(F16 x) const {
    if (most == 0) return x;
    for (int64_t i = 0; i < kVec; ++i) x[i] = x[i] > most ? most : x[i];
    return x;
  }
  SLUICE_INLINE F16 up(F16 x) const { return most > 0 ? F16{} + 1.0f - gate(F16{} - gate(x)) : x; }
  SLUICE_INLINE F16 below(F16 x, F16 d) const {
    if (most == 0) return d;
    for (int64_t i = 0; i < kVec; ++i) d[i] = x[i] > most ? 0.0f : d[i];
    return d;
  }
  SLUICE_INLINE F16 within(F16 x, F16 d) const { return most > 0 ? below(F16{} - x, below(x, d)) : d; }
};

// The one place where the activation is computed, so that forward and backward give the same bits.
SLUICE_INLINE F16 activate(F16 gate, F16 share, F16 up) {
  return gate * share * up;
}

template <class Gate, class T>
void forward_of(const T* gu, T* y, int64_t rows, int64_t dim, bool plain, Limit limit) {
  for (int64_t r = 0; r < rows; ++r, gu += plain ? dim : 2 * dim, y += dim) {
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 gate = limit.gate(load(gu + i, part));
      const F16 up = plain ? F16{} + 1.0f : limit.up(load(gu + dim + i, part));
      store(y + i, activate(gate, Gate::share(gate), up), part);
    });
  }
}

template <class T>
void forward(const T* gu, T* y, int64_t rows, int64_t dim, GateActivation activation, bool plain,
             float most) {
  const Limit limit{most};
  switch (activation) {
    case GateActivation::Silu:
      return forward_of<Silu>(gu, y, rows, dim, plain, limit);
    case GateActivation::GeluTanh:
      return forward_of<GeluTanh>(gu, y, rows, dim, plain, limit);
    case GateActivation::Gelu:
      return forward_of<Gelu>(gu, y, rows, dim, plain, limit);
    case GateActivation::QuickGelu:
      return forward_of<QuickGelu>(gu, y, rows, dim, plain, limit);
  }
}

template <class Gate, class T>
void backward_of(const T* gu, const T* dy, T* dgu, T* y, int64_t rows, int64_t dim, bool plain, Limit limit) {
  const int64_t step = plain ? dim : 2 * dim;
  for (int64_t r = 0; r < rows; ++r, gu += step, dgu += step, dy += dim, y += dim) {
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 x = load(gu + i, part), beside = plain ? F16{} : load(gu + dim + i, part);
      const F16 gate = limit.gate(x), up = plain ? F16{} + 1.0f : limit.up(beside), g = load(dy + i, part);
      const F16 share = Gate::share(gate), act = gate * share;
      store(y + i, activate(gate, share, up), part);
      store(dgu + i, limit.below(x, g * up * (share + Gate::growth(gate, share, act))), part);
      if (!plain) store(dgu + dim + i, limit.within(beside, g * act), part);
    });
  }
}

template <class T>
void backward(const T* gu, const T* dy, T* dgu, T* y, int64_t rows, int64_t dim, GateActivation activation,
              bool plain, float most) {
  const Limit limit{most};
  switch (activation) {
    case GateActivation::Silu:
      return backward_of<Silu>(gu, dy, dgu, y, rows, dim, plain, limit);
    case GateActivation::GeluTanh:
      return backward_of<GeluTanh>(gu, dy, dgu, y, rows, dim, plain, limit);
    case GateActivation::Gelu:
      return backward_of<Gelu>(gu, dy, dgu, y, rows, dim, plain, limit);
    case GateActivation::QuickGelu:
      return backward_of<QuickGelu>(gu, dy, dgu, y, rows, dim, plain, limit);
  }
}

// Of rows [first, last) of experts.
template <class Gate, class T>
void expert_backward_of(const GluRows<T>& all, int64_t first, int64_t last, Limit limit) {
  const int64_t dim = all.dim;
  int64_t expert = 0;
  for (int64_t row = first; row < last; ++row) {
    const int64_t choice = all.choice[row];
    const float gate_of_row = all.gates[choice];
    const T *gu = all.gu + row * 2 * dim, *dy = all.dy + row * dim;
    T *dgu = all.dgu + row * 2 * dim, *gated = all.gated + row * dim;
    F16 dot{};
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 x = load(gu + i, part), beside = load(gu + dim + i, part);
      const F16 gate = limit.gate(x), up = limit.up(beside), given = load(dy + i, part);
      const F16 share = Gate::share(gate), act = gate * share, y = activate(gate, share, up);
      const F16 g = gate_of_row * given;
      dot += given * y;
      store(gated + i, gate_of_row * y, part);
      store(dgu + i, limit.below(x, g * up * (share + Gate::growth(gate, share, act))), part);
      store(dgu + dim + i, limit.within(beside, g * act), part);
    });
    if (all.bias != nullptr) {
      while (all.begin[expert + 1] <= row) ++expert;
      const T *bias = all.bias + expert * all.biased, *dout = all.dout + choice / all.top_k * all.biased;
      for_each_vector(all.biased, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
        dot += load(bias + i, part) * load(dout + i, part);
      });
    }
    all.dgates[choice] = sum(dot);
  }
}

template <class T>
void expert_backward(const GluRows<T>& all, int64_t first, int64_t last, GateActivation activation,
                     float most) {
  const Limit limit{most};
  switch (activation) {
    case GateActivation::Silu:
      return expert_backward_of<Silu>(all, first, last, limit);
    case GateActivation::GeluTanh:
      return expert_backward_of<GeluTanh>(all, first, last, limit);
    case GateActivation::Gelu:
      return expert_backward_of<Gelu>(all, first, last, limit);
    case GateActivation::QuickGelu:
      return expert_backward_of<QuickGelu>(all, first, last, limit);
  }
}
