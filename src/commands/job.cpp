// SPDX-License-Identifier: Apache-2.0
#include "commands/job.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "commands/say.h"
#include "host/cores.h"
#include "host/unguessable.h"
#include "run/processes/processes.h"

namespace sluice::core {

Result<std::unique_ptr<ProcessGroup>> join_processes(const ProcessLaunch& launch) {
  if (!launch.meeting) {
    SLUICE_ASSIGN(auto group, join_by_mpi(launch));
    if (group->here() == group->size()) return group;  // by memory that processes of a host share
    SLUICE_ASSIGN(const std::string why_not, exchange_by_tcp(group));
    if (!why_not.empty() && group->rank() == 0)
      say(stderr, "note: what hosts exchange passes through MPI, which takes more of their cores: {}\n",
          why_not);
    return group;
  }
  // Before anybody is waited for: what is left in the environment of a shell is no launch.
  const bool has_device = std::ranges::any_of(backends(), [](const BackendKind* kind) {
    return kind->traits.runs_models && !kind->traits.shares_cores && kind->find({}).ok();
  });
  if (!has_device) return refused_on_cpus(launch);
  return join_by_tcp(launch, [](const std::string& text) { say(stderr, "note: {}\n", text); });
}

Result<Job> Job::join(std::string_view command) {
  Job job;
  SLUICE_ASSIGN(const std::optional<ProcessLaunch> launch, launch_of_this_process());
  if (!launch || launch->size < 2) return job;
  auto group = join_processes(*launch);
  if (!group.ok())
    return error_at(fmt::format("{} {} of {} processes", launch->by, command, launch->size), group.error());
  job.launch_ = launch;
  job.activity_ = std::make_unique<Activity>();
  job.activity_->stage("its start");
  job.group_ = counted_by(*job.activity_, std::move(*group));
  SLUICE_ASSIGN(job.place_here_, core::place_here(*job.group_));
  return job;
}

Status Job::agree(const Status& own) {
  if (alone()) return own;
  SLUICE_ASSIGN(const auto failed, gathered(*group_, uint8_t(own.ok() ? 0 : 1)));
  const auto first = std::ranges::find(failed, uint8_t{1});
  if (first == failed.end()) return {};
  const int rank = int(first - failed.begin());
  std::string text = own.ok() || rank != this->rank() ? "" : own.message();
  SLUICE_TRY(broadcast(text, rank));
  if (!speaks()) return Error{"", ErrorKind::Invalid, {{std::string(kSaid), std::string(kElsewhere)}}};
  // An error of all processes belongs to none.
  const bool all = std::ranges::all_of(failed, [](uint8_t f) { return f == 1; });
  Error out = rank == 0 ? own.error() : error("{}", text);
  if (!all) out.message = fmt::format("process {} of {}: {}", rank, size(), text);
  out.details.emplace_back(kSaid, "here");
  return out;
}

Status Job::broadcast(std::string& text, int root) {
  uint64_t length = text.size();
  SLUICE_TRY(group_->broadcast(std::as_writable_bytes(std::span(&length, 1)), root));
  text.resize(length);
  return group_->broadcast(std::as_writable_bytes(std::span(text)), root);
}

Status Job::share(std::string& text) {
  return alone() ? Status() : broadcast(text, 0);
}

Status Job::expect_same(
    const std::string& own,
    const std::function<std::string(const std::string& first, const std::string& own)>& difference) {
  std::string first = own;
  SLUICE_TRY(share(first));
  return agree(first == own ? Status() : Status(error("{}", difference(first, own))));
}

std::vector<uint8_t> Job::gather(uint8_t own) {
  if (alone()) return {own};
  auto all = gathered(*group_, own);
  if (!all.ok()) abandon(all.error());
  return std::move(*all);
}

Status Job::first_here(const std::function<Status()>& run, const std::function<Status()>& share) {
  SLUICE_TRY(agree(speaks() ? run() : Status()));
  if (alone()) return {};
  if (share) SLUICE_TRY(share());
  const bool first = group_->host() == rank();
  SLUICE_TRY(agree(first && !speaks() ? run() : Status()));
  return agree(first ? Status() : run());
}

Status Job::bring(std::string& from, const std::filesystem::path& in) {
  if (alone() || from.empty()) return {};
  std::error_code failure;
  const bool lacks = !std::filesystem::is_directory(from, failure);
  struct Lack {
    int lacks, host;
    uint64_t name;  // of the copy: hosts may share the folder that it lies in
  };
  SLUICE_ASSIGN(const auto all, gathered(*group_, Lack{lacks ? 1 : 0, group_->host(), unguessable()}));
  const auto here = [&](const Lack& l) { return l.lacks != 0 && l.host == group_->host(); };
  if (std::ranges::none_of(all, &Lack::lacks)) return {};
  // One of each host writes for the others.
  const auto writer = std::ranges::find_if(all, here);
  const bool writes = lacks && writer - all.begin() == rank();
  const std::filesystem::path to =
      in / fmt::format("brought-{:016x}", writer == all.end() ? 0 : writer->name);
  Status own;
  std::vector<std::string> names;
  if (speaks()) {
    for (const auto& entry : std::filesystem::directory_iterator(from, failure))
      if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
    if (failure) own = error(ErrorKind::Io, "{}: {}", from, failure.message());
  } else if (writes) {
    copy_.reset(new std::filesystem::path(to));
    std::filesystem::create_directories(to, failure);
    if (failure) own = error(ErrorKind::Io, "{} cannot be made: {}", to.string(), failure.message());
  }
  SLUICE_TRY(agree(own));
  std::string list = fmt::format("{}", fmt::join(names, "\n"));
  SLUICE_TRY(share(list));
  std::vector<std::byte> piece(64 << 20);
  for (size_t at = 0; at < list.size();) {
    const std::string name = list.substr(at, list.find('\n', at) - at);
    at += name.size() + 1;
    std::ifstream source;
    std::ofstream out;
    uint64_t left = 0;
    if (speaks()) {
      source.open(std::filesystem::path(from) / name, std::ios::binary);
      left = std::filesystem::file_size(std::filesystem::path(from) / name, failure);
      if (!source || failure) own = error(ErrorKind::Io, "{}/{} cannot be read", from, name);
    }
    if (writes) out.open(to / name, std::ios::binary);
    SLUICE_TRY(agree(own));
    SLUICE_TRY(group_->broadcast(std::as_writable_bytes(std::span(&left, 1)), 0));
    for (; left > 0; left -= std::min<uint64_t>(left, piece.size())) {
      const auto bytes = std::span(piece).first(std::min<uint64_t>(left, piece.size()));
      if (speaks() && !source.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(bytes.size())))
        own = error(ErrorKind::Io, "{}/{} cannot be read", from, name);
      SLUICE_TRY(group_->broadcast(bytes, 0));
      if (writes) out.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    }
    if (writes && !out.flush()) own = error(ErrorKind::Io, "{} cannot be written", (to / name).string());
  }
  if (lacks) from = to.string();
  return agree(own);
}

