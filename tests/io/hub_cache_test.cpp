// SPDX-License-Identifier: Apache-2.0
#include "io/hub_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "support/temp_dir.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

TEST(HubCache, IsWhereTheEnvironmentSays) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"})
    ::unsetenv(name);
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(hub_cache(), fs::path("/home/me/.cache/huggingface/hub"));
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(hub_cache(), fs::path("/cache/huggingface/hub"));
  ::setenv("HF_HOME", "/hf", 1);
  EXPECT_EQ(hub_cache(), fs::path("/hf/hub"));
  ::setenv("HUGGINGFACE_HUB_CACHE", "/hub", 1);
  EXPECT_EQ(hub_cache(), fs::path("/hub"));
  ::unsetenv("HUGGINGFACE_HUB_CACHE");
  ::unsetenv("HF_HOME");
}

TEST(HubCache, NamesHaveTwoParts) {
  EXPECT_TRUE(is_hub_name("tatsu-lab/alpaca"));
  EXPECT_TRUE(is_hub_name("Qwen/Qwen2.5-0.5B"));
  EXPECT_TRUE(is_hub_name("org/name/data/train.jsonl"));
  EXPECT_FALSE(is_hub_name("alpaca"));
  EXPECT_FALSE(is_hub_name("./data/alpaca"));
  EXPECT_FALSE(is_hub_name("/data/alpaca"));
  EXPECT_FALSE(is_hub_name("../data"));
  EXPECT_FALSE(is_hub_name("data/*.txt"));
}

TEST(HubCache, HasTheRevisionOfMainOrTheOnlyOne) {
  const TempDir dir;
  ::setenv("HF_HUB_CACHE", dir.path().c_str(), 1);
  EXPECT_FALSE(find_in_hub_cache("org/name", HubKind::Dataset));
  dir.add("datasets--org--name/snapshots/aaa/a.jsonl", "{}");
  EXPECT_EQ(find_in_hub_cache("org/name", HubKind::Dataset), dir / "datasets--org--name/snapshots/aaa");
  EXPECT_FALSE(find_in_hub_cache("org/name", HubKind::Model));
  dir.add("datasets--org--name/snapshots/bbb/a.jsonl", "{}");
  EXPECT_FALSE(find_in_hub_cache("org/name", HubKind::Dataset)) << "which of the two is meant nobody says";
  dir.add("datasets--org--name/refs/main", "bbb");
  EXPECT_EQ(find_in_hub_cache("org/name/a.jsonl", HubKind::Dataset),
            dir / "datasets--org--name/snapshots/bbb/a.jsonl");
  ::unsetenv("HF_HUB_CACHE");
}

}  // namespace
}  // namespace sluice::core
