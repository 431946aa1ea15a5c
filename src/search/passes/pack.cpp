// SPDX-License-Identifier: Apache-2.0
// Packing: addresses for things whose lifetimes are known (dynamic storage allocation, offline).
//
// Long lives are placed first, the longest at the bottom: lifetimes nest, as the backward pass undoes the
// forward pass in reverse, so they stack without holes. The rest is placed in order of birth by best fit,
// where it does not stand in the way of something long-lived yet to come. What must be there takes the room
// of what only came early or lingers; early loads then come when there is room. A few variants are tried, as
// each fragments on programs that the others pack well.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory_resource>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "search/passes/grouped.h"
#include "search/passes/places.h"

namespace sluice::core {
namespace {

constexpr uint32_t kTwoRounds = 2048;  // positions: about two rounds of a chunk each

// Places in the order of offsets, and those of each stretch of time once more. A step of many rounds holds no
// more at a time than one of few, and most of its things last for less than two rounds.
class PlacesInTime {
 public:
  explicit PlacesInTime(uint32_t last) {
    if (last > 2 * kStretch) stretches_.resize(last / kStretch + 1);
  }

  void add(const Place& place) {
    insert(all_, place);
    // Each stretch reaches to the end of the next one, so that one of them has all of what is shorter.
    for (uint32_t k = 0; k < stretches_.size(); ++k) {
      if (meet(place, Stretch{k * kStretch, (k + 2) * kStretch - 1})) insert(stretches_[k], place);
    }
  }
  int64_t lowest_offset(const PackItem& item) const {
    const bool is_short = !stretches_.empty() && !around(item) && item.end - item.begin < kStretch;
    return sluice::core::lowest_offset(is_short ? stretches_[item.begin / kStretch] : all_, item);
  }
  std::vector<Place> all() && { return std::move(all_); }

 private:
  static constexpr uint32_t kStretch = kTwoRounds;
  struct Stretch {
    uint32_t begin, end;
  };
  static void insert(std::vector<Place>& places, const Place& place) {
    places.insert(std::ranges::upper_bound(places, place.offset, {}, &Place::offset), place);
  }

  std::vector<Place> all_;
  std::vector<std::vector<Place>> stretches_;
};

// Places items in order of birth.
class Sweep {
 public:
  // Items that live longer than `long_lived` turns are placed first, and those of `large` bytes; of the
  // others, those that live shorter than `short_lived` take the top of the room they find.
  Sweep(std::vector<PackItem>& items, const PackTime& time, int64_t capacity, uint32_t long_lived,
        uint32_t short_lived, int64_t large)
      : items_(items),
        time_(time),
        last_(time.last),
        capacity_(capacity),
        long_lived_(long_lived),
        short_lived_(short_lived),
        large_(large) {}

  // Whether everything found a place.
  bool run();

 private:
  // False when something around the boundary, which cannot wait, finds no place.
  bool place_long_lived();
  bool place(uint32_t item);
  // As place(), if need be in the room of early loads and lingering stores.
  bool place_at_any_price(uint32_t item, uint32_t now);
  void place_early(uint32_t now);
  void remove(uint32_t item);
  // Whether [offset, offset + bytes) stays free from now until `end`: nothing long-lived begins there before.
  bool stays_free(int64_t offset, int64_t bytes, uint32_t end) const;
  // The long-lived ones that begin at a position.
  std::span<const Place> coming(uint32_t position) const {
    return {coming_.data() + coming_from_[position], coming_.data() + coming_from_[position + 1]};
  }
  // A run of free bytes: (offset, end), and (bytes, offset).
  using Run = std::pair<int64_t, int64_t>;
  void release(int64_t offset, int64_t end);
  void take(int64_t offset, int64_t end);
  void add_size(int64_t offset, int64_t end) {
    const Run size{end - offset, offset};
    by_size_.insert(std::lower_bound(by_size_.begin(), by_size_.end(), size), size);
  }
  void drop_size(int64_t offset, int64_t end) {
    by_size_.erase(std::lower_bound(by_size_.begin(), by_size_.end(), Run{end - offset, offset}));
  }

