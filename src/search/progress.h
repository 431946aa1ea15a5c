// SPDX-License-Identifier: Apache-2.0
// How far a search is, told to those who wait for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>

namespace sluice::core {

struct SearchProgress {
  std::string_view what;  // "planning shapes"; valid during the call
  int64_t tried = 0;
  int64_t at_most = 0;  // candidates that there may be in all; 0: unknown
  double best_ns = 0;   // the step of the fastest so far; 0: none
};
// Called on the thread that asked for the search.
using SearchWatch = std::function<void(const SearchProgress&)>;

// Candidates of a part of a search, which several threads try.
class Candidates {
 public:
  // `watch` may be empty, and outlives this.
  Candidates(const SearchWatch& watch, std::string_view what, int64_t at_most = 0)
      : watch_(watch), what_(what), at_most_(at_most), caller_(std::this_thread::get_id()) {
    say();
  }
  // From any thread; the caller's own says how far all are.
  void count() {
    ++tried_;
    if (std::this_thread::get_id() == caller_) say();
  }
  // From the caller's thread.
  void expect(int64_t at_most) { at_most_ = at_most, say(); }
  void best(double ns) { best_ns_ = ns, say(); }
  int64_t tried() const { return tried_; }

 private:
  void say() const {
    if (watch_) watch_({what_, tried_, at_most_, best_ns_});
  }

  const SearchWatch& watch_;
  const std::string_view what_;
  std::atomic<int64_t> tried_ = 0;
  int64_t at_most_;
  double best_ns_ = 0;
  const std::thread::id caller_;
};

}  // namespace sluice::core
