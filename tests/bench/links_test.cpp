// SPDX-License-Identifier: Apache-2.0
// Links of machines with several devices.
#include "bench/links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "config/config.h"
#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"

namespace sluice::core {
namespace {

using rig::must;

const std::atomic<bool> kNever = false;

Machine cpu(const std::string& devices, const std::string& peer) {
  return must(resolve_machine(must(load_config("", {"run.backend=cpu", "run.threads=1", "run.peer=" + peer,
                                                    "run.devices=" + devices})),
                              ""));
}

// Copies so small that it takes no time.
LinkBench measured(const std::string& devices, const std::string& peer) {
  return must(run_links(cpu(devices, peer), {.bytes = 64 << 10, .ns = 1e5}, kNever));
}

std::vector<std::string> names_of(const LinkBench& bench) {
  std::vector<std::string> out;
  for (const LinkResult& link : bench.links) out.push_back(link.name);
  return out;
}

TEST(Links, EveryLaneThatCopiesIsOne) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of(measured("1", "auto")), (Names{"host to device 0", "device 0 to host"}));
  EXPECT_EQ(names_of(measured("2", "off")),
            (Names{"host to device 0", "device 0 to host", "host to device 1", "device 1 to host"}));
  const LinkBench two = measured("2", "auto");
  EXPECT_EQ(two.links.size(), 6u);
  EXPECT_EQ(std::ranges::count(names_of(two), "device 1 to device 0"), 1);
}

TEST(Links, RatesLieBetweenTheirLeastAndMost) {
  const LinkBench bench = measured("2", "auto");
  EXPECT_GT(bench.bytes, 0);
  for (const LinkResult& link : bench.links) {
    for (const RateSpread& r : {link.alone, link.all}) {
      EXPECT_GT(r.copies, 0) << link.name;
      EXPECT_GT(r.least, 0) << link.name;
      EXPECT_LE(r.least, r.mean) << link.name;
      EXPECT_LE(r.mean, r.most) << link.name;
    }
  }
}

// 60 bytes in 10, 20 and 30 ns are 6, 3 and 2 GB/s, all of them 3.
TEST(Links, SpreadsAreThoseOfCopies) {
  const std::vector<Interval> copies{{0, 10}, {10, 30}, {30, 60}};
  const RateSpread r = spread_of(copies, 60);
  EXPECT_EQ(r.copies, 3);
  EXPECT_NEAR(r.mean, 3e9, 1);
  EXPECT_NEAR(r.least, 2e9, 1);
  EXPECT_NEAR(r.most, 6e9, 1);
  EXPECT_NEAR(r.deviation, 1e9 * std::sqrt(13.0 / 3), 1);
}

TEST(Links, AskedToStopItMeasuresNothing) {
  const std::atomic<bool> stop = true;
  const auto none = run_links(cpu("1", "auto"), {.bytes = 64 << 10}, stop);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::Cancelled);
}

TEST(Links, ThePageHasAllOfThem) {
  const LinkBench bench{64 << 20,
                        {{"host to device 0", {9, 50e9, 1e9, 48e9, 52e9}, {5, 25e9, 1e9, 24e9, 26e9}}}};
  const std::string page = to_text(links_page(bench));
  for (const char* part : {"64.0 MiB", "host to device 0", "50 GB/s", "25 GB/s", "50.00 %"})
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
}

}  // namespace
}  // namespace sluice::core