  std::vector<PackItem>& items_;
  const PackTime time_;
  const uint32_t last_;
  const int64_t capacity_;
  const uint32_t long_lived_, short_lived_;
  const int64_t large_;
  uint32_t now_ = 0;
  // Nodes of few items need no memory but the sweep's own.
  std::array<std::byte, 4096> first_nodes_;
  std::pmr::monotonic_buffer_resource more_nodes_{first_nodes_.data(), first_nodes_.size()};
  std::pmr::unsynchronized_pool_resource nodes_{&more_nodes_};
  // Both sorted. There are few at a time: moving them costs less than nodes of a tree.
  std::vector<Run> free_, by_size_;
  std::vector<Place> long_;            // placed first, by offset
  std::vector<Place> coming_;          // the same by the position where they begin,
  std::vector<uint32_t> coming_from_;  // and where those of each position are among them
  using Deadlines = std::pmr::set<std::pair<uint32_t, uint32_t>>;  // (position, item)
  Deadlines waiting_{&nodes_};    // early loads without a place, by their latest begin
  Deadlines early_{&nodes_};      // placed ones that are not needed yet
  Deadlines lingering_{&nodes_};  // placed ones that may end before they do, by their earliest end
  // Items that may end before a position, in the order in which they were placed: from the first of a
  // position to the next one until none is left.
  struct Death {
    uint32_t item, next = kNone;
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  void dies(uint32_t item, uint32_t position) {
    const auto id = uint32_t(deaths_.size());
    deaths_.push_back({item});
    auto& [first, last] = deaths_at_[position];
    (first == kNone ? first : deaths_[last].next) = id;
    last = id;
  }
  std::vector<Death> deaths_;
  std::vector<std::pair<uint32_t, uint32_t>> deaths_at_;  // by position: the first and the last
  std::vector<bool> placed_;                              // by item: holds its place now
};

bool Sweep::place_long_lived() {
  std::vector<uint32_t> order;
  const auto length = [&](uint32_t i) { return time_.length(items_[i]); };
  for (uint32_t i = 0; i < items_.size(); ++i) {
    if (around(items_[i]) || length(i) >= long_lived_ || items_[i].bytes >= large_) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return length(a) > length(b); });
  PlacesInTime placed(last_);
  for (const uint32_t i : order) {
    PackItem& item = items_[i];
    int64_t offset = placed.lowest_offset(item);
    if (offset + item.bytes > capacity_ && around(item)) {
      item.end = item.earliest_end;
      offset = placed.lowest_offset(item);
      if (offset + item.bytes > capacity_) return false;
    }
    // An item without a place now may find one later, at the cost of items that can give way.
    if (offset + item.bytes > capacity_) continue;
    item.offset = offset;
    placed.add(place_of(item, i));
  }
  long_ = std::move(placed).all();
  coming_ = long_;
  std::stable_sort(coming_.begin(), coming_.end(),
                   [](const Place& a, const Place& b) { return a.begin < b.begin; });
  coming_from_.reserve(last_ + 2);
  for (uint32_t p = 0, i = 0; p <= last_ + 1; ++p) {
    coming_from_.push_back(i);
    while (i < coming_.size() && coming_[i].begin == p) ++i;
  }
  return true;
}

bool Sweep::stays_free(int64_t offset, int64_t bytes, uint32_t end) const {
  for (uint32_t i = coming_from_[now_ + 1]; i < coming_from_[end + 1]; ++i) {
    if (coming_[i].offset < offset + bytes && offset < coming_[i].offset + coming_[i].bytes) return false;
  }
  return true;
}

void Sweep::release(int64_t offset, int64_t end) {
  auto next = std::lower_bound(free_.begin(), free_.end(), Run{offset, 0});
  const bool joins_next = next != free_.end() && next->first == end;
  const bool joins_before = next != free_.begin() && std::prev(next)->second == offset;
  if (joins_next) {
    drop_size(next->first, next->second);
    end = next->second;
  }
  if (joins_before) {
    const auto before = std::prev(next);
    drop_size(before->first, before->second);
    before->second = end;
    if (joins_next) free_.erase(next);
    offset = before->first;
  } else if (joins_next) {
    next->first = offset;
  } else {
    free_.insert(next, {offset, end});
  }
  add_size(offset, end);
}

void Sweep::take(int64_t offset, int64_t end) {
  const auto it = std::prev(std::upper_bound(free_.begin(), free_.end(), Run{offset, kUnlimited}));
  const auto [run_begin, run_end] = *it;
  drop_size(run_begin, run_end);
  if (run_begin < offset) add_size(run_begin, offset);
  if (end < run_end) add_size(end, run_end);
  if (run_begin < offset && end < run_end) {
    it->second = offset;
    free_.insert(std::next(it), {end, run_end});
  } else if (run_begin < offset) {
    it->second = offset;
  } else if (end < run_end) {
    it->first = end;
  } else {
    free_.erase(it);
  }
}

bool Sweep::place(uint32_t index) {
  PackItem& item = items_[index];
  const bool high = time_.length(item) < short_lived_;
  for (auto it = std::lower_bound(by_size_.begin(), by_size_.end(), Run{item.bytes, -1});
       it != by_size_.end(); ++it) {
    const auto [size, begin] = *it;
    const int64_t low_offset = begin, high_offset = begin + size - item.bytes;
    int64_t offset = high ? high_offset : low_offset;
    if (!stays_free(offset, item.bytes, item.end)) offset = high ? low_offset : high_offset;
    if (!stays_free(offset, item.bytes, item.end)) continue;
    item.offset = offset;
    take(offset, offset + item.bytes);
    placed_[index] = true;
    dies(index, item.end + 1);
    if (item.end > item.earliest_end) lingering_.insert({item.earliest_end, index});
    return true;
  }
  return false;
}

void Sweep::remove(uint32_t index) {
  PackItem& item = items_[index];
  release(item.offset, item.offset + item.bytes);
  placed_[index] = false;
  lingering_.erase({item.earliest_end, index});
}

bool Sweep::place_at_any_price(uint32_t index, uint32_t now) {
  for (;;) {
    if (place(index)) return true;
    if (!lingering_.empty() && lingering_.begin()->first < now) {
      const uint32_t other = lingering_.begin()->second;
      remove(other);
      items_[other].end = std::max(now - 1, items_[other].earliest_end);
      continue;
    }
    while (!early_.empty() && early_.begin()->first <= now) early_.erase(early_.begin());
    if (early_.empty()) return false;
    const auto furthest = std::prev(early_.end());
    const uint32_t other = furthest->second;
    waiting_.insert(*furthest);
    early_.erase(furthest);
    remove(other);
    items_[other].offset = kNowhere;
  }
}

// Early loads in the order of their deadlines; when one finds no room, those after it wait as well.
void Sweep::place_early(uint32_t now) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    PackItem& item = items_[it->second];
    item.begin = now;
    if (!place(it->second)) break;
    early_.insert(*it);
    it = waiting_.erase(it);
  }
}

