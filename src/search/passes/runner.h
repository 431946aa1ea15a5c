// SPDX-License-Identifier: Apache-2.0
// The one function through which every pass runs: it can leave a pass out, time it and check what it made.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/stopwatch.h"

namespace sluice::core {

enum class Pass : uint8_t {
  Units,
  Order,
  Prices,
  Saves,
  Unroll,
  Gaps,
  Relief,
  Drain,
  Early,
  Emit,
  Predict,
  Refine,
  Submission
};
constexpr size_t kPassCount = size_t(Pass::Submission) + 1;

struct PassFacts {
  std::string_view name, decides;
  bool optional;  // without it plans are as valid, and as a rule slower
};
const PassFacts& facts_of(Pass pass);
// Names of those that may be left out: "overlap, prices, ...".
std::string optional_passes();

// Any number of threads may run passes at once. What it records adds up over all searches that use it.
class PassRunner {
 public:
  struct Record {
    bool skipped = false;
    std::atomic<int64_t> runs = 0, checks = 0;
    std::atomic<int64_t> ns = 0;  // of all threads
  };

  // Leaves passes out: "drain,early". An error names those that may be.
  Status skip(std::string_view names);
  // Also runs the checks, which take as long as the passes. Without, the finished plan alone is proved.
  void check_all() { checking_ = true; }

  // Returns the result of `work`, or `instead` when the pass is left out. `check` finds faults of a result; a
  // pass that makes something wrong is our bug, and ends the program.
  template <class Result, class Work, class Check>
  Result run(Pass pass, Result instead, Work&& work, Check&& check) {
    Record& record = records_[size_t(pass)];
    if (record.skipped) return instead;
    const Stopwatch watch;
    Result result = work();
    record.ns += int64_t(1e9 * watch.seconds());
    ++record.runs;
    if (checking_) {
      require(pass, check(result));
      ++record.checks;
    }
    return result;
  }

  const Record& record_of(Pass pass) const { return records_[size_t(pass)]; }
  // A line per pass: what it decides, how often it ran, how long in all, how many results were checked.
  std::string table() const;

 private:
  static void require(Pass pass, const Status& status);

  std::array<Record, kPassCount> records_;
  bool checking_ = false;
};

}  // namespace sluice::core
