// SPDX-License-Identifier: Apache-2.0
// Packing of few things by search. Each takes the lowest place that those before it in a list leave free. A
// thing that finds none moves to the front of the list, and everything is placed again. A handful is stacked
// in every order at last. Both find packings where a sweep through time fails, at a cost that grows with the
// square of the number of things.
#include <algorithm>
#include <array>
#include <bitset>
#include <numeric>

#include "search/passes/places.h"

namespace sluice::core {
namespace {

// A round's cost grows with the square of the number of things.
size_t rounds_for(size_t things) {
  return std::min<size_t>(40, 2'000'000 / (things * things + 1));
}

bool overlap(const PackItem& a, const PackItem& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Tries every way to stack a handful of items from the bottom up, for `left` placements. That finds any
// packing pushed down as far as it goes, where each item lies on one that it meets, placed in the order of
// offsets.
struct Stacking {
  static constexpr size_t kHandful = 24;
  using Some = std::bitset<kHandful>;

  bool place_above(int64_t lowest) {
    if (placed.count() == items.size()) return true;
    for (size_t i = 0; i < items.size(); ++i) {
      if (placed[i]) continue;
      if (--left < 0) return false;
      PackItem& item = items[i];
      int64_t offset = 0;
      const Some below = placed & met[i];
      for (size_t j = 0; j < items.size(); ++j) {
        if (below[j]) offset = std::max(offset, items[j].offset + items[j].bytes);
      }
      if (offset + item.bytes > capacity) return false;  // nor can it go lower later
      if (offset < lowest) continue;
      item.offset = offset;
      placed.set(i);
      if (place_above(offset)) return true;
      placed.reset(i);
    }
    return false;
  }

  std::vector<PackItem>& items;
  const int64_t capacity;
  std::array<Some, kHandful> met{};  // by item: those that are there at a time when it is
  Some placed{};
  int left = 2000;
};

bool stack(std::vector<PackItem>& items, int64_t capacity) {
  if (items.size() > Stacking::kHandful) return false;
  Stacking stacking{items, capacity};
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t j = 0; j < items.size(); ++j) stacking.met[i][j] = meet(items[i], items[j]);
  }
  return stacking.place_above(0);
}

// Places everything for the times it asks for. False when no packing was found.
bool search(std::vector<PackItem>& items, const PackTime& time, int64_t capacity) {
  std::vector<uint32_t> order(items.size());
  std::vector<Place> placed;
  std::iota(order.begin(), order.end(), 0u);
  const auto area = [&](uint32_t i) { return double(items[i].bytes) * double(1 + time.length(items[i])); };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return area(a) > area(b); });
  for (size_t round = 0; round < rounds_for(items.size()); ++round) {
    placed.clear();
    auto it = order.begin();
    for (; it != order.end(); ++it) {
      PackItem& item = items[*it];
      item.offset = lowest_offset(placed, item);
      if (item.offset + item.bytes > capacity) break;
      const auto at = std::upper_bound(placed.begin(), placed.end(), item.offset,
                                       [](int64_t o, const Place& other) { return o < other.offset; });
      placed.insert(at, place_of(item, *it));
    }
    if (it == order.end()) return true;
    std::rotate(order.begin(), it, it + 1);
  }
  return stack(items, capacity);
}

// Lets what was cut short begin as early and end as late as it asked for, where nothing is in the way.
void extend(std::vector<PackItem>& items, const std::vector<PackItem>& asked) {
  const auto free = [&](uint32_t index, uint32_t position) {
    PackItem probe(items[index].bytes, position, position);
    probe.offset = items[index].offset;
    for (uint32_t i = 0; i < items.size(); ++i) {
      if (i != index && meet(probe, items[i]) && overlap(probe, items[i])) return false;
    }
    return true;
  };
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return asked[a].latest_begin < asked[b].latest_begin; });
  for (const uint32_t i : order) {
    while (items[i].begin > asked[i].begin && free(i, items[i].begin - 1)) --items[i].begin;
  }
  for (const uint32_t i : order) {
    while (items[i].end < asked[i].end && free(i, items[i].end + 1)) ++items[i].end;
  }
}

}  // namespace

int64_t pack_few(std::vector<PackItem>& items, const PackTime& time, int64_t capacity) {
  if (items.size() > kFewItems) return kNowhere;
  const std::vector<PackItem> asked = items;
  if (!search(items, time, capacity)) {
    items = asked;
    if (std::ranges::none_of(items, gives_way)) return kNowhere;
    for (PackItem& item : items) {
      item.begin = item.latest_begin;
      item.end = item.earliest_end;
    }
    if (!search(items, time, capacity)) return kNowhere;
    extend(items, asked);
  }
  return bytes_used(items);
}

}  // namespace sluice::core
