// SPDX-License-Identifier: Apache-2.0
#include "run/session/session.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "dataset/byte_tokenizer.h"
#include "run/inputs/resolve.h"
#include "run/loaded/folder_defaults.h"
#include "run/prepare/manifest.h"
#include "run/session/rollout.h"
#include "run/session/sampled_text.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
Result<std::unique_ptr<Session>> Session::open(const Prepared& prepared, Observer& observer) {
  SLUICE_ASSIGN(RunData data, open_data(prepared.config, prepared.model.vocab, observer));
  return open(prepared, std::move(data), observer);
}

Result<std::unique_ptr<Session>> Session::open(const Prepared& prepared, RunData data, Observer& observer) {
  if (!data.unlearnt.empty()) return error("{}", data.unlearnt);
  for (const BatchSource* source : {data.train.get(), data.heldout.get()}) {
    if (source != nullptr && source->packed() && !prepared.shape.packed)
      return error(
          "data.paths: there are several documents now; when the run was planned, there was one file");
  }
  SLUICE_ASSIGN(std::shared_ptr<Engine> engine, Engine::open(prepared, observer));
  auto shared = std::make_shared<const RunData>(std::move(data));
  auto session =
      std::make_unique<Session>(std::move(engine), std::move(shared), schedule_of(prepared.config));
  SLUICE_TRY(session->begin_comparison(prepared.config, observer));
  if (!prepared.config.checkpoint().empty()) SLUICE_TRY(session->load(prepared.config));
  session->begin_record(observer);
  if (!prepared.config.eval.every && session->evaluates()) session->choose_evaluations();
  return session;
}

Status Session::begin_comparison(const RunConfig& config, Observer& observer) {
  if (config.chosen_objective().compares == Compares::Nothing) return {};
  // Evaluation between steps is process 0's alone there.
  if (engine_->prepared().optimizer.sharded.is() &&
      loss_type_of(config.chosen_objective(), config.objective).kl)
    return error(
        "run.shard_state = true: train.objective = {} evaluates in each step, in every process; set it "
        "to false",
        config.train.objective);
  std::string saved;
  if (!config.checkpoint().empty()) {
    SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(config.checkpoint()));
    saved = value_of(info.manifest, kReferenceName);
  }
  if (config.chosen_objective().compares == Compares::Teacher) {
    SLUICE_ASSIGN(distillation_, Distillation::open(*engine_, *data_));
    return {};
  }
  if (config.chosen_objective().compares == Compares::Rewards) {
    SLUICE_ASSIGN(rollout_, Rollout::open(*engine_, *data_, saved, observer));
    return {};
  }
  SLUICE_ASSIGN(Reference reference, reference_of(*engine_, *data_, saved, observer));
  comparison_.emplace(*engine_, *data_, std::move(reference));
  return {};
}

void Session::begin_record(Observer& observer) {
  if (!evaluates()) return;
  HeldoutRecord& record = engine_->heldout();
  const std::string of = fmt::format("{} rows of {}", heldout_rows().rows, data_->content);
  if (record.of == of) return;
  if (record.best_step >= 0)
    observer.warned("the held-out rows are others than before: losses are compared from here on");
  // No evaluation is made up for steps of an earlier program or of other rows.
  const int64_t done = steps_done();
  record = {.of = of, .every = record.every, .of_steps = record.of_steps, .last_step = done > 0 ? done : -1};
}

double Session::evaluation_seconds() const {
  double ns = 0;
  for (int64_t left = heldout_rows().rows; left > 0;) {
    const Stage& stage = engine_->evaluation_of(left);
    ns += stage.plan.makespan_ns;
    left -= stage.model.shape.sequences();
  }
  return ns / 1e9;
}

// From predictions, which another plan would make otherwise: so the choice is kept with the run.
void Session::choose_evaluations() {
  HeldoutRecord& record = engine_->heldout();
  if (record.every == 0 || record.of_steps != schedule_.steps) {
    const double step_s = engine_->stages().main.plan.makespan_ns / 1e9;
    record.every = choose_interval(schedule_.steps, step_s, evaluation_seconds()).every;
    record.of_steps = schedule_.steps;
  }
  schedule_.evaluate_every = record.every;
  schedule_.evaluate_first = true;
}

RowsCount Session::heldout_rows() const {
  return count_rows(*data_->heldout, schedule_.evaluate_rows);
}

EvaluationInterval Session::evaluations() const {
  const int64_t every = schedule_.evaluate_every;
  EvaluationInterval out{every, 1 + (schedule_.evaluate_first ? 1 : 0)};
  if (every > 0) out.count += (schedule_.steps - 1) / every;
  const double run_s = double(schedule_.steps) * engine_->stages().main.plan.makespan_ns / 1e9;
  const double spent_s = double(out.count) * evaluation_seconds();
  out.share = spent_s > 0 ? spent_s / (run_s + spent_s) : 0;
  return out;
}

