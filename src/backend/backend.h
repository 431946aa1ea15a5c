// SPDX-License-Identifier: Apache-2.0
// What a backend must do. It moves bytes and runs ops on lanes; it knows nothing of plans, objects or policy.
//
// Threads: one thread calls a Backend, except that several may upload, download and clear different bytes at
// once. Lifetime: buffers and parts passed to submit() stay valid until finish().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/buffer.h"
#include "backend/device_activity.h"
#include "backend/disk_source.h"
#include "base/host_part.h"
#include "base/interval.h"
#include "base/lane.h"
#include "base/status.h"
#include "base/tier.h"
#include "ops/ops.h"

namespace sluice::core {

// Runs an op. `operands` follow the op's schema; `workspace` has workspace_bytes(op) bytes; `task` is for
// people, and may be empty.
struct Launch {
  const Op* op;
  std::span<const Buffer> operands;
  Buffer workspace;
  std::string_view task = {};
};

// A stretch of bytes of what is copied.
struct CopyPart {
  int64_t begin, bytes;
};

// Copies from one tier's arena to another's, which the command's lane joins. On a compute lane they are
// within the arena of its device, between places that do not overlap.
struct Copy {
  Location from, to;
  int64_t bytes;
  bool in_parts = false;  // these alone, in ascending order, which may be none
  std::span<const CopyPart> parts = {};

  // Calls copy(begin, bytes) for every stretch that is copied; the first error ends it.
  template <class F>
  Status for_each_part(F&& copy) const {
    if (!in_parts) return copy(int64_t{0}, bytes);
    for (const CopyPart& part : parts) SLUICE_TRY(copy(part.begin, part.bytes));
    return {};
  }
};

struct Command {
  uint32_t id;  // 0, 1, 2, ... in the order of submission within a step
  Lane lane;
  std::span<const uint32_t> waits;  // ids of earlier commands on other lanes that must finish first
  std::variant<Launch, Copy> work;
  double cost_ns;  // how long the plan says it takes; only the simulator believes it
  // For profilers: what it belongs to from the whole down, "round 0/layer 3/chunk 1/gate_up.L3.r0c1". May be
  // empty.
  std::string_view path = {};
  bool awaited = true;  // a later command on another lane waits for it
};

// A failure inside a step. `command` is the id of the command that failed, or of the first that may have,
// when the error says up to which; empty if unknown.
struct Fault {
  std::optional<uint32_t> command;
  Error error;
};

// A step's commands as a backend keeps them. It goes before the backend does.
class Recording {
 public:
  virtual ~Recording() = default;
};

// Where each tier's arena begins; null for tiers that do not exist, and on backends that move no data.
using Arenas = ByTier<std::byte*>;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;

  // The lanes that it has, and with them its tiers. Commands name lanes of this table.
  virtual const LaneTable& lanes() const {
    static const LaneTable one_device;
    return one_device;
  }

  // The number under which the user knows a device: as its driver counts, where there is one.
  virtual int device_number(Tier device) const { return int(device.index()); }

  // Alignment of every offset in an arena; a power of two.
  virtual int64_t alignment() const = 0;

  // Scratch bytes the op's kernel needs beside its operands.
  virtual int64_t workspace_bytes(const Op& op) const = 0;

  // Says what the parts of the host's arena are for, before reserve(): where they lie may depend on it. Not
  // all of it need be named.
  virtual void set_host_parts(std::vector<HostPart> /*parts*/) {}

  // Gives what copies from the disk read, on a backend with such lanes. Before the first step, once.
  virtual void set_disk(std::shared_ptr<const DiskSource> /*disk*/) {}

  // Reserves an arena of so many bytes in every memory, once. The backend owns them. Work that takes long,
  // such as pinning the host arena, may go on after this returns: begin() waits for it and returns its error.
  virtual Result<Arenas> reserve(const BytesByTier& bytes) = 0;

  // Between two steps, has the arenas hold at least so many bytes each. What lies in them stays, at its
  // offsets; where they begin may change. An error says what cannot be had; all is then as it was, but for
  // arenas that have grown.
  virtual Result<Arenas> grow(const BytesByTier& /*bytes*/) {
    return error("the arenas of the {} backend do not grow", name());
  }

  // Prepares everything launching these ops needs (kernels, library plans), so that no step does.
  virtual Status prepare(std::span<const SharedOp> ops) = 0;

  // Starts a step of `commands` commands, which are timed if finish() is to tell when each one ran: on a GPU
  // that takes time of its own.
  virtual Status begin(uint32_t commands, bool timed) = 0;
  // Queues a command on its lane. May block to bound the run-ahead. After a fault it returns an error.
  virtual Status submit(const Command& command) = 0;
  // Queues all commands of a step that is not timed at once, where it can; nothing waits for one of them.
  // False: none is queued, and submit() takes them. `recording` is empty before the first step of these very
  // commands, with their operands and attributes, and is the backend's from then on.
  virtual Result<bool> submit_at_once(std::span<const Command> /*commands*/,
                                      std::unique_ptr<Recording>& /*recording*/) {
    return false;
  }
  // Returns when a command that was submitted in this step has finished, or with the fault because of which
  // it never does. Until the next submit(), upload() and download() may then be called on bytes that no
  // command which may still be under way uses.
  virtual Status wait(uint32_t command) = 0;
  // Waits for everything submitted since begin(). With `timeline`, fills it with one interval per command.
  // REQUIRES: for a timeline, a timed step.
  virtual std::optional<Fault> finish(std::vector<Interval>* timeline) = 0;

  // Copies between main memory of the caller and an arena, outside a step or behind wait(); returns when
  // done.
  virtual Status upload(Location to, const std::byte* from, int64_t bytes) = 0;
  virtual Status download(std::byte* to, Location from, int64_t bytes) = 0;
  // Sets bytes of an arena to zero, outside a step.
  virtual Status clear(Location to, int64_t bytes) {
    static constexpr std::byte kZeros[4096] = {};
    for (int64_t done = 0; done < bytes; done += int64_t{sizeof kZeros}) {
      const int64_t n = bytes - done < int64_t{sizeof kZeros} ? bytes - done : int64_t{sizeof kZeros};
      SLUICE_TRY(upload({to.tier, to.offset + done}, kZeros, n));
    }
    return {};
  }

  // Bytes in use as the driver (devices) and the operating system (host) report them for this process; 0
  // where a tier does not exist. Where a device is main memory, its arena counts as the device's and not as
  // host.
  virtual BytesByTier memory() const = 0;

  // Has the next step note what runs on the device, by name; activities() then returns it, once. Outside a
  // step. An error says what is missing: the step runs without.
  virtual Status note_activities() { return error("the {} backend does not tell kernels apart", name()); }
  virtual Result<std::vector<DeviceActivity>> activities() { return std::vector<DeviceActivity>(); }

  // Says once, in a sentence for people, that a file of an earlier start is not believed, or that the driver
  // refuses a way of running. Empty: nothing.
  virtual std::string take_note() { return {}; }
};

// A tier as people know it: "host", or "device 1" by the backend's number.
std::string name_of(const Backend& backend, Tier tier);

// Runs `commands` as a timed step of their own; returns when each of them ran.
Result<std::vector<Interval>> run_commands(Backend& backend, std::span<const Command> commands);

}  // namespace sluice::core
