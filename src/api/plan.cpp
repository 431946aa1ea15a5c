// SPDX-License-Identifier: Apache-2.0
#include "sluice/plan.h"

#include <algorithm>

#include "api/machine_config.h"
#include "describe/describe.h"
#include "io/directory.h"
#include "io/file.h"
#include "model/families/families.h"
#include "run/directory/run_directory.h"
#include "run/directory/save_plan.h"
#include "run/inputs/resolve.h"
#include "run/prepare/checks.h"
#include "run/prepare/prepare.h"
#include "setup/speed.h"

namespace sluice {
namespace {

using core::error;

Result<int64_t> cap_of(const std::optional<int64_t>& bytes, const char* name) {
  if (!bytes) return core::kUnlimited;
  if (*bytes > 0) return *bytes;
  return error("{} = {}: allowed are positive numbers of bytes, or nothing for no cap", name, *bytes);
}

// Settings, each "key=value", of the fields that options have for keys.
class Settings {
 public:
  template <class T>
  Settings& add(const char* key, const T& value) {
    all_.push_back(fmt::format("{}={}", key, core::print(value)));
    return *this;
  }
  Settings& add(const char* key, const std::map<std::string, double>& by_pattern) {
    std::vector<std::string> pairs;
    for (const auto& [pattern, value] : by_pattern) pairs.push_back(fmt::format("{}={}", pattern, value));
    return add(key, pairs);
  }
  std::vector<std::string> take() { return std::move(all_); }

