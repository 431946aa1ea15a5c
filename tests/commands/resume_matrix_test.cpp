// SPDX-License-Identifier: Apache-2.0
// The meaning of each key for a run that goes on: docs/reliability.md has it, and it is what happens.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "commands/text_runs.h"
#include "run/prepare/manifest.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

std::string change_of(const GoesOn& goes_on) {
  switch (goes_on.change) {
    case GoesOn::Change::SameBits:
      return "same bits";
    case GoesOn::Change::Refused:
      return "refused";
    case GoesOn::Change::Allowed:
      return fmt::format("`--allow {}`", goes_on.word);
  }
  return "";
}

// The table, with a row for all keys of which the same is to be said.
std::string table_of_keys() {
  std::vector<std::pair<GoesOn, std::string>> rows;
  for (const KeyHelp& key : config_keys()) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.first == key.goes_on; });
    const std::string name = fmt::format("`{}`", key.name);
    if (row == rows.end()) {
      rows.emplace_back(key.goes_on, name);
    } else {
      row->second += ", " + name;
    }
  }
  std::string out = "| keys | when it is another | because |\n|---|---|---|\n";
  for (const auto& [goes_on, keys] : rows)
    out += fmt::format("| {} | {} | {} |\n", keys, change_of(goes_on), goes_on.because);
  return out;
}

struct Change {
  std::vector<std::string> now;     // settings, after those of the run before
  std::vector<std::string> before;  // of the run that is saved and goes on
  std::string named;                // in the refusal; empty: "<key> is "
};
using Settings = std::vector<std::string>;

// An adapter of a base that lies in two places: its folder.
fs::path add_adapter(const TextRuns& runs, const fs::path& weights) {
  for (const char* place : {"base", "moved"}) {
    fs::create_directories(runs.dir_ / place);
    fs::copy_file(runs.dir_ / "model/config.json", runs.dir_ / place / "config.json");
    fs::copy_file(weights, runs.dir_ / place / "model.safetensors");
  }
  const Settings settings{"train.compute=f32", "model.config=", "model.path=" + (runs.dir_ / "base").string(),
                          "adapter.rank=2", "adapter.targets=[\"q_proj\"]"};
  EXPECT_EQ(runs.start("adapter", settings).message, "");
  return runs.dir_ / "adapter/checkpoints/step-4";
}

