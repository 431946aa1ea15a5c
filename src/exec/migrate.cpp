// SPDX-License-Identifier: Apache-2.0
#include "exec/migrate.h"

#include <algorithm>
#include <mutex>

#include "backend/sim/sim_backend.h"
#include "base/bytes.h"
#include "base/parallel.h"
#include "base/stopwatch.h"

namespace sluice::core {
namespace {

// Threads share copies within the host by strips of so many bytes or more: those that wait for each other
// would have one thread otherwise.
constexpr int64_t kLeastStripBytes = 2 * kMiB;

class Run {
 public:
  Run(const Migration& m, Backend& backend, const Arenas& arenas, int threads)
      : m_(m),
        backend_(backend),
        host_(arenas[kHost]),
        threads_(threads),
        host_lane_(m.lanes.copy(kHost, kHost)),
        times_(m.lanes) {}

  Result<MigrationTimes> run() {
    const Stopwatch watch;
    const auto on_lanes = std::count_if(m_.copies.begin(), m_.copies.end(),
                                        [&](const auto& c) { return c.lane != host_lane_; });
    waits_.reserve(m_.waits.size());  // commands refer to it until the end
    SLUICE_TRY(backend_.begin(uint32_t(on_lanes), /*timed=*/true));
    const Status submitted = submit();
    std::vector<Interval> timeline;
    if (const auto fault = backend_.finish(&timeline)) return fault->error;
    SLUICE_TRY(submitted);
    for (size_t i = 0; i < timeline.size(); ++i)
      note(*of_command_[i], timeline[i].end_ns - timeline[i].start_ns);
    times_.seconds = watch.seconds();
    return std::move(times_);
  }

 private:
  Status submit() {
    command_.resize(m_.copies.size());
    for (size_t i = 0; i < m_.copies.size(); ++i) {
      const MigrationCopy& c = m_.copies[i];
      if (c.lane == host_lane_) {
        if (std::any_of(batch_.begin(), batch_.end(), [&](const auto* b) { return touch(*b, c); }))
          SLUICE_TRY(flush());
        batch_.push_back(&c);
        continue;
      }
      // The lanes know nothing of copies within the host: those are made before anything waits for them.
      const size_t first = waits_.size();
      for (const uint32_t w : m_.waits_of(c)) {
        if (m_.copies[w].lane == host_lane_) {
          SLUICE_TRY(flush());
        } else {
          waits_.push_back(command_[w]);
        }
      }
      command_[i] = uint32_t(of_command_.size());
      of_command_.push_back(&c);
      SLUICE_TRY(backend_.submit(
          {command_[i], c.lane, std::span(waits_).subspan(first), Copy{c.from, c.to, c.bytes}, c.cost_ns}));
    }
    return flush();
  }

  // Two copies within the host that touch each other's bytes are not made at once.
  static bool touch(const MigrationCopy& a, const MigrationCopy& b) {
    const auto overlap = [&](const Location& x, const Location& y) {
      return x.offset < y.offset + b.bytes && y.offset < x.offset + a.bytes;
    };
    return overlap(a.to, b.to) || overlap(a.to, b.from) || overlap(a.from, b.to);
  }

  // Makes the copies within the host that have gathered.
  Status flush() {
    if (batch_.empty()) return {};
    for (const MigrationCopy* c : batch_) {
      for (const uint32_t w : m_.waits_of(*c)) {
        if (m_.copies[w].lane != host_lane_) SLUICE_TRY(backend_.wait(command_[w]));
      }
    }
    const Stopwatch watch;
    int64_t all = 0;
    for (const MigrationCopy* c : batch_) all += c->bytes;
    const int64_t longest = std::max(kLeastStripBytes, align_up(all / (2 * threads_), kMiB));
    std::vector<Copy> strips;
    for (const MigrationCopy* c : batch_) {
      for (int64_t at = 0; at < c->bytes; at += longest)
        strips.push_back(
            {{kHost, c->from.offset + at}, {kHost, c->to.offset + at}, std::min(longest, c->bytes - at)});
    }
    std::mutex mutex;
    Status status;
    for_each_parallel(int64_t(strips.size()), threads_, [&](int64_t i) {
      const Copy& strip = strips[size_t(i)];
      const Status copied = backend_.upload(strip.to, host_ + strip.from.offset, strip.bytes);
      const std::lock_guard lock(mutex);
      if (status.ok()) status = copied;
    });
    times_.bytes[host_lane_] += all;
    times_.ns[host_lane_] += 1e9 * watch.seconds();
    batch_.clear();
    return status;
  }

  void note(const MigrationCopy& c, double ns) {
    times_.bytes[c.lane] += c.bytes;
    times_.ns[c.lane] += ns;
  }

  const Migration& m_;
  Backend& backend_;
  std::byte* const host_;
  const int threads_;
  const Lane host_lane_;
  MigrationTimes times_;
  std::vector<uint32_t> command_;                 // by copy
  std::vector<const MigrationCopy*> of_command_;  // by command
  std::vector<uint32_t> waits_;                   // of commands
  std::vector<const MigrationCopy*> batch_;
};

}  // namespace

double MigrationTimes::bytes_per_s(Lane lane) const {
  constexpr int64_t kEnoughToTell = 256 * kMiB;
  return bytes[lane] < kEnoughToTell ? 0 : 1e9 * double(bytes[lane]) / ns[lane];
}

Result<MigrationTimes> run_migration(const Migration& migration, Backend& backend, const Arenas& arenas,
                                     int threads) {
  return Run(migration, backend, arenas, threads).run();
}

void predict(Migration& m) {
  SimBackend sim({}, m.lanes);
  std::vector<Command> commands;
  for (const MigrationCopy& c : m.copies)
    commands.push_back(
        {uint32_t(commands.size()), c.lane, m.waits_of(c), Copy{c.from, c.to, c.bytes}, c.cost_ns});
  const auto times = run_commands(sim, commands);
  SLUICE_CHECK(times.ok(), "the simulator failed: {}", times.message());
  m.makespan_ns = 0;
  for (const Interval& time : *times) m.makespan_ns = std::max(m.makespan_ns, time.end_ns);
}

}  // namespace sluice::core
