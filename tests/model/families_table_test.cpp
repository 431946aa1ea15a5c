// SPDX-License-Identifier: Apache-2.0
// What the table of families says of each: its keys, and what is there of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "model/families/known.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace sluice::core {
namespace {

// By the tables of each family: a known key with a value that is not done is refused by its name, and one
// that nobody knows is named once.
TEST_F(ModelConfig, EveryFamilyRefusesByNameAndNamesWhatNobodyKnows) {
  for (const std::string& type : model_families()) {
    const Family& family = *find_family(type);
    const auto with_key = [&](std::string_view key, double value) {
      return nlohmann::json{{"model_type", type}, {std::string(key), value}}.dump();
    };
    for (const Neutral& key : neutral_keys(family)) {
      expect_model_error(with_key(key.key, key.value + 3),
                         {fmt::format("{} is {:.1f}", key.key, key.value + 3)});
      EXPECT_TRUE(parse_model_config(with_key(key.key, key.value)).ok()) << type << " " << key.key;
    }
    for (const std::string_view key : absent_keys(family))
      expect_model_error(with_key(key, 3), {fmt::format("{} is 3.0", key), "without it only"});
    const auto model = parse_model_config(with_key("a_key_of_tomorrow", 1));
    ASSERT_TRUE(model.ok()) << model.message();
    EXPECT_EQ(std::count_if(model->notices.begin(), model->notices.end(),
                            [](const std::string& n) { return n.find("a_key_of_tomorrow") != n.npos; }),
              1)
        << type;
  }
}
// Whatever a known key says, it decides something, is refused by its name, or is named in a notice; but for
// those of which transformers' class of the family makes nothing either.
TEST_F(ModelConfig, NoKnownKeyIsPassedOverInSilence) {
  using nlohmann::json;
  const std::set<std::string_view> say_nothing = {
      // By themselves: where windows are on, where the rotation follows a length, where routers have a loss.
      "sliding_window", "use_sliding_window", "max_window_layers", "max_position_embeddings",
      "original_max_position_embeddings", "router_aux_loss_coef",
      // Of gemma2 and gemma3: beside hidden_activation. Of gpt2: heads for classes, and how products are
      // made.
      "hidden_act", "n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
      "summary_proj_to_labels", "summary_type", "summary_use_proj",
      // Of lfm2: what is said elsewhere, and how weights began.
      "block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu",
      "block_use_xavier_init", "conv_L_cache", "conv_dim", "conv_dim_out", "conv_use_xavier_init",
      "num_heads", "use_pos_enc",
      // Of gemma4, by themselves: where keys are shared, and where there are experts.
      "use_double_wide_mlp", "num_experts", "top_k_experts", "moe_intermediate_size",
      // Of qwen3_5: weights that are carried and not trained.
      "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"};
  const json values[] = {true, false, 2, 3, 0.37, "relu", json::array({1, 0})};
  for (const std::string& type : model_families()) {
    const Family& family = *find_family(type);
    auto base = json::parse(with_own_keys(json{{"model_type", type}, {"num_hidden_layers", 2}}.dump()));
    if (type == "lfm2_moe") base["num_dense_layers"] = 1;  // both of them else
    if (family.deltas) {
      base.erase("layer_types");
      base["full_attention_interval"] = 2;  // one of them attends
    }
    const auto plain = parse_model_config(base.dump());
    ASSERT_TRUE(plain.ok()) << plain.message();
    for (const std::string_view key : known_keys(family)) {
      if (base.contains(key) || say_nothing.contains(key)) continue;
      if (type == "lfm2_moe" && key == "output_router_logits") continue;  // there is no loss of its routers
      if (key == "intermediate_size" && plain->layers[0].mlp().ffn != family.defaults.ffn)
        continue;  // experts'
      bool heeded = false;
      for (const json& value : values) {
        json config = base;
        config[std::string(key)] = value;
        const auto model = parse_model_config(config.dump());
        // That a value is of a wrong type says nothing of the right ones.
        const bool refused = !model.ok() && model.message().find("expected type") == std::string::npos;
        heeded = heeded || refused ||
                 (model.ok() && (to_json(*model) != to_json(*plain) || model->notices != plain->notices));
      }
      EXPECT_TRUE(heeded) << type << " passes " << key << " over";
    }
  }
  // Windows that a family always has are not turned off by another one's key.
  expect_model_error(R"({"model_type": "gemma2", "use_sliding_window": false})",
                     {"use_sliding_window is false", "gemma2 models have no such key"});
  EXPECT_EQ(parse_model_config(R"({"model_type": "gpt2", "rms_norm_eps": 1e-5})")->notices.back(),
            "config.json has keys that Sluice does not know, and passes over: rms_norm_eps");
}
TEST_F(ModelConfig, OfAModelThatWrapsATextModelItIsThatOne) {
  const auto whole = [](const std::string& more, const std::string& text) {
    return fmt::format(
        R"({{"model_type": "mistral3", "vision_config": {{"hidden_size": 7}}{}, "text_config": {}}})", more,
        text);
  };
  const std::string text = with("4", "2", "8");
  const auto model = parse_model_config(whole(R"(, "tie_word_embeddings": true)", text));
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ(model->dim, 32);
  EXPECT_TRUE(model->tied_embeddings);
  EXPECT_NE(model->notices.back().find("its text part alone"), std::string::npos);
  EXPECT_EQ(parse_model_config(model->config)->layers, model->layers);
  EXPECT_EQ(parse_model_config(whole("", R"({"num_hidden_layers": 1})"))->family, "mistral");
  EXPECT_TRUE(wraps_text(whole("", text)));
  EXPECT_FALSE(wraps_text(text));
  expect_model_error(whole("", "null"), {"'mistral3'", "text_config"});
  expect_model_error(whole("", R"({"model_type": "mistral3"})"), {"text_config.model_type is \"mistral3\""});
  expect_model_error(whole("", R"({"model_type": "gemma3", "text_config": {}})"),
                     {"text_config.model_type is \"gemma3\""});
  expect_model_error(whole("", R"({"model_type": 3})"), {"text_config.model_type is 3"});
  expect_model_error(whole(R"(, "quantization_config": {"bits": 4})", text), {"quantization_config"});
  // What the root says of the text model is said of nothing, unless its part says it, too.
  expect_model_error(whole(R"(, "sliding_window": 5)", R"({"sliding_window": 4})"),
                     {"sliding_window of the root is 5", "text_config", "4"});
  expect_model_error(whole(R"(, "final_logit_softcapping": 30)", text),
                     {"final_logit_softcapping of the root is 30", "does not say it"});
  EXPECT_TRUE(parse_model_config(whole(R"(, "hidden_size": 32, "image_token_index": 7)", text)).ok());
  const auto odd = parse_model_config(whole(R"(, "mm_tokens_per_image": 4, "audio_rate": 8)", text));
  ASSERT_TRUE(odd.ok()) << odd.message();
  EXPECT_NE(std::find(odd->notices.begin(), odd->notices.end(),
                      "config.json has keys that Sluice does not know, and passes over: audio_rate"),
            odd->notices.end());
}
// The table of docs/models.md has every family as the program has it, and the proof that it names is there:
// fixtures, and rows where transformers is asked.
TEST_F(ModelConfig, WhatIsSaidOfFamiliesIsThere) {
  namespace fs = std::filesystem;
  const fs::path tests = fs::path(SLUICE_FIXTURES).parent_path();
  const auto text_of = [](const fs::path& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  // The columns of a family.
  std::map<std::string, std::vector<std::string>> table;
  std::istringstream document(text_of(tests.parent_path() / "docs/models.md"));
  for (std::string line; std::getline(document, line);) {
    std::vector<std::string> cells;
    for (size_t at = 2, end; line.starts_with("| `") && (end = line.find(" |", at)) != line.npos;
         at = end + 3)
      cells.push_back(line.substr(at, end - at));
    if (cells.size() == 6) table[cells[0].substr(1, cells[0].size() - 2)] = cells;
  }
  table.erase("model_type");  // the head
  std::map<std::string, std::vector<std::string>> fixtures;
  std::set<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(SLUICE_FIXTURES)) folders.insert(entry.path());
  for (const fs::path& folder : folders) {
    if (!fs::exists(folder / "expected.safetensors")) continue;
    const auto config = nlohmann::json::parse(text_of(folder / "config.json"));
    fixtures[config.at("model_type")].push_back(folder.filename().string());
  }
  const auto greedy = nlohmann::json::parse(text_of(tests / "generate/greedy.json"));
  const std::string random = text_of(tests / "transformers/random_models.py"),
                    back = text_of(tests / "transformers/round_trip.py");
  // Of results the last of a name counts.
  const auto results = [&](const std::string& question, const char* key, const char* unless = nullptr) {
    std::map<std::string, nlohmann::json> last;
    std::istringstream lines(text_of(tests.parent_path() / "bench/results" / (question + ".jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const auto entry = nlohmann::json::parse(line);
      if (unless == nullptr || entry.at("value").at(unless) != "yes")
        last[entry.at("what").at(key)] = entry.at("value");
    }
    return last;
  };
  const auto tokenizers = results("tokenizers", "tokenizer"),
             random_results = results("random_models", "family"),
             templates = results("templates", "template"), llamacpp = results("llamacpp", "family", "note");
  const auto found_in = [](const std::map<std::string, nlohmann::json>& in, const std::string& key) {
    const auto it = in.find(key);
    return it == in.end() ? nlohmann::json::object() : it->second;
  };
  const auto families = nlohmann::json::parse(text_of(tests / "chat/fixtures/families.json"));
  ASSERT_EQ(family_facts().size(), fixtures.size());
  ASSERT_EQ(table.size(), fixtures.size());
  for (const auto& [type, about] : family_facts()) {
    const std::string name(type);
    SCOPED_TRACE(name);
    ASSERT_TRUE(table.contains(name));
    const std::vector<std::string>& row = table[name];
    const bool tried = about.llama_cpp != LlamaCpp::NotTried;
    EXPECT_EQ(row[1], about.models);
    EXPECT_EQ(row[2], about.keys);
    EXPECT_EQ(row[3], fmt::format("{}{}", fixtures[name].size(), tried ? "; llama.cpp" : ""));
    // Tokenizers were compared, with nothing that differs: real ones in packages, and behind "like" small
    // ones in every test, too.
    bool alike = false;
    std::istringstream tokenizers_named(row[4]);
    for (std::string of; tokenizers_named >> of;) {
      alike = alike || of == "like";
      if (of == "like") continue;
      while (of.ends_with(',') || of.ends_with(';')) of.pop_back();
      EXPECT_TRUE((alike && fs::exists(tests / "tokenizer/fixtures" / (of + ".recorded.json"))) ||
                  found_in(tokenizers, of).value("differ", -1) == 0)
          << of;
    }
    const auto listed = families.find(type);
    EXPECT_EQ(row[5], listed == families.end() ? "in no package" : fmt::format("{}", listed->size()));
    if (listed != families.end()) {
      for (const auto& source : *listed) {
        const auto found = found_in(templates, source.at("from"));
        EXPECT_EQ(found.value("differ", -1), 0) << source;
        EXPECT_GT(found.value("right", 0), 0) << source;
      }
    }
    if (tried) {
      EXPECT_EQ(found_in(llamacpp, name).value("tokens", ""), "equal");
    }
    EXPECT_GE(found_in(random_results, std::string(type)).value("right", 0), 40) << type;
    EXPECT_EQ(found_in(random_results, std::string(type)).value("wrong", -1), 0) << type;
    EXPECT_FALSE(about.models.empty() || about.keys.empty() || row[4].empty());
    EXPECT_TRUE(greedy.contains(fixtures[name].front()));
    EXPECT_NE(random.find(fmt::format("\"{}\": (", name)), random.npos) << name;
    EXPECT_NE(back.find(fmt::format("\n    \"{}", name.substr(0, name.find("_text")))), back.npos) << name;
  }
}

}  // namespace
}  // namespace sluice::core