std::map<std::string, Change> changes(const TextRuns& runs, const fs::path& weights) {
  const std::string adapter = add_adapter(runs, weights).string();
  const Settings adapted{"train.compute=f32", "adapter.rank=4", "adapter.alpha=8"};
  const Settings from_adapter{"train.compute=f32", "model.config=", "adapter.path=" + adapter};
  const TempDir& dir = runs.dir_;
  dir.add("other/a.txt", std::string(4000, 'x'));
  dir.add("wide/config.json", [&] {
    auto model = nlohmann::json::parse(file_bytes(dir / "model/config.json"));
    model["intermediate_size"] = 48;
    return model.dump();
  }());
  fs::copy_file(weights, dir / "wide/model.safetensors");
  dir.add("mixture/config.json", [] {
    auto model = nlohmann::json::parse(file_bytes(fs::path(SLUICE_FIXTURES) / "olmoe_tiny/config.json"));
    model["vocab_size"] = 256;
    return model.dump();
  }());
  dir.add("records/a.jsonl", [] {
    std::string lines;
    for (int i = 0; i < 200; ++i)
      lines += fmt::format("{{\"prompt\": \"{} * {} =\", \"completion\": \" {}\"}}\n", i, i, i * i);
    return lines;
  }());
  const Settings records{"train.compute=f32", "data.paths=[\"" + (dir / "records").string() + "\"]"};
  dir.add("pairs/a.jsonl", [] {
    std::string lines;
    for (int i = 0; i < 200; ++i)
      lines += fmt::format("{{\"prompt\": \"{}?\", \"chosen\": \"y\", \"rejected\": \"n\"}}\n", i);
    return lines;
  }());
  dir.add("marks/a.jsonl", [] {
    std::string lines;
    for (int i = 0; i < 200; ++i)
      lines += fmt::format("{{\"prompt\": \"{}?\", \"completion\": \"y\", \"label\": {}}}\n", i, i % 3 == 0);
    return lines;
  }());
  dir.add("groups/a.jsonl", [] {
    std::string lines;
    for (int i = 0; i < 20; ++i)
      lines += fmt::format(
          "{{\"prompt\": \"{}?\", \"completions\": [\"y\", \"no\"], \"rewards\": [{}, 0.5]}}\n", i, i % 2);
    return lines;
  }());
  dir.add("taught/a.jsonl", [] {
    std::string lines;
    for (int i = 0; i < 20; ++i)
      lines += fmt::format(
          "{{\"prompt\": \"{}?\", \"completion\": \"y\", \"logprobs\": [{{\"121\": -0.5, \"110\": "
          "-1.5}}]}}\n",
          i);
    return lines;
  }());
  dir.add("prompts/a.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b?\"}\n");
  dir.add("rewards.py",
          "def one(completions, **rest):\n    return [len(set(c)) for c in completions]\n"
          "def other(completions, **rest):\n    return [c.count('a') for c in completions]\n");
  const auto compared = [&](const char* objective, const char* data) {
    return Settings{"train.compute=f32", fmt::format("train.objective={}", objective),
                    "data.paths=[\"" + (dir / data).string() + "\"]"};
  };
  const Settings dpo = compared("dpo", "pairs"), simpo = compared("simpo", "pairs"),
                 kto = compared("kto", "marks");
  const auto rewarded = [&](const char* data, std::vector<std::string> more) {
    Settings settings = compared("grpo", data);
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
  };
  const std::string one = "rollout.rewards=" + (dir / "rewards.py:one").string();
  const Settings grpo = rewarded("groups", {}),
                 sampled = rewarded("prompts",
                                    {one, "rollout.samples=2", "rollout.max_tokens=6", "sample.tokens=0"}),
                 cispo = rewarded("groups", {"objective.loss_type=cispo", "objective.epsilon_high=2"}),
                 sapo = rewarded("groups", {"objective.loss_type=sapo"});
  const auto taught = [&](const char* tail) {
    Settings settings = compared("distillation", "taught");
    settings.insert(settings.end(), {"objective.loss_top_k=2", tail});
    return settings;
  };
  const Settings tail = taught("objective.loss_add_tail=true"),
                 no_tail = taught("objective.loss_add_tail=false");
  const Settings f32{"train.compute=f32"}, sgd{"train.compute=f32", "train.optimizer=sgd"};
  const Settings adafactor{"train.compute=f32", "train.optimizer=adafactor", "train.relative_step=1"};
  const Settings masters{"train.compute=bf16", "train.master=on", "train.grad=f32", "train.stochastic=off"};
  const Settings rounded{"train.compute=bf16", "train.master=off", "train.state=f32", "train.stochastic=on"};
  const auto path = [&](const char* name) { return (dir / name).string(); };
  fs::copy(adapter, dir / "other adapter", fs::copy_options::recursive);
  const Settings mixture{"train.compute=f32", "train.router_z_loss=0.01",
                         "model.config=" + path("mixture/config.json")};
  return {
      // Where a config is given no preset is looked at.
      {"model.preset", {{"model.config=", "model.preset=tiny"}, f32, "model.hidden_size is "}},
      {"model.path", {{"model.config=", "model.path=" + path("wide")}, f32, "model.intermediate_size is 48"}},
      {"model.config", {{"model.config=" + path("wide/config.json")}, f32, "model.intermediate_size is 48"}},
      {"model.weights", {{"model.weights=" + weights.string()}, f32, ""}},
      {"model.base_format", {{"model.base_format=fp8"}, adapted, ""}},
      {"adapter.rank", {{"adapter.rank=2"}, adapted, ""}},
      {"adapter.alpha", {{"adapter.alpha=2"}, adapted, ""}},
      {"adapter.rslora", {{"adapter.rslora=true"}, adapted, ""}},
      {"adapter.dora", {{"adapter.dora=true"}, adapted, ""}},
      {"adapter.targets", {{"adapter.targets=[\"mlp\"]"}, adapted, ""}},
      {"adapter.exclude", {{"adapter.exclude=[\"mlp\"]"}, adapted, ""}},
      {"adapter.rank_pattern", {{"adapter.rank_pattern=[\"down_proj=2\"]"}, adapted, ""}},
      {"adapter.alpha_pattern", {{"adapter.alpha_pattern=[\"down_proj=2\"]"}, adapted, ""}},
      {"adapter.modules_to_save", {{"adapter.modules_to_save=[\"lm_head\"]"}, adapted, ""}},
      {"adapter.tokens", {{"adapter.tokens=3"}, adapted, ""}},
      {"adapter.head_tokens", {{"adapter.head_tokens=3"}, adapted, ""}},
      {"adapter.decay", {{"adapter.decay=true"}, adapted, ""}},
      {"adapter.dropout", {{"adapter.dropout=0.1"}, adapted, ""}},
      {"adapter.path", {{"adapter.path=" + path("other adapter")}, from_adapter, ""}},
      {"adapter.base", {{"adapter.base=" + path("moved")}, from_adapter, ""}},
      {"data.paths", {{"data.paths=[\"" + path("other") + "\"]"}, f32, "data.content is "}},
      {"data.include", {{"data.include=[\"a.txt\", \"b.txt\"]"}, f32, "data.content is "}},
      {"data.exclude", {{"data.exclude=[\"a.txt\"]"}, f32, "data.content is "}},
      {"data.heldout", {{"data.heldout=0.6"}, f32, "data.content is "}},
      {"data.weights", {{"data.weights=[2]"}, f32, "data.content is "}},
      {"data.heldout_paths",
       {{"data.heldout_paths=[\"" + path("text/a.txt") + "\"]"}, f32, "data.content is "}},
      {"data.learn", {{"data.learn=everything"}, records, "data.content is "}},
      {"data.malformed", {{"data.malformed=skip"}, records, "data.content is "}},
      {"data.fields.prompt",
       {{"data.fields.prompt=prompt", "data.fields.completion=completion"}, records, "data.content is "}},
      {"data.fields.completion",
       {{"data.fields.completion=prompt", "data.fields.prompt=completion"}, records, "data.content is "}},
      {"data.fields.text", {{"data.fields.text=completion"}, records, "data.content is "}},
      {"data.fields.messages", {{"data.fields.messages=dialog"}, records, ""}},
      {"data.pairs", {{"data.pairs=text"}, records, ""}},
      {"data.ignore", {{"data.ignore=[\"score\"]"}, records, ""}},
      {"data.roles", {{"data.roles=[\"narrator\"]"}, records, ""}},
      {"data.open_ends", {{"data.open_ends=true"}, records, ""}},
      {"data.learn_thoughts", {{"data.learn_thoughts=false"}, records, "data.content is "}},
      {"data.allow_unlearnt", {{"data.allow_unlearnt=true"}, records, ""}},
      {"data.special_in_text", {{"data.special_in_text=[]"}, records, ""}},
      {"data.template_kwargs", {{"data.template_kwargs={}"}, f32, ""}},
      {"data.chat_template", {{"data.chat_template=other"}, f32, ""}},
      {"data.date", {{"data.date=2026-01-31"}, f32, ""}},
      {"data.mode", {{"data.mode=packed"}, f32, ""}},
      {"data.long_documents", {{"data.long_documents=cut"}, {"train.compute=f32", "data.mode=packed"}, ""}},
      {"data.respect_documents", {{"data.respect_documents=false"}, f32, ""}},
      {"data.cache", {{"data.cache=" + path("cache2")}, f32, ""}},
      {"train.seq_len", {{"train.seq_len=32"}, f32, "shape.seq_len is 32"}},
      {"train.tokens_per_step", {{"train.tokens_per_step=64"}, f32, ""}},
      {"train.steps", {{"train.steps=5"}, f32, ""}},
      {"train.epochs", {{"train.epochs=0.04"}, f32, "train.steps is "}},
      {"train.schedule", {{"train.schedule=linear"}, f32, ""}},
      {"train.decay_steps", {{"train.decay_steps=2"}, {"train.compute=f32", "train.schedule=wsd"}, ""}},
      {"train.seed", {{"train.seed=2"}, f32, ""}},
      {"train.objective", {{"train.objective=orpo"}, dpo, ""}},
      {"objective.loss_type", {{"objective.loss_type=ipo"}, dpo, ""}},
      {"objective.beta", {{"objective.beta=0.2"}, dpo, ""}},
      {"objective.label_smoothing", {{"objective.label_smoothing=0.1"}, dpo, ""}},
      {"objective.desirable_weight", {{"objective.desirable_weight=2"}, kto, ""}},
      {"objective.undesirable_weight", {{"objective.undesirable_weight=2"}, kto, ""}},
      {"objective.simpo_gamma", {{"objective.simpo_gamma=1"}, simpo, ""}},
      {"objective.cpo_alpha", {{"objective.cpo_alpha=1"}, simpo, ""}},
      {"objective.epsilon", {{"objective.epsilon=0.1"}, grpo, ""}},
      {"objective.epsilon_high", {{"objective.epsilon_high=3"}, cispo, ""}},
      {"objective.delta", {{"objective.delta=2"}, grpo, ""}},
      {"objective.sapo_temperature_neg", {{"objective.sapo_temperature_neg=2"}, sapo, ""}},
      {"objective.sapo_temperature_pos", {{"objective.sapo_temperature_pos=2"}, sapo, ""}},
      {"objective.importance_sampling_level", {{"objective.importance_sampling_level=sequence"}, grpo, ""}},
      {"objective.scale_rewards", {{"objective.scale_rewards=none"}, grpo, ""}},
      {"objective.loss_top_k", {{"objective.loss_top_k=1"}, tail, ""}},
      {"objective.loss_add_tail", {{"objective.loss_add_tail=false"}, tail, ""}},
      {"objective.temperature", {{"objective.temperature=2"}, no_tail, ""}},
      {"rollout.rewards", {{"rollout.rewards=" + path("rewards.py:other")}, sampled, ""}},
      {"rollout.samples", {{"rollout.samples=3"}, sampled, ""}},
      {"rollout.prompts", {{"rollout.prompts=1"}, sampled, ""}},
      {"rollout.at_once", {{"rollout.at_once=1"}, sampled, ""}},
      {"rollout.max_tokens", {{"rollout.max_tokens=5"}, sampled, ""}},
      {"rollout.temperature", {{"rollout.temperature=0.5"}, sampled, ""}},
      {"rollout.num_iterations", {{"rollout.num_iterations=2"}, sampled, ""}},
      {"rollout.mask_truncated_completions", {{"rollout.mask_truncated_completions=true"}, sampled, ""}},
      {"rollout.timeout", {{"rollout.timeout=60"}, sampled, ""}},
      {"train.learning_rate", {{"train.learning_rate=1e-3"}, f32, ""}},
      {"train.min_learning_rate", {{"train.min_learning_rate=0"}, f32, ""}},
      {"train.warmup_steps", {{"train.warmup_steps=1"}, f32, ""}},
      {"train.optimizer", {{"train.optimizer=lion"}, f32, ""}},
      {"train.beta1", {{"train.beta1=0.5"}, f32, ""}},
      {"train.beta2", {{"train.beta2=0.5"}, f32, ""}},
      {"train.eps", {{"train.eps=1e-3"}, f32, ""}},
      {"train.weight_decay", {{"train.weight_decay=0.5"}, f32, ""}},
      {"train.momentum", {{"train.momentum=0.5"}, sgd, ""}},
      {"train.nesterov", {{"train.nesterov=1"}, sgd, ""}},
      {"train.match_rms", {{"train.match_rms=0"}, {"train.compute=f32", "train.optimizer=muon"}, ""}},
      {"train.decay_rate", {{"train.decay_rate=-0.5"}, adafactor, ""}},
      {"train.eps_scale", {{"train.eps_scale=0.1"}, adafactor, ""}},
      {"train.clip_threshold", {{"train.clip_threshold=0.5"}, adafactor, ""}},
      {"train.scale_parameter", {{"train.scale_parameter=1"}, adafactor, ""}},
      {"train.relative_step", {{"train.relative_step=0"}, adafactor, ""}},
      {"train.warmup_init", {{"train.warmup_init=1"}, adafactor, ""}},
      {"train.router_z_loss", {{"train.router_z_loss=0.02"}, mixture, ""}},
      {"train.clip_norm", {{"train.clip_norm=0.5"}, f32, ""}},
      {"train.max_skipped", {{"train.max_skipped=1"}, f32, ""}},
      {"train.compute", {{"train.compute=fp8"}, {"train.compute=bf16"}, "train.products is "}},
      {"train.fp8_except", {{"train.fp8_except=[\"*.o_proj\"]"}, {"train.compute=fp8"}, ""}},
      {"train.fp8_gradients", {{"train.fp8_gradients=e5m2"}, {"train.compute=fp8"}, ""}},
      {"train.fp8_head", {{"train.fp8_head=true"}, {"train.compute=fp8", "shape.chunk_tokens=16"}, ""}},
      {"train.grad", {{"train.grad=bf16"}, masters, ""}},
      {"train.state", {{"train.state=bf16"}, rounded, ""}},
      {"train.master", {{"train.master=off"}, masters, ""}},
      {"train.stochastic", {{"train.stochastic=off"}, rounded, ""}},
      {"train.deferred_update", {{"train.deferred_update=on"}, f32, ""}},
      {"train.freeze", {{"train.freeze=[\"model.layers.0\"]"}, f32, ""}},
      {"shape.chunk_tokens", {{"shape.chunk_tokens=16"}, f32, ""}},
      {"shape.rounds", {{"shape.rounds=2"}, f32, ""}},
      {"shape.first_round_chunks", {{"shape.first_round_chunks=2"}, f32, "shape.first_chunks is 2"}},
      {"shape.head_tokens", {{"shape.head_tokens=8"}, f32, ""}},
      {"eval.every", {{"eval.every=1"}, f32, ""}},
      {"eval.rows", {{"eval.rows=2"}, f32, ""}},
      {"eval.patience", {{"eval.patience=9"}, f32, ""}},
      {"sample.tokens", {{"sample.tokens=0"}, f32, ""}},
      {"sample.texts", {{"sample.texts=2"}, f32, ""}},
      {"sample.every", {{"sample.every=1"}, f32, ""}},
      {"sample.prompt", {{"sample.prompt=a"}, f32, ""}},
      {"sample.temperature", {{"sample.temperature=0"}, f32, ""}},
      {"run.backend", {}},  // this program may have but one: see below
      {"run.deterministic", {{"run.deterministic=true"}, f32, ""}},
      {"run.exact", {{"run.exact=true"}, f32, ""}},
      {"run.device", {}},  // a CPU has but one
      {"run.devices", {{"run.devices=2"}, f32, ""}},
      {"run.peer", {{"run.peer=off"}, f32, ""}},
      {"run.replicas", {{"run.replicas=2"}, f32, ""}},
      {"run.shard_state", {{"run.shard_state=true"}, f32, ""}},
      {"run.lost_after", {{"run.lost_after=60"}, f32, ""}},
      {"run.threads", {{"run.threads=2"}, f32, ""}},
      {"run.instruction_set", {{"run.instruction_set=baseline"}, f32, "backend"}},
      {"model.unread", {{"model.unread=drop"}, f32, ""}},
      {"run.dir", {{}, f32, ""}},  // every one of these runs goes on in a copy
      {"run.checkpoint_every", {{"run.checkpoint_every=0"}, f32, ""}},
      {"run.checkpoint_minutes", {{"run.checkpoint_minutes=1"}, f32, ""}},
      {"run.keep_last", {{"run.keep_last=1"}, f32, ""}},
      {"run.keep_every", {{"run.keep_every=3"}, f32, ""}},
      {"run.keep_best", {{"run.keep_best=off"}, f32, ""}},
      {"run.replan", {{"run.replan=auto"}, f32, ""}},
      {"run.export_dtype", {{"run.export_dtype=f32"}, f32, ""}},
      {"run.resume", {{"run.resume=" + weights.parent_path().string()}, f32, "run.resume = "}},
      {"run.trace", {{"run.trace=true"}, f32, ""}},
      {"run.trace_kernels", {{"run.trace_kernels=true"}, f32, ""}},
      {"memory.device", {{"memory.device=1536KiB"}, f32, ""}},
      {"memory.host", {{"memory.host=1GiB"}, f32, ""}},
  };
}

