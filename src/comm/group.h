// SPDX-License-Identifier: Apache-2.0
// Processes that work on one job, and what they send one another.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/network.h"
#include "comm/launch.h"
#include "comm/sum_in_order.h"

namespace sluice::core {

// The processes of a job, numbered from 0. A call returns when this rank's part of it is done. After an
// error, of a call or of what a rank does between calls, the others may wait for it for ever: it says what is
// wrong and calls abandon().
class ProcessGroup : public Network {
 public:
  virtual int here() const = 0;  // ranks on this host
  virtual int host() const = 0;  // the lowest of them

  virtual Status barrier() = 0;
  // OrderedSum's.
  Status sum(std::span<std::byte> values, DType dtype) override { return sum_(values, dtype); }
  // Makes `values` their sums over all ranks, in an order that the library chooses: to compare with, as its
  // bits differ with the number of bytes and ranks.
  virtual Status sum_in_any_order(std::span<float> values) = 0;

  // From now on something else finds out who is lost. Until then a rank that others wait for, and that says
  // nothing for minutes, is an error of the call.
  virtual void watched() {}

  // Ends this process, and those of all ranks where the launcher lets it.
  [[noreturn]] virtual void abandon() = 0;

  // The first `ranks` of these as a group of their own; null on the others. Every rank has to call it.
  // REQUIRES: 1 <= ranks <= size().
  virtual Result<std::unique_ptr<ProcessGroup>> first(int ranks) = 0;

 private:
  OrderedSum sum_{*this};
};

// Whether `own` holds on any rank; the same on all.
Result<bool> any(ProcessGroup& group, bool own);

// How many of the ranks below this one are on its host. Every rank has to call it.
Result<int> place_here(ProcessGroup& group);

// Threads of this process as the ranks of a job: rank i is the group at i, to be used by a thread of its own.
std::vector<std::unique_ptr<ProcessGroup>> groups_of_threads(int ranks);

// Joins the job that this process was launched in by MPI; at most once in a process. What the group's
// destructor ends cannot be begun again. The error names what to install where this build has no MPI.
Result<std::unique_ptr<ProcessGroup>> join_by_mpi(const ProcessLaunch& launch);
// Has what the group exchanges pass through TCP connections of our own, except sum_in_any_order(), unless the
// library that launched it is much faster, as over InfiniBand. Libraries look for what comes all the time,
// which costs the threads that compute beside them their cores. Returns why it does not, and the group is
// then as before; empty: it does, on all ranks, each of which has to call it.
Result<std::string> exchange_by_tcp(std::unique_ptr<ProcessGroup>& group);
// A group over TCP connections of our own, at launch.meeting, which there has to be. Good for what processes
// agree on; their devices exchange more, by other ways. Process 0 is told now and then who is missing; once
// that has taken five minutes it is an error on all, with the ranks that did not come.
Result<std::unique_ptr<ProcessGroup>> join_by_tcp(
    const ProcessLaunch& launch, const std::function<void(const std::string&)>& waiting = {});

}  // namespace sluice::core
