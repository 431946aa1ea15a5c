// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cost/card.h"

namespace sluice::core {
namespace {

struct Compared {
  std::string_view key;
  bool measured;
  double mean, worst;
  int speeds;
};
constexpr Compared kOffBy[] = {
#include "cost/off_by.inc"
};

}  // namespace

std::optional<OffBy> off_by(const Card& card) {
  const auto row = std::find_if(std::begin(kOffBy), std::end(kOffBy),
                                [&](const Compared& r) { return r.key == card.key; });
  if (!card.compared || row == std::end(kOffBy)) return std::nullopt;
  return OffBy{row->measured, row->mean, row->worst, row->speeds};
}

std::string to_text(const OffBy& e) {
  const char* theirs = e.measured ? "measured" : "published";
  if (e.speeds == 1) return fmt::format("{:.1f} %, of 1 {} speed", 100 * e.mean, theirs);
  return fmt::format("{:.1f} % in the mean, {:.1f} % at worst, of {} {} speeds", 100 * e.mean, 100 * e.worst,
                     e.speeds, theirs);
}

}  // namespace sluice::core