 private:
  std::vector<std::string> all_;
};

std::vector<std::string> settings_of(const StepOptions& o) {
  constexpr const char* kFormats[] = {"auto", "f32", "bf16", "i8"};
  constexpr const char* kMasters[] = {"auto", "off", "f32", "i8"};
  const auto word = [](const auto& words, auto value) { return std::string(words[size_t(value)]); };
  Settings s;
  s.add("train.seq_len", o.seq_len).add("train.tokens_per_step", o.tokens_per_step);
  s.add("train.compute", word(kFormats, o.compute)).add("train.grad", word(kFormats, o.gradients));
  s.add("train.state", word(kFormats, o.state)).add("train.master", word(kMasters, o.master_weights));
  s.add("train.stochastic", o.stochastic).add("train.deferred_update", o.deferred_updates);
  s.add("train.freeze", o.freeze).add("train.optimizer", o.optimizer);
  for (const auto& [name, value] : o.hyperparameters) s.add(fmt::format("train.{}", name).c_str(), value);
  s.add("train.clip_norm", o.clip_norm).add("train.router_z_loss", o.router_z_loss);
  s.add("train.seed", int64_t(o.seed));
  if (const auto& a = o.adapter) {
    s.add("adapter.rank", a->rank).add("adapter.alpha", a->alpha).add("adapter.rslora", a->rslora);
    s.add("adapter.targets", a->targets).add("adapter.exclude", a->exclude).add("adapter.decay", a->decay);
    s.add("adapter.rank_pattern", a->ranks).add("adapter.alpha_pattern", a->alphas);
    s.add("adapter.modules_to_save", a->modules_to_save).add("adapter.dropout", a->dropout);
    s.add("adapter.dora", a->dora)
        .add("adapter.tokens", a->tokens)
        .add("adapter.head_tokens", a->head_tokens);
  }
  std::vector<std::string> all = s.take();
  all.insert(all.end(), o.settings.begin(), o.settings.end());
  return all;
}

// The configuration that an options' keys make, and so with the names of its keys in errors.
Result<core::RunConfig> read_options(const Model& model, const StepOptions& options, const Caps& caps,
                                     const Machine& machine) {
  SLUICE_ASSIGN(core::RunConfig c, config_of(machine.options()));
  c.model.weights = model.weights().string();
  if (!machine.runs_models()) c.run.backend = "auto";
  SLUICE_ASSIGN(c.caps[core::kDevice], cap_of(caps.device_bytes, "device_bytes"));
  SLUICE_ASSIGN(c.caps[core::kHost], cap_of(caps.host_bytes, "host_bytes"));
  if (options.adapter && options.adapter->rank < 1)
    return error("adapter.rank = {}: allowed are whole numbers from 1", options.adapter->rank);
  return core::typed_config(settings_of(options), std::move(c), core::KeyOf::Step);
}

}  // namespace

Result<Plan> plan(const Model& model, const StepOptions& options, const Caps& caps, const Machine& machine,
                  Observer& observer, std::stop_token stop) {
  SLUICE_ASSIGN(core::RunConfig config, read_options(model, options, caps, machine));
  if (options.sample_window < 0 || options.sample_window > options.seq_len) {
    return error("sample_window = {}: allowed are numbers from 0 to seq_len = {}", options.sample_window,
                 options.seq_len);
  }
  constexpr int64_t kMostRows = 4096;
  if (options.sample_rows < 1 || options.sample_rows > kMostRows)
    return error("sample_rows = {}: allowed are numbers from 1 to {}", options.sample_rows, kMostRows);
  if (options.sample_rows > 1 && options.sample_window == 0)
    return error("sample_rows = {}: nothing is sampled without a sample_window", options.sample_rows);
  constexpr int64_t kMostTop = 1024;
  if (options.top_tokens < 0 || options.top_tokens > kMostTop)
    return error("top_tokens = {}: allowed are numbers from 0 to {}", options.top_tokens, kMostTop);
  if (options.top_tokens > 0 && !options.round_losses)
    return error("top_tokens = {}: losses of rounds read them; plan with the option round_losses",
                 options.top_tokens);
  core::StepSpec step{
      .model = model.spec(),
      .loss = {options.weighted, options.log_probabilities, options.round_losses, options.top_tokens},
      .cut = {.packed = options.packed}};
  if (options.evaluate) step.between.push_back({core::kEvaluation});
  if (options.sample_window > 0)
    step.between.push_back({core::kSampling, options.sample_window, options.sample_rows});
  SLUICE_ASSIGN(core::Notices checked, core::check_early(config, machine.machine(), step.model));
  const core::PlanCache cache = core::plan_cache_of(config);
  const bool keeps = !machine.options().cache.empty();
  auto prepared = core::prepare_on(std::move(config), machine.machine(), std::move(step),
                                   {.cache = keeps ? &cache : nullptr,
                                    .observer = &observer,
                                    .stop = stop,
                                    .notices = std::move(checked)});
  // Whatever else came of it: a search that was ended may have found that nothing fits.
  if (stop.stop_requested()) return core::stopped_planning();
  if (!prepared.ok()) return prepared.error();
  return Plan(std::make_shared<const core::Prepared>(std::move(*prepared)));
}

Result<Plan> Plan::under(const Caps& given, std::stop_token stop) const {
  core::BytesByTier caps = prepared_->config.caps;
  if (given.device_bytes) {
    SLUICE_ASSIGN(const int64_t bytes, cap_of(given.device_bytes, "device_bytes"));
    for (size_t d = 0; d < prepared_->machine.devices(); ++d) caps[core::Tier::device(d)] = bytes;
  }
  if (given.host_bytes) {
    SLUICE_ASSIGN(caps[core::kHost], cap_of(given.host_bytes, "host_bytes"));
  }
  auto prepared = core::prepare_under(*prepared_, caps, stop);
  if (stop.stop_requested()) return core::stopped_planning();
  if (!prepared.ok()) return prepared.error();
  return Plan(std::make_shared<const core::Prepared>(std::move(*prepared)));
}

double Plan::step_seconds() const {
  return prepared_->stages.main.plan.makespan_ns / 1e9;
}
double Plan::tokens_per_second() const {
  return double(tokens_per_step()) / step_seconds();
}
double Plan::mfu() const {
  const core::Stage& s = prepared_->stages.main;
  return core::speed_of(s.model.program, s.plan, s.plan.makespan_ns, core::peak_flops(*prepared_)).mfu;
}
int64_t Plan::device_bytes() const {
  return core::fullest_device(prepared_->stages.arena_bytes());
}
int64_t Plan::host_bytes() const {
  return prepared_->stages.arena_bytes()[core::kHost];
}
int64_t Plan::seq_len() const {
  return prepared_->shape.seq_len;
}
int64_t Plan::tokens_per_step() const {
  return prepared_->shape.tokens();
}
bool Plan::packed() const {
  return prepared_->shape.packed;
}
std::vector<std::string> Plan::notices() const {
  return prepared_->notices;
}

std::string Plan::text() const {
  return core::describe_run(*prepared_) + "\n" + core::to_page_of_text(core::report_of(*prepared_).summary);
}
std::string Plan::json() const {
  const core::Stage& s = prepared_->stages.main;
  return core::to_json(core::report_of(*prepared_), s.model.program, s.plan);
}
std::string Plan::html() const {
  return core::to_html(json());
}

Status Plan::save(const std::filesystem::path& directory) const {
  SLUICE_ASSIGN(const core::RunDirectory taken, core::RunDirectory::take("directory", directory));
  if (taken.content() > core::RunDirectory::Content::Plan) {
    return error("directory = {}: it holds results of a run, which a plan does not replace; name another one",
                 directory.string());
  }
  const core::Prepared& p = *prepared_;
  const std::filesystem::path model = std::filesystem::absolute(directory / "model.json");
  SLUICE_TRY(core::write_file(model, p.model.config.empty() ? core::to_json(p.model) : p.model.config));
  return core::save_plan(
      p, core::started(p.config, {.directory = directory.string(), .model_config = model.string()}));
}

Result<std::string> Plan::diff(std::string_view before_json, std::string_view after_json) {
  SLUICE_ASSIGN(const core::PlanSummary before, core::parse_summary(std::string(before_json)));
  SLUICE_ASSIGN(const core::PlanSummary after, core::parse_summary(std::string(after_json)));
  return core::describe_difference(before, after);
}

}  // namespace sluice
