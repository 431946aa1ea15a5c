// SPDX-License-Identifier: Apache-2.0
// How a step runs under caps on memory: searched, proved, and explained before any memory is taken.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/machine.h"
#include "sluice/model.h"
#include "sluice/observer.h"
#include "sluice/status.h"

namespace sluice {

namespace core {
struct Prepared;
}

// I8 is a format of optimizer state alone: a byte an element, and a scale for every 32.
enum class Format : uint8_t { Auto, F32, BF16, I8 };

// Master weights keep the precision that bf16 weights lack: copies in F32, or I8, a byte beside each that
// makes 24 bits of it.
enum class MasterWeights : uint8_t { Auto, Off, F32, I8 };

// Most bytes that may be in use; nothing: what a preset's card has, and no cap elsewhere. More than the
// machine has is an error.
struct Caps {
  std::optional<int64_t> device_bytes, host_bytes;
};

// Low-rank adapters (LoRA) that are trained in place of the weights, as the keys of [adapter] say
// (docs/adapters.md).
struct Adapter {
  int64_t rank = 16;
  std::optional<double> alpha;                          // nothing: twice the rank
  std::vector<std::string> targets = {}, exclude = {};  // patterns; no targets: every product of a layer
  bool rslora = false;
  std::map<std::string, double> ranks = {}, alphas = {};  // of some, by pattern
  std::vector<std::string> modules_to_save = {};          // weights that are trained beside them
  // Ids of tokens, or texts of added ones, whose rows of the embedding, and of a head that is not the
  // embedding, are trained, too.
  std::vector<std::string> tokens = {}, head_tokens = {};
  bool decay = false;  // weight decay reaches them
  double dropout = 0;  // of what they read, in training
  bool dora = false;   // magnitudes of a product's rows are trained, too
};

// The settings of an optimizer step. Sizes are in tokens.
struct StepOptions {
  int64_t seq_len = 1024;
  int64_t tokens_per_step = 16384;  // a multiple of seq_len
  // Auto: what is fast on the machine, see docs/caps.md.
  Format compute = Format::Auto;                       // of weights and activations
  Format gradients = Format::Auto;                     // in which they accumulate
  Format state = Format::Auto;                         // of the optimizer
  MasterWeights master_weights = MasterWeights::Auto;  // beside bf16 weights
  std::optional<bool> stochastic;                      // rounding of bf16 weights and state
  std::optional<bool> deferred_updates;                // just before a weight's next use
  std::vector<std::string> freeze;                // names of tensors that stay, as train.freeze takes them
  std::optional<Adapter> adapter;                 // nothing: the weights are trained
  std::string optimizer = "adamw";                // or "sgd", "lion"
  std::map<std::string, double> hyperparameters;  // of the optimizer: "beta1"; the others keep their defaults
  double clip_norm = 1;                           // of the gradient, over all weights; 0: none
  double router_z_loss = 0;  // how much the z-loss of routers is trained beside the loss; see docs/experts.md
  uint64_t seed = 1;         // of random weights and rounding
  // Keys of a step as sluice keys lists them, each "train.router_z_loss=0.001". They go before the fields.
  std::vector<std::string> settings = {};
  bool packed = false;             // several documents side by side in a sequence
  bool weighted = false;           // batches of steps have weights or seeds
  bool log_probabilities = false;  // steps tell those of their targets (Queued)
  bool round_losses = false;       // losses of one's own are called round by round (RoundLoss)
  int64_t top_tokens = 0;          // others beside each target that such a loss reads (Batch::top_tokens)
  bool evaluate = true;            // Session::forward() and evaluate() will be called
  int64_t sample_window = 0;       // tokens that Session::sample() looks back at most; 0: it is not called
  int64_t sample_rows = 1;         // texts that Session::sample_many() makes at once, each with a cache
};

// A value: copies share what they hold and never change.
class Plan {
 public:
  double step_seconds() const;  // predicted
  double tokens_per_second() const;
  double mfu() const;  // model FLOPs over those of the machine's fastest product; 0: unknown
  // The arenas that a Session takes.
  int64_t device_bytes() const;
  int64_t host_bytes() const;
  int64_t seq_len() const;
  int64_t tokens_per_step() const;
  bool packed() const;
  // Notices on its model, caps and steps, a sentence each. text() has them, too.
  std::vector<std::string> notices() const;

  // The fastest plan of the same programs under other caps, which a Session of this one can adopt(). Shape
  // and formats stay what they are here, whatever these caps would choose. A cap that is not given stays,
  // too. Errors: as those of plan().
  Result<Plan> under(const Caps& caps, std::stop_token stop = {}) const;

  std::string text() const;  // a page for people
  std::string json() const;  // the same in numbers; what diff() reads
  std::string html() const;  // one page that opens offline
  // The files of a run directory: config.toml, plan.txt, plan.json, predicted.json and timeline.svg.
  Status save(const std::filesystem::path& directory) const;

  // The changes between two plans, each as json() gives it, in words.
  static Result<std::string> diff(std::string_view before_json, std::string_view after_json);

  const std::shared_ptr<const core::Prepared>& prepared() const { return prepared_; }

 private:
  explicit Plan(std::shared_ptr<const core::Prepared> prepared) : prepared_(std::move(prepared)) {}
  friend Result<Plan> plan(const Model&, const StepOptions&, const Caps&, const Machine&, Observer&,
                           std::stop_token);

  std::shared_ptr<const core::Prepared> prepared_;
};

// Searches for the fastest plan that stays under the caps. For a preset of a machine it reads and writes
// nothing. On this machine it first measures what the cache does not know, which takes memory within the caps
// for a while.
//
// Errors: options that are not allowed (Invalid), caps under which nothing works (DoesNotFit, with tier,
// given and, if known, need), hardware that fails (Device). When asked to stop it ends soon, and always with
// an error (Cancelled): nothing is decided by when that was.
Result<Plan> plan(const Model& model, const StepOptions& options, const Caps& caps, const Machine& machine,
                  Observer& observer = silent_observer(), std::stop_token stop = {});

}  // namespace sluice
