// SPDX-License-Identifier: Apache-2.0
// Whether readers with colour-blind eyes tell the palette's colours apart: computed from the palette itself.
#include "draw/palette.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <vector>

namespace sluice::core {
namespace {

using Vec = std::array<double, 3>;
using Matrix = std::array<Vec, 3>;

Vec operator*(const Matrix& m, const Vec& v) {
  Vec out{};
  for (size_t i = 0; i < 3; ++i) out[i] = m[i][0] * v[0] + m[i][1] * v[1] + m[i][2] * v[2];
  return out;
}

Vec linear(std::string_view hex) {
  Vec out{};
  for (size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(std::string(hex.substr(1 + 2 * i, 2)), nullptr, 16) / 255.0;
    out[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  return out;
}

// CIE L*a*b* under D65 of linear sRGB (IEC 61966-2-1).
Vec lab(const Vec& rgb) {
  constexpr Matrix kToXyz{{{0.4124564, 0.3575761, 0.1804375},
                           {0.2126729, 0.7151522, 0.0721750},
                           {0.0193339, 0.1191920, 0.9503041}}};
  constexpr Vec kWhite{0.95047, 1, 1.08883};
  Vec f = kToXyz * rgb;
  for (size_t i = 0; i < 3; ++i) {
    const double t = f[i] / kWhite[i];
    f[i] = t > 216.0 / 24389 ? std::cbrt(t) : (24389.0 / 27 * t + 16) / 116;
  }
  return {116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])};
}

double radians(double degrees) {
  return degrees * std::numbers::pi / 180;
}
double hue(double a, double b) {
  if (a == 0 && b == 0) return 0;
  const double h = std::atan2(b, a) * 180 / std::numbers::pi;
  return h < 0 ? h + 360 : h;
}

// CIEDE2000, with the names and the numbering of Sharma, Wu and Dalal, "The CIEDE2000 color-difference
// formula: implementation notes, supplementary test data, and mathematical observations" (2005).
double difference(const Vec& x, const Vec& y) {
  const auto seventh = [](double c) {
    return std::sqrt(std::pow(c, 7) / (std::pow(c, 7) + std::pow(25.0, 7)));
  };
  const double g = 0.5 * (1 - seventh((std::hypot(x[1], x[2]) + std::hypot(y[1], y[2])) / 2));
  const double a1 = (1 + g) * x[1], a2 = (1 + g) * y[1];
  const double c1 = std::hypot(a1, x[2]), c2 = std::hypot(a2, y[2]), h1 = hue(a1, x[2]), h2 = hue(a2, y[2]);
  double dh = 0, h = h1 + h2;
  if (c1 * c2 != 0) {
    dh = h2 - h1;
    if (std::abs(dh) > 180) dh += dh > 0 ? -360 : 360;
    h = std::abs(h1 - h2) <= 180 ? (h1 + h2) / 2 : (h1 + h2 < 360 ? h1 + h2 + 360 : h1 + h2 - 360) / 2;
  }
  const double dl = y[0] - x[0], dc = c2 - c1, dH = 2 * std::sqrt(c1 * c2) * std::sin(radians(dh / 2));
  const double l = (x[0] + y[0]) / 2, c = (c1 + c2) / 2;
  const double t = 1 - 0.17 * std::cos(radians(h - 30)) + 0.24 * std::cos(radians(2 * h)) +
                   0.32 * std::cos(radians(3 * h + 6)) - 0.20 * std::cos(radians(4 * h - 63));
  const double turn = 30 * std::exp(-std::pow((h - 275) / 25, 2));
  const double sl = 1 + 0.015 * std::pow(l - 50, 2) / std::sqrt(20 + std::pow(l - 50, 2));
  const double sc = 1 + 0.045 * c, sh = 1 + 0.015 * c * t;
  const double rt = -std::sin(radians(2 * turn)) * 2 * seventh(c);
  return std::sqrt(std::pow(dl / sl, 2) + std::pow(dc / sc, 2) + std::pow(dH / sh, 2) +
                   rt * dc / sc * dH / sh);
}

// Table 1 of that paper.
TEST(Ciede2000, GivesThePublishedDifferences) {
  struct Pair {
    Vec x, y;
    double difference;
  };
  const std::vector<Pair> pairs{
      {{50, 2.6772, -79.7751}, {50, 0, -82.7485}, 2.0425},
      {{50, 3.1571, -77.2803}, {50, 0, -82.7485}, 2.8615},
      {{50, 2.8361, -74.0200}, {50, 0, -82.7485}, 3.4412},
      {{50, -1.3802, -84.2814}, {50, 0, -82.7485}, 1.0000},
      {{50, -1.1848, -84.8006}, {50, 0, -82.7485}, 1.0000},
      {{50, -0.9009, -85.5211}, {50, 0, -82.7485}, 1.0000},
      {{50, 0, 0}, {50, -1, 2}, 2.3669},
      {{50, -1, 2}, {50, 0, 0}, 2.3669},
      {{50, 2.4900, -0.0010}, {50, -2.4900, 0.0009}, 7.1792},
      {{50, 2.4900, -0.0010}, {50, -2.4900, 0.0010}, 7.1792},
      {{50, 2.4900, -0.0010}, {50, -2.4900, 0.0011}, 7.2195},
      {{50, 2.4900, -0.0010}, {50, -2.4900, 0.0012}, 7.2195},
      {{50, -0.0010, 2.4900}, {50, 0.0009, -2.4900}, 4.8045},
      {{50, -0.0010, 2.4900}, {50, 0.0010, -2.4900}, 4.8045},
      {{50, -0.0010, 2.4900}, {50, 0.0011, -2.4900}, 4.7461},
      {{50, 2.5, 0}, {50, 0, -2.5}, 4.3065},
      {{50, 2.5, 0}, {73, 25, -18}, 27.1492},
      {{50, 2.5, 0}, {61, -5, 29}, 22.8977},
      {{50, 2.5, 0}, {56, -27, -3}, 31.9030},
      {{50, 2.5, 0}, {58, 24, 15}, 19.4535},
      {{50, 2.5, 0}, {50, 3.1736, 0.5854}, 1.0000},
      {{50, 2.5, 0}, {50, 3.2972, 0}, 1.0000},
      {{50, 2.5, 0}, {50, 1.8634, 0.5757}, 1.0000},
      {{50, 2.5, 0}, {50, 3.2592, 0.3350}, 1.0000},
      {{60.2574, -34.0099, 36.2677}, {60.4626, -34.1751, 39.4387}, 1.2644},
      {{63.0109, -31.0961, -5.8663}, {62.8187, -29.7946, -4.0864}, 1.2630},
      {{61.2901, 3.7196, -5.3901}, {61.4292, 2.2480, -4.9620}, 1.8731},
      {{35.0831, -44.1164, 3.7933}, {35.0232, -40.0716, 1.5901}, 1.8645},
      {{22.7233, 20.0904, -46.6940}, {23.0331, 14.9730, -42.5619}, 2.0373},
      {{36.4612, 47.8580, 18.3852}, {36.2715, 50.5065, 21.2231}, 1.4146},
      {{90.8027, -2.0831, 1.4410}, {91.1528, -1.6435, 0.0447}, 1.4441},
      {{90.9257, -0.5406, -0.9208}, {88.6381, -0.8985, -0.7239}, 1.5381},
      {{6.7747, -0.2908, -2.4247}, {5.8714, -0.0985, -2.2286}, 0.6377},
      {{2.0776, 0.0795, -1.1350}, {0.9033, -0.0636, -0.5514}, 0.9082},
  };
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_NEAR(difference(pairs[i].x, pairs[i].y), pairs[i].difference, 6e-5) << "pair " << i + 1;
  }
}

struct Eyes {
  const char* name;
  Matrix matrix;  // of linear sRGB
};
// Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency"
// (2009), severity 1.
const std::array<Eyes, 3> kEyes{
    {{"normal", {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}},
     {"protanope",
      {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}}},
     {"deuteranope",
      {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}}}}};

