// SPDX-License-Identifier: Apache-2.0
// A model in memory under its plans: the one owner of its backend, arenas and executors, whether it is
// trained, evaluated or generates.
#pragma once

#include <memory>
#include <string_view>
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

  // Gives all commands paths for profilers.
  void annotate();

  const MemoryReport& memory();
  const BytesByTier& peak_bytes() const { return memory_.peak_bytes; }  // that memory() and checks saw
  // An error when a cap is exceeded.
  Status check_caps();

 private:
  Loaded(std::unique_ptr<Backend> backend, const Stages& stages, const BytesByTier& caps)
      : backend_(std::move(backend)), stages_(&stages), caps_(caps) {}

  std::unique_ptr<Backend> backend_;
  const Stages* stages_;
  BytesByTier caps_;
  Arenas arenas_;
  std::unique_ptr<Executor> main_;
  std::vector<std::unique_ptr<Executor>> beside_;  // of Stages::beside, in its order
  MemoryReport memory_;
};

}  // namespace sluice::core