TEST(ResumeMatrix, IsInTheDocuments) {
  const std::string table = table_of_keys();
  EXPECT_NE(file_bytes(fs::path(SLUICE_DOCS) / "reliability.md").find(table), std::string::npos)
      << "docs/reliability.md lacks the table as it is now:\n"
      << table;
}

TEST(ResumeMatrix, IsWhatHappens) {
  const TextRuns runs;
  // Whole runs by their settings, and where each is.
  std::map<Settings, std::string> saved;
  const auto run_of = [&](const Settings& settings) {
    auto& name = saved[settings];
    if (name.empty()) {
      name = fmt::format("saved{}", saved.size());
      EXPECT_EQ(runs.start(name, settings).message, "");
    }
    return name;
  };
  const std::string plain = run_of({"train.compute=f32"});
  const auto all = changes(runs, runs.dir_ / (plain + "/checkpoints/step-1/model.safetensors"));
  for (const KeyHelp& row : config_keys()) {
    const std::string& key = row.name;
    SCOPED_TRACE(key);
    if (key == "run.backend" || key == "run.device") continue;
    const auto change = all.find(key);
    if (change == all.end()) {
      ADD_FAILURE() << "say here what it is changed to";
      continue;
    }
    const std::string whole = run_of(change->second.before), run = "run of " + key;
    fs::copy(runs.dir_ / whole, runs.dir_ / run,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    runs.cut_to(run, 2, 3);
    Settings settings = change->second.before;
    settings.insert(settings.end(), change->second.now.begin(), change->second.now.end());
    RunRequest request = runs.request(run, settings);
    const Outcome first = runs.start(request);
    const auto file = [&](const std::string& of, const char* name) {
      return file_bytes(runs.dir_ / (of + "/checkpoints/latest/" + name));
    };
    if (row.goes_on.change == GoesOn::Change::SameBits) {
      EXPECT_EQ(first.message, "");
      for (const char* name : {"model.safetensors", "adapter_model.safetensors", "optimizer.safetensors"})
        EXPECT_TRUE(file(run, name) == file(whole, name)) << name << " differs";
      continue;
    }
    const std::string named = change->second.named.empty() ? key + " is " : change->second.named;
    EXPECT_EQ(first.ending, Ending::Failed);
    EXPECT_NE(first.message.find(named), std::string::npos) << first.message;
    EXPECT_FALSE(fs::exists(runs.dir_ / (run + "/checkpoints/step-3")));
    if (row.goes_on.change == GoesOn::Change::Refused) {
      EXPECT_EQ(first.message.find("--allow"), std::string::npos) << first.message;
      continue;
    }
    EXPECT_NE(first.message.find(fmt::format("(--allow {})", row.goes_on.word)), std::string::npos)
        << first.message;
    request.allow = row.goes_on.word;
    EXPECT_EQ(runs.start(request).message, "");
  }
}

TEST(ResumeMatrix, AnotherBackendIsAllowedByFlag) {
  RunConfig config;
  config.latest = "checkpoints/step-1";
  const Manifest before{{"run.backend", "cpu"}}, now{{"run.backend", "cuda"}};
  const Status refused = check_goes_on(config, before, now);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("run.backend is cuda, it was cpu (--allow backend)"), std::string::npos);
  config.allow = {"backend"};
  EXPECT_TRUE(check_goes_on(config, before, now).ok());
}

