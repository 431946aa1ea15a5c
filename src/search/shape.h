// SPDX-License-Identifier: Apache-2.0
// The search for the shape of a step: how its tokens are cut into chunks and rounds.
#pragma once

#include <functional>

#include "program/shape.h"
#include "search/planner.h"

namespace sluice::core {

// A step as a function of its shape.
struct ShapeSubject {
  // The training program of a shape. With `late_moments` it updates moments late (see optimizer/optimizer.h),
  // which changes its traffic and not its results. Called from several threads at once.
  std::function<Program(const StepShape& shape, bool late_moments)> program;
  int64_t layers = 0, vocab = 0;
  // Earlier chunks of its sequence that a chunk attends to, on average; empty: all there are.
  std::function<double(int64_t seq_len, int64_t chunk)> earlier_blocks;
  bool may_be_late = false;  // whether both ways of updating moments are to be compared
  // Room to keep free between the steps of a shape: see PlanRequest::boundary_bytes. Empty: none. Called from
  // several threads at once.
  std::function<BytesByTier(const StepShape& shape)> room_between_steps;
};

// How many tasks a step has, by how it is cut, for those who decide before they build its Program. It is
// counted in those of one sequence in one chunk and in two.
class TaskCount {
 public:
  TaskCount(const ShapeSubject& subject, int64_t seq_len, bool packed);

  int64_t of(int64_t tokens_per_step, int64_t chunk_tokens) const;

 private:
  int64_t seq_len_, layers_;
  int64_t of_chunk_ = 0, of_step_ = 0;  // passes of a chunk that is a whole sequence; updates
  int64_t of_later_ = 0;                // more of a chunk behind the first of its sequence, beside blocks
  std::function<double(int64_t seq_len, int64_t chunk)> earlier_blocks_;
};

// The tokens of a step, and how they may be cut.
struct Cut {
  int64_t seq_len = 0, tokens_per_step = 0;  // of a replica
  bool packed = false;                       // documents may begin inside a sequence
  bool whole = false;                        // sequences are not cut into pieces
  // Given values are kept; 0: chosen.
  int64_t chunk_tokens = 0, rounds = 0, first_round_chunks = 0, head_tokens = 0;
  std::vector<StepShape> without = {};  // not to be chosen, as nothing came of them
};

struct ShapeChoice {
  StepShape shape;
  bool late_moments = false;  // see ShapeSubject
  // The least bound of the shapes that were tried, as a part of that of this one. No plan of any of them is
  // faster than this part of the time that none of this one is faster than. 1: this one's is the least.
  double least_bound = 1;
  std::string why;                                // the candidates and their estimated speed, in words
  std::shared_ptr<const KnownSettings> settings;  // for its plan, if it was planned in full; see PlanRequest
};

// The shape whose plan is fastest on the profile, with some microseconds more for every run of a task. Coarse
// plans are compared among chunk sizes, from large to small as long as that pays, at two numbers of rounds
// each. Then the search goes from there step by step to other numbers of rounds and a longer first one.
// Shapes of large programs that these hardly tell apart are planned in full. Deterministic.
// The shape that takes the least memory is not searched for: it is taken if the caps work for it, and a
// refusal names no cap. In a `hurry` the search ends with the fastest shape so far.
Result<ShapeChoice> choose_shape(const ShapeSubject& subject, const Cut& cut, const BytesByTier& caps,
                                 const Effort& effort, const Profile& profile, std::stop_token hurry = {});

}  // namespace sluice::core
