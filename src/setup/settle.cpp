// SPDX-License-Identifier: Apache-2.0
#include "setup/settle.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <utility>

#include "base/counts.h"
#include "setup/card_cap.h"
#include "setup/learning_rate.h"
#include "setup/resolve.h"

namespace sluice::core {
namespace {

constexpr std::string_view kOpenPrompt = "auto";  // of sample.prompt

// A list as recorded() writes it; nothing is an empty one.
std::vector<std::string> list_in(std::string_view text) {
  std::vector<std::string> out;
  if (text.size() < 2) return out;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const size_t end = std::min(text.find(", "), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 2));
  }
  return out;
}

void keep_saved(RunConfig& c, const RunFacts& facts) {
  const std::string products = facts.saved(kNarrowProducts);
  const auto keep = [&](std::initializer_list<std::string_view> keys) {
    fill_open(c, [&](std::string_view key) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) return std::string();
      return key == "train.compute" && !products.empty() ? products : facts.saved(key);
    });
  };
  const auto& t = c.train;
  const auto stored = t.compute == DType::F8E4M3 ? DType::BF16 : t.compute;
  if (!stored || recorded(*stored) == facts.saved("train.compute"))
    keep({"train.compute", "train.grad", "train.state", "train.master", "train.stochastic"});
  if (!products.empty() && c.train.compute == DType::F8E4M3 && c.train.fp8_except == TrainKeys().fp8_except)
    c.train.fp8_except = list_in(facts.saved("train.fp8_except"));
  keep({"train.learning_rate", "train.warmup_steps"});
  if (recorded(t.learning_rate) == facts.saved("train.learning_rate")) keep({"train.min_learning_rate"});
}

}  // namespace

void add_notices(std::vector<std::string> more, std::vector<std::string>& notices) {
  for (std::string& text : more) {
    if (!text.empty() && std::ranges::find(notices, text) == notices.end())
      notices.push_back(std::move(text));
  }
}

RunConfig started(RunConfig c, StartFacts facts) {
  const auto take = [](auto fact, auto& field) {
    if (fact != decltype(fact)()) field = std::move(fact);
  };
  if (c.run.threads == 0) c.run.threads = facts.threads;
  take(std::move(facts.allow), c.allow);
  take(std::move(facts.date), c.data.date);
  take(std::move(facts.directory), c.run.dir);
  take(std::move(facts.model_config), c.model.config);
  take(std::move(facts.latest), c.latest);
  take(facts.all_see_dir, c.all_see_dir);
  if (facts.beginning) c.run.resume = std::move(*facts.beginning);
  return c;
}

RunConfig under(RunConfig c, const BytesByTier& caps) {
  c.caps = caps;
  return c;
}

RunConfig on_devices(RunConfig c, int devices) {
  c.run.devices = first_devices(devices);
  return c;
}

RunConfig in_rows(RunConfig c, int64_t seq_len, int64_t tokens_per_step) {
  c.train.seq_len = seq_len;
  c.train.tokens_per_step = tokens_per_step;
  return c;
}

RunConfig not_exact(RunConfig c) {
  c.run.exact = false;
  return c;
}

RunConfig of_chunks(RunConfig c, int64_t chunk_tokens) {
  c.shape = {.chunk_tokens = chunk_tokens};
  return c;
}

RunConfig cut_as(RunConfig c, const std::optional<StepShape>& shape) {
  const auto keep = [](int64_t& key, int64_t value) { key = key == 0 ? value : key; };
  if (!shape) return c;
  keep(c.shape.chunk_tokens, shape->chunk_tokens);
  keep(c.shape.rounds, shape->rounds);
  keep(c.shape.first_round_chunks, shape->chunks_in(0));
  keep(c.shape.head_tokens, shape->head_tokens);
  return c;
}

Result<int64_t> counted_steps(const RunConfig& c, int64_t epoch_rows) {
  if (c.train.epochs == 0) return c.train.steps;
  if (c.data.paths.empty())
    return error("train.epochs = {}: random tokens (data.paths is empty) have no epochs; set train.steps",
                 c.train.epochs);
  const double rows = c.train.epochs * double(epoch_rows);
  return int64_t(std::ceil(rows * double(c.train.seq_len) / double(c.train.tokens_per_step)));
}