Manifest Session::manifest() const {
  Manifest out = manifest_of(engine_->prepared(), data_->content);
  add_date(out, data_->date);
  add_schedule(out, schedule_);
  if (comparison_) add_reference(out, comparison_->weights());
  if (rollout_) add_reference(out, rollout_->weights());
  return out;
}

Status Session::load(const RunConfig& config) {
  SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(config.checkpoint()));
  const Manifest now = manifest();
  SLUICE_TRY(check_goes_on(config, info.manifest, now));
  const auto differs = [&](std::string_view name) {
    return value_of(info.manifest, name) != value_of(now, name);
  };
  const OtherState other{.trained = differs(kFreezeName),
                         .formats = differs("train.state") || differs("train.master")};
  return engine_->load(tolerating(info.manifest, now, config.allow), config.checkpoint(), other);
}

bool Session::evaluates() const {
  return engine_->prepared().stages.find(kEvaluation) != nullptr && data_->heldout;
}

const Rows& Session::read_step() {
  const BuiltProgram& model = engine_->prepared().stages.main.model;
  if (rows_.tokens() == 0) rows_ = Rows(model.layout, model.shape.tokens());
  // Each process has rows of its own: as many as the shape says, in the order of ranks.
  fill_rows(*data_->train, steps_done(), engine_->rank() * model.shape.sequences(),
            rows_.part(0, rows_.tokens()));
  return rows_;
}

Result<StepResult> Session::step(std::vector<Interval>* timeline) {
  const double rate = schedule_.rate_at(steps_done() + 1);
  if (rollout_) return rollout_->step(rate, timeline);
  if (distillation_) return distillation_->step(rate, timeline);
  return comparison_ ? comparison_->step(read_step(), rate, timeline)
                     : engine_->step(read_step(), rate, timeline);
}

double Session::epochs_done() const {
  if (data_->train->epoch_rows() == std::numeric_limits<int64_t>::max()) return 0;
  const StepShape& shape = engine_->prepared().shape;
  const double rows = double(steps_done()) * double(shape.tokens_of_all() / shape.seq_len);
  return rows / double(data_->train->epoch_rows());
}

Result<Evaluation> Session::evaluate(const std::function<bool()>& stop) {
  const int64_t rows = std::min(schedule_.evaluate_rows, data_->heldout->epoch_rows());
  if (comparison_) return comparison_->evaluate(rows, stop);
  return evaluate_rows(
      *data_->heldout, rows,
      [&](int64_t left) { return engine_->evaluation_of(left).model.shape.sequences(); },
      [&](const Rows& part) { return engine_->evaluate(part); }, stop);
}

Result<std::string> Session::sample(const std::string& prompt, int64_t tokens, double temperature,
                                    int64_t number, const std::function<bool(int64_t)>& more) {
  const Prepared& p = engine_->prepared();
  // Opened for this alone: a tokenizer takes memory that is the run's.
  std::optional<Tokenizer> tokenizer;
  std::vector<int32_t> text = ByteTokenizer::encode(prompt.empty() ? "\n" : prompt), ends;
  if (const auto path = tokenizer_of(p.config)) {
    SLUICE_TRY(check_tokenizer_room(p.config.caps[kHost], engine_->memory().bytes[kHost], *path));
    SLUICE_ASSIGN(tokenizer, Tokenizer::open(*path));
    SLUICE_ASSIGN(GenerationDefaults defaults, generation_defaults_of(path->parent_path()));
    ends = std::move(defaults.stop_tokens);
    text.clear();
    SLUICE_TRY(tokenizer->encode(prompt.empty() ? "\n" : prompt, /*special=*/true, text));
  }
  if (data_->answer_end >= 0) ends.push_back(data_->answer_end);
  for (const int32_t id : text) {
    if (id >= p.model.vocab)
      return error("sample.prompt: its token {} is none of the model's {}", id, p.model.vocab);
  }
  if (text.empty()) return error("sample.prompt: the tokenizer has no token for anything in it");
  SLUICE_ASSIGN(
      const SampledText drawn,
      sample_text(*engine_, text, {tokens, temperature, uint64_t(p.config.train.seed + number), ends}, more));
  return tokenizer ? tokenizer->decode(drawn.tokens, /*skip_special=*/false)
                   : ByteTokenizer::decode(drawn.tokens);
}

Status Session::save(const std::filesystem::path& dir) {
  return engine_->save(manifest(), dir);
}

Status Session::save(CheckpointStore& store) {
  return engine_->save(manifest(), store);
}

}  // namespace sluice::core
