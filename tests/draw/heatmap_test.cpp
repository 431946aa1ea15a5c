#include "draw/heatmap.h"

#include <gtest/gtest.h>

#include <set>

#include "draw/raster.h"
#include "support/count.h"

namespace sluice {
namespace {

uint32_t big_endian(const std::string& bytes, size_t at) {
  uint32_t v = 0;
  for (size_t i = 0; i < 4; ++i) v = v << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return v;
}

// The data of every chunk of a type, joined; checks the frame of the file.
std::string chunks(const std::string& png, const std::string& type) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::string out;
  size_t at = 8;
  while (at < png.size()) {
    const uint32_t size = big_endian(png, at);
    if (png.substr(at + 4, 4) == type) out += png.substr(at + 8, size);
    at += 12 + size;
  }
  EXPECT_EQ(at, png.size());
  return out;
}

// Undoes deflate as RFC 1951 describes it for one block of fixed codes; fails on anything else.
std::string inflate_fixed(const std::string& zlib) {
  size_t bit = 16;  // after the zlib header
  const auto next = [&] {
    const unsigned v = static_cast<unsigned char>(zlib.at(bit / 8)) >> (bit % 8) & 1;
    ++bit;
    return v;
  };
  const auto code = [&](int bits, unsigned v = 0) {
    while (bits-- > 0) v = v << 1 | next();
    return v;
  };
  EXPECT_EQ(next(), 1u);
  EXPECT_EQ(next() | next() << 1, 1u);
  std::string out;
  for (;;) {
    unsigned v = code(7), symbol = 0;
    if (v < 24) {
      symbol = 256 + v;
    } else if ((v = code(1, v)) >= 0x30 && v < 0xc0) {
      symbol = v - 0x30;
    } else if (v < 0xc8) {
      symbol = v - 0xc0 + 280;
    } else {
      symbol = code(1, v) - 0x190 + 144;
    }
    if (symbol == 256) return out;
    if (symbol < 256) {
      out += char(symbol);
      continue;
    }
    EXPECT_TRUE(symbol <= 264 || symbol == 285) << symbol;
    EXPECT_EQ(code(5), 0u);
    out.append(symbol == 285 ? 258 : symbol - 254, out.back());
  }
}

TEST(Png, PixelsComeBack) {
  const int width = 300, height = 5;
  std::vector<uint8_t> pixels(size_t(width) * height);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = i < 700 ? 7 : uint8_t(i * i % 251);
  std::vector<uint32_t> palette;
  for (uint32_t i = 0; i < 251; ++i) palette.push_back(i << 16 | (255 - i));
  const std::string png = encode_png(width, height, palette, pixels);
  EXPECT_EQ(big_endian(chunks(png, "IHDR"), 0), 300u);
  EXPECT_EQ(chunks(png, "PLTE").size(), 3 * palette.size());
  const std::string rows = inflate_fixed(chunks(png, "IDAT"));
  ASSERT_EQ(rows.size(), size_t(height) * (width + 1));
  std::vector<uint8_t> above(size_t(width), 0);
  for (size_t i = 0, at = 0; i < pixels.size(); ++i, ++at) {
    if (i % width == 0) {
      EXPECT_EQ(rows[at++], 2);
    }
    const auto x = i % width;
    above[x] = uint8_t(above[x] + static_cast<unsigned char>(rows[at]));
    ASSERT_EQ(above[x], pixels[i]) << "pixel " << i;
  }
}

// The published check value of the CRC of an empty IEND chunk.
TEST(Png, ChecksumsAreTheStandards) {
  const std::string png = encode_png(1, 1, {0}, {0});
  EXPECT_EQ(big_endian(png, png.size() - 4), 0xae426082u);
}

TEST(Raster, TextStaysInsideItsAnchor) {
  Raster raster(100, 40, 2);
  raster.text({50, 20}, "12", {.size = 10, .anchor = Svg::Anchor::End, .fill = "#ff0000"});
  bool left = false, right = false;
  for (int y = 0; y < raster.height(); ++y) {
    for (int x = 0; x < raster.width(); ++x) {
      if (raster.pixel(x, y) == 0xff0000) (x < 100 ? left : right) = true;
    }
  }
  EXPECT_TRUE(left);
  EXPECT_FALSE(right);
}

TEST(Raster, MoreColoursThanThePaletteTakeTheNearest) {
  Raster raster(300, 1, 1);
  for (int i = 0; i < 300; ++i) {
    char css[8];
    std::snprintf(css, sizeof css, "#%02x%02x00", i % 256, i / 256 * 3);
    raster.rect(i, 0, 1, 1, {.fill = css});
  }
  EXPECT_EQ(raster.pixel(10, 0), 0x0a0000u);
  EXPECT_EQ(raster.pixel(266, 0), 0x0a0000u);
}

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

TEST(Heatmap, PngHasTheSvgsSizeAndColours) {
  const Heatmap map = small_map();
  const std::string png = heatmap_png(map);
  const std::string palette = chunks(png, "PLTE");
  std::set<std::string> colours;
  for (size_t i = 0; i < palette.size(); i += 3) colours.insert(palette.substr(i, 3));
  EXPECT_TRUE(colours.contains(std::string("\xfa\xe2\x3c")));  // the highest
  const uint32_t width = big_endian(chunks(png, "IHDR"), 0), height = big_endian(chunks(png, "IHDR"), 4);
  EXPECT_EQ(inflate_fixed(chunks(png, "IDAT")).size(), size_t(height) * (width + 1));
  EXPECT_LT(png.size(), 60'000u);
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
