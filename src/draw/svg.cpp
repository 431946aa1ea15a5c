// SPDX-License-Identifier: Apache-2.0
#include "draw/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "draw/markup.h"

namespace sluice::core {

std::string svg_number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

double text_width(std::string_view text, double size) {
  const auto letters = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
  return 0.6 * size * double(letters);
}

Svg::Svg(double width, double height, std::string_view title)
    : width_(width), height_(height), title_(escape_markup(title)) {
  body_ = fmt::format("<rect width=\"100%\" height=\"100%\"{}/>\n", painted({.fill = ink("card")}));
}

std::string Svg::str() const {
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"system-ui, 'DejaVu Sans', sans-serif\"{2}>\n",
      svg_number(width_), svg_number(height_), title_.empty() ? "" : " role=\"img\"");
  if (!title_.empty()) out += fmt::format("<title>{}</title>\n", title_);
  std::string dark;
  for (size_t i = 0; i < rules_.size(); ++i) {
    dark += fmt::format(".c{}{{{}:{}}}", i, rules_[i].attribute, escape_markup(rules_[i].ink.dark));
  }
  out += fmt::format("<style>@media (prefers-color-scheme:dark){{{}}}</style>\n", dark);
  return out + body_ + "</svg>\n";
}

std::string Svg::painted(std::span<const Rule> paints) {
  std::string out, classes;
  for (const Rule& p : paints) {
    out += fmt::format(" {}=\"{}\"", p.attribute, p.ink.light.empty() ? "none" : escape_markup(p.ink.light));
    if (p.ink.light == p.ink.dark) continue;
    auto it = std::find_if(rules_.begin(), rules_.end(),
                           [&](const Rule& r) { return r.attribute == p.attribute && r.ink == p.ink; });
    if (it == rules_.end()) it = rules_.insert(it, p);
    classes += fmt::format("{}c{}", classes.empty() ? "" : " ", it - rules_.begin());
  }
  return classes.empty() ? out : fmt::format("{} class=\"{}\"", out, classes);
}

std::string Svg::painted(const Style& style) {
  const bool stroked = !style.stroke.light.empty();
  const std::array<Rule, 2> paints{{{"fill", style.fill}, {"stroke", style.stroke}}};
  std::string out = painted(std::span(paints).first(stroked ? 2 : 1));
  if (stroked) out += fmt::format(" stroke-width=\"{}\"", svg_number(style.stroke_width));
  if (style.dashed) out += " stroke-dasharray=\"5 4\"";
  if (style.opacity < 1) out += fmt::format(" opacity=\"{}\"", svg_number(style.opacity));
  return out;
}

void Svg::close(std::string_view element, std::string_view tooltip) {
  body_ +=
      tooltip.empty() ? "/>\n" : fmt::format("><title>{}</title></{}>\n", escape_markup(tooltip), element);
}

void Svg::rect(double x, double y, double width, double height, const Style& style,
               std::string_view tooltip) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{}", svg_number(x), svg_number(y),
                       svg_number(width), svg_number(height), painted(style));
  close("rect", tooltip);
}

void Svg::rect(double x, double y, double width, double height, std::string_view colour,
               std::string_view tooltip) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"", svg_number(x),
                       svg_number(y), svg_number(width), svg_number(height), escape_markup(colour));
  close("rect", tooltip);
}

void Svg::line(Point from, Point to, const Style& style) {
  body_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"{}", svg_number(from.x),
                       svg_number(from.y), svg_number(to.x), svg_number(to.y), painted(style));
  close("line", {});
}

void Svg::polyline(std::span<const Point> points, Ink stroke, double stroke_width) {
  body_ += "<polyline points=\"";
  for (const Point& p : points) {
    fmt::format_to(std::back_inserter(body_), "{},{} ", svg_number(p.x), svg_number(p.y));
  }
  body_ += fmt::format("\"{} stroke-linejoin=\"round\"",
                       painted({.stroke = stroke, .stroke_width = stroke_width}));
  close("polyline", {});
}

void Svg::circle(Point centre, double radius, const Style& style) {
  body_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\"{}", svg_number(centre.x), svg_number(centre.y),
                       svg_number(radius), painted(style));
  close("circle", {});
}

void Svg::path(std::string_view path, Ink fill, std::string_view tooltip) {
  body_ += fmt::format("<path d=\"{}\"{}", escape_markup(path), painted({.fill = fill}));
  close("path", tooltip);
}

void Svg::text(Point at, std::string_view content, const TextStyle& style) {
  constexpr std::array<const char*, 3> kAnchors{"start", "middle", "end"};
  const std::string x = svg_number(at.x), y = svg_number(at.y);
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\"{}", x, y, svg_number(style.size),
                       painted({.fill = style.fill}));
  if (style.anchor != Anchor::Start) {
    body_ += fmt::format(" text-anchor=\"{}\"", kAnchors[static_cast<size_t>(style.anchor)]);
  }
  if (style.bold) body_ += " font-weight=\"600\"";
  if (style.rotate != 0) {
    body_ += fmt::format(" transform=\"rotate({} {} {})\"", svg_number(style.rotate), x, y);
  }
  body_ += fmt::format(">{}</text>\n", escape_markup(content));
}

}  // namespace sluice::core
