// SPDX-License-Identifier: Apache-2.0
#include "draw/palette.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace sluice::core {
namespace {

constexpr NamedInk kPalette[] = {
    // The ground that pictures and pages are drawn on.
    {"bg", {"#f4f5f7", "#12161b"}},
    {"card", {"#ffffff", "#1a2027"}},
    {"ink", {"#1d232b", "#e4e8ed"}},
    {"muted", {"#5b6572", "#98a3b0"}},
    {"line", {"#dde1e6", "#2c343e"}},
    {"track", {"#eef0f3", "#232b34"}},  // the empty part of a lane or of an arena
    {"accent", {"#1f5673", "#7cc0e8"}},
    {"cap", {"#c62f2f", "#ff6b6b"}},
    {"on-light", {"#1d232b", "#1d232b"}},  // text on a light colour
    {"on-dark", {"#ffffff", "#ffffff"}},
    // Phases of the compute lane.
    {"forward", {"#38b0ee", "#95dff0"}},
    {"backward", {"#0f4450", "#47788a"}},
    {"again", {"#e98628", "#f38b4e"}},
    {"update", {"#910bcd", "#c76aff"}},
    // Kinds of memory. Inputs, constants and metrics are small and never wait for room: one colour does for
    // them.
    {"param", {"#3851e9", "#6945ec"}},
    {"grad", {"#904a67", "#ce6f7d"}},
    {"opt_state", {"#fee22c", "#ccba01"}},
    {"activation", {"#237803", "#22561a"}},
    {"act_grad", {"#7fac7f", "#c5fcc5"}},
    {"input", {"#232212", "#e9f2ff"}},
    {"constant", {"#232212", "#e9f2ff"}},
    {"metric", {"#232212", "#e9f2ff"}},
    {"cache", {"#904a67", "#ce6f7d"}},  // programs that have one have no gradients, whose colour it is
    {"workspace", {"#9da8f4", "#9da2e1"}},
    {"overhead", {"#dcdfe4", "#3a4450"}},  // held beside the arena: nothing that a plan places
    // Where an activation is until the backward pass; what is computed again has the colour of that.
    {"device", {"#0f4450", "#47788a"}},
    {"host", {"#38b0ee", "#95dff0"}},
    // Time in which compute does not get on.
    {"stall-load", {"#f3b6b6", "#7d3d42"}},
    {"stall-store", {"#f5dd9d", "#75602a"}},
    {"stall-device", {"#cfc3ee", "#56498a"}},
    {"stall-nothing", {"#d7dbe0", "#3d4650"}},
    {"tail", {"#e6e9ed", "#2a323b"}},
    {"slowed", {"#a9b7c6", "#8b96a3"}},
};

// Okabe and Ito's colours, without the yellow that fades on white; lighter where the ground is dark.
constexpr std::array<Ink, 7> kLines{{{"#0072b2", "#4aaee8"},
                                     {"#d55e00", "#f0843c"},
                                     {"#009e73", "#2fc79b"},
                                     {"#cc79a7", "#dd94bd"},
                                     {"#e69f00", "#f0b73c"},
                                     {"#56b4e9", "#9bd3f5"},
                                     {"#000000", "#ffffff"}}};

struct Rgb {
  double r, g, b;
};
constexpr std::array<Rgb, 6> kHeat{
    {{38, 28, 82}, {52, 74, 132}, {40, 121, 142}, {46, 163, 122}, {140, 200, 76}, {250, 226, 60}}};

}  // namespace

std::span<const NamedInk> palette() {
  return kPalette;
}

Ink ink(std::string_view name) {
  const auto it = std::find_if(std::begin(kPalette), std::end(kPalette),
                               [&](const NamedInk& i) { return i.name == name; });
  SLUICE_CHECK(it != std::end(kPalette), "no colour is named {}", name);
  return it->ink;
}

Ink line_ink(size_t i) {
  return kLines[i % kLines.size()];
}

std::string heat_colour(double share) {
  const double at = std::clamp(share, 0.0, 1.0) * double(kHeat.size() - 1);
  const size_t i = std::min(size_t(at), kHeat.size() - 2);
  const auto mix = [f = at - double(i)](double a, double b) { return int(std::lround(a + (b - a) * f)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(kHeat[i].r, kHeat[i + 1].r), mix(kHeat[i].g, kHeat[i + 1].g),
                     mix(kHeat[i].b, kHeat[i + 1].b));
}

std::string_view text_on(std::string_view colour) {
  unsigned rgb = 0;
  if (colour.size() == 7) std::from_chars(colour.data() + 1, colour.data() + colour.size(), rgb, 16);
  const double luma =
      0.299 * double(rgb >> 16 & 255) + 0.587 * double(rgb >> 8 & 255) + 0.114 * double(rgb & 255);
  return luma < 130 ? "on-dark" : "on-light";
}

std::string palette_css() {
  std::string light, dark;
  for (const auto& [name, ink] : kPalette) {
    light += fmt::format(" --{}: {};", name, ink.light);
    dark += fmt::format(" --{}: {};", name, ink.dark);
  }
  return fmt::format(
      ":root {{{0} }}\n:root[data-theme=\"dark\"] {{{1} }}\n"
      "@media (prefers-color-scheme: dark) {{ :root:not([data-theme]) {{{1} }} }}\n",
      light, dark);
}

std::string page_style() {
  return palette_css() + std::string(kPageRules);
}

}  // namespace sluice::core
