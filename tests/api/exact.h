// SPDX-License-Identifier: Apache-2.0
// run.exact: the log-probabilities that texts are sampled with are those that training and evaluation compute
// of them, to the bit, whatever is computed beside. The texts are the same ones, too.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "api/rig.h"

namespace sluice::api_rig {

// The families differ in mixers, windows, norms, biases, caps and sinks of attention, mixtures.
struct Family {
  const char* name;
  std::string config;
};

inline const std::string kSizes =
    R"("vocab_size": 88, "hidden_size": 64, "intermediate_size": 72, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 256, )";

inline std::vector<Family> families() {
  return {
      {"dense", "{" + kSizes + R"("model_type": "llama", "num_hidden_layers": 2, "head_dim": 32})"},
      {"biases", "{" + kSizes + R"("model_type": "qwen2", "num_hidden_layers": 2})"},
      {"windows", "{" + kSizes + R"("model_type": "gemma2", "num_hidden_layers": 2, "head_dim": 24,
        "sliding_window": 21, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 1.5, "layer_types": ["sliding_attention", "full_attention"],
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true})"},
      {"convolution", "{" + kSizes + R"("model_type": "lfm2", "num_hidden_layers": 3, "conv_L_cache": 3,
        "conv_bias": false, "block_auto_adjust_ff_dim": false, "norm_eps": 1e-5,
        "layer_types": ["conv", "full_attention", "conv"], "tie_word_embeddings": true})"},
      {"experts", "{" + kSizes + R"("model_type": "qwen3_moe", "num_hidden_layers": 2, "head_dim": 32,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 24, "norm_topk_prob": true,
        "num_experts": 16, "num_experts_per_tok": 4})"},
      {"sinks", "{" + kSizes + R"("model_type": "gpt_oss", "num_hidden_layers": 2, "head_dim": 32,
        "attention_bias": true, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 20,
        "swiglu_limit": 7.0, "layer_types": ["sliding_attention", "full_attention"]})"},
  };
}

inline constexpr int64_t kSeqLen = 160, kVocab = 88, kSamples = 3;

inline Result<Machine> exact_machine(const char* backend) {
  return machine_of(backend, 2, /*exact=*/true);
}

inline StepOptions step_of(Format compute, int64_t sample_rows) {
  StepOptions options;
  options.seq_len = kSeqLen;
  options.tokens_per_step = 6 * kSeqLen;
  options.compute = compute;
  options.packed = options.log_probabilities = true;
  options.sample_window = kSeqLen;
  options.sample_rows = sample_rows;
  return options;
}

// Texts side by side in rows, as many as fit each, and what a text's sampled tokens are there.
struct Packed {
  Rows rows{0};
  std::vector<std::pair<size_t, const Sample*>> places;  // of the first of them

  explicit Packed(int64_t sequences) {
    rows.tokens.assign(size_t(sequences * kSeqLen), 0);
    rows.positions.assign(rows.tokens.size(), 0);
    rows.targets.assign(rows.tokens.size(), -1);
  }
  void add(const std::vector<int32_t>& prompt, const Sample& sample) {
    std::vector<int32_t> text = prompt;
    text.insert(text.end(), sample.tokens.begin(), sample.tokens.end());
    if (next_ % kSeqLen + text.size() > kSeqLen) next_ = (next_ / kSeqLen + 1) * kSeqLen;
    ASSERT_LE(next_ + text.size(), rows.tokens.size());
    for (size_t i = 0; i < text.size(); ++i) {
      rows.tokens[next_ + i] = text[i];
      rows.positions[next_ + i] = int32_t(i);
      if (i + 1 >= prompt.size() && i + 1 < text.size()) rows.targets[next_ + i] = text[i + 1];
    }
    places.emplace_back(next_ + prompt.size() - 1, &sample);
    next_ += text.size();
  }

 private:
  size_t next_ = 0;
};

inline std::vector<std::vector<int32_t>> prompts() {
  std::vector<std::vector<int32_t>> out;
  for (const int32_t length : {3, 71, 20}) {
    std::vector<int32_t>& prompt = out.emplace_back();
    for (int32_t i = 0; i < length; ++i) prompt.push_back((i * 31 + length) % kVocab);
  }
  return out;
}

