#include "draw/raster.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace sluice {
namespace {

constexpr int kLetterRows = 7, kAdvance = 6;  // of the font, in its own pixels

// UTF-8 to letters; bytes that are not UTF-8 become U+FFFD, which the font lacks.
std::u32string letters_of(std::string_view text) {
  std::u32string out;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    const int more = lead < 0x80 ? 0 : lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : -1;
    char32_t letter = more <= 0 ? lead : lead & (0x3fu >> more);
    if (more < 0) letter = 0xfffd;
    for (int k = 0; k < more && i < text.size(); ++k) {
      letter = letter << 6 | (static_cast<unsigned char>(text[i++]) & 0x3fu);
    }
    out += letter;
  }
  return out;
}

uint32_t distance(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (const int shift : {0, 8, 16}) {
    const int d = int(a >> shift & 255) - int(b >> shift & 255);
    sum += uint32_t(d * d);
  }
  return sum;
}

}  // namespace

Raster::Raster(double width, double height, int scale)
    : scale_(scale),
      width_(int(std::lround(width * scale))),
      height_(int(std::lround(height * scale))),
      palette_{0xffffff},
      pixels_(size_t(width_) * size_t(height_), 0) {}

uint8_t Raster::colour(std::string_view css) {
  uint32_t rgb = 0;
  if (css.size() == 7) std::from_chars(css.data() + 1, css.data() + css.size(), rgb, 16);
  auto it = std::find(palette_.begin(), palette_.end(), rgb);
  if (it == palette_.end() && palette_.size() < 256) it = palette_.insert(it, rgb);
  if (it == palette_.end()) {
    it = std::min_element(palette_.begin(), palette_.end(),
                          [&](uint32_t a, uint32_t b) { return distance(a, rgb) < distance(b, rgb); });
  }
  return uint8_t(it - palette_.begin());
}

void Raster::fill(int left, int top, int right, int bottom, uint8_t colour) {
  left = std::max(left, 0), right = std::min(right, width_);
  for (int y = std::max(top, 0); y < std::min(bottom, height_) && left < right; ++y) {
    const auto row = pixels_.begin() + long(y) * width_;
    std::fill(row + left, row + right, colour);
  }
}

void Raster::rect(double x, double y, double width, double height, const Svg::Style& style,
                  std::string_view) {
  const auto px = [&](double v) { return int(std::lround(v * scale_)); };
  const int left = px(x), top = px(y), right = px(x + width), bottom = px(y + height);
  if (style.fill != "none") fill(left, top, right, bottom, colour(style.fill));
  if (style.stroke == "none") return;
  const uint8_t c = colour(style.stroke);
  const int w = std::max(1, px(style.stroke_width));
  fill(left, top, right, top + w, c);
  fill(left, bottom - w, right, bottom, c);
  fill(left, top, left + w, bottom, c);
  fill(right - w, top, right, bottom, c);
}

void Raster::text(Point at, std::string_view content, const Svg::TextStyle& style) {
  const std::u32string letters = letters_of(content);
  const uint8_t c = colour(style.fill);
  // Capitals are seven tenths of a font's size.
  const int dot = std::max(1, int(std::lround(style.size * 0.7 * scale_ / kLetterRows)));
  const int length = int(letters.size()) * kAdvance * dot;
  const int back = style.anchor == Svg::Anchor::Middle ? length / 2
                   : style.anchor == Svg::Anchor::End  ? length
                                                       : 0;
  const int x0 = int(std::lround(at.x * scale_)), y0 = int(std::lround(at.y * scale_));
  const bool upwards = style.rotate != 0;
  // A dot at `along` the baseline and `above` it.
  const auto put = [&](int along, int above) {
    const int x = upwards ? x0 - above : x0 + along, y = upwards ? y0 - along - dot : y0 - above;
    fill(x, y, x + dot + (style.bold && !upwards ? dot / 2 : 0), y + dot, c);
  };
  for (size_t i = 0; i < letters.size(); ++i) {
    constexpr std::array<uint8_t, 7> kBox{31, 17, 17, 17, 17, 17, 31};
    const std::array<uint8_t, 7> rows = glyph(letters[i]).value_or(kBox);
    for (int row = 0; row < kLetterRows; ++row) {
      for (int column = 0; column < 5; ++column) {
        if ((rows[size_t(row)] >> (4 - column) & 1) == 0) continue;
        put((int(i) * kAdvance + column) * dot - back, (kLetterRows - row) * dot);
      }
    }
  }
}

std::string Raster::png() const {
  return encode_png(width_, height_, palette_, pixels_);
}

}  // namespace sluice
