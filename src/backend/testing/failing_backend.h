// SPDX-License-Identifier: Apache-2.0
// A backend that fails once, at a call of the test's choice.
#pragma once

#include <atomic>
#include <optional>

#include "backend/testing/forwarding.h"

namespace sluice::core {

// Counts the calls of reserve, prepare, begin, submit, wait, finish, upload, download and clear from 1. Call
// number `fail_at` fails with "injected failure at call N", the others reach the inner backend. A test that
// lets fail_at run from 1 to the number of calls of a good run visits every place where a backend can fail.
//
// A failing submit behaves as backend.h says of a fault. Its command and all later ones of the step do not
// run, and finish() waits for the earlier ones and then reports the fault with the command's id.
class FailingBackend final : public ForwardingBackend {
 public:
  // How a submit fails; other calls always fail when they are made.
  enum class Mode {
    Synchronous,   // submit() itself returns the error, and so do all later ones of the step
    Asynchronous,  // submit() and all later ones of the step succeed; only finish() tells
  };

  FailingBackend(InnerBackend inner, int64_t fail_at, Mode mode)
      : ForwardingBackend(std::move(inner)), fail_at_(fail_at), mode_(mode) {}

  int64_t calls() const { return calls_; }
  // Whether the failure has been injected.
  bool failed() const { return calls_ >= fail_at_; }

  Result<Arenas> reserve(const BytesByTier& bytes) override;
  Status prepare(std::span<const SharedOp> ops) override;
  Status begin(uint32_t commands, bool timed) override;
  Status submit(const Command& command) override;
  Status wait(uint32_t command) override;
  std::optional<Fault> finish(std::vector<Interval>* timeline) override;

 private:
  Status reach(Tier) override { return count(); }
  // Counts one call: an error if it is the one to fail.
  Status count();

  int64_t fail_at_;
  Mode mode_;
  std::atomic<int64_t> calls_ = 0;
  std::optional<Fault> fault_;  // of this step
};

}  // namespace sluice::core
