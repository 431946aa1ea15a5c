// SPDX-License-Identifier: Apache-2.0
#include "estimate/sizes.h"

#include "base/bytes.h"

namespace sluice::core {
namespace {

SizeAdvice advice_on(Dimension dimension, const char* name, int64_t size, int64_t multiple) {
  constexpr int64_t kTile = 128, kMostPower = 1024;
  SizeAdvice out{.dimension = dimension, .name = name, .size = size, .power = 1};
  while (out.power < kMostPower && size % (2 * out.power) == 0) out.power *= 2;
  out.empty = 1 - double(size) / double(align_up(size, kTile));
  if (out.power >= multiple) return out;
  out.next = align_up(size, multiple);
  out.why = out.power >= 64  ? "tiles of 128 are not all full"
            : out.power >= 8 ? "tensor cores run; kernels for multiples of 64 do not"
                             : "not a multiple of 8: tensor cores need padding or slower loads";
  return out;
}

}  // namespace

std::vector<SizeAdvice> advise_sizes(const ModelSpec& spec) {
  const LayerSpec& layer = spec.layers.front();
  return {advice_on(Dimension::Vocabulary, "vocabulary V", spec.vocab, 128),
          advice_on(Dimension::Width, "width D", spec.dim, 128),
          advice_on(Dimension::Ffn, "FFN F", layer.mlp().ffn, 128),
          advice_on(Dimension::Queries, "queries Q", spec.attention().q_dim(), 128),
          advice_on(Dimension::Keys, "keys and values 2 K", 2 * spec.attention().kv_dim(), 128),
          advice_on(Dimension::Head, "of a head", spec.attention().head_dim, 64)};
}

std::optional<ModelSpec> resized(ModelSpec spec, Dimension dimension, int64_t size) {
  switch (dimension) {
    case Dimension::Vocabulary:
      spec.vocab = size;
      return spec;
    case Dimension::Width:
      spec.dim = size;
      return spec;
    case Dimension::Ffn:
      for (LayerSpec& layer : spec.layers) layer.mlp().ffn = size;
      return spec;
    case Dimension::Head:
      for (LayerSpec& layer : spec.layers) {
        if (Attention* a = layer.attention()) a->head_dim = size;
      }
      return spec;
    case Dimension::Queries:
    case Dimension::Keys:
      break;
  }
  return std::nullopt;
}

}  // namespace sluice::core
