// SPDX-License-Identifier: Apache-2.0
// Rows of a caller on their way into a step: they wait on the host until it is made of all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "run/session/engine.h"
#include "sluice/dataset.h"
#include "sluice/session.h"

namespace sluice::core {

// Rows that wait, and what becomes of them.
struct QueuedRows {
  enum class State : uint8_t { Waits, Ran, Gone };
  int64_t first, count;  // tokens, in the step's rows
  State state = State::Waits;
  std::string gone = {};  // why
  std::vector<float> log_probs = {};
};

// A caller's batch of whole sequences of the step's length, checked.
Status check_sequences(const sluice::Batch& batch, const Prepared& prepared);
// Puts it into rows of a layout, which need not have every column. REQUIRES: check_sequences(); as many
// tokens.
Status take(const sluice::Batch& batch, const Prepared& prepared, RowsView rows);
// From token `begin` on, sequences without targets.
void fill_missing(Rows& rows, int64_t begin, int64_t seq_len);

class StepQueue {
 public:
  explicit StepQueue(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  ~StepQueue() { drop("the session ended before they were learnt"); }
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;

  // Tokens that wait.
  int64_t tokens() const { return tokens_; }
  // Checks a batch and puts it behind what waits. With a loss, its seeds are asked for while the step runs.
  Result<std::shared_ptr<QueuedRows>> add(const sluice::Batch& batch, sluice::RoundLoss loss = {});
  // Ends the queue; what waited is gone for that reason.
  void drop(const std::string& why);
  // Makes the gradients of what waits, if they are not there; errors name the call.
  Status make_gradients(std::string_view call);
  // One step on what waits. REQUIRES: something does.
  Result<StepResult> step(double learning_rate, const UpdateValues& values);

 private:
  // Waiting rows whose seeds a loss says.
  struct Asked {
    int64_t first, count;  // tokens, in the step's rows
    sluice::RoundLoss loss;
  };

  // Notes that the passes of the waiting rows ran, and their log-probabilities.
  void resolve();
  StepLoss loss() const;
  // Asks one loss for the weights of its rows among those of a round.
  Status ask(const Asked& one, int64_t first, std::span<const float> log_probs,
             std::span<float> weights) const;
  // Makes a step's rows of what waits.
  const Rows& rows();

  const std::shared_ptr<Engine> engine_;
  Rows step_;
  int64_t tokens_ = 0;
  bool seeded_ = false;
  std::vector<std::weak_ptr<QueuedRows>> waiting_;
  std::vector<Asked> asked_;
};

}  // namespace sluice::core
