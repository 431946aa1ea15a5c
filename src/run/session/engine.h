// SPDX-License-Identifier: Apache-2.0
// A model in memory under its plans: its state, and its steps on batches that the caller brings.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/store.h"
#include "checkpoint/tensors.h"
#include "checkpoint/weights.h"
#include "ops/clip_norm.h"
#include "ops/step_args.h"
#include "optimizer/values.h"
#include "run/loaded/evaluation.h"
#include "run/loaded/loaded.h"
#include "run/loaded/text_pass.h"
#include "run/prepare/prepare.h"
#include "run/session/shared_state.h"
#include "run/session/step_costs.h"
#include "sluice/observer.h"

namespace sluice::core {

struct StepResult {
  double loss = 0;  // of the whole step, with its weights and scale; NaN: there are no targets
  double gradient_norm = 0;
  double learning_rate = 0;
  double ns = 0;         // wall clock
  double before_ns = 0;  // of evaluation passes that the step's loss needed first
  int64_t tokens = 0;
  int64_t targets = 0;  // tokens that are learnt
  int64_t hits = 0;     // of them, those that no token was likelier than
  // Why no update was made of the step, such as "the gradient of lm_head.weight is not finite"; empty: one
  // was. Weights and state are then what they were before.
  std::string skipped;
  std::optional<sluice::ExpertLoad> router;  // none: the model has no experts
  std::vector<sluice::NamedValue> values;    // of answers that are compared
};

// The scale of the sum of losses: weights that are seeds of a loss are scaled already.
enum class LossScale : uint8_t { PerTarget, One };

// Asked in the middle of each round of a step, on the thread that makes it, when the log-probabilities of the
// round's targets are there. It changes their weights, which are the rows' before. Where the plan has
// LossForm::top, those of the other tokens follow in both. `first`: tokens of the step before these.
using AskWeights =
    std::function<Status(int64_t first, std::span<const float> log_probs, std::span<float> weights)>;

struct StepLoss {
  LossScale scale = LossScale::PerTarget;
  AskWeights ask = {};  // empty: nobody is asked. REQUIRES: LossForm::asked
};

MemoryUse in_public(const MemoryReport& memory);

// Trained weights as they were at a time, in memory, or else in a file.
struct KeptWeights {
  std::unique_ptr<std::byte[]> bytes;
  std::filesystem::path file;  // empty: in memory
};

// Host memory for a copy, where `held` bytes are in use, or will be.
int64_t room_for_copy(const Prepared& p, int64_t held, int64_t available);

class Engine {
 public:
  // Takes the memory and makes the state; loads config.model.weights over it if there are any. Borrows
  // `prepared` and `observer`.
  static Result<std::unique_ptr<Engine>> open(const Prepared& prepared, Observer& observer);

  // Checkpoints have these texts in place of the model's files of their names.
  void carry(const std::map<std::string, std::string>& texts) { files_->replace(texts); }

  // One optimizer step; with `timeline`, when every action ran. An error leaves no state (see load()), but
  // for one of whoever was asked for weights, who is not asked again. No step was made then, and the state is
  // what it was. `values` are those of its update, whenever that runs; null: those that were planned.
  // REQUIRES: shape.tokens() tokens; check_values(*values).
  Result<StepResult> step(const Rows& rows, double learning_rate, std::vector<Interval>* timeline = nullptr,
                          const StepLoss& loss = {}, const UpdateValues* values = nullptr);
  // The same in two: the passes of these rows, after which their gradients are at home, and the update of
  // what they left, which may be called off. Between the two nothing is loaded and no other step made; what
  // runs between steps may. REQUIRES: updates are deferred; passes were made.
  Status make_passes(const Rows& rows, const StepLoss& loss, std::vector<Interval>* timeline = nullptr);
  Result<StepResult> decide_update(double learning_rate, const UpdateValues& values);
  void call_off_update() { passed_.reset(); }
  bool has_passed() const { return passed_.has_value(); }  // passes whose update is not decided
  // Whether the plans can make an update with these values: an error names the one that they cannot have.
  Status check_values(const UpdateValues& values) const;
  // log p of the targets of the last step that was made here, 0 where none counts. Empty: none was since the
  // state was loaded, or LossForm::log_probs was not planned.
  std::span<const float> log_probs() const { return log_probs_; }
  // The losses without a step; they hold until the next call. REQUIRES: evaluation was planned; the rows are
  // those of a pass of evaluation_of().
  Result<const TokenLosses*> evaluate(const Rows& rows);
  // The program for the next pass where so many sequences are left. REQUIRES: evaluation was planned.
  const Stage& evaluation_of(int64_t sequences) const;
  // The model as it is, with empty caches, for texts that are sampled: whatever else the engine does ends
  // them. REQUIRES: sampling was planned.
  Result<CachedTextModel*> begin_texts();

