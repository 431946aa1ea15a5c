// SPDX-License-Identifier: Apache-2.0
// The planner's passes. Each is a pure function from one stage's data to the next.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "search/passes/runner.h"
#include "search/placement.h"
#include "search/schedule.h"

namespace sluice::core {

// Limits of a plan beside its Program.
struct Limits {
  BytesByTier bytes;  // arena budgets; alike for all devices
  int64_t alignment = 64;
  // For programs that run between steps: on a device what must be free in one piece at the boundary, on the
  // host what is set aside all the time.
  BytesByTier boundary_bytes;
  // Given places, by object, of a program that runs at another plan's boundary; empty otherwise. Its own
  // arenas then begin at these offsets.
  std::vector<Home> fixed_homes;
  BytesByTier base;
  bool search_places = false;  // on the device: see pack_few()
  // Values that stay on the device around the boundary are stored before it, where that link is free, or
  // keeps its bytes until its store has ended.
  bool store_around = false;
  // The most bytes for loads that begin early. A link that has a little more to do than time for it would
  // otherwise begin earlier with every round before the last, until nothing else has room.
  int64_t early_bytes = kUnlimited;
  // Places on the host are taken only while their content is of use, which fragments it. That saves what is
  // short there; where there is room, less of it packs.
  bool host_is_short = false;
  bool host_closely = false;  // see pack_least()
  // Host bytes of a plan's actions: so much each, of which the budget leaves room for this many. A program of
  // which rounds are left out counts those of the whole step.
  double host_bytes_per_action = 0;
  int64_t actions_counted = 0;
  // Experts' weights are loaded after their router where possible, and only those that it chose.
  bool chosen_experts = false;
  // By object: what stays on its device all step long and has no place on the host. Null: nothing does.
  std::shared_ptr<const std::vector<bool>> pinned;

  // By object: what the disk has and the host has no place for. Null: nothing.
  std::shared_ptr<const std::vector<bool>> on_disk;

  bool is_on_disk(ObjectId o) const { return on_disk != nullptr && (*on_disk)[o.value]; }
  bool pins(ObjectId o) const { return pinned != nullptr && (*pinned)[o.value]; }
  int64_t device_bytes() const { return bytes[kDevice]; }
  // Host bytes of so many actions.
  int64_t host_bytes_of(int64_t actions) const {
    return int64_t(host_bytes_per_action * double(std::max<int64_t>(0, actions - actions_counted)));
  }
  void set_device_bytes(int64_t budget) { bytes.set_devices(budget); }
};

// Activations that can be dropped after the forward pass and computed again, all of them together. Those of
// the step are dropped after every pass of a round that uses them; by way of the host, after those of the
// first round alone.
struct RecomputeUnit {
  std::vector<ObjectId> objects;
  double ns = 0;  // to compute them again when everything else that the backward pass needs is there
  int64_t bytes = 0;
  bool of_step = false;  // ActivationLives::of_step; everything else is of one forward pass
};
// By object: the last task that writes it, if it is an activation and all its writers can run again;
// UINT32_MAX otherwise.
std::vector<uint32_t> last_writers_that_can_run_again(const Program& program,
                                                      const Placement& placement = {});
// Objects of several devices are never computed again.
std::vector<RecomputeUnit> recompute_units(const Program& program, const TaskCosts& costs,
                                           const Placement& placement = {});

// How an activation gets from the forward to the backward pass.
enum class Save : uint8_t {
  Keep,   // on the device, as long as there is room
  Host,   // by way of the host
  Again,  // computed again
};
using Saves = std::vector<Save>;  // by object

// The order of tasks: the program's, or with the forward pass of each round spread over the backward pass of
// the round before it. That needs that no data flows between the two. Links then carry what one saves while
// they carry what the other needs.
std::vector<TaskId> task_order(const Program& program, const TaskCosts& costs, bool overlap_rounds);

// The order of tasks over several devices: each takes, of what it can begin, what the placement's rule puts
// first. With `overlap_rounds` the forward pass of a round may begin before the backward pass of the one
// before it has ended. Data flows as in the program's order.
std::vector<TaskId> ring_order(const Program& program, const Placement& placement, const TaskCosts& costs,
                               const Profile& profile, bool overlap_rounds);
struct RingEstimate {
  RingRule rule;
  int32_t chunks_at_once;
  double ns;      // from the begin of the first task to the end of the last one
  int64_t bytes;  // in use at the fullest moment of the fullest device
};
// When the last task ends in that order of the placement's own rule, rounds overlapping, with nothing
// computed again and no wait for memory. A plan in that order hardly ends earlier.
double ring_order_ns(const Program& program, const Placement& placement, const TaskCosts& costs,
                     const Profile& profile);
// The same under each rule. Refers to what it is made of.
class RingEstimates {
 public:
  // Estimates the ends of orders, after a few attempts to end them earlier.
  RingEstimates(const Program& program, const Placement& placement, const TaskCosts& costs,
                const Profile& profile);
  ~RingEstimates();
  RingEstimates(RingEstimates&&) noexcept;
  RingEstimates& operator=(RingEstimates&&) noexcept;

