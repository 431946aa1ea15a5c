// SPDX-License-Identifier: Apache-2.0
// A model in memory: trained by the caller's loop or a schedule, evaluated, asked, saved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/dataset.h"
#include "sluice/observer.h"
#include "sluice/plan.h"
#include "sluice/schedule.h"
#include "sluice/status.h"

namespace sluice {

struct SampleOptions {
  int64_t tokens = 64;
  double temperature = 0;  // 0: the most likely token
  uint64_t seed = 1;
  // sample_many() ends texts by these. Stop tokens are part of a text; a string and what follows it are not.
  std::vector<int32_t> stop_tokens = {};
  std::vector<std::string> stop = {};
  bool text = false;  // Sample::text is made, by the tokenizer of the model's folder
};

struct Sample {
  std::vector<int32_t> tokens;
  // log p of each token after those before it, as the model has it: whatever temperature it was drawn with.
  std::vector<float> log_probabilities;
  // The same of the distribution that it was drawn from.
  std::vector<float> drawn_log_probabilities = {};
  std::string finish = {};  // "length", or "stop"
  std::string text = {};    // with SampleOptions::text, without special tokens
};

// A tensor of the model by the name that its folder has for it, "model.norm.weight".
struct WeightInfo {
  std::string name;
  std::vector<int64_t> shape;
};

// Sequences of one batch that are in one round of a step.
struct RoundRows {
  int64_t first;  // tokens of the batch before these
  std::span<const int32_t> targets;
  std::span<const float> log_probabilities;  // of each target, 0 where none counts
  std::span<const int32_t> top_tokens;       // Batch::top_tokens
  std::span<const float> top_log_probabilities;
};
// A loss of one's own that is a sum over sequences: puts its derivative with respect to each log-probability
// into `seeds`, which are 0 where it begins. Behind those of targets are those of top_tokens. Those of
// targets that do not count have no effect. It calls nothing of the session, and does not throw: an exception
// would leave a step half done.
using RoundLoss = std::function<Status(const RoundRows& rows, std::span<float> seeds)>;

// Rows that wait for an optimizer step, and what it will find of them. A handle: copies share it, and it may
// outlive its session. Not while another thread is in a call of that.
class Queued {
 public:
  int64_t tokens() const;
  // log p of each target before the update, 0 where none counts. An error before optim_step() took the rows,
  // for good if that failed or they were discarded. REQUIRES: StepOptions::log_probabilities or round_losses.
  Result<std::vector<float>> log_probabilities() const;

