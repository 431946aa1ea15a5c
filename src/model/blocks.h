// SPDX-License-Identifier: Apache-2.0
// How many blocks of attention a model's Programs have: for those who size a search before there is a
// Program.
#pragma once

#include <algorithm>

#include "model/spec.h"

namespace sluice::core {

// How many earlier chunks of its sequence a chunk of `chunk` tokens attends to, as Forward does
// (model/layers.h). It is a mean over the chunks of a sequence of seq_len tokens and over layers. 0 where
// chunks are whole sequences.
inline double earlier_blocks(const ModelSpec& spec, int64_t seq_len, int64_t chunk) {
  const int64_t chunks = std::max<int64_t>(1, seq_len / chunk);
  double sum = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.attention() == nullptr) continue;
    // The last key of the newest earlier block is one token before the first query. Each earlier block adds a
    // chunk.
    const int64_t window = layer.attention()->window;
    const int64_t reach = window == 0 ? chunks : window < 2 ? 0 : (window - 2) / chunk + 1;
    const auto most = double(std::min(reach, chunks - 1));
    sum += most * (most + 1) / 2 + (double(chunks - 1) - most) * most;
  }
  return sum / double(chunks) / double(spec.layers.size());
}

}  // namespace sluice::core
