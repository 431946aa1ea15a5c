// Packing: addresses for things whose lifetimes are known (dynamic storage allocation, offline).
//
// Items around the boundary all live at the same instant, so they are stacked at the bottom, each leaving its place
// to others while it is away. The rest is placed in order of birth by best fit; two variants are tried, as each
// fragments on programs that the other packs well. When both need more than the capacity, placing the largest
// items first, each at its lowest free address, decides.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "planner/passes/passes.h"

namespace sluice {
namespace {

bool around(const PackItem& item) { return item.begin > item.end; }

// Places items in order of birth.
class Sweep {
 public:
  Sweep(std::vector<PackItem>& items, uint32_t last, int64_t capacity, uint32_t short_lived)
      : items_(items), last_(last), capacity_(capacity), short_lived_(short_lived) {}

  // The high-water mark, or kNowhere when something finds no place.
  int64_t run();

 private:
  void stack_around();
  bool place(PackItem& item);
  // Whether [offset, offset + bytes) stays free until `end`: no stacked item returns there before.
  bool stays_free(int64_t offset, int64_t bytes, uint32_t end) const;
  void release(int64_t offset, int64_t end);
  void take(int64_t offset, int64_t end);
  void insert(int64_t offset, int64_t end) {
    free_[offset] = end;
    by_size_.insert({end - offset, offset});
  }
  void erase(std::map<int64_t, int64_t>::iterator it) {
    by_size_.erase({it->second - it->first, it->first});
    free_.erase(it);
  }

  struct Returning {
    int64_t offset, end;
    uint32_t at;
  };

  std::vector<PackItem>& items_;
  const uint32_t last_;
  const int64_t capacity_;
  const uint32_t short_lived_;  // items that live at most this long are placed from the top; 0: none
  std::map<int64_t, int64_t> free_;                 // offset -> end
  std::set<std::pair<int64_t, int64_t>> by_size_;   // (bytes, offset)
  std::vector<Returning> returning_;                // stacked items, by offset
  int64_t high_water_ = 0;
};

void Sweep::stack_around() {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < items_.size(); ++i) {
    if (around(items_[i]) || (items_[i].begin == 0 && items_[i].end == last_)) order.push_back(i);
  }
  // Those never away at the very bottom, then by how long they are away, so that holes next to each other open together.
  const auto key = [&](uint32_t i) {
    const PackItem& item = items_[i];
    return around(item) ? item.begin - item.end : 0u;
  };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  for (const uint32_t i : order) {
    items_[i].offset = high_water_;
    high_water_ += items_[i].bytes;
    if (around(items_[i])) returning_.push_back({items_[i].offset, high_water_, items_[i].begin});
  }
}

bool Sweep::stays_free(int64_t offset, int64_t bytes, uint32_t end) const {
  auto it = std::lower_bound(returning_.begin(), returning_.end(), offset,
                             [](const Returning& r, int64_t o) { return r.end <= o; });
  for (; it != returning_.end() && it->offset < offset + bytes; ++it) {
    if (it->at <= end) return false;
  }
  return true;
}

void Sweep::release(int64_t offset, int64_t end) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    erase(next++);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->second == offset) {
      offset = before->first;
      erase(before);
    }
  }
  insert(offset, end);
}

void Sweep::take(int64_t offset, int64_t end) {
  const auto it = std::prev(free_.upper_bound(offset));
  const int64_t run_begin = it->first, run_end = it->second;
  erase(it);
  if (run_begin < offset) insert(run_begin, offset);
  if (end < run_end) insert(end, run_end);
}