bool Sweep::run() {
  deaths_.reserve(items_.size());
  deaths_at_.resize(last_ + 2, {kNone, kNone});
  placed_.resize(items_.size());
  if (!place_long_lived()) return false;
  release(0, capacity_);
  const Grouped births(last_ + 1, [&](auto&& add) {
    for (uint32_t i = 0; i < items_.size(); ++i) {
      if (items_[i].offset == kNowhere) add(items_[i].begin, i);
    }
  });
  const Grouped needed(last_ + 1, [&](auto&& add) {
    for (uint32_t i = 0; i < items_.size(); ++i) {
      const PackItem& item = items_[i];
      if (item.offset == kNowhere && item.latest_begin > item.begin) add(item.latest_begin, i);
    }
  });
  const auto begin_long_lived = [&](uint32_t i) {
    const PackItem& item = items_[i];
    take(item.offset, item.offset + item.bytes);
    placed_[i] = true;
  };
  for (const Place& p : long_) {
    if (!around(p)) continue;
    begin_long_lived(p.item);
    dies(p.item, p.end + 1);
    if (items_[p.item].end > items_[p.item].earliest_end)
      lingering_.insert({items_[p.item].earliest_end, p.item});
  }
  std::vector<uint32_t> now;
  for (uint32_t p = 0; p <= last_; ++p) {
    now_ = p;
    for (uint32_t d = deaths_at_[p].first; d != kNone; d = deaths_[d].next) {
      const uint32_t i = deaths_[d].item;
      if (placed_[i] && items_[i].end + 1 == p) remove(i);
    }
    for (const Place& long_lived : coming(p)) {
      begin_long_lived(long_lived.item);
      if (!around(long_lived)) dies(long_lived.item, long_lived.end + 1);
    }
    now.clear();
    for (const uint32_t i : births[p]) {
      if (items_[i].latest_begin == p) {
        now.push_back(i);
      } else {
        waiting_.insert({items_[i].latest_begin, i});
      }
    }
    for (const uint32_t i : needed[p]) {
      if (items_[i].offset != kNowhere) continue;
      waiting_.erase({p, i});
      items_[i].begin = p;
      now.push_back(i);
    }
    if (now.size() > 1) {
      std::stable_sort(now.begin(), now.end(),
                       [&](uint32_t a, uint32_t b) { return items_[a].bytes > items_[b].bytes; });
    }
    for (const uint32_t i : now) {
      if (!place_at_any_price(i, p)) return false;
    }
    place_early(p);
  }
  return true;
}