  // Makes all attempts for those that end by `hopeful_ns` so far.
  void go_on(double hopeful_ns);
  const std::vector<RingEstimate>& get() const;

 private:
  class Orders;
  std::unique_ptr<Orders> orders_;
};

// Unrolls the program in the order given. Values that are computed again have their tasks run a second time,
// and what one device made and another uses is handed over. REQUIRES: data flows in that order as in the
// program's.
StepSchedule unroll(const Program& program, const Placement& placement, const std::vector<TaskId>& order,
                    const TaskCosts& costs, const Profile& profile, const Saves& saves, const Limits& limits);

// The cost of cutting a value's gap between the passes if it can be computed again instead: ns, by value; 0:
// it cannot.
using AgainCosts = std::vector<double>;

// How much of each link's time is taken, as sums over positions of the plain schedule (nothing computed
// again): what a transfer costs where it would run. Empty: every transfer costs its time.
struct LinkUse {
  std::vector<double> start_ns, load_ns,
      store_ns;  // by position: when it starts, and time taken on the links before it

  bool empty() const { return start_ns.empty(); }
  // Part of the link's time that is taken in the window before or after a position.
  double loads_before(uint32_t position, double window_ns) const;
  double stores_after(uint32_t position, double window_ns) const;
};

// The worth of room and transfers, in ns of the step, by position of the plain schedule and its end. Empty:
// not known.
struct Prices {
  std::vector<double> device, host;  // per byte held from the begin of the step until here
  // Per byte that is loaded by then, or stored from then on; with the room it takes on its way.
  std::vector<double> load, store;
  std::vector<double> again;       // per ns of computing again, during which links carry more
  std::vector<int64_t> under_way;  // bytes on the device that wait for their store or for their use

  bool empty() const { return device.empty(); }
};

// The cost of a value's absence in a gap.
struct GapCosts {
  AgainCosts again;
  LinkUse use;
  Prices prices;  // where known, they take the place of link use
};

// Which gaps between uses are cut: first those between the passes that `saves` does not keep. Then, wherever
// the bytes exceed `target_bytes` (or the working set, where that is more), the gap that frees most byte-ns
// for its cost. Cuts that turn out unnecessary are given back, the dearest first. Times come from `start_ns`,
// one per position and the end.
struct Cuts {
  std::vector<Gap> gaps;          // of one device
  std::vector<int64_t> pressure;  // bytes charged at each position
};
// Empty when some working set exceeds the device limit.
std::optional<Cuts> cut_gaps(const DeviceSchedule& schedule, const std::vector<double>& start_ns,
                             const Profile& profile, const Limits& limits, int64_t target_bytes,
                             const Saves& saves, const GapCosts& costs);
// All gaps of what the limits do not pin, none of them cut.
std::vector<Gap> gaps_of(const DeviceSchedule& schedule, const Profile& profile, const Limits& limits);

// The cuts with what they leave on the device; empty when that exceeds its limit somewhere.
std::optional<Cuts> cuts_of(const DeviceSchedule& schedule, std::vector<Gap> gaps, const Limits& limits);

// The spans and host copies that follow from the cuts; nothing starts early or lingers yet.
Residency split_at(const DeviceSchedule& schedule, const Limits& limits, const std::vector<Gap>& gaps);

struct SavePolicy {
  int64_t target_bytes = 0;    // of the device, for what stays
  int64_t host_bytes = 0;      // that packing can be expected to fill
  double lag_ns = 0;           // how far a link may run behind its work
  int64_t most_under_way = 0;  // with prices: what their estimate of bytes under way counts at most
  double again_weight = 1;     // how dear a ns of computing is against a ns of a link, when gaps are cut
  bool priced = true;          // a transfer costs what its link has to spare, not its time
  double away_weight = 0;      // how much being away for a whole step counts against going to the host
};
struct SaveChoice {
  Saves saves;
  // With these saves, for cutting the gaps of the schedule that follows from them, where nothing can be
  // computed again any more.
  GapCosts costs;
};
// Prices of room on the device and on the host and of both links' time at every moment of a step. What would
// be kept, moved and computed again at these prices just uses up what there is; on the device,
// `target_bytes`.
Prices find_prices(const DeviceSchedule& plain, const std::vector<RecomputeUnit>& units,
                   const Profile& profile, const Limits& limits, int64_t target_bytes);
// Decides how each activation is saved. What the device holds stays. Of the rest as much is sent to the host
// as the links carry beside everything else that must travel, dearest to compute first; what remains is
// computed again. With prices it goes by them instead of the policy's weights for links and for being away,
// and what is under way must find room on the device.
SaveChoice choose_saves(const Program& program, const DeviceSchedule& plain,
                        const std::vector<RecomputeUnit>& units, const Profile& profile, const Limits& limits,
                        const SavePolicy& policy, const Prices& prices);

// Host copies of each device's values.
using SlotsByDevice = std::vector<std::vector<HostSlot>>;
// The actions of a plan.
int64_t actions_of(const StepSchedule& schedule, const std::vector<Residency>& residency,
                   const Profile& profile);
// Their host bytes by position, with the room for programs between steps.
std::vector<int64_t> bytes_on_host(const StepSchedule& schedule, const SlotsByDevice& slots,
                                   const Limits& limits);
// Where that is more than `host_bytes`, units that are there are computed again instead, the cheapest per
// byte first, as long as there are any. Whether something changed.
bool relieve_host(const StepSchedule& schedule, const SlotsByDevice& slots,
                  const std::vector<RecomputeUnit>& units, const Limits& limits, int64_t host_bytes,
                  Saves& saves);

// Every use lies in a span of its value, and no span begins after it is used or ends before.
Status verify(const DeviceSchedule& schedule, const Residency& residency);

// Decides what is resident when: what the cuts leave below `fill_bytes` is filled with loads that start early
// and stores that drain.
Residency decide_residency(const DeviceSchedule& schedule, const Profile& profile, const Limits& limits,
                           Cuts cuts, int64_t fill_bytes, PassRunner& passes);

// A thing to place: `bytes` (a multiple of the alignment) during [begin, end], or around the boundary when
// begin > end. One that is loaded early may begin as late as latest_begin, and one whose store drains may end
// as early as earliest_end, if room is short. Packing moves begin and end within these.
struct PackItem {
  int64_t bytes;
  uint32_t begin, end;
  uint32_t latest_begin, earliest_end;
  int64_t offset = kNowhere;  // result