Result<bool> Job::all_see(const std::filesystem::path& folder) {
  if (alone()) return true;
  std::error_code failure;
  // Each writes a file beside it with what it read there.
  std::string path;
  // The next start in the directory removes those that a killed process leaves (io/file.h).
  const auto file_of = [&](int process) { return fmt::format("{}.{}.tmp", path, process); };
  const auto read = [](const std::string& from) {
    std::ifstream in(from, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const auto write = [](const std::string& to, const std::string& text) {
    std::ofstream out(to, std::ios::binary);
    out << text;
    return bool(out.flush());
  };
  if (speaks()) {
    path =
        (std::filesystem::absolute(folder, failure) / fmt::format(".seen-{:016x}", unguessable())).string();
    if (failure || !write(file_of(0), path)) path.clear();
  }
  SLUICE_TRY(share(path));
  const bool wrote = speaks() || (!path.empty() && read(file_of(0)) == path && write(file_of(rank()), path));
  const std::vector<uint8_t> all = gather(uint8_t(wrote && !path.empty() ? 1 : 0));
  uint8_t seen = std::ranges::count(all, uint8_t{1}) == size() ? 1 : 0;
  for (int process = 0; speaks() && !path.empty() && process < size(); ++process) {
    if (read(file_of(process)) != path) seen = 0;
    std::filesystem::remove(file_of(process), failure);
  }
  SLUICE_TRY(share(seen));
  return seen == 1;
}

Status Job::watch(const Machine& machine, int64_t lost_after) {
  if (alone()) return {};
  group_->watched();  // or nobody wants it to be
  // Who wants none has none sent to it.
  if (std::ranges::count(gather(uint8_t(lost_after > 0 ? 1 : 0)), uint8_t{0}) > 0) return {};
  char host[HOST_NAME_MAX + 1] = "a host without a name";
  (void)::gethostname(host, sizeof host - 1);
  const std::chrono::milliseconds limit = std::chrono::seconds(lost_after);
  Watch::Callbacks callbacks;
  // Heartbeats go on, and a job ends, where nobody reads what is said of it.
  callbacks.late = [](const std::string& text) { say_without_waiting(text + "\n"); };
  callbacks.lost = [](const std::string& text) {
    const std::string said =
        fmt::format("sluice: {}; all processes end, and what was saved is whole\n", text);
    for (int i = 0; !text.empty() && i < 10 && !say_without_waiting(said); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::_Exit(1);  // the main thread may wait for the lost process for ever
  };
  auto watch = Watch::start(*group_, *activity_,
                            {.lost_after = limit,
                             .beat = std::min(limit / 10, std::chrono::milliseconds(1000)),
                             .name = fmt::format("{}, {}", host, machine.description)},
                            std::move(callbacks));
  const bool here = !watch.ok() && watch.error().detail(Watch::kElsewhere).empty();
  const Status begun = agree(here ? Status(watch.error()) : Status());
  if (watch.ok()) watch_ = std::move(*watch);
  // Training needs none.
  if (!begun.ok() && speaks())
    say(stderr, "note: no heartbeats, so that a process that hangs is waited for: {}\n", begun.message());
  return {};
}

void Job::at(std::string_view stage) {
  if (activity_ != nullptr) activity_->stage(stage);
}

Status Job::check(const Machine& machine) const {
  if (!launch_ || !launch_->meeting || !machine.traits().shares_cores) return {};
  return refused_on_cpus(*launch_);
}

Status Job::put_on(Machine& machine) {
  if (alone()) return {};
  auto joined = share_steps(machine, *group_);
  if (!joined.ok()) abandon(joined.error());
  device_network_ = std::move(joined->network);
  if (speaks() && device_network_) say("joined by {}: sums go from GPU to GPU\n", device_network_->name());
  if (speaks() && !joined->why_not.empty())
    say(stderr, "note: sums of gradients pass through the host: {}\n", joined->why_not);
  return {};
}

int Job::threads() const {
  return alone() ? 0 : cores_of_each(allowed_cores(), all_cores(), here());
}

void Job::abandon(const Error& why) {
  say(stderr, "sluice: process {} of {}: {}\n", rank(), size(), why.message);
  std::fflush(stderr);
  if (watch_ != nullptr) watch_->abandon();
  if (group_ != nullptr) group_->abandon();
  std::abort();
}

}  // namespace sluice::core
