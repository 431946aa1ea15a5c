// SPDX-License-Identifier: Apache-2.0
// The tables of [rollout], [eval], [sample], [run] and [memory]: what a run does beside its steps, and where.
#pragma once

#include <optional>
#include <string>

#include "base/tier.h"
#include "config/devices.h"
#include "config/row.h"
#include "config/values.h"

namespace sluice::core {

constexpr GoesOn kOtherSamples = refused("other answers are learnt from");

// Answers with rewards, of train.objective = grpo.
struct RolloutKeys {
  std::string rewards;  // empty: they are recorded
  int64_t samples = 8, prompts = 0, at_once = 0, max_tokens = 512, num_iterations = 1;
  double temperature = 1, timeout = 600;
  bool mask_truncated_completions = false;
};
template <class Keys, class F>
void visit_rollout_keys(Keys& c, F&& key) {
  key("rollout.rewards", c.rewards, InputPath(),
      {"the Python function that rewards sampled answers, as rewards.py:function; empty: answers and rewards "
       "are recorded in data.paths",
       kOtherSamples, Recorded::Changed});
  key("rollout.samples", c.samples, Range{1, 65536},
      {"answers to a prompt that are sampled", kOtherSamples, Recorded::Changed});
  key("rollout.prompts", c.prompts, kCountsOfSteps,
      {"prompts of a step; 0: as many as have room in it, however long their answers", kOtherSamples,
       Recorded::Changed});
  key("rollout.at_once", c.at_once, Range{0, 65536},
      {"answers that are sampled at once, each with a cache; 0: those of a step, or as many as have caches "
       "half "
       "as large as the weights",
       kOtherSamples, Recorded::Changed});
  key("rollout.max_tokens", c.max_tokens, Tokens{{1, 16777216}},
      {"tokens of a sampled answer; by them dr_grpo divides", kOtherSamples, Recorded::Changed});
  key("rollout.temperature", c.temperature, Range{1e-3, 100},
      {"that answers are sampled at; losses are of log-probabilities at temperature 1", kOtherSamples,
       Recorded::Changed});
  key("rollout.num_iterations", c.num_iterations, Range{1, 1000},
      {"steps in a row that learn from the same answers", kOtherSamples, Recorded::Changed});
  key("rollout.mask_truncated_completions", c.mask_truncated_completions, nullptr,
      {"whether answers that the length has cut teach nothing; their rewards count beside the others",
       kOtherSamples, Recorded::Changed});
  key("rollout.timeout", c.timeout, Range{0.1, 1e6}, {"seconds that the rewards of a step may take"});
}

constexpr GoesOn kOtherEvaluations = same_bits(
    "an interval that was left open stays what it was chosen to be while `train.steps` does; losses of other "
    "rows are not compared with those before");

struct EvalKeys {
  std::optional<int64_t> every;  // steps; none: chosen
  int64_t rows = 16, patience = 0;
};
// Calls key(name, field, constraint, row) for every key.
template <class Keys, class F>
void visit_eval_keys(Keys& c, F&& key) {
  key("eval.every", c.every, kCountsOfSteps,
      {"steps between evaluations; 0: at the end only; auto: at the beginning, too, and between as often as "
       "3 % of the run allows, but ten times",
       kOtherEvaluations});
  key("eval.rows", c.rows, kCountsOfSteps,
      {"held-out sequences per evaluation, at most as many as there are", kOtherEvaluations});
  key("eval.patience", c.patience, kCountsOfSteps,
      {"evaluations in a row without a lower held-out loss that end the run; 0: none do", kOtherEvaluations});
}

struct SampleKeys {
  int64_t tokens = 128, texts = 1, every = 0;
  std::string prompt = "auto";
  double temperature = 0.8;
};
template <class Keys, class F>
void visit_sample_keys(Keys& c, F&& key) {
  key("sample.tokens", c.tokens, Tokens{{0, 65536}}, {"tokens of a sampled text; 0: none is sampled"});
  key("sample.texts", c.texts, Range{1, 100}, {"how many texts to sample each time"});
  key("sample.every", c.every, kCountsOfSteps, {"steps between samples; 0: at the end only"});
  key("sample.prompt", c.prompt, nullptr,
      {"text to continue; auto: what comes before the first answer that is held out, as the chat template "
       "has it"});
  key("sample.temperature", c.temperature, Range{0, 100}, {"0: the most likely token"});
}

struct RunKeys {
  std::string backend = "auto";
  int64_t device = 0, threads = 0, replicas = 0, lost_after = 30;
  bool shard_state = false;
  DeviceChoice devices = first_devices(1);
  std::string peer = "auto";
  std::string instruction_set = "auto";  // of the CPU
  std::string dir = "runs/latest";
  int64_t checkpoint_every = 0;
  double checkpoint_minutes = 15;
  int64_t keep_last = 2, keep_every = 0;
  std::optional<bool> keep_best;      // none: where a save costs little
  std::string export_dtype = "auto";  // of checkpoints' weights
  std::string resume;
  std::string replan = "off";
  bool trace = true, trace_kernels = false;
  bool deterministic = false, exact = false;
};
template <class Keys, class F>
void visit_run_keys(Keys& c, F&& key) {
  key("run.backend", c.backend, nullptr,
      {"where to run: auto, or a backend that this program has",
       allowed_by("backend", "another order of sums"), Recorded::Always});
  key("run.device", c.device, Range{0, 1023},
      {"index of the GPU; of several processes on a host that of the first, behind which the others come in "
       "turn"});
  key("run.devices", c.devices, nullptr,
      {"devices that share a step: all, how many, or their indices, such as 0,2; with 1 run.device says "
       "which"});
  key("run.peer", c.peer, Choices{"auto", "off"},
      {"whether devices copy to each other where they can; off: by way of the host"});
  key("run.threads", c.threads, Range{0, 4096}, {"threads that compute on the CPU; 0: all cores"});
  key("run.instruction_set", c.instruction_set,
      Choices{"auto", "baseline", "avx2", "avx512", "avx512_bf16", "amx"},
      {"of the CPU, which the last bits of results depend on; auto: the best that it has",
       allowed_by("backend", "last bits"), Recorded::Changed});
  key("run.replicas", c.replicas, Range{0, most::kReplicas},
      {"copies of the model that each learn a part of a step's rows; sums of their gradients follow a tree, "
       "so that results do not depend on how many processes share them; 0: one a process",
       refused("another order of sums. Left open, it is the checkpoint's; by how many processes they are "
               "shared does not matter"),
       Recorded::Otherwise, KeyOf::Run, "1"});
  key("run.shard_state", c.shard_state, nullptr,
      {"of several processes each has the optimizer state of a part of the weights alone, which it updates "
       "and gives the others; same results"});
  key("run.lost_after", c.lost_after, Range{0, 86400},
      {"seconds without a heartbeat after which a process of several is lost, and all of them end; one that "
       "is alive and late is named as often; 0: no heartbeats"});
  key("run.dir", c.dir, OutputPath(), {"run directory", same_bits("a directory may be moved or copied")});
  key("run.checkpoint_every", c.checkpoint_every, kCountsOfSteps,
      {"steps between checkpoints; 0: none for this reason"});
  key("run.checkpoint_minutes", c.checkpoint_minutes, Range{0, 1e6},
      {"minutes between checkpoints, more where saving would take over 2 % of the run; 0: none for this "
       "reason"});
  key("run.keep_last", c.keep_last, Range{1, 1000}, {"how many of the newest checkpoints stay"});
  key("run.keep_every", c.keep_every, kCountsOfSteps,
      {"checkpoints of every step that this divides are saved, and stay; 0: none"});
  key("run.keep_best", c.keep_best, Toggle(),
      {"the weights with the lowest held-out loss, as checkpoints/best; auto: while that takes less than 2 % "
       "of the run; on: every time"});
  key("run.export_dtype", c.export_dtype, Choices{"auto", "f32"},
      {"number format of the weights in checkpoints: the run's, or f32, its master weights where it has "
       "any"});
  key("run.resume", c.resume, InputPath(),
      {"checkpoint of another run to go on from in this run's own directory",
       refused("a run goes on from its own checkpoint; the one that it began at may be given again")});
  key("run.replan", c.replan, Choices{"off", "auto"},
      {"auto: where steps take another time than predicted, plans are searched for beside the run, by what "
       "ops and links take now; one that gains more than changing to it takes is adopted between two steps. "
       "No bit of a result depends on it"});
  key("run.trace", c.trace, nullptr, {"write trace.json of one step"});
  key("run.trace_kernels", c.trace_kernels, nullptr,
      {"name the kernels of that step in it (CUPTI, whose memory counts against the caps)"});
  key("run.deterministic", c.deterministic, nullptr,
      {"equal bits in every run on a GPU too, at some speed; CPU runs always are",
       GoesOn{GoesOn::Change::SameBits, "on a GPU `--allow backend`: last bits", "backend"},
       Recorded::Always});
  key("run.exact", c.exact, nullptr,
      {"the log-probabilities that answers are sampled with are, to the bit, those that training computes, "
       "and "
       "routers choose the same experts; at some speed, and sequences are not cut",
       allowed_by("backend", "last bits"), Recorded::Changed});
}

template <class Keys, class F>
void visit_memory_keys(Keys& c, F&& key) {
  key("memory.device", c[kDevice], Size(), {"cap on device memory, such as 48MiB or none"});
  key("memory.host", c[kHost], Size(), {"cap on host memory, such as 1GiB or none"});
}

}  // namespace sluice::core