  // Has the next step note what runs on the device, if run.trace_kernels says so; where that is not possible,
  // a warning says why.
  void note_activities();
  // Its records; a second call has none.
  std::vector<DeviceActivity> activities();

  // The manifest says what the run is beside its plans; load() refuses a checkpoint with another one.
  // save() makes the directory, which must not be there and of which the observer is told, or the step's
  // checkpoint in the store.
  Status save(const Manifest& manifest, const std::filesystem::path& dir);
  Status save(const Manifest& manifest, CheckpointStore& store);
  // `other` as load_checkpoint() takes it. A checkpoint that is refused for what it says leaves the state as
  // it was. One whose tensors cannot be read leaves none: whatever needs one is an error until a load
  // succeeds.
  Status load(const Manifest& manifest, const std::filesystem::path& dir, const OtherState& other = {});
  // A checkpoint of now that can be written while steps go on; nothing if it takes more than `room_bytes`, or
  // other processes have a part of it.
  Result<std::optional<CheckpointCopy>> copy(const Manifest& manifest, int64_t room_bytes);
  // The same of the weights alone: save_weights() fills an empty directory.
  Status save_weights(const Manifest& manifest, const std::filesystem::path& dir);
  Result<std::optional<CheckpointCopy>> copy_weights(const Manifest& manifest, int64_t room_bytes);

  // Where state is sharded, process 0 asks the others for theirs while it saves: they wait here until it
  // comes here, too. All call it between two steps, and after the last save; otherwise it does nothing.
  Status meet();

  // Has the weights that a run of this configuration begins with, also where it goes on from a checkpoint.
  // REQUIRES: no step was made, and none was loaded.
  Status load_beginning();

  // The weights that are trained, kept and back: in memory where the host has room for them, else in the
  // file. What reads others meanwhile is between the two. take_trained(): an error leaves no state.
  Result<KeptWeights> keep_trained(const std::filesystem::path& file);
  Status take_trained(const KeptWeights& kept);

  // Tensors by the names that a folder has for them, as checkpoint/tensors.h says. What is checked needs no
  // passes.
  Status check_tensor(TensorKind kind, std::string_view name) const;
  Status check_write(TensorKind kind, std::string_view name, std::span<const float> values) const;
  // REQUIRES: for gradients, passes were made; set_tensor(): check_write() allows it.
  Result<std::vector<float>> tensor(TensorKind kind, std::string_view name);
  Status set_tensor(TensorKind kind, std::string_view name, std::span<const float> values);

  // Goes on under other plans of the same programs, as Loaded::adopt() does; the observer is told, and why.
  // A pending update stays pending, and passes keep what they left for one that is not decided. `profile`:
  // what the plans were searched for with. `before_s`: a step under the plan so far by the same costs as the
  // new one's; nothing: as that plan predicts it.
  Result<sluice::AdoptionEvent> adopt(std::shared_ptr<const Stages> stages, const Profile& profile,
                                      std::string why, std::optional<double> before_s = {});

  // Has steps from here on teach what ops and links take. A second call changes nothing.
  StepCosts& learn_costs();
  // The next step's time, as its plan predicts it, or by what was learnt.
  double predicted_s() const { return costs_ ? costs_->predicted_s() : stages().main.plan.makespan_ns / 1e9; }
  // As StepCosts has it; empty: nothing was learnt.
  std::string differs() const { return costs_ ? costs_->differs() : std::string(); }

  // The predicted time of such a change, as Loaded has it.
  Result<double> seconds_to(const Stages& stages, const Profile& profile) const {
    return loaded_->seconds_to(stages, profile);
  }
  const BytesByTier& arena_bytes() const { return loaded_->arena_bytes(); }

  // The checksum of all weights as they lie in memory.
  Result<Checksum> checksum_of_weights() const;

