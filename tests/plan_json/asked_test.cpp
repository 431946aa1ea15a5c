// SPDX-License-Identifier: Apache-2.0
// First answers: what counting says, and plans by a rule; and what there is to choose from.
#include "plan_json/asked.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cost/card.h"
#include "model/families/families.h"
#include "plan_json/choices.h"

namespace sluice::core {
namespace {

using nlohmann::json;

AskedPlan asked(const std::string& device, const std::string& host, std::vector<std::string> more = {}) {
  AskedPlan out;
  out.machine = "laptop";
  out.settings = {"model.preset=tiny", "train.seq_len=256", "train.tokens_per_step=2048",
                  "memory.device=" + device, "memory.host=" + host};
  out.settings.insert(out.settings.end(), more.begin(), more.end());
  return out;
}

AskedPlan quick(AskedPlan asked) {
  asked.quick = true;
  return asked;
}

TEST(Formula, NoPlanIsFasterOrTakesLess) {
  const std::vector<std::string> few = {"train.tokens_per_step=512"};
  const auto formula = by_formula(asked("700MiB", "2GiB", few));
  ASSERT_TRUE(formula.ok()) << formula.message();
  EXPECT_EQ(formula->tokens, 512);
  EXPECT_EQ(formula->least_ns, std::max(formula->compute_ns, formula->loading_ns));
  EXPECT_GT(formula->compute_ns, 0);
  const auto planned = plan_asked(asked("700MiB", "2GiB", few));
  ASSERT_TRUE(planned.ok()) << planned.message();
  EXPECT_GE(planned->stages.main.plan.makespan_ns, formula->least_ns);
  EXPECT_LT(planned->stages.main.plan.lower_bound_ns, 3 * formula->least_ns);
  // The same chunks, a little below what counting says that they take.
  const auto below = asked(std::to_string(formula->device_bytes - 1'000'000) + "B", "2GiB",
                           {"train.tokens_per_step=512", "shape.chunk_tokens=256", "shape.rounds=2",
                            "shape.first_round_chunks=1"});
  const auto refused = plan_asked(below);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::DoesNotFit) << refused.message();
}

TEST(Formula, AnswersWhateverTheCaps) {
  const auto wide = by_formula(asked("6GiB", "64GiB")), tight = by_formula(asked("1MiB", "1MiB"));
  ASSERT_TRUE(wide.ok() && tight.ok()) << wide.message() << tight.message();
  EXPECT_EQ(wide->compute_ns, tight->compute_ns);
  EXPECT_EQ(wide->device_bytes, tight->device_bytes);
  EXPECT_EQ(wide->all_bytes, tight->all_bytes);
  EXPECT_EQ(wide->loading_ns, 0);
  EXPECT_GT(tight->loading_ns, 0);
}

TEST(Formula, IsOfTheWholeStep) {
  const auto eight = by_formula(asked("700MiB", "2GiB")),
             sixteen = by_formula(asked("700MiB", "2GiB", {"train.tokens_per_step=4096"})),
             cut = by_formula(asked("700MiB", "2GiB", {"shape.chunk_tokens=256"}));
  ASSERT_TRUE(eight.ok() && sixteen.ok() && cut.ok()) << cut.message();
  EXPECT_GT(cut->compute_ns, eight->compute_ns);
  EXPECT_GT(sixteen->compute_ns, 1.5 * eight->compute_ns);
  EXPECT_LT(sixteen->compute_ns, 2 * eight->compute_ns);  // the update is made once
  const auto two = by_formula(asked("700MiB", "2GiB", {"run.devices=2"}));
  ASSERT_TRUE(two.ok()) << two.message();
  EXPECT_DOUBLE_EQ(two->compute_ns, eight->compute_ns / 2);
}

TEST(Formula, NamesTheMemoriesOfSeveralDevices) {
  const std::vector<std::string> step = {"run.devices=2", "train.tokens_per_step=512",
                                         "shape.chunk_tokens=256", "shape.rounds=2",
                                         "shape.first_round_chunks=1"};
  const auto formula = by_formula(asked("700MiB", "2GiB", step));
  ASSERT_TRUE(formula.ok()) << formula.message();
  constexpr int64_t kMb = 1'000'000, kEnough = 4'000 * kMb;
  const auto planned = [&](int64_t device, int64_t host) {
    return plan_asked(asked(std::to_string(device) + "B", std::to_string(host) + "B", step));
  };
  // A little below what counting says that a device must have, or all together, there is no plan.
  const auto small_device = planned(formula->device_bytes - kMb, kEnough);
  ASSERT_FALSE(small_device.ok());
  EXPECT_EQ(small_device.error().kind, ErrorKind::DoesNotFit) << small_device.message();
  const int64_t device = formula->device_bytes * 5 / 4, host = formula->all_bytes - 2 * device;
  const auto small_host = planned(device, host - kMb);
  ASSERT_FALSE(small_host.ok());
  EXPECT_EQ(small_host.error().kind, ErrorKind::DoesNotFit) << small_host.message();
  // With a little more there is one.
  const auto enough =
      plan_asked(quick(asked(std::to_string(formula->device_bytes * 21 / 20) + "B", "4GiB", step)));
  EXPECT_TRUE(enough.ok()) << enough.message();
}

TEST(Formula, RefusesWhatCannotBeAsked) {
  AskedPlan other = asked("1GiB", "1GiB");
  other.machine = "abacus";
  EXPECT_FALSE(by_formula(other).ok());
  EXPECT_FALSE(by_formula(asked("1GiB", "1GiB", {"train.seq_len=100"})).ok());
}

TEST(QuickPlan, IsOfTheRulesShapeAndRefusesShortly) {
  const auto first = plan_asked(quick(asked("700MiB", "2GiB")));
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_EQ(first->shape.chunk_tokens, 256);
  EXPECT_EQ(first->shape.rounds, 2);
  EXPECT_EQ(first->shape.chunks(), 8);
  const auto given =
      plan_asked(quick(asked("700MiB", "2GiB", {"shape.rounds=4", "shape.first_round_chunks=2"})));
  ASSERT_TRUE(given.ok()) << given.message();
  EXPECT_EQ(given->shape.chunk_tokens, 256);
  EXPECT_EQ(given->shape.rounds, 4);
  const auto refused = plan_asked(quick(asked("1MiB", "2GiB")));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::DoesNotFit);
  EXPECT_TRUE(!refused.error().shortage || !refused.error().shortage->need_bytes);
}

