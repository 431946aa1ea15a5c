// SPDX-License-Identifier: Apache-2.0
// Included by each_isa.h.

#include "backend/cpu/kernels/cross_entropy.h"

void cap_row(float* logits, int64_t count, float cap) {
  const float inverse = 1.0f / cap;
  for_each_vector(count, [&](int64_t i, auto part) SLUICE_INLINE_BODY {
    store(logits + i, tanh(load(logits + i, part) * inverse) * cap, part);
  });
}
