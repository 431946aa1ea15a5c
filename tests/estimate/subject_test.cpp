// SPDX-License-Identifier: Apache-2.0
#include "estimate/subject.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

TEST(Subject, OfDimensions) {
  const auto subject = parse_subject("layers=2,dim=64,ffn=128,heads=4,kv_heads=2,vocab=100,tied=1");
  ASSERT_TRUE(subject.ok()) << subject.message();
  ASSERT_TRUE(subject->spec);
  EXPECT_EQ(subject->spec->layers.size(), 2u);
  EXPECT_EQ(subject->spec->layers[0].attention()->kv_dim(), 32);
  EXPECT_TRUE(subject->spec->tied_embeddings);
  EXPECT_EQ(subject->params, subject->spec->params());
}

TEST(Subject, OfLess) {
  EXPECT_EQ(parse_subject("params=52B")->params, 52'000'000'000);
  EXPECT_EQ(parse_subject("layers=126,dim=16384,ffn=53248,matrices=2")->params, 219'848'638'464);
}

TEST(Subject, SaysWhatIsWrong) {
  const auto message = [](const char* text) { return parse_subject(text).message(); };
  EXPECT_NE(message("llama4-9b").find("allowed are tiny"), std::string::npos) << message("llama4-9b");
  EXPECT_NE(message("layer=2").find("did you mean layers"), std::string::npos) << message("layer=2");
  EXPECT_NE(message("layers=2").find("need dim"), std::string::npos) << message("layers=2");
  EXPECT_NE(message("params=1B,dim=3").find("dim has no meaning beside params"), std::string::npos);
  EXPECT_NE(message("params=many").find("'many' is no number"), std::string::npos);
  EXPECT_FALSE(parse_subject("layers=2,dim=64,ffn=128,heads=3,vocab=100").ok());
  EXPECT_FALSE(parse_subject("layers=2.5,dim=64,ffn=128,heads=4,vocab=100").ok());
  EXPECT_FALSE(parse_subject("layers=1e9,dim=64,ffn=128,heads=4,vocab=100").ok());
  EXPECT_NE(message("layers=2000,dim=64,ffn=128,heads=4,vocab=100").find("up to 1000"), std::string::npos);
  // No number of these overflows.
  EXPECT_NE(
      message("layers=1000,dim=1048576,ffn=1048576,heads=8192,head_dim=128,vocab=9").find("parameters, and"),
      std::string::npos);
  EXPECT_FALSE(parse_subject("params=0").ok());
  EXPECT_FALSE(parse_subject("matrices=2,layers=1e5,dim=1e6,ffn=1e6").ok());
}

TEST(Subject, AmountsAreByThousands) {
  EXPECT_EQ(*parse_amount("x", "1.4T"), 1.4e12);
  EXPECT_EQ(*parse_amount("x", "250k"), 250e3);
  EXPECT_EQ(*parse_amount("x", "1e9"), 1e9);
  EXPECT_FALSE(parse_amount("x", "").ok());
  EXPECT_FALSE(parse_amount("x", "3Q").ok());
  EXPECT_FALSE(parse_amount("x", "1e400").ok());
}

TEST(Subject, ScalesDepthAndWidthTogether) {
  const ModelSpec spec = *parse_subject("llama3-8b")->spec, half = scaled_to(spec, 16);
  EXPECT_EQ(half.layers.size(), 16u);
  EXPECT_EQ(half.dim, 2048);
  EXPECT_EQ(half.layers[0].attention()->heads, 16);
  EXPECT_EQ(half.layers[0].attention()->kv_heads, 4);
  EXPECT_EQ(half.layers[0].mlp().ffn, 7168);
  EXPECT_EQ(scaled_to(spec, 32).params(), spec.params());
  EXPECT_TRUE(validate(scaled_to(spec, 1)).ok());
}

}  // namespace
}  // namespace sluice::core
