// SPDX-License-Identifier: Apache-2.0
// Where things lie in time and space: shared by the ways to pack.
#pragma once

#include <algorithm>
#include <span>

#include "search/passes/passes.h"

namespace sluice::core {

// Where an item lies.
struct Place {
  int64_t offset, bytes;
  uint32_t begin, end;  // around the boundary when begin > end
  uint32_t item;
};
inline Place place_of(const PackItem& item, uint32_t index) {
  return {item.offset, item.bytes, item.begin, item.end, index};
}

// Whether an item or a place goes around the boundary.
bool around(const auto& item) {
  return item.begin > item.end;
}

// Whether two are there at one time.
bool meet(const auto& a, const auto& b) {
  if (around(a) && around(b)) return true;
  if (around(a)) return b.end >= a.begin || b.begin <= a.end;
  if (around(b)) return a.end >= b.begin || a.begin <= b.end;
  return a.begin <= b.end && b.begin <= a.end;
}

// Whether an item may come later or end earlier than it asks for.
inline bool gives_way(const PackItem& item) {
  return item.latest_begin != item.begin || item.earliest_end != item.end;
}

// Up to the end of the last of them.
inline int64_t bytes_used(std::span<const PackItem> items) {
  int64_t used = 0;
  for (const PackItem& item : items) used = std::max(used, item.offset + item.bytes);
  return used;
}

// The lowest offset at which nothing that is `placed`, in the order of offsets, is in the way of `item`.
inline int64_t lowest_offset(std::span<const Place> placed, const PackItem& item) {
  int64_t offset = 0;
  for (const Place& other : placed) {
    if (other.offset + other.bytes <= offset || !meet(item, other)) continue;
    if (other.offset - offset >= item.bytes) break;
    offset = other.offset + other.bytes;
  }
  return offset;
}

}  // namespace sluice::core
