// SPDX-License-Identifier: Apache-2.0
// Where in a step the optimizer's work stands: gradients' norms, clipping and updates, as tasks among those
// of the forward and backward passes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/weights.h"
#include "optimizer/optimizer.h"
#include "program/program.h"

namespace sluice::core {

// The objects of one weight.
struct ParamObjects {
  ObjectId param;
  ObjectId grad;  // invalid: it is not trained, and has no parts
  std::vector<ObjectId>
      replicas;  // the gradients of each, where there are several, of which `grad` is the sum

  ObjectId of_replica(size_t i) const { return replicas.empty() ? grad : replicas[i]; }

  // The state of consecutive elements.
  struct Part : UpdateExtent {
    std::vector<ObjectId> state;  // by slot of the weight's rule
    ObjectId master;              // invalid: none
    size_t number = 0;            // among the weight's parts
  };
  std::vector<Part> parts;  // those whose state this process has
  // The process that has each part's state, in order. Empty: state is not sharded.
  std::vector<int64_t> owners;
  MasterWeights masters = MasterWeights::Off;  // of each part, whoever has it
  const UpdateRule* rule = nullptr;            // null where there are no parts

  bool has_master() const { return !parts.empty() && parts.front().master.valid(); }
};

// Objects of updates beside a weight.
struct UpdateObjects {
  ObjectId args, clip;
  ObjectId sums;  // f64, by slot of norm_slots(): the squares of gradients, summed; invalid: no norm is taken
  int64_t processes = 1;  // that sum their gradients
};

// The name of the object that holds a part, counted from 0, of a weight's state: roles are those of
// UpdateRule::state, and kMasterRole. Checkpoints have these names, too.
constexpr std::string_view kMasterRole = "master";
std::string name_of_state(std::string_view role, const Weight& weight, size_t part);

// Where state is sharded: by weight, whose each part is; of a weight that is not trained none. Each goes to
// the process that has the fewest elements of those before.
std::vector<std::vector<int64_t>> owners_of(const std::vector<Weight>& weights, const OptimizerConfig& config,
                                            const Numerics& numerics);

// A stretch of a weight's gradient, whose norm has a slot of its own.
struct NormSlot {
  size_t weight;
  Weight::Stretch elements;
};
// By slot, in the order of weights.
std::vector<NormSlot> norm_slots(const std::vector<Weight>& weights);

// Adds the objects of a weight's state: of its parts those that are this process's.
void add_state(const Weight& weight, const OptimizerConfig& config, const Numerics& numerics,
               Program& program, ParamObjects& objects, std::vector<int64_t> owners = {});

// `passes`, the forward and backward tasks of a step (or none, for a pending update alone), with the
// optimizer's tasks among them. Weights of one layer next to each other in the table are updated together:
//
// - the gradients of replicas, and of processes, are summed where the part of the step ends in which they are
//   complete, and the norm of a gradient is taken then, while it is at hand; a part is all that follows one
//   another of one layer and round;
// - then come clipping and, unless they are deferred, all updates;
// - of sharded state a process updates its own parts of some weights, and then all get all of them;
// - a deferred update comes before the part with the first use of its weight. Its state may come late: before
//   the part in which the gradient is written again, unless that is the same.
Program place_updates(const Program& passes, const std::vector<Weight>& weights,
                      const std::vector<ParamObjects>& objects, const UpdateObjects& shared,
                      const OptimizerConfig& config, const Numerics& numerics);

}  // namespace sluice::core
