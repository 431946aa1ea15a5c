// SPDX-License-Identifier: Apache-2.0
// How a configuration, a machine and a model become plans. What that takes from the host it runs on, it asks
// for. As it is here, it opens no file, and starts no thread where it is told to use one.
#pragma once

#include <optional>

#include "setup/prepared.h"
#include "setup/settle.h"

namespace sluice::core {

// Whoever plans for others: as it stands nothing is kept from one search to the next, and a machine's costs
// are what they are. Called from one thread.
class PlanHost {
 public:
  virtual ~PlanHost() = default;

  // How many threads search, of those that may, where chunks have so many tokens; 0: that is chosen. An error
  // says that there is no memory for the search.
  virtual Result<int> threads(const Prepared&, int64_t /*chunk_tokens*/, int most) { return most; }
  // A shape, as choose_shape() gives it.
  virtual Result<ShapeChoice> shape(const ShapeSubject& subject, const Question& question,
                                    const Profile& profile) {
    return choose_shape(subject, question.cut, question.caps, question, profile);
  }
  // Bytes per second at which the files of the model's folder are read.
  virtual Result<double> disk_rate(const Prepared& p) {
    const double rate = p.machine.card ? p.machine.card->disk_rate : 0;
    return rate > 0 ? rate : kDiskRate;
  }
  // Between the shape and its plans: gives the machine the costs of the step's ops, if it can.
  virtual Status measure(Prepared&, const Question&) { return {}; }
  // Plans, as make_stages() gives them.
  virtual Result<Stages> stages(const Question& question, const Profile& profile) {
    return make_stages(question, profile);
  }
  // The search for plans of a shape begins.
  virtual void planning() {}
};

// As run.replicas says. Errors name it, and what would divide.
Result<Replicas> replicas_of(const RunConfig& config, int processes);

// Fills in all that is decided before the shape, and returns the question that remains. `auto_master` as in
// resolve_numerics().
Result<Question> question_of(Prepared& prepared, std::optional<MasterWeights> auto_master = {});

// The start of decide(): the configuration, the step as it is wanted, and the machine. Notices say what the
// model's author should know, by the data's longest document; 0: unknown.
Result<Prepared> undecided(RunConfig config, Machine machine, StepSpec wanted, RunFacts facts = {},
                           int64_t longest_document = 0);
// Fills in the rest: number formats, the shape that the caps leave to choose, and plans. A quick one cuts the
// step by a rule. Estimates chose the shape, on a machine at hand with costs that were not measured yet: one
// that has no plan in full leads to the next. Asked to stop, it ends when what is measured has been, or in
// the midst of a search: the error is Cancelled.
Status decide(Prepared& prepared, const Effort& effort, PlanHost& host);
// Whether decide() finds plans, without the search for the fastest. A refusal names the tier and nothing
// else.
Status check_shape(Prepared prepared, PlanHost& host);

}  // namespace sluice::core
