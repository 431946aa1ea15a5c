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
#include "plans/beside.h"
#include "sluice/observer.h"

namespace sluice::core {

struct MemoryReport {
  BytesByTier bytes;       // in use, as driver and operating system say
  BytesByTier peak_bytes;  // the most seen
};

// What a change of plans took.
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
  // Whether a stage beside the main one can run: one that was adopted cannot where it is optional and has ops
  // that the first plans had not.
  bool runs(std::string_view name) const;

  // Between two steps, goes on under other plans of the same programs, which are proved again: everything
  // that outlives a step moves to where they have it, and executors that were had end. The arenas stay, and
  // grow first where the plans need more. Caps hold all the while; `profile` says what is held beside arenas
  // and how fast copies are. What programs beside the main one have of their own is lost. An error leaves
  // all as it was, but for one with the detail "state", after which there is none.
  Result<Adopted> adopt(std::shared_ptr<const Stages> next, const Profile& profile);

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
  // Whether plans are of the programs that run here, on these devices.
  Status check_alike(const Stages& next) const;
  Status prove(const Stages& next) const;
  // Whether the caps have room for arenas of so many bytes and these plans.
  Status check_room(const Stages& next, const BytesByTier& bytes, const Profile& profile);

  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const Stages> stages_;
  std::unordered_set<std::string> prepared_;  // ops
  BytesByTier caps_;
  Arenas arenas_;
  BytesByTier arena_bytes_;
  double host_bytes_per_s_ = 0;  // of copies within the host, as seen in the last change; 0: none was
  bool annotated_ = false;
  std::unique_ptr<Executor> main_;
  std::vector<std::unique_ptr<Executor>> beside_;  // of Stages::beside, in its order; null: see runs()
  MemoryReport memory_;
};

}  // namespace sluice::core