TEST(QuickPlan, IsOfAllReplicas) {
  const std::vector<std::string> two = {"run.replicas=2"};
  const auto first = plan_asked(quick(asked("700MiB", "2GiB", two)));
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_EQ(first->shape.replicas, 2);
  EXPECT_EQ(first->shape.chunks(), 4);
  EXPECT_EQ(first->shape.tokens_of_all(), 2048);
  const auto formula = by_formula(asked("700MiB", "2GiB", two)), one = by_formula(asked("700MiB", "2GiB"));
  ASSERT_TRUE(formula.ok() && one.ok()) << formula.message();
  EXPECT_EQ(formula->tokens, 2048);
  // As many tokens, one update; halves of a step are slower chunks.
  EXPECT_GT(formula->compute_ns, one->compute_ns);
  EXPECT_LT(formula->compute_ns, 1.5 * one->compute_ns);
  EXPECT_GE(first->stages.main.plan.makespan_ns, formula->least_ns);
}

// Of 4 million parameters, on a device that holds them beside the workspace of products (32 MiB), but not
// their state. One layer, as each refusal is searched for.
AskedPlan asked_of_small(int64_t host_bytes, const std::string& master) {
  AskedPlan out = asked(std::to_string(kHeldByDevice + 40 * kMiB) + "B", std::to_string(host_bytes) + "B",
                        {"train.seq_len=64", "train.tokens_per_step=64", "train.master=" + master});
  out.model_config = R"({"model_type": "llama", "hidden_size": 512, "intermediate_size": 1536,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1024,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
  return out;
}

// The least host cap that works, by the refusal of a small one.
int64_t least_host(const std::string& master) {
  const auto refused = plan_asked(asked_of_small(kMiB, master));
  if (refused.ok() || refused.error().shortage->tier != "host") {
    ADD_FAILURE() << "no refusal of the host cap: " << refused.message();
    return 0;
  }
  return *refused.error().shortage->need_bytes;
}

TEST(AutoState, IsCompactOnlyWhereBf16DoesNotFit) {
  const int64_t bf16 = least_host("off"), compact = least_host("i8");
  ASSERT_LT(compact, bf16);
  EXPECT_EQ(least_host("auto"), compact);
  const auto roomy = plan_asked(asked_of_small(bf16, "auto")),
             tight = plan_asked(asked_of_small(compact, "auto"));
  ASSERT_TRUE(roomy.ok() && tight.ok()) << roomy.message() << tight.message();
  EXPECT_EQ(roomy->numerics.state, DType::BF16);
  EXPECT_EQ(roomy->numerics.master, MasterWeights::Off);
  EXPECT_EQ(tight->numerics.state, DType::I8);
  EXPECT_EQ(tight->numerics.master, MasterWeights::I8);
  EXPECT_FALSE(tight->numerics.stochastic);
}

