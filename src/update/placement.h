// SPDX-License-Identifier: Apache-2.0
// Where in a step the optimizer's work stands: gradients' norms, clipping and updates, as tasks among those
// of the forward and backward passes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/weights.h"
#include "program/program.h"
#include "update/optimizer.h"

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
  };
  std::vector<Part> parts;
  const UpdateRule* rule = nullptr;  // null where there are no parts

  bool has_master() const { return !parts.empty() && parts.front().master.valid(); }
};

// What updates work on beside a weight.
struct UpdateObjects {
  ObjectId args, clip;
  ObjectId sums;  // f64, one slot per weight: the squares of its gradient, summed; invalid: no norm is taken
  int64_t processes = 1;  // that sum their gradients
};

// What the object is called that holds a part, counted from 0, of a weight's state: roles are those of
// UpdateRule::state, and kMasterRole. Checkpoints have these names, too.
constexpr std::string_view kMasterRole = "master";
std::string name_of_state(std::string_view role, const Weight& weight, size_t part);

// Adds the objects of a weight's state.
void add_state(const Weight& weight, const OptimizerConfig& config, const Numerics& numerics,
               Program& program, ParamObjects& objects);

// `passes`, the forward and backward tasks of a step (or none, for a pending update alone), with the
// optimizer's tasks among them. Weights of one layer next to each other in the table are updated together:
//
// - the gradients of replicas, and of processes, are summed where the part of the step ends in which they are
//   complete, and the norm of a gradient is taken then, while it is at hand; a part is all that follows one
//   another of one layer and round;
// - then come clipping and, unless they are deferred, all updates;
// - a deferred update comes before the part with the first use of its weight. Its state may come late: before
//   the part in which the gradient is written again, unless that is the same.
Program place_updates(const Program& passes, const std::vector<Weight>& weights,
                      const std::vector<ParamObjects>& objects, const UpdateObjects& shared,
                      const OptimizerConfig& config, const Numerics& numerics);

}  // namespace sluice::core
