// Drawing self-contained SVG pictures. Coordinates are pixels from the top left corner.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sluice {

struct Point {
  double x, y;
};

class Svg {
 public:
  // Colours are CSS colours; "none" paints nothing.
  struct Style {
    std::string_view fill = "none", stroke = "none";
    double stroke_width = 1, opacity = 1;
  };
  enum class Anchor { Start, Middle, End };
  struct TextStyle {
    double size = 12;
    Anchor anchor = Anchor::Start;
    std::string_view fill = "#24292f";
    double rotate = 0;  // degrees, clockwise around the text's point
    bool bold = false;
  };

  // A picture on a white background.
  Svg(double width, double height);

  // A browser shows `tooltip` while the pointer rests on the rectangle.
  void rect(double x, double y, double width, double height, const Style& style,
            std::string_view tooltip = {});
  void line(Point from, Point to, std::string_view stroke, double stroke_width = 1);
  void polyline(std::span<const Point> points, std::string_view stroke, double stroke_width = 1);
  void circle(Point centre, double radius, std::string_view fill);
  // `at` is on the baseline.
  void text(Point at, std::string_view content, const TextStyle& style);
  void text(Point at, std::string_view content) { text(at, content, TextStyle()); }

  // The whole document.
  std::string str() const { return body_ + "</svg>\n"; }

 private:
  std::string body_;
};

}  // namespace sluice
