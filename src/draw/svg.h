// SPDX-License-Identifier: Apache-2.0
// Drawing self-contained SVG pictures in a light and a dark theme. Coordinates are pixels from the top left
// corner.
//
// The light theme is in the attributes, where every viewer finds it; the dark one is a style sheet for those
// that know the reader's preference, as browsers do.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "draw/palette.h"

namespace sluice::core {

struct Point {
  double x, y;
};

class Svg {
 public:
  // An Ink without a colour paints nothing. The strings of an Ink outlive the picture, as those of the
  // palette do.
  struct Style {
    Ink fill = {}, stroke = {};
    double stroke_width = 1, opacity = 1;
    bool dashed = false;
  };
  enum class Anchor { Start, Middle, End };
  struct TextStyle {
    double size = 12;
    Anchor anchor = Anchor::Start;
    Ink fill = ink("ink");
    double rotate = 0;  // degrees, clockwise around the text's point
    bool bold = false;
  };

  // A picture on the ground of its theme. What it is called by those who cannot see it.
  Svg(double width, double height, std::string_view title = {});

  // A browser shows `tooltip` while the pointer rests on the rectangle.
  void rect(double x, double y, double width, double height, const Style& style,
            std::string_view tooltip = {});
  // The same in a colour of no theme: "#rrggbb".
  void rect(double x, double y, double width, double height, std::string_view colour,
            std::string_view tooltip = {});
  void line(Point from, Point to, const Style& style);
  void polyline(std::span<const Point> points, Ink stroke, double stroke_width = 1);
  void circle(Point centre, double radius, const Style& style);
  // A filled shape; `path` is what SVG calls path data.
  void path(std::string_view path, Ink fill, std::string_view tooltip = {});
  // `at` is on the baseline.
  void text(Point at, std::string_view content, const TextStyle& style);
  void text(Point at, std::string_view content) { text(at, content, TextStyle()); }

  // For pictures that know it when they are drawn.
  void set_height(double height) { height_ = height; }

  // The whole document.
  std::string str() const;

 private:
  struct Rule {
    std::string_view attribute;  // "fill" or "stroke"
    Ink ink;
  };
  // The attributes of an element that is painted so, and the classes by which the dark theme finds it.
  std::string painted(std::span<const Rule> paints);
  std::string painted(const Style& style);
  void close(std::string_view element, std::string_view tooltip);

  std::vector<Rule> rules_;  // the class of rules_[i] is "ci"
  double width_, height_;
  std::string title_, body_;
};

// Two decimals, without zeros at the end: files stay small.
std::string svg_number(double value);

// About as wide as `text` is drawn at `size`: pictures are laid out without the fonts of their viewers.
double text_width(std::string_view text, double size);

}  // namespace sluice::core
