// SPDX-License-Identifier: Apache-2.0
// What planning under a pair of caps gives, and the smallest caps that work: what sweeps, frontiers and
// what-ifs ask.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "run/prepare/prepare.h"
#include "setup/speed.h"

namespace sluice::core {

struct Outlook {
  bool fits() const { return !refusal; }
  std::optional<Error> refusal;  // the planner's, when the caps are too small: DoesNotFit
  Speed speed;
  double step_ns = 0, lower_bound_ns = 0;
  StepShape shape;
  BytesByTier bytes;  // held by the process, its own overheads included
  std::string binds;  // what keeps the step from being faster, in words
};

// Progress of a search, from any thread: its name, and how many of its parts are done; total 0: it has no
// parts.
using SayWork = std::function<void(const std::string& doing, int64_t done, int64_t total)>;

// Who looks at a study while it works. Studies that are stopped return what they have.
struct StudyWatch {
  SayWork say = [](const std::string&, int64_t, int64_t) {};
  // Called with each result in a line, as it comes; from any thread.
  std::function<void(const std::string& line)> row = [](const std::string&) {};
  std::stop_token stop = {};
  // A folder that keeps what was found on machines that are only simulated (what_if/kept.h); empty: nothing
  // is.
  std::filesystem::path cache = {};
};

// Plans `config` on `machine`. Caps that are too small are an Outlook that does not fit; anything else is an
// error.
Result<Outlook> outlook(RunConfig config, const Machine& machine, const StudyWatch& watch = {});
// Whether it fits, without the search for the fastest plan.
Result<bool> fits(RunConfig config, const Machine& machine, const StudyWatch& watch = {});
Result<bool> fits(RunConfig config, const Machine& machine, StepSpec step);
// The outlook of what is planned already.
Outlook outlook_of(const Prepared& prepared);

// The needed memory by a refusal of caps, for a table: "needs 9 GiB of device memory".
std::string missing_memory(const Error& refusal);

// Up to a number that is easy to read and at most a hundredth larger.
int64_t readable_cap(int64_t bytes);

// Threads that may plan for a machine at once: all cores for one that is only simulated. On the machine at
// hand one, because there planning may measure.
int planning_threads(const Machine& machine);

// Finds smallest caps by asking whether pairs of caps fit. What fits, fits with more memory, too: answers are
// remembered and never asked for again where they follow.
class LeastCaps {
 public:
  using Fits = std::function<Result<bool>(const BytesByTier& caps)>;
  // Answers are at most one part in `precision` above the smallest cap that works.
  LeastCaps(Fits fits, int64_t precision) : fits_(std::move(fits)), precision_(precision) {}

  void know(const BytesByTier& caps, bool fits) { known_.push_back({caps, fits}); }
  // A cap of the tier that works beside those of the others; 0 when not even none does.
  Result<int64_t> cap(Tier tier, BytesByTier caps);

 private:
  struct Answer {
    BytesByTier caps;
    bool fits;
  };
  Result<bool> ask(const BytesByTier& caps);

  Fits fits_;
  int64_t precision_;
  std::vector<Answer> known_;
};

}  // namespace sluice::core
