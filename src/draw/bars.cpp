// SPDX-License-Identifier: Apache-2.0
#include "draw/bars.h"

#include <algorithm>
#include <cmath>

#include "draw/svg.h"

namespace sluice::core {
namespace {

constexpr double kRow = 24, kAbove = 58, kEdge = 14, kGap = 8, kText = 12;

}  // namespace

std::string render(const Bars& chart, double longest) {
  double names = 0, most = 0;
  for (const Bar& b : chart.bars) {
    names = std::max(names, text_width(b.name, kText));
    if (std::isfinite(b.value)) most = std::max(most, b.value);
  }
  const double left = kEdge + names + kGap;
  const auto length = [&](const Bar& b) {
    return std::isfinite(b.value) && most > 0 ? longest * b.value / most : 0;
  };
  double width = std::max(text_width(chart.title, 16), text_width(chart.subtitle, 11)) + left;
  for (const Bar& b : chart.bars) {
    width = std::max(width, left + length(b) + kGap + text_width(b.label, kText));
  }
  Svg svg(width + kEdge, kAbove + kRow * double(chart.bars.size()) + kEdge, chart.title);
  svg.text({left, 26}, chart.title, {.size = 16, .bold = true});
  svg.text({left, 44}, chart.subtitle, {.size = 11, .fill = ink("muted")});
  double y = kAbove;
  for (const Bar& b : chart.bars) {
    const bool there = std::isfinite(b.value);
    const double base = y + kRow / 2 + 4;
    svg.text({left - kGap, base}, b.name, {.size = kText, .anchor = Svg::Anchor::End});
    if (there) svg.rect(left, y + 3, length(b), kRow - 6, {.fill = line_ink(0)}, b.label);
    svg.text({left + length(b) + kGap, base}, b.label, {.size = kText, .fill = ink(there ? "ink" : "muted")});
    y += kRow;
  }
  svg.line({left, kAbove}, {left, y}, {.stroke = ink("muted")});
  return svg.str();
}

}  // namespace sluice::core
