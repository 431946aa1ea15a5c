// SPDX-License-Identifier: Apache-2.0
// What happens while something takes seconds or days, told to whoever wants to know. The library prints
// nothing: a console, a log of metrics or a live page are observers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// How far something is that takes longer than a moment.
struct Progress {
  enum class Unit : uint8_t {
    Items,
    Bytes,
    Candidates,  // of a search, which may end before it has tried `total`
  };
  std::string_view what;  // "measuring op costs"; valid during the call
  int64_t done = 0;
  int64_t total = 0;  // 0: unknown
  Unit unit = Unit::Items;
  double best_tokens_per_s = 0;  // of the fastest candidate so far, as predicted; 0: none
};

// Bytes in use, as driver and operating system say, and the most seen.
struct MemoryUse {
  int64_t device_bytes = 0, host_bytes = 0;
  int64_t peak_device_bytes = 0, peak_host_bytes = 0;
};

// Loads of a model's routers in a step, by the choices that fell on each expert.
struct ExpertLoad {
  // The standard deviation of the choices of a layer's experts over their mean; 0: all have as many. The mean
  // of the layers, and the largest.
  double variation = 0, worst_variation = 0;
  int worst_layer = 0;
  double busiest = 0;  // the most choices that any expert had, over the mean of its layer
  double entropy = 0;  // of a token's softmax scores, in the mean, nats
  // Experts times the sum over them of their share of choices times their mean score, over all layers and
  // tokens of the step. The least is the number of choices of a token. Of a step of one round it is what
  // router_aux_loss_coef of a model is taken times.
  double balance = 0;
  double z = 0;  // log(sum of exp(logits))^2 of a token and layer, in the mean
  struct Layer {
    int layer = 0;
    double variation = 0, entropy = 0;
    std::vector<double> loads;  // of each expert, the choices that fell on it over their mean
  };
  std::vector<Layer> layers;  // those that have experts
};

// A number of an objective, such as "rewards/margins".
struct NamedValue {
  std::string name;
  double value = 0;
};

struct StepEvent {
  int64_t step = 0;              // done, counted from 1 over the whole run
  double loss = 0;               // mean over targets, nats; NaN: there are none
  double gradient_norm = 0;      // before clipping
  double learning_rate = 0;      // of this step's update
  double seconds = 0;            // wall clock
  double predicted_seconds = 0;  // before the step was made, by its plan and what steps until then taught
  int64_t tokens = 0;
  MemoryUse memory;
  // Why no update was made of this step, such as "the gradient of lm_head.weight is not finite"; empty: one
  // was. Weights and optimizer state are then what they were before.
  std::string skipped;
  int64_t learnt_tokens = 0;  // of `tokens`, those that have a target
  double epoch = 0;           // how often the data was gone through by then; 0: it has no end
  double accuracy = 0;  // of the learnt tokens, the share that no other token was likelier than; NaN: none
  std::optional<ExpertLoad> router;  // none: the model has no experts
  // Rewards and what goes with them, in a run that compares answers; the loss is that of its objective then.
  std::vector<NamedValue> values;
  double planned_seconds = 0;  // by the plan alone
  // In a few words, what takes another time than the plan was made with: "ops +4 %, loads 18.2 of 25.1 GB/s".
  // Empty: nothing, or that is not known.
  std::string differs;
};

struct EvaluationEvent {
  int64_t step = 0;
  double loss = 0;  // mean over held-out targets, nats
  int64_t rows = 0, targets = 0;
  double accuracy = 0;                   // of the targets, the share that no other token was likelier than
  std::optional<double> standard_error;  // of the loss; none: of one row
  double seconds = 0;
  // The lowest loss so far, this one included, and by how much this one is above it; `rise_error` is the
  // standard error of that, row by row. None: it cannot be told.
  int64_t lowest_step = 0;
  double lowest_loss = 0, rise = 0;
  std::optional<double> rise_error;
  struct Path {
    std::string name;
    double loss = 0;
    int64_t targets = 0;
  };
  std::vector<Path> paths;  // what people named, where they named several
  // The same of a run that compares answers. `targets` are its comparisons then, and `accuracy` is the share
  // of pairs whose chosen answer has the higher reward.
  std::vector<NamedValue> values;

  // Whether it is above the lowest by more than chance.
  bool rises() const { return rise_error && rise > *rise_error; }
};

struct SaveEvent {
  int64_t step = 0;
  std::filesystem::path directory;
  double seconds = 0;         // until it was whole; steps may have gone on meanwhile
  int64_t bytes = 0;          // of its tensors
  double waited_seconds = 0;  // in which the run waited, and by which steps beside it took longer
  double share_of_run = 0;    // of all of the run's time so far, what its saves took so
  double next_seconds = 0;    // until one is due by time; 0: none will be
  bool delayed = false;       // that is later than asked for: saving would take too much of the run
  bool best = false;          // it is the weights alone, of the lowest held-out loss so far
};

// Other plans of the same programs from here on; no bit of any result depends on that.
struct AdoptionEvent {
  int64_t step = 0;                              // done by then
  double before_seconds = 0, after_seconds = 0;  // a step as the plans predict it
  int64_t moved_bytes = 0;                       // between the places that both have for what outlives a step
  double predicted_seconds = 0;                  // for moving
  double seconds = 0;                            // that it took
  std::string why;                               // "asked for"
};

// Derive from it and override what is of interest. Called on the thread that called the library; what a call
// takes is time of the run.
class Observer {
 public:
  virtual ~Observer() = default;

  virtual void progress(const Progress&) {}
  // Something that does not keep the work from going on, in one sentence.
  virtual void warned(const std::string&) {}
  virtual void stepped(const StepEvent&) {}
  virtual void evaluated(const EvaluationEvent&) {}
  virtual void saved(const SaveEvent&) {}
  virtual void adopted(const AdoptionEvent&) {}
};

// One that does nothing.
inline Observer& silent_observer() {
  static Observer observer;
  return observer;
}

}  // namespace sluice