// Whatever memory there is for them.
TEST(Shape, HasNoMoreChoicesOfExpertsThanAreCounted) {
  AskedPlan large =
      asked("4MiB", "4MiB",
            {"train.tokens_per_step=1073741824", "train.seq_len=8192", "shape.chunk_tokens=536870912"});
  std::erase(large.settings, "model.preset=tiny");
  large.model_config = R"({"model_type": "mixtral", "num_experts_per_tok": 4})";
  const auto planned = plan_asked(large);
  ASSERT_FALSE(planned.ok());
  EXPECT_NE(planned.message().find("shape.chunk_tokens = 536870912: 4 experts of each token"),
            std::string::npos)
      << planned.message();
}

TEST(Choices, AFileIsReadAsAMachineOfTheList) {
  const json choices = json::parse(choices_json());
  const json& machines = choices.at("machines");
  const auto listed = std::ranges::find_if(machines, [](const json& m) { return m.at("key") == "h200"; });
  ASSERT_NE(listed, machines.end());
  const auto read = machine_json(to_toml(*find_card("h200")), "h200.toml");
  ASSERT_TRUE(read.ok()) << read.message();
  json file = json::parse(*read);
  // Who was compared, and how far off it was, is no matter of a file.
  for (const char* key : {"compared", "off_by"}) file[key] = listed->at(key);
  EXPECT_EQ(file, *listed);
  EXPECT_EQ(machine_json("memory.size = 1", "mine.toml").message().substr(0, 9), "mine.toml");
}

TEST(Choices, SayWhichKeysAStepDependsOn) {
  const json choices = json::parse(choices_json());
  std::map<std::string, bool> of_step;
  for (const json& key : choices.at("keys")) of_step[key.at("name")] = key.at("of_step");
  for (const char* key : {"train.optimizer", "train.beta1", "adapter.rank", "shape.rounds"})
    EXPECT_TRUE(of_step.at(key)) << key;
  for (const char* key : {"train.steps", "adapter.path", "data.paths", "run.dir", "memory.host"})
    EXPECT_FALSE(of_step.at(key)) << key;
}

TEST(Choices, EveryFamilyHasAModelThatCanBeAskedFor) {
  const json choices = json::parse(choices_json());
  EXPECT_EQ(choices.at("families").size(), model_families().size());
  for (const auto& [family, config] : choices.at("families").items()) {
    AskedPlan one = asked("6GiB", "512GiB", {"train.tokens_per_step=512"});
    std::erase(one.settings, "model.preset=tiny");
    one.model_config = config.get<std::string>();
    const auto formula = by_formula(one);
    ASSERT_TRUE(formula.ok()) << family << ": " << formula.message();
    EXPECT_GT(formula->all_bytes, kGiB);
  }
}

// Its config.json has the sizes that the family's has by itself, those of experts among them.
TEST(Choices, SizesAreTheFamilys) {
  const json choices = json::parse(choices_json());
  for (const auto& [family, config] : choices.at("families").items()) {
    const auto written = parse_model_config(config.get<std::string>());
    ASSERT_TRUE(written.ok()) << family << ": " << written.message();
    const auto own = parse_model_config(json{{"model_type", family}}.dump());
    EXPECT_EQ(written->params(), own->params()) << family;
    EXPECT_EQ(written->active_params(), own->active_params()) << family;
    ASSERT_EQ(written->layers.size(), own->layers.size()) << family;
    for (size_t l = 0; l < own->layers.size(); ++l) {
      EXPECT_EQ(written->layers[l].mlp().ffn, own->layers[l].mlp().ffn) << family << ", layer " << l;
      EXPECT_EQ(written->layers[l].feed_forward, own->layers[l].feed_forward) << family << ", layer " << l;
    }
  }
  const json qwen = json::parse(choices.at("families").at("qwen3_moe").get<std::string>());
  EXPECT_EQ(qwen.at("moe_intermediate_size"), 768);
  EXPECT_FALSE(qwen.contains("intermediate_size")) << "no layer has an MLP of its own";
}

}  // namespace
}  // namespace sluice::core
