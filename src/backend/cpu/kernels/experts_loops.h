// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

// sum (+)= scale x; and y = sum (+ residual). Of `dim` columns each.
template <class T>
void add_scaled(const T* x, float scale, bool begins, float* sum, int64_t dim) {
  for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 v = load(x + i, part) * scale;
    store(sum + i, begins ? v : load(sum + i, part) + v, part);
  });
}
template <class T>
void put_sum(const float* sum, const T* residual, T* y, int64_t dim) {
  for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    const F16 v = load(sum + i, part);
    store(y + i, residual == nullptr ? v : v + load(residual + i, part), part);
  });
}

template <class T>
void gated_add(const T* x, const float* gate, const T* residual, T* y, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, x += dim, y += dim) {
    const F16 share = sigmoid(splat(gate[r]));
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 v = share * load(x + i, part);
      store(y + i, residual == nullptr ? v : v + load(residual + i, part), part);
    });
    if (residual != nullptr) residual += dim;
  }
}

template <class T>
void gated_add_bwd(const T* x, const float* gate, const T* dy, T* dx, T* dgate, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, x += dim, dy += dim, dx += dim) {
    const F16 share = sigmoid(splat(gate[r]));
    F16 dot{};
    for_each_vector(dim, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
      const F16 g = load(dy + i, part);
      dot += g * load(x + i, part);
      store(dx + i, share * g, part);
    });
    dgate[r] = T(sum(dot) * first(share) * (1.0f - first(share)));
  }
}

// p[e] = exp(logits[e] - max) / sum of these; returns log(sum of exp(logits[e])).
inline float softmax_row(const float* logits, int64_t experts, float* p) {
  F16 most = splat(-INFINITY);
  for_each_vector(experts, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    F16 x = load(logits + i, part);
    if constexpr (!std::is_same_v<decltype(part), Whole>) {
      x = select(first_lanes(part), x, splat(-INFINITY));
    }
    most = max(most, x);
  });
  const float top = max(most);
  F16 all{};
  for_each_vector(experts, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    F16 e = exp(load(logits + i, part) - top);
    if constexpr (!std::is_same_v<decltype(part), Whole>) {
      e = select(first_lanes(part), e, F16{});
    }
    all += e;
    store(p + i, e, part);
  });
  const float total = sum(all), share = 1.0f / total;
  for_each_vector(experts, [&](int64_t i, auto part)
                               SLUICE_INLINE_BODY { store(p + i, load(p + i, part) * share, part); });
  return top + std::log(total);
}

inline void sigmoid_row(const float* logits, int64_t count, float* s) {
  for_each_vector(count, [&](int64_t i, auto part)
                             SLUICE_INLINE_BODY { store(s + i, sigmoid(load(logits + i, part)), part); });
}
