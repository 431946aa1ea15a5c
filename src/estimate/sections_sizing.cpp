// SPDX-License-Identifier: Apache-2.0
// Dimensions against the tiles and multiprocessors of a GPU.
#include <algorithm>
#include <cmath>

#include "estimate/sections.h"
#include "estimate/sizes.h"

namespace sluice::core {
namespace {

// Tiles of a product in common kernels; a wave is one tile on each multiprocessor.
constexpr int64_t kTileRows = 128, kTileColumns = 256;

int64_t pieces(int64_t size, int64_t piece) {
  return (size + piece - 1) / piece;
}

struct Waves {
  int64_t tiles = 0;
  double waves = 0;
  double idle() const { return 1 - waves / std::ceil(waves); }
};
// The longer side takes the longer edge of a tile.
Waves waves_of(const MatrixProduct& p, int multiprocessors) {
  const int64_t tiles = pieces(std::min(p.m, p.n), kTileRows) * pieces(std::max(p.m, p.n), kTileColumns);
  return {tiles, double(tiles) / double(multiprocessors)};
}

Table dimensions(const ModelSpec& spec) {
  Table table{"dimensions",
              "Dimensions",
              "dimension",
              {{"size", "size", Form::Count},
               {"power", "divided by", Form::Count},
               {"tile_loss", "idle in tiles of 128", Form::Share},
               {"better", "next", Form::Count}}};
  for (const SizeAdvice& a : advise_sizes(spec)) {
    table.rows.push_back(
        {a.name,
         {double(a.size), double(a.power), a.empty, a.next ? std::optional(double(*a.next)) : std::nullopt},
         a.why});
  }
  table.formulas = {
      "Divided by: the largest power of two up to 1,024. Next: what would fill tiles; what that gains on the "
      "machine at hand is measured by: sluice bench sizes MODEL"};
  return table;
}

}  // namespace

std::optional<Section> sizes_section(const Basis& b) {
  if (b.spec == nullptr || !b.in.device || b.in.device->multiprocessors == 0) return std::nullopt;
  const int processors = b.in.device->multiprocessors;
  Section s{"sizes", fmt::format("Sizes, on {} multiprocessors", processors)};
  Table table{"products",
              fmt::format("Products of a step of {} tokens", b.in.batch.tokens()),
              "product",
              {{"m", "m", Form::Count},
               {"n", "n", Form::Count},
               {"k", "k", Form::Count},
               {"count", "times", Form::Count},
               {"tiles", "tiles", Form::Count},
               {"waves", "waves", Form::Number},
               {"idle", "idle", Form::Share}}};
  double all = 0, lost = 0;
  for (const MatrixProduct& p : products_of(*b.spec, b.in.batch, numerics_of(*b.in.recipe))) {
    const Waves w = waves_of(p, processors);
    all += p.flops();
    lost += p.flops() * w.idle() / (1 - w.idle());
    table.rows.push_back(
        {p.name,
         {double(p.m), double(p.n), double(p.k), double(p.count), double(w.tiles), w.waves, w.idle()}});
  }
  table.formulas = {
      "Tiles of 128 x 256, the longer edge along the longer side; waves = tiles / multiprocessors; idle = 1 "
      "- "
      "waves / waves rounded up, the share of the last wave that has no tile. Libraries split k or choose "
      "other "
      "tiles where that is large, so take it as what they have to win back."};
  s.facts.push_back({"idle", "time of products that last waves leave idle", lost / (all + lost), Form::Share,
                     "products below, weighed by FLOPs"});
  s.tables.push_back(dimensions(*b.spec));
  s.tables.push_back(std::move(table));
  return s;
}

}  // namespace sluice::core
