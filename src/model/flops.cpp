// SPDX-License-Identifier: Apache-2.0
#include "model/flops.h"

#include <algorithm>
#include <utility>

#include "model/kinds.h"
#include "model/weights.h"

namespace sluice::core {
namespace {

// Twice the tokens that one attends to, on average.
double seen_twice(const Attention& attention, int64_t seq_len) {
  const double window = double(attention.window);
  const bool cut = window > 0 && window < double(seq_len);
  return cut ? window * (2 - window / double(seq_len)) : double(seq_len);
}

// FLOPs that the backward pass leaves out.
double left_out(const ModelSpec& spec, int64_t seq_len) {
  double flops = 0;
  bool before = false;              // a weight before this one is trained, so that a gradient goes on to it
  bool before_projections = false;  // of q, k and v, which read the same
  int projecting = -1;              // the layer that they are of
  for (const Weight& w : weights_of(spec)) {
    const bool projects = w.part == ModelPart::Projection;
    if (projects && std::exchange(projecting, w.layer) != w.layer) before_projections = before;
    const bool goes_on = projects ? before_projections : before;
    // That of a tied embedding is the head's, behind all others.
    const bool embeds = w.part == ModelPart::Embedding;
    const bool has_product =
        w.matrix && !embeds && w.part != ModelPart::Table && w.part != ModelPart::Convolution;
    if (has_product) flops += 2 * active_elements(spec, w) * double(int(!w.trainable) + int(!goes_on));
    if (w.part == ModelPart::AttentionOut && !before) {
      const Attention& attention = *spec.layers[size_t(w.layer)].attention();
      flops += 4 * seen_twice(attention, seq_len) * double(attention.q_dim());
    }
    if (spec.tied_embeddings && embeds && !w.trainable) flops += 2 * double(w.elements());
    before = before || w.trainable;
  }
  return flops;
}

}  // namespace

double model_flops_per_token(const ModelSpec& spec, int64_t seq_len) {
  const double d = double(spec.dim);
  double flops = 6 * d * double(spec.vocab);
  for (const LayerSpec& layer : spec.layers) {
    const auto columns = [&](const auto& half) { return product_columns(half, spec.dim); };
    flops += 6 * d *
             (std::visit(columns, layer.mixer) + std::visit(columns, layer.feed_forward) +
              3 * double(layer.input));
    if (const Attention* a = layer.attention()) flops += 6 * seen_twice(*a, seq_len) * double(a->q_dim());
    // A state takes three products of its size: what its key and its query read, and what its key writes.
    flops += 18 * double(std::visit([](const auto& mixer) { return state_elements(mixer); }, layer.mixer));
  }
  if (spec.adapters.any()) {
    for (const Weight& w : weights_of(spec)) {
      if (w.part == ModelPart::Adapter && w.matrix) flops += 6 * active_elements(spec, w);
    }
  } else if (spec.freeze.empty()) {
    return flops;
  }
  return flops - left_out(spec, seq_len);
}

}  // namespace sluice::core