  PackItem(int64_t size, uint32_t first, uint32_t last)
      : bytes(size), begin(first), end(last), latest_begin(first), earliest_end(last) {}
};
// The positions that are packed, 0 .. last, and how long they are.
struct PackTime {
  uint32_t last;
  std::span<const uint32_t> turns = {};  // StepSchedule::turns; empty: every position is a turn

  PackTime(uint32_t last_position) : last(last_position) {}  // NOLINT(google-explicit-constructor)
  explicit PackTime(std::span<const uint32_t> of) : last(uint32_t(of.size()) - 1), turns(of) {}

  // From an item's begin to its end.
  uint32_t length(const PackItem& item) const {
    const uint32_t from = turn(item.begin), to = turn(item.end);
    return item.begin > item.end ? turn(last) + 1 + to - from : to - from;
  }

 private:
  uint32_t turn(uint32_t position) const { return turns.empty() ? position : turns[position]; }
};

// Assigns offsets so that no two items overlap in both time and space. Returns the
// bytes used, or kNowhere when no packing within `capacity` was found. Of more than `many` items, what packs
// them fast is tried before what packs them well.
constexpr size_t kManyItems = 8000, kManyOnHost = 1500;
int64_t pack(std::vector<PackItem>& items, const PackTime& time, int64_t capacity, size_t many = kManyItems);
// The same, where there is much more room than for what is there at once. It takes about as little as that,
// as long as nothing has to come later or end earlier for it.
int64_t pack_closely(std::vector<PackItem>& items, const PackTime& time, int64_t capacity,
                     size_t many = kManyItems);
// The same in as little room as is found, whatever there is.
int64_t pack_least(std::vector<PackItem>& items, const PackTime& time);
// As pack() by search, which finds packings where pack() finds none, but rather lets early loads and
// lingering stores give way. It is for few items, as its cost grows with their square; of more it finds none.
constexpr size_t kFewItems = 400;
int64_t pack_few(std::vector<PackItem>& items, const PackTime& time, int64_t capacity);

// About how many bytes pack() would use if it could have any number, placing fast.
int64_t bytes_wanted(std::vector<PackItem> items, const PackTime& time);

// The tier that has no room for a plan, and about how many bytes are missing; 0: unknown.
struct MissingRoom {
  Tier tier = kDevice;
  int64_t bytes = 0;

  bool is_host() const { return tier == kHost; }
};

// Addresses, order, waits. Empty when it does not pack within the limits of a tier.
std::optional<Plan> emit(const Program& program, const StepSchedule& schedule,
                         std::vector<Residency> residency, const Profile& profile, const Limits& limits,
                         MissingRoom& missing_room);

// Puts the actions of a simulated plan in the order in which they are predicted to start; order within a lane
// and waits stay as they are. A device's queue of copies holds a few dozen. A store that is submitted long
// before it can begin would fill it, and hold up the thread that submits the work behind it.
void submit_by_start(Plan& plan);

}  // namespace sluice::core
