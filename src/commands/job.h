// SPDX-License-Identifier: Apache-2.0
// The processes that a launcher started with one command, as that command sees them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "comm/watch.h"
#include "machine/machine.h"

namespace sluice::core {

// Joins the processes that were started together with this one, by MPI or at torchrun's meeting point. That
// is for GPUs: an error where this program or this machine has none, with the line to type.
Result<std::unique_ptr<ProcessGroup>> join_processes(const ProcessLaunch& launch);

class Job {
 public:
  // Joins the processes that were started together with this one; without a launcher, or where it started one
  // alone, that is a job of one. `command` is named in errors: "train".
  static Result<Job> join(std::string_view command);
  Job() = default;
  Job(Job&&) = default;
  Job& operator=(Job&&) = default;
  // Leaves it, and ends the group.
  ~Job() {
    if (watch_ != nullptr) watch_->leave();
  }

  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int here() const { return group_ == nullptr ? 1 : group_->here(); }  // of this host
  int place_here() const { return place_here_; }                       // among these, from 0
  // The process that talks to people and writes files.
  bool speaks() const { return rank() == 0; }
  bool alone() const { return size() == 1; }

  // Every process has to make the calls below, in the same order; in a job of one they do nothing.
  //
  // An error where any process has one, on all: that of the lowest rank, which is named. It has the detail
  // kSaid; as process 0 says it, and launchers end everybody at the first that fails, that of the others is
  // kElsewhere.
  static constexpr std::string_view kSaid = "said", kElsewhere = "elsewhere";
  Status agree(const Status& own);
  // Gives everybody what process 0 has.
  Status share(std::string& text);
  // T is plain data.
  template <class T>
  Status share(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return alone() ? Status() : group_->broadcast(std::as_writable_bytes(std::span(&value, 1)), 0);
  }
  // An error where `own` differs from what process 0 has; `difference` says how, of process 0's and this
  // one's.
  Status expect_same(
      const std::string& own,
      const std::function<std::string(const std::string& first, const std::string& own)>& difference);
  // Values of all processes, in the order of ranks. A process that cannot learn that ends the job.
  std::vector<uint8_t> gather(uint8_t own);
  // Runs it in process 0, then in the first of each other host, then in the rest. These may find what those
  // left on a disk of their host, and measure alone. Once process 0 has run it, all call `share`, if there is
  // one.
  Status first_here(const std::function<Status()>& run, const std::function<Status()>& share = {});
  // Gives hosts that lack the folder `from` of process 0 a copy of its files, in a folder of its own in `in`;
  // `from` becomes that there.
  Status bring(std::string& from, const std::filesystem::path& in);
  // Whether every process sees the files that the others write into a folder of process 0's, as it is tried.
  Result<bool> all_see(const std::filesystem::path& folder);
  // Removes what bring() made, which otherwise stays as long as the job.
  void drop_copies() { copy_.reset(); }

  // From now on processes send heartbeats. One that sends none for `lost_after` seconds is lost: all end, and
  // process 0 says which it is, where, and what it was at. One that is late is named as often. 0: none are
  // sent.
  Status watch(const Machine& machine, int64_t lost_after);
  // Tells the others this process's stage.
  void at(std::string_view stage);

  // Whether this machine may take part: where torchrun launched, one with a device of its own.
  Status check(const Machine& machine) const;
  // Has a machine share steps with the others (run/processes/processes.h), and says where devices of theirs
  // exchange by way of the host, and why.
  Status put_on(Machine& machine);
  // That compute here: a share of the host's cores; 0: the process is alone, and has all.
  int threads() const;

  // After an error that the others may not have: says it and ends all processes.
  [[noreturn]] void abandon(const Error& why);

 private:
  // Gives everybody what process `root` has.
  Status broadcast(std::string& text, int root);

  struct Remove {
    void operator()(const std::filesystem::path* path) const {
      std::error_code ignored;
      std::filesystem::remove_all(*path, ignored);
      delete path;
    }
  };
  std::unique_ptr<const std::filesystem::path, Remove> copy_;
  std::optional<ProcessLaunch> launch_;
  std::unique_ptr<Activity> activity_;
  std::unique_ptr<Watch> watch_;  // takes leave when the group has ended, in which others may be waited for
  std::unique_ptr<ProcessGroup> group_;  // null: alone
  std::unique_ptr<DeviceNetwork> device_network_;
  int place_here_ = 0;
};

}  // namespace sluice::core
