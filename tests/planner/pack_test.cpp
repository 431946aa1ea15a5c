// Places for things whose lifetimes are known.
#include <gtest/gtest.h>

#include "planner/passes/passes.h"

namespace sluice {
namespace {

// The fullest moment leaves no byte free, and no list that things are placed from one by one, each as low as
// it goes, ends in a packing within the rounds there are.
TEST(PackFew, FindsPlacesByStacking) {
  std::vector<PackItem> items{{128, 0, 0}, {192, 2, 2}, {192, 1, 1}, {128, 4, 4},
                              {64, 2, 4},  {192, 2, 4}, {128, 3, 4}};
  ASSERT_EQ(pack_few(items, 5, 512), 512);
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const PackItem &a = items[i], &b = items[j];
      bool meet = false;
      for (uint32_t p = 0; p <= 4; ++p) {
        meet |= p >= a.begin && p <= a.end && p >= b.begin && p <= b.end;
      }
      EXPECT_FALSE(meet && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes) << i << ' ' << j;
    }
  }
}

}  // namespace
}  // namespace sluice
