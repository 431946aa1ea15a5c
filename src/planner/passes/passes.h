// The planner's passes. Each is a pure function from one stage's data to the next.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/schedule.h"

namespace sluice {

// What a plan must respect beside its Program.
struct Limits {
  int64_t device_bytes = 0, host_bytes = 0;  // arena budgets
  int64_t alignment = 64;
  // Device bytes that must be free in one piece at the boundary, for programs that run between steps.
  int64_t boundary_device_bytes = 0;
  // Host bytes set aside for them all the time.
  int64_t boundary_host_bytes = 0;
  // Given places, by object, of a program that runs at another plan's boundary; empty otherwise. Its own arenas then
  // begin at these offsets.
  std::vector<Home> fixed_homes;
  int64_t device_base = 0, host_base = 0;
};

// Activations that may be dropped after the forward pass and computed again, in groups that are dropped together:
// groups[0] costs most time to recompute per byte it frees.
struct RecomputeGroup {
  std::vector<std::string> roles;
  double ns_per_byte = 0;
};
std::vector<RecomputeGroup> recompute_groups(const Program& program, const TaskCosts& costs);

// Unrolls the program. dropped[o]: object o is not kept from forward to backward.
Schedule unroll(const Program& program, const TaskCosts& costs, const std::vector<bool>& dropped,
                const Limits& limits);

// Decides what is resident when: starts from everything resident, cuts gaps between uses until every position fits
// `target_bytes` (or its own working set, where that is more), gives back cuts that were not needed, then fills what
// is left below `fill_bytes` with loads that start early and stores that drain. Empty when some working set exceeds
// the device limit.
std::optional<Residency> decide_residency(const Schedule& schedule, const Profile& profile, const Limits& limits,
                                          int64_t target_bytes, int64_t fill_bytes);

// A thing to place: `bytes` (a multiple of the alignment) during [begin, end], or around the boundary when begin > end.
// One that is loaded early may begin as late as latest_begin, and one whose store drains may end as early as
// earliest_end, if room is short: packing moves begin and end within these.
struct PackItem {
  int64_t bytes;
  uint32_t begin, end;
  uint32_t latest_begin, earliest_end;
  int64_t offset = kNowhere;  // result

  PackItem(int64_t size, uint32_t first, uint32_t last)
      : bytes(size), begin(first), end(last), latest_begin(first), earliest_end(last) {}
};
// Assigns offsets so that no two items overlap in both time (positions 0 .. last) and space. Returns the bytes used, or
// kNowhere when no packing within `capacity` was found.
int64_t pack(std::vector<PackItem>& items, uint32_t last, int64_t capacity);

// Addresses, order, waits. Empty when it does not pack within the limits.
std::optional<Plan> emit(const Program& program, const Schedule& schedule, Residency residency, const Profile& profile,
                         const Limits& limits);

}  // namespace sluice
