// SPDX-License-Identifier: Apache-2.0
// The colours of every picture and of the page of a plan. No other file names a colour, so what means one
// thing looks the same everywhere.
//
// Kinds of memory lie next to one another in any order, and so do phases and what happens to an activation.
// Within each of these groups any two colours, and each and the ground below them, are told apart in both
// themes. That holds for readers without red cones (protanopia) and without green ones (deuteranopia).
// tests/draw/palette_test.cpp says by how much.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sluice::core {

// One colour in the light and in the dark theme, each "#rrggbb".
struct Ink {
  std::string_view light, dark;

  bool operator==(const Ink&) const = default;
};

struct NamedInk {
  std::string_view name;  // "forward"; of a kind of object, its name
  Ink ink;
};

// All of them, by what they stand for.
std::span<const NamedInk> palette();

// REQUIRES: the palette has the name.
Ink ink(std::string_view name);

// The ink of the i-th line of a chart.
Ink line_ink(size_t i);

// The colour for a share of the scale of a heatmap, from 0 to 1: dark blue to yellow, evenly lighter, so that
// it is told apart in grey, too. "#rrggbb", the same in both themes.
std::string heat_colour(double share);

// Whichever of "on-dark" and "on-light" is read more easily on a colour "#rrggbb".
std::string_view text_on(std::string_view colour);

// Declares the palette as CSS variables "--forward" and so on, in the theme that the root's data-theme names,
// and where it names none in the reader's.
std::string palette_css();

extern const std::string_view kPageRules;  // of page.css, for all pages
// Both: how every page begins its style.
std::string page_style();

}  // namespace sluice::core
