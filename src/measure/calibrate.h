// SPDX-License-Identifier: Apache-2.0
// Measured op times of a backend, cached on disk; an empty path keeps nothing.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "backend/backend.h"
#include "cost/profile.h"
#include "measure/rehearsal.h"
#include "plan/plan.h"

namespace sluice::core {

struct CalibrateOptions {
  Rehearsal::Length rehearsal;  // how long the ops run in their mix
  // A limit on the arenas and the memory beside them. Only an op that cannot run otherwise takes more.
  BytesByTier most_bytes{kUnlimited};
  // Copies and kernels share cores and memory bandwidth, as on a CPU: links are timed while compute is busy,
  // and compute's loss is measured into profile.copy_slowdown. Ops are timed without copies. Elsewhere ops
  // and the step's copies are timed beside each other, and where a step has few copies, links alone, both
  // directions at once.
  bool shared_cores = false;
  // On shared cores other programs take cores at one moment and not at another. What is new is compared with
  // what is known, by the ops that both mixes have, so that its times are made those of the same moment.
  bool as_known = false;
  // Memory of the process on a device before its arena. An excess over the measuring process, such as
  // torch's, is planned beside the measured memory.
  int64_t device_held_bytes = 0;
  // Memory of the host that is set aside for the process before costs are measured. If measuring leaves more
  // in it, that is planned with. 0, or on shared cores: nothing is.
  int64_t host_held_bytes = 0;
  // The kind of step that the costs are for, such as the model, number formats and sequence length in words.
  // They are those of its mix of ops and copies, and kept for steps of this kind alone: of those, the first
  // has them measured for all.
  std::string kind;
  // Gets, from recall(), why a file is not believed, in a sentence; empty: nobody is told.
  std::function<void(const std::string&)> warn;
};

// Whether the content of a file of costs can be one: what is infinite, negative or longer than can be is not
// planned with. The error says what. The text may be anything.
Status check_costs(std::string_view text);

// Takes what the file at `path` holds for a machine of profile.name and steps of options.kind into the
// profile. A file that is damaged, of another machine or holds what cannot be (io/sealed.h) counts as empty.
// Returns whether that is the links and all of the ops.
bool recall(std::span<const CountedOp> ops, const std::filesystem::path& path,
            const CalibrateOptions& options, Profile& profile);

// The same, and measures what was not known: ops in their mix (see rehearsal.h), of which the file keeps
// those that are new to it, and links. `backend` must not have reserved its arenas yet; afterwards it is good
// for nothing else.
Status calibrate(Backend& backend, const StepMix& step, const std::filesystem::path& path,
                 const CalibrateOptions& options, Profile& profile, const OpProgress& progress);

// The profile with the mean times that ops took within a measured step, and the rates of links. Means add up
// to the step, also where other programs take cores from some of the ops.
Profile learnt(const Program& program, const Plan& plan, std::span<const Interval> timeline,
               bool shared_cores, Profile profile);

// Keeps what ops took within a measured step, less what copies beside them cost (profile.copy_slowdown), in
// place of what calibrate() measured. These are medians over the runs of each op, amid all the others and
// with the links at work; on shared cores means. Also keeps the rates of links, unless they share cores with
// compute, and what the process held on the device beside its arena, if that was more.
Status learn(const Program& program, const Plan& plan, std::span<const Interval> timeline,
             int64_t device_overhead_bytes, const CalibrateOptions& options,
             const std::filesystem::path& path, Profile profile);

}  // namespace sluice::core