std::string idle_steps(const RunConfig& c, int64_t counted_now) {
  if (c.train.steps == counted_now || !c.given.contains("train.steps")) return {};
  return fmt::format("train.epochs = {} makes {}; train.steps = {} does not count", c.train.epochs,
                     counted(counted_now, "step"), c.train.steps);
}

std::vector<std::string> idle_notices(const RunConfig& c) {
  std::vector<std::string> out;
  const int64_t steps = c.train.steps;
  for (const auto& [key, every] : {std::pair{"eval.every", c.eval.every.value_or(0)},
                                   {"sample.every", c.sample.tokens > 0 ? c.sample.every : 0},
                                   {"run.checkpoint_every", c.run.checkpoint_every},
                                   {"run.keep_every", c.run.keep_every}}) {
    if (every > steps && steps > 0)
      out.push_back(
          fmt::format("{} = {}: the run ends before that, after {}", key, every, counted(steps, "step")));
  }
  const int64_t every = c.eval.every.value_or(0), between = every > 0 ? (steps - 1) / every : 0;
  if (c.eval.every && every <= steps && c.eval.patience > between)
    out.push_back(
        fmt::format("eval.patience = {}: the run is evaluated {} before its end, and never ends early",
                    c.eval.patience, counted(between, "time")));
  if (c.sample.tokens > 0 && c.sample.texts > 1 && c.sample.temperature == 0)
    out.push_back(
        fmt::format("sample.texts = {}: with sample.temperature = 0 they are all the same", c.sample.texts));
  if (c.run.trace_kernels && !c.run.trace)
    out.push_back("run.trace_kernels = true does not count: run.trace = false writes no trace");
  std::map<std::string_view, double> values;
  for (const Hyperparameter& h : c.optimizer().hyperparameters) values[h.name] = c.value_of(h);
  const auto is = [&](std::string_view name, double value) {
    return values.contains(name) && values[name] == value;
  };
  if (c.adapter.decay && is("weight_decay", 0))
    out.push_back("adapter.decay = true does not count: train.weight_decay is 0");
  if (is("nesterov", 1) && is("momentum", 0))
    out.push_back("train.nesterov = 1 does not count: train.momentum is 0");
  if (!c.data.heldout_paths.empty() && c.data.heldout != DataKeys().heldout)
    out.push_back(fmt::format("data.heldout = {} does not count: data.heldout_paths names what is held out",
                              c.data.heldout));
  return out;
}

Result<RunConfig> settled(RunConfig c, const Machine& machine, ModelSpec model, RunFacts facts) {
  SLUICE_ASSIGN(CapsOnMachine on_machine, caps_on(c, machine));
  c.caps = on_machine.caps;
  // The device cap is that of each.
  for (size_t d = 1; d < machine.devices(); ++d) c.caps[Tier::device(d)] = c.caps[kDevice];
  add_notices({std::move(on_machine.notice)}, c.notices);
  add_notices(std::move(facts.notices), c.notices);
  c = cut_as(std::move(c), facts.shape);
  if (c.run.replicas == 0) c.run.replicas = facts.replicas;
  if (facts.saved) keep_saved(c, facts);
  SLUICE_TRY(resolve_training(c, model));
  if (facts.data) {
    SLUICE_ASSIGN(const int64_t steps, counted_steps(c, facts.data->epoch_rows));
    add_notices({idle_steps(c, steps)}, c.notices);
    c.train.steps = steps;
  }
  SLUICE_ASSIGN(ChosenRate rate, choose_rate(c, model));
  c.train.learning_rate = rate.rate;
  if (!facts.data) return c;
  add_notices({std::move(rate.why)}, c.notices);
  add_notices(schedule_notices(c, model), c.notices);
  add_notices(idle_notices(c), c.notices);
  c.train.warmup_steps = warmup_steps(c);
  if (c.sample.prompt == kOpenPrompt && c.sample.tokens > 0) c.sample.prompt = facts.data->prompt;
  return c;
}

}  // namespace sluice::core
