// SPDX-License-Identifier: Apache-2.0
#include "draw/heatmap.h"

#include <gtest/gtest.h>

#include "draw/palette.h"
#include "support/count.h"

namespace sluice::core {
namespace {

Heatmap small_map() {
  Heatmap map{
      .title = "tokens/s", .subtitle = "a model", .x_label = "device", .y_label = "host", .decimals = 1};
  map.columns = {"8 GiB", "16 GiB"};
  map.rows = {"64 GiB", "128 GiB"};
  map.cells = {{.notes = {"≥ 9 GiB", "or host ≥ 80 GiB"}, .tooltip = "too <small>"},
               {.value = 10},
               {.value = 20.25},
               {.value = 3000}};
  return map;
}

TEST(Heatmap, ShowsCellsAxesAndWhatIsNeeded) {
  const std::string svg = heatmap_svg(small_map());
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  for (const char* part : {">a model<", ">device<", ">host<", ">8 GiB<", ">16 GiB<", ">64 GiB<", ">128 GiB<",
                           ">20.2<", ">≥ 9 GiB<", ">or host ≥ 80 GiB<", "too &lt;small&gt;"}) {
    EXPECT_EQ(count(svg, part), 1u) << part;
  }
  // The best is in its cell and at the colour bar, whose other end is zero.
  EXPECT_EQ(count(svg, ">3,000.0<"), 2u);
  EXPECT_EQ(count(svg, ">100 %<"), 2u);
  EXPECT_EQ(count(svg, ">0.0<"), 1u);
}

// A tenth less is a fifth of the scale, not all of it.
TEST(Heatmap, SmallDifferencesLookSmall) {
  Heatmap map;
  map.columns = {"a", "b"}, map.rows = {"c"}, map.cells = {{.value = 90}, {.value = 100}};
  const std::string svg = heatmap_svg(map);
  EXPECT_EQ(count(svg, "fill=\"" + heat_colour(0.8) + "\""), 1u);
  EXPECT_EQ(count(svg, "fill=\"" + heat_colour(1) + "\""), 1u);
  EXPECT_EQ(count(svg, ">90 %<"), 1u);
  EXPECT_EQ(count(svg, ">50 %<"), 1u) << "the lower end of the scale";
  map.shares = false;
  EXPECT_EQ(count(heatmap_svg(map), "%<"), 0u);
}

TEST(Heatmap, OneCellAndNoValues) {
  Heatmap map;
  map.columns = {"a"}, map.rows = {"b"}, map.cells = {{.notes = {"too small"}}};
  EXPECT_NE(heatmap_svg(map).find(">too small<"), std::string::npos);
  map.cells = {{.value = 5}};
  EXPECT_NE(heatmap_svg(map).find(">5<"), std::string::npos);
  map.cells = {{.value = 0}};
  EXPECT_NE(heatmap_svg(map).find(">0<"), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
