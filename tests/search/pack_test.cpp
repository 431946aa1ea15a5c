// SPDX-License-Identifier: Apache-2.0
// Places for things whose lifetimes are known.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/philox.h"
#include "search/passes/places.h"

namespace sluice::core {
namespace {

// Whether no two of them overlap in time, which for an item with begin > end goes around `last`, and space.
void expect_apart(const std::vector<PackItem>& items, uint32_t last) {
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const PackItem &a = items[i], &b = items[j];
      if (a.offset >= b.offset + b.bytes || b.offset >= a.offset + a.bytes) continue;
      const auto there = [](const PackItem& x, uint32_t p) {
        return x.begin <= x.end ? p >= x.begin && p <= x.end : p >= x.begin || p <= x.end;
      };
      for (uint32_t p = 0; p <= last; ++p)
        EXPECT_FALSE(there(a, p) && there(b, p)) << i << ' ' << j << ' ' << p;
    }
  }
}

// The fullest moment leaves no byte free, and no list that things are placed from one by one, each as low as
// it goes, ends in a packing within the rounds there are.
TEST(PackFew, FindsPlacesByStacking) {
  std::vector<PackItem> items{{128, 0, 0}, {192, 2, 2}, {192, 1, 1}, {128, 4, 4},
                              {64, 2, 4},  {192, 2, 4}, {128, 3, 4}};
  ASSERT_EQ(pack_few(items, 5, 512), 512);
  expect_apart(items, 5);
}

// Random things, some early, lingering or around the boundary, with little room to spare.
TEST(Pack, KeepsThingsApartWithinTheRoomAndTheirTimes) {
  int packed = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    uint64_t counter = 0;
    const auto draw = [&](uint32_t below) { return philox(seed, counter++, 0).v[0] % below; };
    const uint32_t last = 20 + draw(60);
    std::vector<PackItem> items;
    std::vector<int64_t> there(last + 1, 0);
    for (int i = 0; i < 80; ++i) {
      const uint32_t begin = draw(last + 1), end = std::min(last, begin + draw(seed % 2 ? 6 : 30));
      PackItem item(64 * (1 + draw(8)), begin, end);
      if (draw(8) == 0 && begin > 0) item = PackItem(item.bytes, begin, draw(begin));
      if (item.begin <= item.end) {
        item.latest_begin = item.begin + draw(item.end - item.begin + 1);
        item.earliest_end = item.latest_begin + draw(item.end - item.latest_begin + 1);
      }
      items.push_back(item);
      for (uint32_t p = 0; p <= last; ++p) {
        const bool in = begin <= item.end ? p >= begin && p <= item.end : p >= begin || p <= item.end;
        there[p] += in ? item.bytes : 0;
      }
    }
    const std::vector<PackItem> asked = items;
    const int64_t most = *std::max_element(there.begin(), there.end()), room = align_up(most + most / 8, 64);
    for (const size_t many : {size_t(8000), size_t(10)}) {
      items = asked;
      const int64_t used = pack(items, last, room, many);
      if (used == kNowhere) continue;
      ++packed;
      EXPECT_LE(used, room);
      expect_apart(items, last);
      for (size_t i = 0; i < items.size(); ++i) {
        EXPECT_EQ(items[i].offset % 64, 0);
        EXPECT_LE(items[i].offset + items[i].bytes, used);
        if (asked[i].begin > asked[i].end) continue;
        EXPECT_TRUE(items[i].begin >= asked[i].begin && items[i].begin <= asked[i].latest_begin) << seed;
        EXPECT_TRUE(items[i].end <= asked[i].end && items[i].end >= asked[i].earliest_end) << seed;
      }
    }
  }
  EXPECT_GT(packed, 200);
}

// A library's workspace takes most of the room, and the next one a little more: what is small goes above
// both.
TEST(Pack, PlacesWhatTakesMostOfTheRoomBeforeWhatIsSmall) {
  std::vector<PackItem> items{{64000, 0, 0}, {64, 0, 2}, {64320, 2, 2}};
  ASSERT_EQ(pack(items, 2, 64384), 64384);
  expect_apart(items, 2);
}

// A step of many rounds: things that last for part of a round, for several, or around the boundary.
TEST(Pack, KeepsThingsApartOverManyRounds) {
  constexpr uint32_t kLast = 20'000;
  for (const uint64_t seed : {1, 2, 3}) {
    uint64_t counter = 0;
    const auto draw = [&](uint32_t below) { return philox(seed, counter++, 0).v[0] % below; };
    std::vector<PackItem> items;
    for (int i = 0; i < 600; ++i) {
      const uint32_t begin = draw(kLast + 1), length = draw(i % 10 == 0 ? kLast : 3000);
      items.emplace_back(64 * (1 + draw(8)), begin, (begin + length) % (kLast + 1));
    }
    int64_t total = 0;
    for (const PackItem& item : items) total += item.bytes;
    ASSERT_NE(pack(items, kLast, total / 2), kNowhere) << seed;
    for (size_t i = 0; i < items.size(); ++i) {
      EXPECT_LE(items[i].offset + items[i].bytes, total / 2);
      for (size_t j = 0; j < i; ++j) {
        const PackItem &a = items[i], &b = items[j];
        EXPECT_FALSE(meet(a, b) && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes)
            << i << ' ' << j;
      }
    }
  }
}

// A forward and a backward pass: what each layer keeps, its short-lived things, and weights that stay.
TEST(Pack, TakesNoMoreRoomThanItNeedsWhereThereIsPlenty) {
  constexpr uint32_t kLayers = 40, kLast = 2 * kLayers;
  std::vector<PackItem> items;
  std::vector<int64_t> there(kLast + 1, 0);
  const auto add = [&](int64_t bytes, uint32_t begin, uint32_t end) {
    items.emplace_back(bytes, begin, end);
    for (uint32_t p = begin; p <= end; ++p) there[p] += bytes;
  };
  for (uint32_t i = 0; i < kLayers; ++i) {
    add(4096, 0, kLast);
    add(1024, i, kLast - i);
    add(640, i, i), add(8192, i, i), add(8192, kLast - i, kLast - i), add(320, kLast - i, kLast - i);
  }
  const std::vector<PackItem> asked = items;
  const int64_t most = *std::ranges::max_element(there);
  const int64_t used = pack_closely(items, kLast, kUnlimited);
  EXPECT_LE(used, most + most / 32);
  expect_apart(items, kLast);
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(items[i].begin, asked[i].begin);
    EXPECT_EQ(items[i].end, asked[i].end);
  }
}

// Also where that is less than all things one beside another take, and one that comes late keeps what is
// there from the bottom.
TEST(Pack, DoesNotSpreadOverAllThereIs) {
  constexpr uint32_t kLast = 200;
  std::vector<PackItem> items;
  items.emplace_back(4096, 150, 20);  // around the boundary
  for (uint32_t p = 0; p < 140; ++p) items.emplace_back(2048, p, p);
  items.emplace_back(2048, 140, 160);
  std::vector<PackItem> wide = items;
  EXPECT_EQ(pack(wide, kLast, 128 << 10), 128 << 10);
  const int64_t used = pack_closely(items, kLast, 128 << 10);
  EXPECT_LE(used, 4096 + 2048);
  expect_apart(items, kLast);
}

}  // namespace
}  // namespace sluice::core