TEST(ResumeMatrix, F32AndBf16DoNotFollowOneAnother) {
  RunConfig config;
  config.latest = "checkpoints/step-1";
  config.allow = {"formats"};
  const Manifest f32{{"train.compute", "f32"}}, bf16{{"train.compute", "bf16"}};
  const Status refused = check_goes_on(config, f32, bf16);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("train.compute is bf16, it was f32"), std::string::npos);
  EXPECT_EQ(refused.message().find("--allow"), std::string::npos) << refused.message();
}

// Manifests of before a key, and those that leave its default out.
TEST(ResumeMatrix, AKeyThatAManifestLeavesOutIsItsDefault) {
  RunConfig config;
  config.latest = "checkpoints/step-1";
  const Manifest without, usual{{"train.router_z_loss", "0"}, {"train.freeze", "[]"}, {"run.replicas", "1"}};
  EXPECT_TRUE(check_goes_on(config, usual, without).ok());
  const auto said = [&](const Manifest& saved, const Manifest& now) {
    return check_goes_on(config, saved, now).message();
  };
  const Manifest other{{"train.router_z_loss", "0.5"}};
  EXPECT_NE(said(other, without).find("train.router_z_loss is 0, it was 0.5"), std::string::npos);
  EXPECT_NE(said(without, other).find("train.router_z_loss is 0.5, it was 0"), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