Vec seen(const Eyes& eyes, std::string_view hex) {
  Vec rgb = eyes.matrix * linear(hex);
  for (double& c : rgb) c = std::clamp(c, 0.0, 1.0);
  return lab(rgb);
}

// Every two that differ in name and colour, in both themes.
void expect_apart(const std::vector<std::string>& names, double least) {
  for (const Eyes& eyes : kEyes) {
    for (size_t i = 0; i < names.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const Ink a = ink(names[i]), b = ink(names[j]);
        if (a == b) continue;
        EXPECT_GE(difference(seen(eyes, a.light), seen(eyes, b.light)), least)
            << eyes.name << ", light: " << names[i] << " and " << names[j];
        EXPECT_GE(difference(seen(eyes, a.dark), seen(eyes, b.dark)), least)
            << eyes.name << ", dark: " << names[i] << " and " << names[j];
      }
    }
  }
}

const std::vector<std::string> kMemory{"param", "grad",     "opt_state", "activation", "act_grad",
                                       "input", "constant", "metric",    "cache",      "workspace"};

TEST(Palette, KindsOfMemoryAreApart) {
  for (const char* ground : {"track", "overhead"}) {
    std::vector<std::string> names = kMemory;
    names.emplace_back(ground);
    expect_apart(names, 20);
  }
}