bool Sweep::place(PackItem& item) {
  const bool high = item.end - item.begin < short_lived_;
  for (auto it = by_size_.lower_bound({item.bytes, -1}); it != by_size_.end(); ++it) {
    const auto [size, begin] = *it;
    const int64_t low_offset = begin, high_offset = begin + size - item.bytes;
    int64_t offset = high ? high_offset : low_offset;
    if (!stays_free(offset, item.bytes, item.end)) offset = high ? low_offset : high_offset;
    if (!stays_free(offset, item.bytes, item.end)) continue;
    item.offset = offset;
    take(offset, offset + item.bytes);
    high_water_ = std::max(high_water_, offset + item.bytes);
    return true;
  }
  return false;
}

int64_t Sweep::run() {
  stack_around();
  if (high_water_ > capacity_) return kNowhere;
  if (high_water_ < capacity_) insert(high_water_, capacity_);
  std::vector<std::vector<uint32_t>> births(last_ + 2), deaths(last_ + 2);
  for (uint32_t i = 0; i < items_.size(); ++i) {
    const PackItem& item = items_[i];
    if (item.offset == kNowhere) births[item.begin].push_back(i);
    if (item.offset == kNowhere || around(item)) deaths[item.end + 1].push_back(i);
  }
  std::vector<std::vector<size_t>> returns(last_ + 2);
  for (size_t r = 0; r < returning_.size(); ++r) returns[returning_[r].at].push_back(r);
  for (uint32_t p = 0; p <= last_; ++p) {
    for (const uint32_t i : deaths[p]) release(items_[i].offset, items_[i].offset + items_[i].bytes);
    for (const size_t r : returns[p]) take(returning_[r].offset, returning_[r].end);
    std::stable_sort(births[p].begin(), births[p].end(),
                     [&](uint32_t a, uint32_t b) { return items_[a].bytes > items_[b].bytes; });
    for (const uint32_t i : births[p]) {
      if (!place(items_[i])) return kNowhere;
    }
  }
  return high_water_;
}

bool together(const PackItem& a, const PackItem& b, uint32_t last) {
  const auto overlap = [](uint32_t b1, uint32_t e1, uint32_t b2, uint32_t e2) { return b1 <= e2 && b2 <= e1; };
  if (around(a)) return together(PackItem{0, a.begin, last}, b, last) || together(PackItem{0, 0, a.end}, b, last);
  if (around(b)) return overlap(a.begin, a.end, b.begin, last) || overlap(a.begin, a.end, 0, b.end);
  return overlap(a.begin, a.end, b.begin, b.end);
}

int64_t largest_first(std::vector<PackItem>& items, uint32_t last) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return items[a].bytes > items[b].bytes; });
  std::vector<uint32_t> placed;  // by offset
  int64_t high_water = 0;
  for (const uint32_t i : order) {
    int64_t offset = 0;
    for (const uint32_t j : placed) {
      if (items[j].offset + items[j].bytes <= offset || !together(items[i], items[j], last)) continue;
      if (offset + items[i].bytes <= items[j].offset) break;
      offset = items[j].offset + items[j].bytes;
    }
    items[i].offset = offset;
    high_water = std::max(high_water, offset + items[i].bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](uint32_t a, uint32_t b) { return items[a].offset < items[b].offset; }),
                  i);
  }
  return high_water;
}

}  // namespace

int64_t pack(std::vector<PackItem>& items, uint32_t last, int64_t capacity) {
  // Offline placement looks at every pair of items; beyond this many it would take longer than planning may.
  constexpr size_t kPairwise = 6000;
  constexpr uint32_t kShortLived = 24;  // runs: about one layer of one chunk
  int64_t total = 0;
  for (const PackItem& item : items) total += item.bytes;
  const int64_t space = std::min(capacity, total);
  for (const uint32_t short_lived : {0u, kShortLived}) {
    for (PackItem& item : items) item.offset = kNowhere;
    const int64_t used = Sweep(items, last, space, short_lived).run();
    if (used != kNowhere) return used;
  }
  if (items.size() > kPairwise) return kNowhere;
  const int64_t used = largest_first(items, last);
  return used <= capacity ? used : kNowhere;
}

}  // namespace sluice
