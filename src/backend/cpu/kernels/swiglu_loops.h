// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

// The share of a gate that is left of it, and what its derivative is times the gate, given that share and
// their product. All of them, and what is made of them, take one register after the other, as simd.h says.
struct Silu {
  template <class V>
  SLUICE_INLINE static V share(V gate) {
    return sigmoid(gate);
  }
  template <class V>
  SLUICE_INLINE static V growth(V, V share, V act) {
    return act * (1.0f - share) * (V{} + 1.0f);
  }
};
struct GeluTanh {
  static constexpr float kTwice = 1.5957691216057308f, kCubic = 0.044715f;  // 2 sqrt(2/pi)
  // Beyond, the sigmoid is 0 or 1, and the cube of what is still finite may not be.
  static constexpr float kMost = 16;
  template <class V>
  SLUICE_INLINE static V bounded(V gate) {
    return min(max(gate, V{} - kMost), V{} + kMost);
  }
  template <class V>
  SLUICE_INLINE static V share(V gate) {
    const V x = bounded(gate);
    return sigmoid(kTwice * (x + kCubic * (x * x * x)));
  }
  template <class V>
  SLUICE_INLINE static V growth(V gate, V share, V act) {
    const V x = bounded(gate);
    return act * (1.0f - share) * (kTwice * (1.0f + 3 * kCubic * (x * x)));
  }
};
struct Gelu {
  // By the library's complement of the error function, which keeps its precision where little is left.
  template <class V>
  SLUICE_INLINE static V share(V gate) {
    float x[kLanes<V>];
    store_lanes(x, gate);
    for (float& v : x) v = 0.5f * std::erfc(v * -0.7071067811865476f);
    return load_lanes<V>(x);
  }
  template <class V>
  SLUICE_INLINE static V growth(V gate, V, V) {
    return gate * (0.3989422804014327f * exp(gate * gate * -0.5f));  // 1 / sqrt(2 pi)
  }
};

struct QuickGelu {
  static constexpr float kSteep = 1.702f;
  template <class V>
  SLUICE_INLINE static V share(V gate) {
    return sigmoid(kSteep * gate);
  }
  template <class V>
  SLUICE_INLINE static V growth(V, V share, V act) {
    return act * (1.0f - share) * (V{} + kSteep);
  }
};

// Effects of a limit on gates, on the columns beside them, and of gradients: 1 where it is not, else 0. A NaN
// stays one, which min would not let it.
struct Limit {
  float most;  // 0: none
  template <class V>
  SLUICE_INLINE V gate(V x) const {
    return most == 0 ? x : select(x > most, V{} + most, x);
  }
  template <class V>
  SLUICE_INLINE V up(V x) const {
    return most > 0 ? V{} + 1.0f - gate(V{} - gate(x)) : x;
  }
  template <class V>
  SLUICE_INLINE V below(V x, V d) const {
    return most == 0 ? d : select(x > most, V{}, d);
  }
  template <class V>
  SLUICE_INLINE V within(V x, V d) const {
    return most > 0 ? below(V{} - x, below(x, d)) : d;
  }
};

// The one place where the activation is computed, so that forward and backward give the same bits.
template <class V>
SLUICE_INLINE V activate(V gate, V share, V up) {
  return gate * share * up;
}

template <class Gate, class V>
SLUICE_INLINE V activation_of(Limit limit, V x, V beside, bool plain) {
  if constexpr (kIsTwo<V>) {
    const auto low = activation_of<Gate>(limit, x.low, beside.low, plain);
    return {low, activation_of<Gate>(limit, x.high, beside.high, plain)};
  } else {
    const V gate = limit.gate(x);
    return activate(gate, Gate::share(gate), plain ? V{} + 1.0f : limit.up(beside));
  }
}

template <class V>
struct GluGradient {
  V y, gate, up;
};
template <class Gate, class V>
SLUICE_INLINE GluGradient<V> gradient_of(Limit limit, V x, V beside, V g, bool plain) {
  if constexpr (kIsTwo<V>) {
    const auto low = gradient_of<Gate>(limit, x.low, beside.low, g.low, plain);
    const auto high = gradient_of<Gate>(limit, x.high, beside.high, g.high, plain);
    return {{low.y, high.y}, {low.gate, high.gate}, {low.up, high.up}};
  } else {
    const V gate = limit.gate(x), up = plain ? V{} + 1.0f : limit.up(beside);
    const V share = Gate::share(gate), act = gate * share;
    return {activate(gate, share, up), limit.below(x, g * up * (share + Gate::growth(gate, share, act))),
            limit.within(beside, g * act)};
  }
}

// Rows of gates and of what they are multiplied with are `step` from the next; without `up` gates stand
// alone.
template <class Gate, class T>
void forward_of(const T* gate, const T* up, int64_t step, T* y, int64_t rows, int64_t dim, Limit limit) {
  const bool plain = up == nullptr;
  for (int64_t r = 0; r < rows; ++r, gate += step, y += dim) {
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 beside = plain ? F16{} : load(up + i, part);
      store(y + i, activation_of<Gate>(limit, load(gate + i, part), beside, plain), part);
    });
    if (!plain) up += step;
  }
}

template <class T>
void forward(const T* gate, const T* up, int64_t step, T* y, int64_t rows, int64_t dim,
             GateActivation activation, float most) {
  const Limit limit{most};
  switch (activation) {
    case GateActivation::Silu:
      return forward_of<Silu>(gate, up, step, y, rows, dim, limit);
    case GateActivation::GeluTanh:
      return forward_of<GeluTanh>(gate, up, step, y, rows, dim, limit);
    case GateActivation::Gelu:
      return forward_of<Gelu>(gate, up, step, y, rows, dim, limit);
    case GateActivation::QuickGelu:
      return forward_of<QuickGelu>(gate, up, step, y, rows, dim, limit);
  }
}

template <class Gate, class T>
void backward_of(const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t step, T* y, int64_t rows,
                 int64_t dim, Limit limit) {
  const bool plain = up == nullptr;
  for (int64_t r = 0; r < rows; ++r, gate += step, dgate += step, dy += dim, y += dim) {
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 beside = plain ? F16{} : load(up + i, part);
      const auto d = gradient_of<Gate>(limit, load(gate + i, part), beside, load(dy + i, part), plain);
      store(y + i, d.y, part);
      store(dgate + i, d.gate, part);
      if (!plain) store(dup + i, d.up, part);
    });
    if (!plain) up += step, dup += step;
  }
}

template <class T>
void backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t step, T* y, int64_t rows,
              int64_t dim, GateActivation activation, float most) {
  const Limit limit{most};
  switch (activation) {
    case GateActivation::Silu:
      return backward_of<Silu>(gate, up, dy, dgate, dup, step, y, rows, dim, limit);
    case GateActivation::GeluTanh:
      return backward_of<GeluTanh>(gate, up, dy, dgate, dup, step, y, rows, dim, limit);
    case GateActivation::Gelu:
      return backward_of<Gelu>(gate, up, dy, dgate, dup, step, y, rows, dim, limit);
    case GateActivation::QuickGelu:
      return backward_of<QuickGelu>(gate, up, dy, dgate, dup, step, y, rows, dim, limit);
  }
}

// Covers rows [first, last) of experts.
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
      const F16 given = load(dy + i, part);
      const auto d =
          gradient_of<Gate>(limit, load(gu + i, part), load(gu + dim + i, part), gate_of_row * given, false);
      dot += given * d.y;
      store(gated + i, gate_of_row * d.y, part);
      store(dgu + i, d.gate, part);
      store(dgu + dim + i, d.up, part);
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
