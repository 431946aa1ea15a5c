#include "draw/svg.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

namespace sluice {
namespace {

// Text that is safe between tags and inside attributes. Control characters, which XML cannot carry, become
// spaces.
std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

// Two decimals, without zeros at the end: files stay small.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

}  // namespace

Svg::Svg(double width, double height) {
  const std::string w = number(width), h = number(height);
  body_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"system-ui, 'DejaVu Sans', sans-serif\">\n",
      w, h);
  rect(0, 0, width, height, {.fill = "#ffffff"});
}

void Svg::rect(double x, double y, double width, double height, const Style& style,
               std::string_view tooltip) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"", number(x), number(y),
                       number(width), number(height), escape(style.fill));
  if (style.stroke != "none") {
    body_ +=
        fmt::format(" stroke=\"{}\" stroke-width=\"{}\"", escape(style.stroke), number(style.stroke_width));
  }
  if (style.opacity < 1) body_ += fmt::format(" opacity=\"{}\"", number(style.opacity));
  body_ += tooltip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escape(tooltip));
}

void Svg::line(Point from, Point to, std::string_view stroke, double stroke_width) {
  body_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"{}\"/>\n",
                       number(from.x), number(from.y), number(to.x), number(to.y), escape(stroke),
                       number(stroke_width));
}

void Svg::polyline(std::span<const Point> points, std::string_view stroke, double stroke_width) {
  body_ += "<polyline points=\"";
  for (const Point& p : points) fmt::format_to(std::back_inserter(body_), "{},{} ", number(p.x), number(p.y));
  body_ += fmt::format("\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"/>\n",
                       escape(stroke), number(stroke_width));
}

void Svg::circle(Point centre, double radius, std::string_view fill) {
  body_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>\n", number(centre.x),
                       number(centre.y), number(radius), escape(fill));
}

void Svg::text(Point at, std::string_view content, const TextStyle& style) {
  constexpr std::array<const char*, 3> kAnchors{"start", "middle", "end"};
  const std::string x = number(at.x), y = number(at.y);
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\" text-anchor=\"{}\"", x, y,
                       number(style.size), escape(style.fill), kAnchors[static_cast<size_t>(style.anchor)]);
  if (style.bold) body_ += " font-weight=\"600\"";
  if (style.rotate != 0) body_ += fmt::format(" transform=\"rotate({} {} {})\"", number(style.rotate), x, y);
  body_ += fmt::format(">{}</text>\n", escape(content));
}

}  // namespace sluice
