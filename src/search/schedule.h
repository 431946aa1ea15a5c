// SPDX-License-Identifier: Apache-2.0
// The planner's working data: a Program unrolled into the order in which tasks run (with recomputation), the
// values they use, where those values are resident, and when.
//
// Positions 0 .. N-1 are the task runs of a step, and what devices hand over to each other; position N is the
// boundary between steps. Values that survive steps live on a circle: after N comes 0 of the next step.
// Several devices share the positions, which are in the order of time: what one device holds when is
// comparable with what another does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/profile.h"
#include "plan/plan.h"

namespace sluice::core {

constexpr uint32_t kNoUse = UINT32_MAX;

enum class RunKind : uint8_t { Task, HandOver };

struct Run {
  TaskId task;  // Task
  bool recompute;
  // In DeviceSchedule::use_values, one per use of the task, in the schedule of its device; of a hand-over a
  // single one, in the schedules of both its devices. kNoUse in all others.
  uint32_t first_value;
  RunKind kind = RunKind::Task;
  Tier device;        // where it runs; of a hand-over, where it goes from
  Tier to;            // HandOver
  ObjectId object{};  // HandOver
  double ns = 0;      // as planned, on its lane
  bool plain = true;  // runs, too, where activations are not computed again
};

struct ValueUse {
  uint32_t position;
  bool writes;
  bool overwrites;  // every byte, without reading any: what was there before is of no use
};

// A load of those parts of an object that its reader chooses, behind what tells which.
struct ChosenLoad {
  TaskId task;        // that reads them
  uint32_t chooser;   // the value that says which
  uint32_t known_at;  // the position whose run writes it
  int64_t bytes;      // that are expected to cross
  double ns;          // that takes
};

// One life of an object's content: from where it is made (or given) to its last use. An object that is
// recomputed has one value per life.
struct Value {
  ObjectId object;
  int64_t bytes;
  bool circular = false;  // content survives the step
  bool given = false;     // content is there when the step starts
  bool host_home =
      false;  // given on the host and (circular, written) returned there; never resident at the boundary
  bool on_disk = false;       // what does not stay on the device is read from the disk; never written
  bool needed_after = false;  // a metric: stored after its last use
  bool fixed = false;         // resident at a given device address; not the planner's to move
  bool read_by_host = false;  // a chooser that the host reads: on the device from its first use to its last
  std::optional<ChosenLoad> chosen = {};
  // An activation that the backward pass needs: its last use in the forward pass; kNoUse for others.
  uint32_t crossing = kNoUse;
  std::vector<ValueUse> uses;

  // Bytes and time of a load.
  int64_t load_bytes() const { return chosen ? chosen->bytes : bytes; }
  Tier far() const { return on_disk ? kDisk : kHost; }
  double load_ns(const Profile& profile) const {
    return chosen ? chosen->ns : profile.transfer_ns(bytes, far(), kDevice);
  }
};

// A step as one device sees it: its values, at positions that it shares with the others.
struct DeviceSchedule {
  Tier device;
  std::vector<Run> runs;  // of all devices
  std::vector<uint32_t> use_values;
  std::vector<Value> values;
  std::vector<double> start_ns;          // by position, as if nothing ever stalled; [N] is the end
  std::vector<int64_t> workspace_bytes;  // by position; [N] is what must be free at the boundary
  double left_out_ns = 0;                // that the step would last longer: see LeftOut

  uint32_t size() const { return static_cast<uint32_t>(runs.size()); }
  double whole_ns() const { return start_ns.back() + left_out_ns; }
  // Whether the run at a position uses values of this device.
  bool concerns(uint32_t position) const { return runs[position].first_value != kNoUse; }
};

// The same of every device.
struct StepSchedule {
  std::vector<DeviceSchedule> devices;  // by number
  // By position, its turn, which lengths of lives are counted in. A run that only changes in place what the
  // run before it wrote has no turn of its own, so that it makes nothing longer.
  std::vector<uint32_t> turns;

  uint32_t size() const { return devices.front().size(); }
  double end_ns() const { return devices.front().start_ns.back(); }
};

// The time between two uses of a value next to each other, interior positions [first, last]. Around the
// boundary the interior is [first, N] and [0, last]; `last` is kNoUse when nothing lies before the first use.
struct Gap {
  uint32_t value;
  uint32_t use;  // index of the use before the gap; the last one for a gap around the boundary
  uint32_t first, last;
  bool around;
  bool written;       // what the device holds is not on the host yet
  bool dead = false;  // the use after the gap overwrites everything: nothing has to travel
  bool cut = false;   // not resident in the interior
  double worth = 0;   // byte-ns of residency freed per ns of cost
};

// Where a value is resident without interruption. `begin > end` wraps around the boundary.
struct Span {
  uint32_t value = 0;
  uint32_t begin = 0, end = 0;  // positions during which its bytes are taken, inclusive
  uint32_t first_use = 0, last_use = 0;
  bool load = false, store = false;
  bool always = false;  // resident all step long and at the boundary
  int64_t address = kNowhere;
  uint32_t store_at = 0;  // with store: the position after which it is issued

  bool wraps() const { return begin > end; }
  bool covers(uint32_t position) const {
    return always || (wraps() ? position >= begin || position <= end : position >= begin && position <= end);
  }
};

// A host copy of a value.
struct HostSlot {
  uint32_t value = 0;
  uint32_t begin = 0, end = 0;  // positions; `begin > end` wraps around the boundary
  bool always = false;          // from 0 to N
  bool home = false;            // the value is here between steps
  int64_t address = kNowhere;

  bool wraps() const { return begin > end; }
  bool covers(uint32_t position) const {
    return wraps() ? position >= begin || position <= end : position >= begin && position <= end;
  }
  // Adds what it takes to differences between positions 0 .. N + 1.
  void hold(std::vector<int64_t>& changes, int64_t bytes) const {
    changes[begin] += bytes;
    changes[end + 1] -= bytes;
    if (wraps()) changes.front() += bytes, changes.back() -= bytes;
  }
};

struct Residency {
  std::vector<Span> spans;  // by value, then by time
  std::vector<HostSlot> slots;
};

}  // namespace sluice::core
