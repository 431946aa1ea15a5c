#include "draw/heatmap.h"

#include <gtest/gtest.h>

#include "support/count.h"

namespace sluice {
namespace {

Heatmap small_map() {
  Heatmap map{.title = "tokens/s", .x_label = "device", .y_label = "host", .decimals = 1};
  map.columns = {"8 GiB", "16 GiB"};
  map.rows = {"64 GiB", "128 GiB"};
  map.cells = {{.notes = {"≥ 9 GiB", "or host ≥ 80 GiB"}, .tooltip = "too <small>"},
               {.value = 10},
               {.value = 20.25},
               {.value = 30}};
  return map;
}

TEST(Heatmap, SvgShowsCellsAxesAndWhatIsNeeded) {
  const std::string svg = heatmap_svg(small_map());
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  for (const char* part : {">tokens/s<", ">device<", ">host<", ">8 GiB<", ">16 GiB<", ">64 GiB<", ">128 GiB<",
                           ">20.2<", ">≥ 9 GiB<", ">or host ≥ 80 GiB<", "too &lt;small&gt;"}) {
    EXPECT_EQ(count(svg, part), 1u) << part;
  }
  // The extremes are in their cells and at the colour bar.
  EXPECT_EQ(count(svg, ">10.0<"), 2u);
  EXPECT_EQ(count(svg, ">30.0<"), 2u);
  EXPECT_EQ(count(svg, "fill=\"" + heat_colour(0) + "\""), 1u);
}

TEST(Heatmap, OneCellAndNoValues) {
  Heatmap map;
  map.columns = {"a"}, map.rows = {"b"}, map.cells = {{.notes = {"too small"}}};
  EXPECT_NE(heatmap_svg(map).find(">too small<"), std::string::npos);
  map.cells = {{.value = 5}};
  EXPECT_NE(heatmap_svg(map).find(">5<"), std::string::npos);
}

}  // namespace
}  // namespace sluice
