// SPDX-License-Identifier: Apache-2.0
// The search: from a Program, two caps and a machine profile to the fastest Plan found.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>

#include "search/passes/passes.h"
#include "search/progress.h"

namespace sluice::core {

// How a program of many tasks finds what leaves the device and what is computed again. It goes by fixed
// weights, by prices of the moments of its step, or by whichever is faster. Where prices give no plan,
// weights are asked.
enum class Ways : uint8_t { Both, Weights, Prices };

// How weights of experts that do not stay on a device come to it.
enum class ExpertLoads : uint8_t {
  Whole,   // as all weights: ahead of their use
  Chosen,  // when their router has run, which the host is told, and only what it chose
  Faster,  // whichever of both makes the faster plan, as predicted: where all tokens choose about alike
};

// The settings that made plans in a search, for a later one of the same program on the same machine under the
// same limits: it would find the same. See search/coarse_search.h.
struct KnownSettings;

// How hard to search. None of it is part of what is asked.
struct Effort {
  int threads = 1;     // to search with; no answer depends on it
  bool quick = false;  // a few candidates only: to compare shapes, not to run
  bool least = false;  // what takes the least memory, however slow: to know whether caps work
  // The plan says what a little more memory would be worth: see Plan::speedup_with_more.
  bool weigh_memory = false;
  bool explain = true;  // a refusal says what works and what is in the way, which takes a search of its own
  PassRunner* passes =
      nullptr;  // what runs the passes, to leave some out or to see them; null: all run, unseen
  std::shared_ptr<const KnownSettings> known = {};  // null: none
  // Asked to stop, a search ends soon, and its error is Cancelled whatever it found.
  std::stop_token stop = {};
  SearchWatch watch = {};  // empty: nobody is told how far it is
};

struct PlanRequest : Effort {
  // Caps on everything the process holds in a tier; the profile's overheads come off before anything is
  // placed.
  BytesByTier caps = BytesByTier(kUnlimited);
  // Room to keep free between steps for evaluation and sampling (see Limits).
  BytesByTier boundary_bytes;
  // Set for a program that runs at another plan's boundary: the places of its objects, and where its own room
  // begins.
  std::vector<Home> fixed_homes;
  BytesByTier base;
  // Which device runs what; none: all on the first, or, where the profile has several devices, rings are
  // tried.
  std::optional<Placement> placement;
  // The part of the bytes which files have that the host has no place for: devices read them from the disk.
  // Nothing: about as little as works, on machines that have links for it.
  std::optional<double> read_share = {};
  bool brief = false;  // the settings alone that others are varied from
  bool resort = true;  // where no settings make a plan, to that of the last resort
  // On several devices: who takes longer by the order of its tasks alone is of no interest, and is not
  // planned.
  double hopeful_ns = std::numeric_limits<double>::infinity();
  Ways ways = Ways::Both;
  ExpertLoads experts = ExpertLoads::Whole;
};
Error stopped_planning();

// Programs of more tasks than this are large. Settings are searched for with a few of their rounds, if these
// are still as many. What fits is found out in larger steps.
constexpr size_t kLargeProgram = 1'500;
// Whether a plan in full takes a second or two of one core: more settings are searched then, and more shapes.
constexpr bool is_quick_in_full(int64_t tasks, size_t devices) {
  return devices == 1 && tasks <= 5'000;
}

// The fastest plan found. Deterministic. When no plan fits, the error names the tier. If asked to explain, it
// says what is needed at least, what was given, the largest residents at the tightest moment, and what to
// change.
// For programs of at most kFewItems tasks (search/passes/passes.h), and unless `quick`, a larger device cap
// never gives a slower plan. The plans of all smaller budgets on a fixed grid stay candidates.
Result<Plan> make_plan(const Program& program, const Profile& profile, const PlanRequest& request);

// Gives the plan's actions their costs by a profile, and predicts its times anew. Loads of chosen parts are
// taken without the time of reading the choice.
void recost(const Program& program, const Profile& profile, Plan& plan);

// The time of a step under the plan by a profile, as recost() predicts it.
double step_ns(const Program& program, const Profile& profile, const Plan& plan);

// Whether a plan's arenas fit caps beside what a process holds with so many actions of a step's plan; 0 for a
// plan that runs at another one's boundary.
Status within_caps(const Plan& plan, const Profile& profile, const BytesByTier& caps, int64_t actions);

// An estimate of make_plan()'s result. On one device a quick or brief one is made of a few rounds where many
// are alike, at a small part of the cost.
struct StepEstimate {
  double ns = 0;
  double bound_ns = 0;         // no plan is faster: see Plan::lower_bound_ns
  double runs = 0;             // of tasks, on a device
  bool loads_moments = false;  // some state of the optimizer comes from the host
  bool last_resort = false;    // one device: nothing but the plan that takes the least memory was found
  bool hopeless = false;       // it takes `ns` or more, which is past PlanRequest::hopeful_ns
  std::shared_ptr<const KnownSettings>
      settings;  // of a search that was not quick; null: it had no need of them
};
Result<StepEstimate> estimate_step(const Program& program, const Profile& profile,
                                   const PlanRequest& request);

// Whether caps work: make_plan() then finds a plan, and where they do not, its refusal is this one. As the
// floor says (search/floor.h), more of either memory does not make them too small. On several devices it
// goes by the ring in the order of one device, which takes the least.
Status caps_work(const Program& program, const Profile& profile, const PlanRequest& request);

// The smallest device arena for which make_plan finds a plan, given the host cap.
Result<int64_t> minimal_device_bytes(const Program& program, const Profile& profile,
                                     const PlanRequest& request);

// A valid plan from random decisions: random activations dropped, random residency budgets. For tests:
// results must not depend on it. Empty when the decisions drawn do not fit.
std::optional<Plan> random_plan(const Program& program, const Profile& profile, const PlanRequest& request,
                                uint64_t seed);

}  // namespace sluice::core
