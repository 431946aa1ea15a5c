// SPDX-License-Identifier: Apache-2.0
// One plan: the passes in their order, from a policy or from decisions. What to try is the search's business
// (planner.cpp).
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "search/few_rounds.h"
#include "search/planner.h"
#include "search/refine.h"

namespace sluice::core {

// How it is decided what of the activations stays, leaves or is computed again.
enum class SaveRule : uint8_t {
  Links,        // by weights: computing again against what links have to spare (see SavePolicy)
  Bytes,        // by weights: computing again against the time of a copy
  Prices,       // by the prices of memory and links at every moment: see choose_saves()
  NoRecompute,  // nothing is computed again
  LeastHost,    // everything is, and the device is full
  LeastDevice,  // everything is, and nothing stays
};
constexpr bool is_searched(SaveRule rule) {
  return rule <= SaveRule::Prices;
}

// A candidate's settings.
struct Policy {
  SaveRule rule = SaveRule::Links;
  double reserve = 0;       // part of the device budget that is held back for transfers under way
  double again_weight = 1;  // see SavePolicy
  bool overlap = false;     // rounds overlap
  // As the floor's plans: the host is as large as need be, and packed in as little of it as goes.
  bool floor = false;
  double lag = 1;           // by prices: the part of the device budget that a transfer may wait for
  double under_way = 0.25;  // and what the prices' estimate of what is under way can hold back of it
  // Loads begin early only as far as `under_way` has room for them: see Limits::early_bytes.
  bool steady = false;
  // Persistent objects, the dearest to move and up to so many bytes, that stay on each device all step long
  // and have no place on the host.
  int64_t pinned_bytes = 0;
  // Shares of the budgets for a first attempt, lowered where that does not pack.
  double device_share = 1, host_share = 1;
};

// Whether a host that has `room_bytes` beside all that outlives the step has none for the devices' worth of
// activations twice over. Where it has, copies of what a device holds cost nothing.
constexpr bool host_is_short(int64_t room_bytes, int64_t devices, int64_t device_bytes) {
  return room_bytes / (2 * devices) < device_bytes;
}

// How much of what outlives the step can be pinned to each device, in bytes.
struct PinRange {
  bool tight = false;  // the host has no room for all that would go there; otherwise nothing need be pinned
  int64_t least = 0, most = 0;

  int64_t at(double part) const { return least + int64_t(part * double(most - least)); }
};

// Costs of saving each activation.
struct SaveChoices {
  Saves saves;
  std::vector<GapCosts> costs;  // by device
};

// Plans by the decisions that they were made of, for policies of one budget: many come to the same decisions.
// Any number of threads may look at once.
class MadePlans {
 public:
  struct Made {
    std::optional<Plan> plan;
    MissingRoom missing_room;  // without a plan
  };
  // As `make` returns it, which is called unless there is one of this key.
  template <class Make>
  Made of(std::string key, Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = made_.find(key); known != made_.end()) return known->second;
    }
    Made made = make();
    const std::lock_guard lock(mutex_);
    return made_.try_emplace(std::move(key), std::move(made)).first->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, Made> made_;
};

// Whether `one` became the best, being faster.
bool take_faster(Candidate&& one, std::optional<Candidate>& best);

// Builds plans of one program on one machine. Every pass runs through the request's runner. Any number of
// threads may build at once, as long as `limits` stays as it is.
class PlanBuilder {
 public:
  // `left_out` are the rounds that the program has more of where plans count. REQUIRES: program, profile and
  // the request's runner outlive the builder.
  PlanBuilder(const Program& program, const Profile& profile, const PlanRequest& request,
              const LeftOut& left_out = {});

  // Finds the prices that policies by prices need at these pinned bytes, in that order; false when that
  // pass is left out. No thread may build meanwhile.
  bool find_prices(bool overlap, std::vector<int64_t> pinned_bytes, int threads);
  bool has_prices(const Policy& policy) const { return prices_for(policy) != nullptr; }
  // One plan. Fragmentation may keep what fits by bytes from packing: then less is made resident, or more
  // computed again instead of sent to the host. Empty when nothing packs. `known`: plans that others made.
  std::optional<Candidate> build(const Policy& policy, int64_t device_budget,
                                 MadePlans* known = nullptr) const;
  std::vector<std::optional<Candidate>> build_all(const std::vector<Policy>& policies, int64_t device_budget,
                                                  int threads) const;
  // Changes the candidate's decisions as long as the step gets shorter: refine() as a pass.
  void climb(Candidate& candidate, int64_t device_budget, int evaluations) const;
  // The candidate's settings and what its saves come to.
  std::string describe(const Candidate& c) const;