 private:
  friend class Session;
  struct Impl;
  explicit Queued(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

// Owns the memory that its plan asks for, and gives it back when it is destroyed. Under the plan's caps all
// of its life. One thread at a time.
//
// A step of one's own is any number of forward_backward(), then one optim_step(). Rows wait on the host until
// then, and all of them run as the one step that was planned, in which copies and the update are hidden. So
// results do not depend on how a step's rows are split into calls.
class Session {
 public:
  // Takes the memory, makes the state or loads the model's weights. The observer outlives the session.
  // Errors: a plan for a machine that is not here (Invalid), memory that cannot be had (Device, DoesNotFit),
  // weights that do not match (Invalid, NotFound, Io).
  static Result<Session> open(const Plan& plan, Observer& observer = silent_observer());
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // log p of each target of any whole number of sequences, 0 where none counts. Weights and seeds do not
  // matter. Rows that wait are not disturbed. REQUIRES: StepOptions::evaluate.
  Result<std::vector<float>> forward(const Batch& batch);
  // Mean loss over the targets, with their weights: that of forward(), summed in f64.
  Result<double> evaluate(const Batch& batch);

  // Queues any whole number of sequences for the next optim_step(). Errors: more than the step's
  // Plan::tokens_per_step() with what waits already; weights or seeds without StepOptions::weighted or
  // round_losses; seeds in a step that has rows without, or the other way round.
  Result<Queued> forward_backward(const Batch& batch);
  // The same for a loss instead of seeds, which takes the product with the head a second time and no pass
  // more. It is called while the step runs, on the thread of optim_step() or gradient(). It gets the batch's
  // sequences of each round, those of the first round first, unless none of their targets counts. Which
  // sequences share a round is the plan's to say. Its error is that call's, and the rows are dropped: no step
  // was made, and the state is what it was. Errors: a plan without StepOptions::round_losses, a batch with
  // weights or seeds, and those above.
  Result<Queued> forward_backward(const Batch& batch, RoundLoss loss);
  // One step of the optimizer on what waits: on the gradients of its mean loss, or of what its seeds are
  // derivatives of. Fewer tokens than were planned take as long as all. With seeds StepEvent::loss is the sum
  // of seed times log p. `hyperparameters` are those of the optimizer by name, and "clip_norm", that this
  // step has otherwise than its plan: "beta1". They hold for its update alone, whenever that runs. Errors:
  // other names, values that are not allowed, and weight decay of sgd where it was planned without and
  // updates are deferred. An error that comes from running it, and not from a RoundLoss, leaves the session
  // without a state: what needs one is an error until load_state() brings one.
  Result<StepEvent> optim_step(double learning_rate,
                               const std::map<std::string, double>& hyperparameters = {});
  // forward_backward() and optim_step().
  Result<StepEvent> step(const Batch& batch, double learning_rate);
  // The tokens of the waiting rows; discard() drops the rows.
  int64_t queued_tokens() const;
  void discard();

  // Steps up to the schedule's last one, with evaluations between; those of Schedule::checkpoint_every go to
  // `directory`/step-N, of which the two newest stay, and the link `directory`/latest names the newest. None
  // are made without a directory. When asked to stop it ends after the step in progress, and may be called
  // again to go on. An error while rows wait.
  Status train(const Dataset& data, const Schedule& schedule, const std::filesystem::path& directory = {},
               std::stop_token stop = {});

  // Continues a prompt of one or more tokens, from the weights as they are. When asked to stop it ends with
  // an error (Cancelled). REQUIRES: StepOptions::sample_window.
  Result<Sample> sample(std::span<const int32_t> prompt, const SampleOptions& options = {},
                        std::stop_token stop = {});

  // `samples` texts of every prompt, StepOptions::sample_rows at once: one that ends makes room for the next.
  // Those of a prompt read it once. A text depends on the weights, its prompt and that one's number, its own
  // number, and the options: not on rows and caps. Errors: as of sample(), and a prompt that does not fit the
  // window with SampleOptions::tokens.
  Result<std::vector<std::vector<Sample>>> sample_many(std::span<const std::vector<int32_t>> prompts,
                                                       int64_t samples, const SampleOptions& options = {},
                                                       std::stop_token stop = {});

  // A folder with weights (transformers loads it), optimizer state and what the run is. It appears whole; one
  // that is there already is an error (Io). Rows that wait are no part of it.
  Status save_state(const std::filesystem::path& directory);
  // Goes on from what save_state() wrote; rows that wait are discarded. Refused when results would become
  // others than the saved run's (Invalid, with every difference). Where tensors turn out to be damaged while
  // they are read, the session is without a state, as after optim_step().
  Status load_state(const std::filesystem::path& directory);
  // The same folder without optimizer state: a model, and nothing that a run goes on from.
  Status save_weights(const std::filesystem::path& directory);

  // The model's tensors, row by row, in f32 whatever they are held in. set_weight() rounds to nearest, and
  // sets master weights, too; the optimizer's state stays. Errors: another name (NotFound), another number of
  // values, one that is not finite.
  std::vector<WeightInfo> weights() const;
  Result<std::vector<float>> weight(std::string_view name);
  Status set_weight(std::string_view name, std::span<const float> values);
  // The gradient of a weight: of what waits, as optim_step() finds it before it clips. The first call runs
  // the passes of what waits; nothing more can wait then until optim_step() or discard(). REQUIRES:
  // StepOptions::deferred_updates = true, as an update within the step leaves none.
  Result<std::vector<float>> gradient(std::string_view name);
  Status set_gradient(std::string_view name, std::span<const float> values);
  // The optimizer's state of each trained weight: "m" and "v" of adamw, and "master", where there are master
  // weights, in f32 or of 24 bits, which set_weight() sets. Errors: as those of weights, another slot, a
  // weight that is not trained.
  std::vector<std::string> state_slots() const;
  // Those of one weight, where an optimizer keeps other things of some than of others; none of one that is
  // not trained. An error: another name.
  Result<std::vector<std::string>> state_slots(std::string_view name) const;
  // A slot may have a number for each row or column of a tensor, in their order, as Adafactor's do.
  Result<std::vector<float>> state(std::string_view slot, std::string_view name);
  Status set_state(std::string_view slot, std::string_view name, std::span<const float> values);

  // Goes on under another plan of the same model and options on this machine, such as Plan::under() finds:
  // also while rows wait and updates are pending. No bit of any result depends on it. Everything that
  // outlives a step moves to where the other plan has it, within the memory that the session holds; where
  // that plan needs more, that is taken first. The caps stay those that the session was opened with, and hold
  // all the while. Errors: a plan of another step (Invalid), one that caps or arenas have no room for
  // (DoesNotFit, Device). All is then as it was.
  Result<AdoptionEvent> adopt(const Plan& plan);
  // Asks once for a plan by what ops and links take now. The next step is timed, and the search goes on
  // beside those behind it, on cores that are idle. The optim_step() after its end goes on under the plan if
  // the rest of `steps` gains more than moving takes. The observer is told of that, or why the plan stays.
  Status replan(int64_t steps);

  int64_t steps_done() const;
  MemoryUse memory() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
