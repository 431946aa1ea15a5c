// SPDX-License-Identifier: Apache-2.0
// Runs a Plan on a Backend. One loop for every backend and the simulator; no policy.
//
// Threads: one thread uses an Executor, except that several may write, read and clear different bytes at
// once. It borrows the Program, the Plan and the Backend.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/sim/sim_backend.h"
#include "ops/chosen_parts.h"
#include "plan/plan.h"

namespace sluice::core {

// High-water marks of what the executor handed out of each arena. They equal the plan's arena sizes when the
// plan wastes nothing at its end.
using Ledger = BytesByTier;

// A caller's change of an object in the middle of a step. When the last task that writes it has run, and
// before anything that comes behind reads it, `with` gets its bytes, which it may change. An error ends the
// step.
struct Amendment {
  ObjectId object;
  std::function<Status(std::span<std::byte>)> with;
};

// Bytes that the loads of a step moved to devices, and of them those of what tasks chose.
struct LoadedBytes {
  int64_t all = 0, chosen = 0;
};

class Executor {
 public:
  // `arenas` are the backend's, at least as large as the plan's. REQUIRES: the plan is for this program and
  // for the lanes that the backend has.
  Executor(const Program& program, const Plan& plan, Backend& backend, Arenas arenas);

  // Runs one step and waits for it. Where a load brings what a task chooses, this thread waits for what it
  // chooses by, reads it, and submits the load of these parts alone. The lanes go on meanwhile with what was
  // submitted before. With `timeline`, fills it with one interval per action. An error names
  // the action, and where there are several devices those that it concerns. `amendments` are made on this
  // thread, each while the lanes go on with what was submitted before its place. REQUIRES: a task writes the
  // object of each.
  Status step(std::vector<Interval>* timeline = nullptr, std::span<const Amendment> amendments = {});

  // Copies an object's bytes to or from its home (all its homes when writing), between steps. What the disk
  // has is there, and is not written.
  // REQUIRES: the object has a home; offset + data.size() <= its bytes.
  Status write(ObjectId object, std::span<const std::byte> data, int64_t offset = 0);
  Status read(ObjectId object, std::span<std::byte> data, int64_t offset = 0) const;
  // Sets an object to zero at all its homes, between steps. REQUIRES: it has one.
  Status clear(ObjectId object);

  // From the next step on, runs these ops, one for each task; none: the program's own. REQUIRES: they
  // differ from those in attributes of a step (kOfStep) alone.
  void set_ops(std::vector<SharedOp> ops);

  // Gives the commands paths for profilers; costs memory and time once.
  void annotate();

  const Ledger& ledger() const { return ledger_; }
  // The bytes of the last step.
  LoadedBytes loaded_bytes() const { return {whole_loads_bytes_ + chosen_bytes_, chosen_bytes_}; }
  const Plan& plan() const { return plan_; }
  const Program& program() const { return program_; }

 private:
  void resolve();
  // The action behind which an object is complete, and where it lies then.
  struct Complete {
    uint32_t action;
    Location place;
  };
  Complete complete(ObjectId object) const;
  // A load of what a task chooses.
  struct Choice {
    uint32_t command;
    uint32_t told_by;  // the action behind which the chooser is at its place
    Location chooser;
    ChosenParts chosen;
    int64_t part_bytes;
    size_t first_part;  // in parts_, which has as many for it as the object has parts
  };
  void add_choice(uint32_t command, const Action& action);
  // The action that brought or made what lies at a place when an action is submitted.
  uint32_t writer_of(ObjectId object, Location place, uint32_t before) const;
  // Gives the load its parts.
  Status choose(const Choice& choice);
  Status make(const Amendment& amendment, Location place);
  std::string where(const Action& action) const;
  const Home& home_of(ObjectId object, int64_t offset, size_t bytes) const;

  const Program& program_;
  const Plan& plan_;
  Backend& backend_;
  const Arenas arenas_;
  Ledger ledger_;
  std::vector<Command> commands_;
  std::vector<Buffer> operands_;
  std::vector<Choice> choices_;  // in the order of their commands
  std::vector<CopyPart> parts_;
  std::vector<std::byte> told_;   // of the chooser that was read last
  std::optional<uint32_t> read_;  // its Choice::told_by, in this step
  int64_t whole_loads_bytes_ = 0, chosen_bytes_ = 0;
  std::unique_ptr<Recording> recording_;  // of commands_
  std::vector<SharedOp> ops_;             // by task; empty: the program's own
  std::vector<std::string> paths_;
};

// How long a step under `plan` takes on the simulated backend if its actions take so long.
double simulated_ns(const Plan& plan, std::span<const double> costs_ns, const SimOptions& options = {});

// Runs `plan` on the simulated backend and writes the predicted times into it.
void predict(const Program& program, Plan& plan, const SimOptions& options = {});

}  // namespace sluice::core