  // Everything kept that one forward pass makes. What is made for the whole step is, too, if all of a step
  // finds room on the device.
  const Saves& none_again() const { return kept_; }
  // Everything that can be computed again is.
  Saves all_again() const;
  // Nothing computed again, without or with overlapping rounds.
  const StepSchedule& plain(bool overlap) const { return plain_[overlap]; }
  const Placement& placement() const { return placement_; }
  bool is_small() const { return program_.tasks().size() <= kFewItems; }
  bool is_large() const { return program_.tasks().size() > kLargeProgram; }
  bool is_quick_in_full() const {
    return core::is_quick_in_full(int64_t(program_.tasks().size()) + left_out_.tasks, placement_.devices);
  }
  const std::vector<RecomputeUnit>& units() const { return units_; }
  const TaskCosts& costs() const { return costs_; }
  // A hash of what plans are built of and within: the program, its costs, the machine's links, the limits.
  uint64_t subject() const;
  // Bytes at the fullest moment of a device when nothing ever leaves it.
  int64_t resident_bytes() const;
  // The least bytes of all tiers together, at the fullest moment, with everything recomputed that can be.
  // REQUIRES: no homes are given.
  int64_t least_in_all_tiers() const;
  // Bytes that every plan keeps on the host all step long.
  int64_t always_on_host() const { return always_on_host_; }
  // Bytes of the host if all that outlives the step has its place there.
  int64_t outliving_bytes() const { return pinnable_bytes_ + always_on_host_ + limits.boundary_bytes[kHost]; }
  // Bytes of the host's budget that a plan takes, with its actions.
  int64_t host_bytes(const Plan& plan) const;
  // The cap that leaves this much of a tier for plans.
  int64_t cap_for(Tier tier, int64_t budget_bytes) const;
  // The largest working set of a device if everything recomputable is recomputed.
  int64_t least_on_device() const;
  // The objects that a policy's bytes pin to each device: see Limits. As many as the host has no room for are
  // some that have a place there; of the least of the host all are.
  std::shared_ptr<const std::vector<bool>> pins(const Policy& policy) const;
  PinRange pin_range(int64_t device_budget) const;
  // The part of a step that waits for nothing which moving all that can be pinned takes, on the device with
  // most.
  double moving_share() const;
  // The most that can be pinned beside the largest working set of what has a place on the host.
  int64_t most_spared(int64_t device_budget) const {
    return beside_working_set(device_budget, of_host_on_one_);
  }

  // The passes.
  StepSchedule unrolled(bool overlap, const Saves& saves) const;
  // `costs` by device; empty: none.
  std::optional<CutsByDevice> gaps_cut(const StepSchedule& s, const Limits& within, const Saves& saves,
                                       int64_t target_bytes, const std::vector<GapCosts>& costs = {}) const;
  std::vector<Residency> resident(const StepSchedule& s, const Limits& within, const CutsByDevice& cuts,
                                  int64_t fill_bytes) const;
  std::optional<Plan> emitted(const StepSchedule& s, std::vector<Residency> residency, const Limits& within,
                              MissingRoom& missing_room) const;
  void predict_times(Plan& plan) const;
  // The step of a plan whose times are predicted.
  double step_ns(const Plan& plan) const { return whole_step_ns(program_, plan, left_out_); }
  void submit(Plan& plan) const;
  // A time that no plan can beat in the program's order or with overlapping rounds; on several devices,
  // whatever runs where.
  double lower_bound_ns() const;

  Limits limits;  // that plans keep to, from the request; a search may lift one for a while

 private:
  void make_for_step();
  std::vector<RecomputeUnit> found_units() const;
  std::vector<TaskId> order(bool overlap) const;
  SaveChoices chosen(const Policy& policy, const SavePolicy& saving, const Limits& within) const;
  // Gaps cut for these saves, of which what the host has no room for is changed. Empty when a working set
  // does not fit, or else the host.
  struct Fitting {
    StepSchedule schedule;
    CutsByDevice cuts;
  };
  std::optional<Fitting> fitted(bool overlap, const Limits& within, const SavePolicy& saving,
                                const std::vector<GapCosts>& costs, bool lean, Saves& saves,
                                MissingRoom& missing_room) const;
  struct Pinnable {
    ObjectId object;
    int64_t bytes;
    double moving_ns;  // of its loads and stores in a step
  };
  // Persistent objects by device, the most valuable per byte first.
  std::vector<std::vector<Pinnable>> found_pinnable() const;
  // With its times predicted, if it packs.
  MadePlans::Made made(const Fitting& fitting, const Limits& within, int64_t fill_bytes) const;
  // From decisions, as many of its loads and stores early and lingering as there is room for.
  std::optional<Plan> build_with(const StepSchedule& s, const GapsByDevice& gaps, Limits within) const;
  int64_t beside_working_set(int64_t device_budget, int64_t bytes) const {
    return std::max<int64_t>(0, std::min(device_budget - working_bytes_, bytes));
  }
  // Room of the host beside all that could be pinned; below 0: so much has to be.
  int64_t room_of_host() const {
    return limits.bytes[kHost] - limits.boundary_bytes[kHost] - pinnable_bytes_;
  }
  // As one of several devices that share the host takes part of it.
  Limits seen_by_one(Limits seen) const {
    seen.bytes[kHost] /= int64_t(placement_.devices);
    return seen;
  }

  const Program& program_;
  const Profile& profile_;
  PassRunner own_passes_;
  PassRunner& passes_;
  const TaskCosts costs_;
  const Placement placement_;
  const std::vector<RecomputeUnit> units_;
  std::vector<std::vector<RecomputeUnit>> units_of_;  // by device
  const bool quick_;
  const std::stop_token stop_;  // nothing fits any more
  const LeftOut left_out_;
  // Without and with overlapping rounds.
  std::vector<TaskId> order_[2];
  Saves kept_;
  StepSchedule plain_[2], bare_[2];  // bare: also what is made for the whole step is kept
  struct PricesFor {
    bool overlap;
    int64_t pinned_bytes;
    std::vector<Prices> prices;  // by device
  };
  const std::vector<Prices>* prices_for(const Policy& policy) const;
  std::vector<PricesFor> prices_;
  std::vector<std::vector<Pinnable>> pinnable_;
  // Bytes of what has a place on the host, of all devices; and of the one with most, with what files have.
  int64_t pinnable_bytes_ = 0, of_host_on_one_ = 0, pinnable_on_one_ = 0;
  int64_t again_bytes_ = 0;  // that can be computed again
  int64_t always_on_host_ = 0;
  int64_t least_actions_ = 0;  // of a plan: those that the host's budget leaves room for
  int64_t working_bytes_ = 0;  // of the largest working set of a device, nothing being computed again
};

}  // namespace sluice::core