// In turns: one layer of one chunk has about two dozen.
struct Variant {
  uint32_t long_lived, short_lived;
  int64_t large = 0;  // what takes at least one in so many bytes of the capacity is placed first; 0: nothing
};

std::span<const Variant> variants_for(std::span<const PackItem> items, size_t many) {
  static constexpr Variant kVariants[] = {{100, 0},        {40, 0},          {300, 24},
                                          {UINT32_MAX, 0}, {UINT32_MAX, 24}, {UINT32_MAX, 0, 2}};
  // Placing what lives long first takes time with the square of how much there is: with many things it comes
  // last. Among many, something large finds no room in one piece once the small ones are there.
  static constexpr Variant kOfMany[] = {{UINT32_MAX, 0, 32}, {UINT32_MAX, 0}, {300, 24},
                                        {UINT32_MAX, 24},    {100, 0},        {40, 0}};
  // With so many items, none of which gives way, slow variants pack no more than these.
  static constexpr Variant kOfManyFirm[] = {
      {UINT32_MAX, 0, 32}, {UINT32_MAX, 0}, {UINT32_MAX, 24}, {kTwoRounds, 0}};
  if (items.size() > kManyItems && std::ranges::none_of(items, gives_way)) return kOfManyFirm;
  if (items.size() > many) return kOfMany;
  return kVariants;
}

// As pack(), of which all `capacity` is there to take. `in_time`: nothing may come later or end earlier than
// it asks for.
int64_t pack_within(std::vector<PackItem>& items, const PackTime& time, int64_t capacity,
                    std::span<const Variant> variants, bool in_time) {
  const std::vector<PackItem> asked = items;
  int64_t largest = 0;
  for (const PackItem& item : items) largest = std::max(largest, item.bytes);
  const auto as_asked = [](const PackItem& a, const PackItem& b) {
    return a.begin == b.begin && a.end == b.end;
  };
  // Variants by what makes them differ: of few turns most would do the same.
  std::vector<std::tuple<int64_t, uint32_t, int64_t>> tried;
  for (const Variant& v : variants) {
    const int64_t large = v.large > 0 ? capacity / v.large : kUnlimited;
    if (v.large > 0 && largest < large) continue;  // as the others
    const auto first =
        std::ranges::count_if(asked, [&](const PackItem& i) { return time.length(i) >= v.long_lived; });
    const std::tuple differs(int64_t(first), v.short_lived, large);
    if (std::ranges::find(tried, differs) != tried.end()) continue;
    tried.push_back(differs);
    items = asked;
    if (!Sweep(items, time, capacity, v.long_lived, v.short_lived, large).run()) continue;
    if (in_time && !std::ranges::equal(items, asked, as_asked)) continue;
    return bytes_used(items);
  }
  return kNowhere;
}