// A step or two, after which some tokens are much likelier than others.
inline void teach(Session& session) {
  Packed rows(6);
  for (size_t i = 0; i < rows.rows.tokens.size(); ++i) {
    rows.rows.tokens[i] = int32_t(i * i % 7 + i % kVocab) % kVocab;
    rows.rows.targets[i] = int32_t(i * 5 % 11);
    rows.rows.positions[i] = int32_t(i % kSeqLen);
  }
  for (int step = 0; step < 2; ++step) {
    const auto stepped = session.step(rows.rows.batch(), 2e-2);
    ASSERT_TRUE(stepped.ok()) << stepped.message();
  }
}

inline void expect_equal_bits(std::span<const float> of_batch, const Packed& packed, const char* what) {
  size_t differ = 0;
  for (const auto& [first, sample] : packed.places) {
    for (size_t t = 0; t < sample->tokens.size(); ++t)
      differ += of_batch[first + t] != sample->log_probabilities[t] ? 1 : 0;
  }
  EXPECT_EQ(differ, 0) << what;
}

// The plan under the least cap that works, from `part` of the arena that it takes without caps. A cap counts
// what a GPU's libraries take, too, which an arena does not.
inline Result<Plan> narrowed(const Plan& wide, double part, int64_t libraries) {
  const int64_t arena = int64_t(double(wide.device_bytes()) * part);
  Result<Plan> plan = wide.under({.device_bytes = arena, .host_bytes = {}});
  for (int64_t more = 0; !plan.ok() && more < libraries; more += int64_t(8) << 20)
    plan = wide.under({.device_bytes = arena + more, .host_bytes = {}});
  return plan;
}

// `part`: of the device memory that a plan without caps takes, for a second one; `libraries`: most bytes that
// its backend takes besides.
inline void expect_exact(const Family& family, Format compute, const char* backend, double part,
                         int64_t libraries) {
  const Model model = *Model::from_config(family.config);
  const Machine machine = *exact_machine(backend);
  const auto asked = prompts();
  SampleOptions options;
  options.tokens = 29;
  options.temperature = 1;
  std::vector<std::vector<Sample>> first;
  // Few rows and many, and caps with which weights, caches and activations come and go.
  struct Way {
    int64_t rows;
    bool narrow;
  };
  for (const auto& [rows, narrow] : {Way{9, false}, Way{2, true}}) {
    SCOPED_TRACE(rows);
    const Plan wide = *plan(model, step_of(compute, rows), {}, machine);
    Plan used = wide;
    if (narrow) {
      const auto less = narrowed(wide, part, libraries);
      ASSERT_TRUE(less.ok()) << less.message();
      used = *less;
    }
    auto opened = Session::open(used);
    ASSERT_TRUE(opened.ok()) << opened.message();
    Session& session = *opened;
    teach(session);
    const auto sampled = session.sample_many(asked, kSamples, options);
    ASSERT_TRUE(sampled.ok()) << sampled.message();
    Packed packed(6);
    for (size_t p = 0; p < asked.size(); ++p) {
      for (const Sample& sample : (*sampled)[p]) packed.add(asked[p], sample);
    }
    expect_equal_bits(*session.forward(packed.rows.batch()), packed, "evaluation");
    const auto queued = session.forward_backward(packed.rows.batch());
    ASSERT_TRUE(queued.ok()) << queued.message();
    ASSERT_TRUE(session.optim_step(0).ok());
    expect_equal_bits(*queued->log_probabilities(), packed, "training");
    if (first.empty()) first = *sampled;
    for (size_t p = 0; p < asked.size(); ++p) {
      for (size_t s = 0; s < size_t(kSamples); ++s) {
        EXPECT_EQ((*sampled)[p][s].tokens, first[p][s].tokens) << p << " " << s;
        EXPECT_EQ((*sampled)[p][s].log_probabilities, first[p][s].log_probabilities) << p << " " << s;
      }
    }
  }
}

}  // namespace sluice::api_rig
