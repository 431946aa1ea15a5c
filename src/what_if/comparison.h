// SPDX-License-Identifier: Apache-2.0
// One run on many machines: how fast each takes it with all of its memory, and what keeps those from it that
// cannot. Nothing runs: speeds are planned.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cost/card.h"
#include "pages/page.h"
#include "what_if/outlook.h"

namespace sluice::core {

// A card beside a host memory.
struct ComparedCard {
  Card card;
  BytesByTier caps;
  std::string missing;  // what it would take to train there; empty: it trains
  Outlook found;        // where it trains
  // The result at this host cap follows from less: the plan is that of this one. kUnlimited: its own.
  int64_t planned_for_host = kUnlimited;
  int wanted = 0;         // of the card, as CardsOfHost has it
  size_t devices = 1;     // that share a step
  int64_t hosts = 1;      // with so many each, that share it by data
  bool is_known = false;  // planned, or known not to train

  bool trains() const { return missing.empty(); }
  std::string name() const {
    const std::string one = devices == 1 ? card.name : fmt::format("{} x {}", devices, card.name);
    return hosts == 1 ? one : fmt::format("{} hosts with {}", hosts, one);
  }
};

// A host with one or several of a card.
struct CardsOfHost {
  Card card;
  int devices = 0;  // 0: as the configuration says
};

// Hosts that train together: how many of them, and what makes a machine one of so many.
struct Clusters {
  std::vector<int64_t> hosts{1};
  std::function<void(Machine&, int hosts)> share;  // may be empty where each has one
};

// Plans `config` for every card, number of hosts and host cap, cards outermost, in the order given. The
// configuration's device cap counts for every card; kUnlimited: a card's own memory. Where a card has a
// slower plan with more host memory, it takes that of less. What is wrong with one card is its `missing`.
// Stopped, it returns those that are known. REQUIRES: host_caps ascend.
std::vector<ComparedCard> compare_cards(const RunConfig& config, std::span<const CardsOfHost> cards,
                                        std::span<const int64_t> host_caps, const StudyWatch& watch,
                                        const Clusters& clusters = {});

struct ComparisonText {
  std::string title;
  std::vector<std::string> legend;
  std::map<std::string, double> usd_per_hour;  // of a host, by its card's key; cards without have no costs
  double tokens = 0;                           // to train on; 0: not asked
};
// A table of the cards that train it, one of those that do not, and a picture of the speeds.
Page page_of(std::span<const ComparedCard> compared, const ComparisonText& text);

}  // namespace sluice::core
