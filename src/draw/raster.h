// Drawing the same pictures as Svg (io/svg.h) into pixels, saved as PNG.
//
// Heatmaps come as PNG, too, for places that show no SVG. They hold rectangles and short texts only, so a
// pixel font and a PNG writer of our own are smaller than what libpng, zlib and a font library would add to
// every installation, and the bytes are the same on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "draw/svg.h"

namespace sluice {

class Raster {
 public:
  // Sizes are in the units of the Svg; each is `scale` pixels. White background.
  Raster(double width, double height, int scale);

  // Colours are "#rrggbb" or "none"; strokes lie inside the rectangle. Opacity and tooltips are for Svg only.
  void rect(double x, double y, double width, double height, const Svg::Style& style,
            std::string_view tooltip = {});
  // Letters that the font lacks become a box. Rotation is 0 or -90 degrees.
  void text(Point at, std::string_view content, const Svg::TextStyle& style);

  int width() const { return width_; }
  int height() const { return height_; }
  uint32_t pixel(int x, int y) const { return palette_[pixels_[size_t(y) * size_t(width_) + size_t(x)]]; }

  // The file's bytes.
  std::string png() const;

 private:
  void fill(int left, int top, int right, int bottom, uint8_t colour);
  uint8_t colour(std::string_view css);

  int scale_, width_, height_;
  std::vector<uint32_t> palette_;  // 0xrrggbb; at most 256
  std::vector<uint8_t> pixels_;
};

// A letter of the pixel font: seven rows from the top, five bits each, the highest on the left. Empty for
// unknown letters.
std::optional<std::array<uint8_t, 7>> glyph(char32_t letter);

// A picture of 8-bit palette indices as a PNG file. REQUIRES: palette.size() <= 256; every pixel is below it.
std::string encode_png(int width, int height, const std::vector<uint32_t>& palette,
                       const std::vector<uint8_t>& pixels);

}  // namespace sluice
