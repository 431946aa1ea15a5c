// Where things lie in time and space: shared by the ways to pack.
#pragma once

#include <span>

#include "planner/passes/passes.h"

namespace sluice {

inline bool around(const PackItem& item) { return item.begin > item.end; }

// Whether two are there at one time.
inline bool meet(const PackItem& a, const PackItem& b) {
  if (around(a) && around(b)) return true;
  if (around(a)) return b.end >= a.begin || b.begin <= a.end;
  if (around(b)) return a.end >= b.begin || a.begin <= b.end;
  return a.begin <= b.end && b.begin <= a.end;
}

// The lowest offset at which none of the items `placed`, in the order of their offsets, is in the way of `item`.
inline int64_t lowest_offset(std::span<const PackItem> items, std::span<const uint32_t> placed, const PackItem& item) {
  int64_t offset = 0;
  for (const uint32_t i : placed) {
    const PackItem& other = items[i];
    if (other.offset + other.bytes <= offset || !meet(item, other)) continue;
    if (other.offset - offset >= item.bytes) break;
    offset = other.offset + other.bytes;
  }
  return offset;
}

}  // namespace sluice