int64_t total_bytes(const std::vector<PackItem>& items) {
  int64_t total = 0;
  for (const PackItem& item : items) total += item.bytes;
  return total;
}

// The most bytes that are there at a position.
int64_t most_at_once(const std::vector<PackItem>& items, uint32_t last) {
  std::vector<int64_t> change(last + 2, 0);
  for (const PackItem& item : items) {
    change[item.begin] += item.bytes;
    change[item.end + 1] -= item.bytes;
    if (around(item)) change[0] += item.bytes;
  }
  int64_t now = 0, most = 0;
  for (const int64_t by : change) most = std::max(most, now += by);
  return most;
}

}  // namespace

int64_t bytes_wanted(std::vector<PackItem> items, const PackTime& time) {
  const int64_t all = total_bytes(items);
  return Sweep(items, time, all, UINT32_MAX, 0, kUnlimited).run() ? bytes_used(items) : all;
}

int64_t pack(std::vector<PackItem>& items, const PackTime& time, int64_t capacity, size_t many) {
  const int64_t space = std::min(capacity, total_bytes(items));
  return pack_within(items, time, space, variants_for(items, many), false);
}

int64_t pack_closely(std::vector<PackItem>& items, const PackTime& time, int64_t capacity, size_t many) {
  const int64_t total = total_bytes(items), most = most_at_once(items, time.last);
  const std::vector<PackItem> asked = items;
  std::vector<PackItem> wide;
  int64_t wide_bytes = kNowhere;
  if (total > capacity) {
    // Where room ends far above what is there at once, what finds no place at the bottom goes to its end.
    wide_bytes = pack(items, time, capacity, many);
    if (wide_bytes == kNowhere || wide_bytes <= most + most / 2) return wide_bytes;
    wide = std::exchange(items, asked);
  }
  // An item at the top of the room is aligned as its size is.
  int64_t unit = 0;
  for (const PackItem& item : items) unit = std::gcd(unit, item.bytes);
  if (unit == 0) return 0;
  for (const int64_t room : {most, most + most / 32, most + most / 8, most + most / 2}) {
    const int64_t space = align_down(room, unit);
    if (space >= total) break;
    const int64_t used = pack_within(items, time, space, variants_for(items, many), true);
    if (used != kNowhere) return used;
    items = asked;
  }
  if (wide_bytes == kNowhere) return pack(items, time, capacity, many);
  items = std::move(wide);
  return wide_bytes;
}

int64_t pack_least(std::vector<PackItem>& items, const PackTime& time) {
  const int64_t total = total_bytes(items), most = most_at_once(items, time.last);
  int64_t unit = 0;
  for (const PackItem& item : items) unit = std::gcd(unit, item.bytes);
  if (unit == 0) return 0;
  const std::vector<PackItem> asked = items;
  for (int64_t more = 0; most + more < total; more = std::max(2 * more, align_up(most / 512, unit))) {
    const int64_t used = pack_within(items, time, most + more, variants_for(items, kManyOnHost), false);
    if (used != kNowhere) return used;
    items = asked;
    if (const int64_t few = pack_few(items, time, most + more); few != kNowhere) return few;
    items = asked;
  }
  return pack_within(items, time, total, variants_for(items, kManyOnHost), false);
}

}  // namespace sluice::core
