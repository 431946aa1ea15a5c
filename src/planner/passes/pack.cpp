// Packing: addresses for things whose lifetimes are known (dynamic storage allocation, offline).
//
// Items around the boundary all live at the same instant, so they are stacked at the bottom, each leaving its place
// to others while it is away. The rest is placed in order of birth by best fit. What must be there takes the room of what
// only came early or lingers; early loads then come when there is room. Two variants are tried, as each
// fragments on programs that the other packs well.
#include <algorithm>
#include <map>
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
  bool place(uint32_t item);
  // As place(), if need be in the room of early loads and lingering stores.
  bool place_at_any_price(uint32_t item, uint32_t now);
  void place_early(uint32_t now);
  void remove(uint32_t item);
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
  std::set<std::pair<uint32_t, uint32_t>> waiting_; // early loads without a place: (latest begin, item)
  std::set<std::pair<uint32_t, uint32_t>> early_;   // placed ones that are not needed yet
  std::set<std::pair<uint32_t, uint32_t>> lingering_;  // placed ones that may end before they do: (earliest end, item)
  std::vector<std::vector<uint32_t>> deaths_;       // by position: items that may end before it
  std::vector<bool> placed_;                        // by item: holds its place now
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

bool Sweep::place(uint32_t index) {
  PackItem& item = items_[index];
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
    placed_[index] = true;
    deaths_[item.end + 1].push_back(index);
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

int64_t Sweep::run() {
  stack_around();
  if (high_water_ > capacity_) return kNowhere;
  if (high_water_ < capacity_) insert(high_water_, capacity_);
  deaths_.resize(last_ + 2);
  placed_.resize(items_.size());
  std::vector<std::vector<uint32_t>> births(last_ + 1), needed(last_ + 1);
  for (uint32_t i = 0; i < items_.size(); ++i) {
    const PackItem& item = items_[i];
    if (around(item)) {
      deaths_[item.end + 1].push_back(i);
      placed_[i] = true;
    }
    if (item.offset != kNowhere) continue;
    births[item.begin].push_back(i);
    if (item.latest_begin > item.begin) needed[item.latest_begin].push_back(i);
  }
  std::vector<std::vector<size_t>> returns(last_ + 1);
  for (size_t r = 0; r < returning_.size(); ++r) returns[returning_[r].at].push_back(r);
  std::vector<uint32_t> now;
  for (uint32_t p = 0; p <= last_; ++p) {
    for (const uint32_t i : deaths_[p]) {
      if (placed_[i] && items_[i].end + 1 == p) remove(i);
    }
    for (const size_t r : returns[p]) take(returning_[r].offset, returning_[r].end);
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
    std::stable_sort(now.begin(), now.end(), [&](uint32_t a, uint32_t b) { return items_[a].bytes > items_[b].bytes; });
    for (const uint32_t i : now) {
      if (!place_at_any_price(i, p)) return kNowhere;
    }
    place_early(p);
  }
  return high_water_;
}

}  // namespace

int64_t pack(std::vector<PackItem>& items, uint32_t last, int64_t capacity) {
  constexpr uint32_t kShortLived = 24;  // runs: about one layer of one chunk
  int64_t total = 0;
  for (const PackItem& item : items) total += item.bytes;
  const int64_t space = std::min(capacity, total);
  const std::vector<PackItem> asked = items;
  for (const uint32_t short_lived : {0u, kShortLived}) {
    items = asked;
    const int64_t used = Sweep(items, last, space, short_lived).run();
    if (used != kNowhere) return used;
  }
  return kNowhere;
}

}  // namespace sluice
