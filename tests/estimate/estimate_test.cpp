// SPDX-License-Identifier: Apache-2.0
#include "estimate/estimate.h"

#include <gtest/gtest.h>

#include <functional>

namespace sluice::core {
namespace {

EstimateInput tiny() {
  EstimateInput in;
  in.subject = *parse_subject("tiny");
  in.batch = {64, 1};
  return in;
}

bool has(const Page& page, const std::string& key) {
  for (const Section& s : page.sections) {
    if (s.key == key) return true;
  }
  return false;
}

TEST(Estimate, LeavesOutWhatNeedsAMachine) {
  const auto page = estimate(tiny());
  ASSERT_TRUE(page.ok()) << page.message();
  EXPECT_TRUE(has(*page, "activations"));
  EXPECT_TRUE(has(*page, "more"));
  for (const char* key : {"roofline", "scaling", "sizes", "time", "mesh"})
    EXPECT_FALSE(has(*page, key)) << key;
}

// Tied heads, biases, norms of heads, one key head, a length that is no power of two, a single token.
TEST(Estimate, TakesOddModelsAndBatches) {
  const Device device{
      .name = "d", .memory_bytes = 1e9, .peak_flops = 1e12, .memory_rate = 1e10, .multiprocessors = 7};
  for (const char* model : {"layers=1,dim=6,ffn=5,heads=3,kv_heads=1,head_dim=2,vocab=7,tied=1", "params=1",
                            "layers=1,dim=2,ffn=3,matrices=1", "tiny"}) {
    for (const BatchShape batch : {BatchShape{1, 1}, BatchShape{97, 3}, BatchShape{1000, 1}}) {
      EstimateInput in = tiny();
      in.subject = *parse_subject(model);
      in.device = device;
      in.batch = batch;
      in.tokens = 1e9;
      in.tokens_per_s = 1;
      in.mesh = *parse_mesh("link=1");
      const auto page = estimate(in);
      ASSERT_TRUE(page.ok()) << page.message();
      EXPECT_NE(to_text(*page).find("Batch"), std::string::npos);
      EXPECT_EQ(to_text(*page).find("nan"), std::string::npos) << to_text(*page);
    }
  }
}

TEST(Estimate, RefusesWhatCannotBe) {
  const auto message = [](const std::function<void(EstimateInput&)>& change) {
    EstimateInput in = tiny();
    change(in);
    return estimate(in).message();
  };
  EXPECT_EQ(message([](auto& in) { in.batch.rows = 0; }), "--batch = 0: allowed are 1 to 16777216");
  EXPECT_EQ(message([](auto& in) { in.devices = 6, in.tp = 4; }),
            "--devices 6: not a multiple of --tp 4 x --pp 1 = 4, the devices of one replica");
  EXPECT_EQ(message([](auto& in) { in.mfu = 40; }), "--mfu 40: allowed are numbers above 0 and up to 1");
  EXPECT_EQ(message([](auto& in) { in.price = -1; }), "--price -1: allowed are positive numbers");
  EXPECT_EQ(message([](auto& in) { in.step_s = in.tokens_per_s = 1; }),
            "--tokens-per-s and --step-s say the same; give one");
  EXPECT_NE(message([](auto& in) {
              in.batch = {1 << 24, 1 << 24};
            }).find("up to 2^26 tokens"),
            std::string::npos);
}

TEST(Mesh, SaysWhatIsWrong) {
  EXPECT_EQ(parse_mesh("fsdp=8/2,link=1e9")->fsdp_axes, 2);
  EXPECT_EQ(parse_mesh("tp=4,link=90G")->tp, 4);
  EXPECT_EQ(parse_mesh("tp=4,link=90G")->link_rate, 90e9);
  EXPECT_NE(parse_mesh("fsdp=8").message().find("needs link="), std::string::npos);
  EXPECT_NE(parse_mesh("dp=8,link=1").message().find("allowed are fsdp"), std::string::npos);
  EXPECT_NE(parse_mesh("fsdp=0/1,link=1").message().find("1 to 1,000,000"), std::string::npos);
  EXPECT_FALSE(parse_mesh("fsdp=x,link=1").ok());
}

}  // namespace
}  // namespace sluice::core
