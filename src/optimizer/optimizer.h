// SPDX-License-Identifier: Apache-2.0
// Optimizers as data: each is a module with its hyperparameters, the state it keeps of every weight, and the
// ops that update. Configuration keys, help, programs and checkpoints are made from it.
//
// The operands of an update op have one order: the parameter, its gradient, the state (in the order of
// `state`), the clip scale, the step's arguments. The master weights come last if there are any. Those of the
// op that updates the state alone are the same without parameter and master weights.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "base/numerics.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace sluice::core {

struct Hyperparameter {
  std::string_view name;  // "beta1": the key train.beta1
  double value;           // when it is not given
  double low, high;       // allowed
  std::string_view meaning;
  bool flag = false;  // 0 or 1, and nothing between

  bool takes(double v) const { return flag ? v == 0 || v == 1 : v >= low && v <= high; }
  std::string allowed() const;  // "numbers from 0 to 10"
};

// Consecutive elements of a weight, which one update works on: `rows` of `cols`. Those of a rule that takes
// them one by one are a single row.
struct UpdateExtent {
  int64_t first, rows, cols;
  bool transposed = false;  // its tensor has a row for each of these columns

  int64_t elements() const { return rows * cols; }
};

// The part that one update works on.
struct UpdatePart : UpdateExtent {
  uint64_t key;       // the weight's, for random numbers
  bool decay;         // the weight is under weight decay
  Numerics numerics;  // formats of the parameter, its gradient and its state; master weights, rounding
};

// How many numbers a slot has of an extent: one for each of these.
enum class Each : uint8_t { Element, Row, Column };

// State that an update keeps of a weight.
struct StateSlot {
  std::string_view role;                    // "m"
  bool squares = false;                     // sums squares, and is never negative
  std::optional<NumberFormat> format = {};  // nothing: state_format() of Numerics::state
  Each each = Each::Element;

  int64_t numbers(const UpdateExtent& of) const {
    return each == Each::Element ? of.elements() : each == Each::Row ? of.rows : of.cols;
  }
  NumberFormat format_in(const Numerics& numerics) const;
};

// How weights are updated that are alike.
struct UpdateRule {
  std::span<const StateSlot> state;  // what it keeps beside a weight: "m", "v"
  // The update; without `state`, which it then only reads.
  Op (*update)(const UpdatePart& part, std::span<const double> values, bool state);
  // Makes the state that update() left out. Null, or empty, where that cannot follow later.
  std::optional<Op> (*update_state)(const UpdatePart& part, std::span<const double> values) = nullptr;
  bool (*takes)(const Weight& weight) = nullptr;  // null: every one
  // An update takes a matrix whole. That is a tensor of a checkpoint, or what the model has of one in a
  // weight of its own, such as an expert or the rows of q. Else it takes any elements, which do not know of
  // others.
  bool whole = false;
};

// The formats in which a weight is updated. Vectors, and matrices so small that nothing would be gained, keep
// their state and master weights in f32 where those of others are compact.
constexpr int64_t kLeastCompact = 1024;  // elements
Numerics numerics_of(const Weight& weight, Numerics numerics);

constexpr double kRandomParams = 2.2e6, kGivenParams = 1.35e8;

struct Optimizer {
  std::string_view name;  // the value of train.optimizer
  std::span<const Hyperparameter> hyperparameters;
  std::span<const UpdateRule> rules;  // the first that takes a weight is its own; the last takes all
  // The basis of train.learning_rate = auto (setup/learning_rate.h): rates that suit it, which fall with the
  // model's size to the power of `by_params`.
  struct Rate {
    double rate, by_params;
  };
  Rate random_weights;  // of kRandomParams parameters
  Rate given_weights;   // of kGivenParams parameters
  // Values within their bounds that do not go together. Null: all do.
  Status (*check)(std::span<const double> values) = nullptr;
  // The rate that suits values with which it does not depend on the model; nothing, or null: it does.
  std::optional<double> (*own_rate)(std::span<const double> values, bool given_weights) = nullptr;

  const UpdateRule& rule_of(const Weight& weight) const;
};

// All of them; the first is the default.
std::span<const Optimizer* const> optimizers();
// Null: none is called so.
const Optimizer* find_optimizer(std::string_view name);

constexpr double kMostClipNorm = 1e9, kMostLearningRate = 10;

// A run's settings of its optimizer, and the place of updates in the step.
struct OptimizerConfig {
  const Optimizer* optimizer = optimizers().front();
  std::vector<double> values = defaults_of(*optimizer);  // of its hyperparameters, in their order
  float clip_norm = 1.0f;                                // 0: no clipping
  // A weight's state is held in parts of at most this many elements, where its rule does not take it whole.
  int64_t part_elements = 16 << 20;
  // The update of step k runs inside step k+1, each weight's just before its first use, where its traffic
  // hides under the forward pass. Same arithmetic, same results; read weights after a flush.
  bool deferred = false;
  // With deferred: the forward pass makes only the new weights. The state follows in round 0's backward pass,
  // each before its gradient is overwritten, so that the forward pass has nothing of it to store. Same
  // results.
  bool late_moments = false;
  // The place of this process among those that share the state. Each updates its parts and gives the others
  // the new weights (owners_of() in optimizer/placement.h). Same results.
  struct Sharded {
    int64_t processes = 1, process = 0;
    bool is() const { return processes > 1; }
  } sharded;
  // For comparison with programs that exchange in buckets: sums over processes wait until gradients of so
  // many bytes are complete, and then follow one another. 0: each part of the step has its own. Same results.
  int64_t bucket_bytes = 0;

  static std::vector<double> defaults_of(const Optimizer& optimizer);
};

// The parts of a weight that its updates take, in order, together all of it that is trained. `numerics` are
// the weight's own.
std::vector<UpdateExtent> extents_of(const Weight& weight, const OptimizerConfig& config,
                                     const Numerics& numerics);

}  // namespace sluice::core
