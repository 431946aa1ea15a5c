// SPDX-License-Identifier: Apache-2.0
// A model in memory under its plans: the one owner of its backend, arenas and executors, whether it is
// trained, evaluated or generates.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "exec/executor.h"
#include "plan/migration.h"
#include "setup/beside.h"
#include "sluice/observer.h"

namespace sluice::core {

struct MemoryReport {
  BytesByTier bytes;       // in use, as driver and operating system say
  BytesByTier peak_bytes;  // the most seen
};

// A change of plans that was made.
struct Adopted {
  int64_t bytes = 0;  // moved
  double predicted_s = 0, seconds = 0;
};

class Loaded {
 public:
  // Takes the memory of all stages, the host's as the main plan uses it. Borrows the stages.
  static Result<Loaded> reserve(std::unique_ptr<Backend> backend, const Stages& stages,
                                const BytesByTier& caps, Observer& observer);
  // Makes kernels and executors ready. What lies in the arenas has no values yet.
  Status prepare();
  // Waits for what reserve() left to do, so that its errors come now rather than in the first pass.
  Status settle();

  Backend& backend() const { return *backend_; }
  // REQUIRES: prepare() was called; a stage beside the main one was planned.
  Executor& main() const { return *main_; }
  Executor& at(std::string_view name) const;

  const Stages& stages() const { return *stages_; }
  // Whether a stage beside the main one can run. An optional one that was adopted cannot if it has ops that
  // prepare() did not know.
  bool runs(std::string_view name) const;

  // Between two steps, goes on under other plans of the same programs, which are proved again. Everything
  // that outlives a step moves to where they have it, and references to executors end. The arenas stay, and
  // grow first where the plans need more. Caps hold all the while; `profile` says what is held beside arenas
  // and how fast copies are. Programs beside the main one lose what they have of their own. An error leaves
  // all as it was, but for one with the detail "state", after which there is no state.
  Result<Adopted> adopt(std::shared_ptr<const Stages> next, const Profile& profile);

  // The predicted time of moving to other plans. Errors: those that adopt() has for them.
  Result<double> seconds_to(const Stages& next, const Profile& profile) const;
  const BytesByTier& arena_bytes() const { return arena_bytes_; }

  // Gives all commands paths for profilers.
  void annotate();

  const MemoryReport& memory();
  const BytesByTier& peak_bytes() const { return memory_.peak_bytes; }  // that memory() and checks saw
  // An error when a cap is exceeded.
  Status check_caps();

 private:
  Loaded(std::unique_ptr<Backend> backend, const Stages& stages, const BytesByTier& caps)
      : backend_(std::move(backend)), stages_(std::shared_ptr<void>(), &stages), caps_(caps) {}
  void make_executors();
  bool is_prepared(const Program& program) const;
  // An error where plans are of other programs than run here, or for other devices.
  Status check_alike(const Stages& next) const;
  Status prove(const Stages& next) const;
  Result<Migration> migration_to(const Stages& next, const BytesByTier& bytes, const Profile& profile) const;
  // An error where the caps have no room for arenas of so many bytes and these plans.
  Status check_room(const Stages& next, const BytesByTier& bytes, const Profile& profile);

  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const Stages> stages_;
  std::unordered_set<std::string> prepared_;  // ops
  BytesByTier caps_;
  Arenas arenas_;
  BytesByTier arena_bytes_;
  double host_bytes_per_s_ = 0;  // of copies within the host, by the last change that tells; 0: none did
  bool annotated_ = false;
  std::unique_ptr<Executor> main_;
  std::vector<std::unique_ptr<Executor>> beside_;  // of Stages::beside, in its order; null: see runs()
  MemoryReport memory_;
};

}  // namespace sluice::core