  // Results of evaluations: checkpoints have it, and load() sets it. Nothing here reads it.
  HeldoutRecord& heldout() { return heldout_; }

  int64_t steps_done() const { return steps_done_; }
  const StartUp& start_up() const { return start_up_; }
  const MemoryReport& memory() { return loaded_->memory(); }
  // An error when a cap is exceeded. Tells, too, what the backend has to say.
  Status check_caps();
  Executor& training() { return loaded_->main(); }
  // The sentence of slow_links() on a timed training step. Nothing where links share cores with compute,
  // which slows both.
  std::string slow_links(std::span<const Interval> timeline) const;
  // As the run began; but for its plans, which are stages()'.
  const Prepared& prepared() const { return p_; }
  // The number of this process among those of its job.
  int64_t rank() const {
    const Network* const network = p_.machine.options.network;
    return network == nullptr ? 0 : network->rank();
  }
  const Stages& stages() const { return loaded_->stages(); }

 private:
  Engine(const Prepared& prepared, Observer& observer)
      : p_(prepared), observer_(observer), values_(values_of(prepared.optimizer)) {}
  Status start();
  // Passes a failure on after which there is no state.
  Status lost(std::string_view by, Status status);
  Status fill_state();
  Status apply_pending();
  PartReader reader() const { return shared_ ? shared_->reader() : reader_of(loaded_->main()); }
  // Plain values of every process, in the order of ranks.
  template <class T>
  Result<std::vector<T>> of_all(std::span<const T> own) const;
  // Runs the training program, with the pending update of the step before if there is one.
  Status pass(const Rows& rows, double learning_rate, const UpdateValues& values, const StepLoss& loss,
              std::vector<Interval>* timeline);
  // Asks for the weights of every round. An error goes into `refused`, and makes the step's gradients no
  // numbers, for which no update is made.
  std::vector<Amendment> asking(const AskWeights& ask, Status& refused) const;
  // Counts the step that passed, and notes what its update needs where that comes later.
  StepResult settle(double learning_rate, const UpdateValues& values);
  Status clip_again(float max_norm);
  Status read_log_probs();
  Result<std::optional<sluice::ExpertLoad>> read_expert_load() const;
  // A program beside training, with its executor. REQUIRES: it was planned.
  struct Beside {
    const BuiltProgram& model;
    Executor& executor;
  };
  Beside beside(std::string_view name) const;
  // Has an executor update with these values, and clip the gradients with that norm.
  void set_values(Executor& executor, const BuiltProgram& model, const UpdateValues& values,
                  float clip_norm) const;
  Status read_embedding(std::span<const int32_t> tokens, std::vector<std::byte>& rows) const;
  StepArgs args_for_pending() const;
  StepArgs args_for_update(int64_t step, int64_t updates, double learning_rate) const;
  CheckpointContent content(const Manifest& manifest) const;
  // The writer of state in parts that processes write themselves; null: this one writes all of it.
  StateWriter state_writer() const;
  Result<std::optional<CheckpointCopy>> copy(CheckpointContent what, int64_t room_bytes);

  const Prepared& p_;
  Observer& observer_;
  std::optional<Loaded> loaded_;         // from start() on
  std::unique_ptr<SharedState> shared_;  // null: this process has all of the state
  Status state_;                         // an error: there is none
  int64_t steps_done_ = 0;
  int64_t updates_ = 0;       // of them, those that had one; that of the last step may be pending
  bool pending_ = false;      // the last step's update has not been applied
  double learning_rate_ = 0;  // of the last step
  UpdateValues values_;       // of the last step
  // A step whose rows ran, and that does not count yet.
  struct Passed {
    StepResult result;
    Clip clip;
    bool changed = false;  // its gradients, since
  };
  std::optional<Passed> passed_;
  StartUp start_up_;
  std::optional<BaseValues> base_values_;  // of a base that was loaded
  std::shared_ptr<ModelFiles> files_;      // for checkpoints
  HeldoutRecord heldout_;
  TokenLosses token_losses_;
  std::optional<TextPasses> texts_;  // of sampling
  std::vector<std::byte> staging_;
  std::vector<float> log_probs_;
  std::optional<StepCosts> costs_;  // none: nobody wants them
};

}  // namespace sluice::core
