// SPDX-License-Identifier: Apache-2.0
// The one place that fills in a configuration after it is read. What is left open comes from the machine,
// from the checkpoint that a run goes on from, and from its data.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "model/spec.h"
#include "program/shape.h"
#include "setup/machine.h"

namespace sluice::core {

// Facts of one start. What is empty, or 0, leaves the configuration as it is.
struct StartFacts {
  int64_t threads = 0;  // that compute on the CPU, where run.threads leaves it open
  std::vector<std::string> allow = {};
  std::string date = {};                      // data.date
  std::string directory = {};                 // run.dir
  std::string model_config = {};              // model.config
  std::optional<std::string> beginning = {};  // run.resume
  std::string latest = {};
  bool all_see_dir = false;
};
RunConfig started(RunConfig config, StartFacts facts);

// Facts of a run beside its configuration and its machine.
struct RunFacts {
  // Where it goes on from a checkpoint: values of keys there as text, "" for none; and what it keeps whatever
  // its caps are.
  std::function<std::string(std::string_view key)> saved = {};
  int64_t replicas = 0;
  std::optional<StepShape> shape = {};
  // Where its data is open.
  struct Data {
    int64_t epoch_rows = 0;
    std::string prompt;  // that samples go on from
  };
  std::optional<Data> data = {};
  std::vector<std::string> notices = {};  // of checks that were made
};

// Number formats stay those of the checkpoint, where train.compute is not another one, and so does the
// learning rate; the least one only where train.learning_rate is the same. With data, steps are counted, and
// notices name settings that cannot take effect in so many.
Result<RunConfig> settled(RunConfig config, const Machine& machine, ModelSpec model, RunFacts facts = {});

// The same run otherwise, which is another question: under caps, on so many devices, in rows of so many
// tokens, or without run.exact. The last two cut it as a shape has what is left open, or in chunks of so many
// tokens.
RunConfig under(RunConfig config, const BytesByTier& caps);
RunConfig on_devices(RunConfig config, int devices);
RunConfig in_rows(RunConfig config, int64_t seq_len, int64_t tokens_per_step);
RunConfig not_exact(RunConfig config);
RunConfig cut_as(RunConfig config, const std::optional<StepShape>& shape);
RunConfig of_chunks(RunConfig config, int64_t chunk_tokens);  // whatever else it said of its shape

// train.steps, or as many as train.epochs makes. Errors: random tokens have no epochs.
Result<int64_t> counted_steps(const RunConfig& config, int64_t epoch_rows);
// A sentence where counting makes train.steps idle; empty: it does not.
std::string idle_steps(const RunConfig& config, int64_t counted);
// Notices on settings that cannot take effect in a run of train.steps.
std::vector<std::string> idle_notices(const RunConfig& config);
// Adds those that are not there.
void add_notices(std::vector<std::string> more, std::vector<std::string>& notices);

}  // namespace sluice::core
