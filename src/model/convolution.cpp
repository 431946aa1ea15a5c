// SPDX-License-Identifier: Apache-2.0
// Layers whose mixer is a short convolution.
#include "model/kinds.h"
#include "model/layers.h"
#include "model/weight_table.h"
#include "ops/op.h"

namespace sluice::core {

Status validate(const Convolution& c) {
  if (c.width >= 2 && c.width <= kMostConvWidth) return {};
  return error("model: a convolution of {} tokens; allowed are 2 to {}", c.width, kMostConvWidth);
}

double product_columns(const Convolution&, int64_t dim) {
  return 4 * double(dim);
}

int64_t cached_elements(const Convolution& c, int64_t dim, int64_t) {
  return (c.width - 1) * dim;
}

std::string text_of(const Convolution& c) {
  return fmt::format("convolution of {}", c.width);
}

int64_t looks_back(const Convolution& c) {
  return c.width - 1;
}

int64_t state_elements(const Convolution&) {
  return 0;
}

void WeightTable::add(const Convolution& c) {
  const int64_t d = spec_.dim;
  const TensorNames& names = spec_.names;
  matrix("wconv_in", ModelPart::ConvProjection, {{at(names.conv_in) + ".weight", 3 * d, d}});
  matrix("wconv", ModelPart::Convolution, {{at(names.conv) + ".weight", d, c.width}});
  out_.back().sources.front().of_conv = true;
  matrix_into_stream("wconv_out", ModelPart::ConvProjection, {{at(names.conv_out) + ".weight", d, d}});
}

ObjectId Forward::mix(const Convolution& c, ObjectId x, const Place& at) {
  const ObjectId bcx = activation("bcx", 3 * spec_.dim, at);
  project({"conv_in", "wconv_in", "", spec_.dim, 3 * spec_.dim}, x, bcx, {}, at);
  record();
  return convolve("conv", bcx, spec_.dim, c.width, false, at);
}

ObjectId Forward::convolve(std::string_view result, ObjectId x, int64_t dim, int64_t width, bool silu,
                           const Place& at) {
  const ObjectId y = activation(result, dim, at);
  if (decodes()) {
    const ObjectId cache = inputs_.cache.layers[size_t(at.layer)];
    add_cached("conv",
               CachedConv{rows(at), chunking_.row_tokens, inputs_.cache.capacity, dim, width, activations_,
                          silu, slotted_rows()},
               {x, weight("wconv", at.layer), inputs_.cache.spans, cache, y}, cache, at);
    return y;
  }
  const ShortConv op{tokens(at), dim, width, activations_, has_before(at), has_after(at), silu};
  std::vector<Bound> uses{x, weight("wconv", at.layer), batch(at, BatchColumn::Positions), y};
  std::vector<ObjectId>& tails = tails_[size_t(at.layer)];
  if (op.has_before) uses.emplace_back(tails[size_t(at.chunk) - 1]);
  if (op.has_tail) {
    tails[size_t(at.chunk)] = sized("conv_tail", activations_, (width - 1) * dim, at);
    uses.emplace_back(tails[size_t(at.chunk)]);
  }
  program_.add(made("conv", op, uses, at));
  record();
  return y;
}

Forward::Projection Forward::out_of(const Convolution&) const {
  return {"conv_out", "wconv_out", "", spec_.dim, spec_.dim};
}

}  // namespace sluice::core
