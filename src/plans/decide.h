// SPDX-License-Identifier: Apache-2.0
// How a configuration, a machine and a model become plans. What that takes from the host it runs on, it asks
// for: as it is here, it opens no file, and starts no thread where it is told to use one.
#pragma once

#include <optional>
#include <stop_token>

#include "base/parallel.h"
#include "planner/shape.h"
#include "plans/prepared.h"

namespace sluice::core {

// Where planning takes place. As it stands nothing is kept from one search to the next, and a machine's costs
// are what they are. Called from one thread.
class Surroundings {
 public:
  explicit Surroundings(int threads = search_threads()) : threads_(threads) {}
  virtual ~Surroundings() = default;

  // How many threads search, where chunks have so many tokens; 0: that is chosen. An error says that there is
  // no memory for the search.
  virtual Result<int> threads(const Prepared&, int64_t /*chunk_tokens*/) { return threads_; }
  // A shape, as choose_shape() gives it. `held_bytes` as in StageRequest.
  virtual Result<ShapeChoice> shape(const ShapeSubject& subject, const ShapeRequest& request,
                                    const Profile& profile, const BytesByTier& /*held_bytes*/) {
    return choose_shape(subject, request, profile);
  }
  // Between the shape and its plans: gives the machine the costs of the step's ops, if it can.
  virtual Status measure(Prepared&, const StageRequest&) { return {}; }
  // Plans, as make_stages() gives them.
  virtual Result<Stages> stages(const StageRequest& request, const Profile& profile) {
    return make_stages(request, profile);
  }
  // The search for plans of a shape begins.
  virtual void planning() {}

 private:
  int threads_;
};

// Copies of the model that share the rows of a step.
struct Replicas {
  int64_t here = 1;  // of each process
  int64_t processes = 1;

  int64_t all() const { return here * processes; }
};
// As run.replicas says. Errors name it, and what would divide.
Result<Replicas> replicas_of(const RunConfig& config, int processes);

// A step and what it is planned under, but for its shape, which is asked for.
struct StepQuestion {
  StageRequest stages;
  ShapeRequest shape;  // of a replica
  Replicas replicas;
};
// Fills in all that is decided before the shape; the question that remains. `auto_master` as in
// resolve_numerics().
Result<StepQuestion> question_of(Prepared& prepared, const PlanNeeds& needs,
                                 std::optional<MasterWeights> auto_master = {});
// The subject of the choice of its shape. Borrows both, and the profile.
ShapeSubject subject_of(const Prepared& prepared, const StepQuestion& question);

// The start of decide(): the configuration, notices of the model, and the machine.
Prepared undecided(RunConfig config, Machine machine, const PlanNeeds& needs);
// Fills in the rest: the shape that the caps leave to choose, and plans. Estimates chose the shape, on a
// machine at hand with costs that were not measured yet: one that has no plan in full leads to the next.
// Asked to stop, it ends when what is measured has been, or in the midst of a search: the error is Cancelled.
// `passes` as in StageRequest.
Status decide(Prepared& prepared, const PlanNeeds& needs, Surroundings& surroundings,
              PassRunner* passes = nullptr, const std::stop_token& stop = {});
// Whether decide() finds plans, without the search for the fastest. A refusal names the tier and nothing
// else.
Status check_shape(Prepared prepared, const PlanNeeds& needs, Surroundings& surroundings);

}  // namespace sluice::core