TEST(Palette, PhasesAreApart) {
  expect_apart({"forward", "backward", "again", "update", "track"}, 20);
}

TEST(Palette, WhatHappensToAnActivationIsApart) {
  expect_apart({"device", "host", "again", "card"}, 20);
}

TEST(Palette, NoKindOfMemoryLooksLikeAPhase) {
  for (const std::string& kind : kMemory) {
    for (const char* phase : {"forward", "backward", "again", "update"}) {
      EXPECT_GE(difference(seen(kEyes[0], ink(kind).light), seen(kEyes[0], ink(phase).light)), 10)
          << kind << phase;
      EXPECT_GE(difference(seen(kEyes[0], ink(kind).dark), seen(kEyes[0], ink(phase).dark)), 10)
          << kind << phase;
    }
  }
}

TEST(Palette, IsTheCssOfThePage) {
  const std::string css = palette_css();
  std::set<std::string_view> names;
  for (const auto& [name, ink] : palette()) {
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_NE(css.find(" --" + std::string(name) + ": " + std::string(ink.light) + ";"), std::string::npos)
        << name;
    EXPECT_NE(css.find(" --" + std::string(name) + ": " + std::string(ink.dark) + ";"), std::string::npos)
        << name;
  }
}

// Every page begins with the same colours and rules.
TEST(Palette, IsInTheStyleOfAllPages) {
  const std::string style = page_style();
  EXPECT_EQ(style.find(palette_css()), 0u);
  for (const char* rule : {"\n* { box-sizing: border-box; }\n", "color: var(--ink);",
                           "@media (max-width: 520px)", "@media (prefers-color-scheme: dark)"})
    EXPECT_NE(style.find(rule), std::string::npos) << rule;
}

TEST(Palette, HeatGetsLighter) {
  double before = -1;
  for (int i = 0; i <= 20; ++i) {
    const double lightness = lab(linear(heat_colour(i / 20.0)))[0];
    EXPECT_GT(lightness, before) << i;
    before = lightness;
  }
  EXPECT_EQ(text_on(heat_colour(0)), "on-dark");
  EXPECT_EQ(text_on(heat_colour(1)), "on-light");
}

}  // namespace
}  // namespace sluice::core
