// SPDX-License-Identifier: Apache-2.0
#include "study/frontier.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <mutex>
#include <tuple>

#include "study/sweep_table.h"

namespace sluice::core {
namespace {

constexpr int64_t kPrecision = 32;

RunConfig with_caps(RunConfig config, const BytesByTier& caps) {
  config.caps = caps;
  return config;
}

RunConfig with_device_cap(RunConfig config, int64_t bytes) {
  config.caps[kDevice] = bytes;
  return config;
}

// Runs the outlooks of many configurations; the first error that is no refusal ends it.
class Batch {
 public:
  Batch(const std::atomic<bool>& interrupted) : interrupted_(interrupted) {}
  void add(RunConfig config, Machine machine) { tasks_.emplace_back(std::move(config), std::move(machine)); }

  Result<std::vector<Outlook>> run(const std::string& doing, const SayWork& say) {
    std::vector<Outlook> out(tasks_.size());
    std::mutex mutex;
    Status status;
    int64_t done = 0;
    say(doing, 0, int64_t(tasks_.size()));
    const int threads = tasks_.empty() ? 1 : planning_threads(tasks_.front().second);
    for_each_parallel(int64_t(tasks_.size()), threads, interrupted_, [&](int64_t i) {
      const auto& [config, machine] = tasks_[size_t(i)];
      auto found = outlook(config, machine);
      const std::lock_guard lock(mutex);
      say(doing, ++done, int64_t(tasks_.size()));
      if (found.ok()) {
        out[size_t(i)] = std::move(*found);
      } else {
        status = found.error();
      }
    });
    SLUICE_TRY(std::move(status));
    if (interrupted_) return error(ErrorKind::Cancelled, "interrupted");
    return out;
  }

 private:
  const std::atomic<bool>& interrupted_;
  std::vector<std::pair<RunConfig, Machine>> tasks_;
};

Result<std::vector<ComparedCard>> find_cards(const RunConfig& config, const std::atomic<bool>& interrupted,
                                             const SayWork& say) {
  std::vector<Card> measured;
  std::copy_if(cards().begin(), cards().end(), std::back_inserter(measured),
               [](const Card& card) { return card.compared; });
  const int64_t host_cap = config.caps[kHost];
  return compare_cards(with_device_cap(config, kUnlimited), measured, std::span(&host_cap, 1), interrupted,
                       say);
}

// The largest of 1, 1.5, 2, 3, 4, 6, 8, 12, ... bytes, and the like in larger units, that is at most `bytes`:
// what memories are sold in. REQUIRES: bytes > 1.
int64_t round_size_below(int64_t bytes) {
  const auto power = int64_t(std::bit_floor(uint64_t(bytes)));
  return power + power / 2 <= bytes ? power + power / 2 : power;
}

// `least`, round sizes above it, and `most`.
std::vector<int64_t> ladder(int64_t least, int64_t most) {
  std::vector<int64_t> out{most};
  for (int64_t cap = round_size_below(most - 1); cap > least; cap = round_size_below(cap - 1)) {
    out.push_back(cap);
  }
  if (most > least) out.push_back(least);
  std::reverse(out.begin(), out.end());
  return out;
}

// All of what the run takes from the host when the device holds as little as it can, and the next round sizes
// below: less host memory makes the device hold more.
std::vector<int64_t> host_caps(int64_t given, int64_t used) {
  const int64_t most = given == kUnlimited ? readable_cap(used) : given;
  const int64_t less = round_size_below(most - 1);
  return {most, less, round_size_below(less - 1)};
}

}  // namespace

void prune(std::vector<FrontierPoint>& points) {
  const auto by_caps = [](const FrontierPoint& p) { return std::tie(p.caps[kDevice], p.caps[kHost]); };
  std::sort(points.begin(), points.end(),
            [&](const auto& a, const auto& b) { return by_caps(a) < by_caps(b); });
  std::vector<FrontierPoint> kept;
  for (const FrontierPoint& p : points) {
    const bool beaten = std::any_of(points.begin(), points.end(), [&](const FrontierPoint& q) {
      const bool no_more = within(q.caps, p.caps);
      const bool same = by_caps(q) == by_caps(p);
      return no_more && (q.tokens_per_s > p.tokens_per_s || (q.tokens_per_s == p.tokens_per_s && !same));
    });
    if (!beaten && (kept.empty() || by_caps(kept.back()) != by_caps(p))) kept.push_back(p);
  }
  points = std::move(kept);
}

Result<Frontier> find_frontier(const RunConfig& config, const Machine& given,
                               const std::atomic<bool>& interrupted, const SayWork& say) {
  Frontier f;
  Machine machine = given;
  machine.card.reset();  // how much memory is worth is asked beyond what the card has, too
  say("planning without caps", 0, 0);
  SLUICE_ASSIGN(const Outlook all, outlook(with_device_cap(config, kUnlimited), machine));
  if (all.refusal) return *all.refusal;
  f.tokens_per_s = all.speed.tokens_per_s;
  f.devices = machine.devices();
  f.device_bytes = fullest_device(all.bytes);
  const int64_t most = readable_cap(f.device_bytes);
  LeastCaps least(
      [&](const BytesByTier& caps) -> Result<bool> {
        if (interrupted) return error(ErrorKind::Cancelled, "interrupted");
        say(fmt::format("trying device {} beside host {}", cap_text(caps[kDevice]), cap_text(caps[kHost])), 0,
            0);
        return fits(with_caps(config, caps), machine);
      },
      kPrecision);
  BytesByTier caps = config.caps;
  caps[kDevice] = most;
  least.know(caps, true);
  caps = BytesByTier(kUnlimited);
  caps[kDevice] = machine.profile.overhead_bytes[kDevice];
  least.know(caps, false);
  SLUICE_ASSIGN(const int64_t smallest, least.cap(kDevice, config.caps));
  SLUICE_ASSIGN(const Outlook tight, outlook(with_device_cap(config, readable_cap(smallest)), machine));
  if (tight.refusal) return *tight.refusal;

  Batch batch(interrupted);
  for (const int64_t host_cap : host_caps(config.caps[kHost], tight.bytes[kHost])) {
    caps = config.caps;
    caps[kHost] = host_cap;
    SLUICE_ASSIGN(const int64_t device_cap, least.cap(kDevice, caps));
    if (device_cap == 0) continue;
    for (const int64_t cap : ladder(readable_cap(device_cap), std::max(most, readable_cap(device_cap)))) {
      caps[kDevice] = cap;
      f.points.push_back({caps});
      batch.add(with_caps(config, caps), machine);
    }
  }
  SLUICE_ASSIGN(const std::vector<Outlook> found, batch.run("planning pairs of caps", say));
  for (size_t i = 0; i < found.size(); ++i) {
    f.points[i].tokens_per_s = found[i].fits() ? found[i].speed.tokens_per_s : 0;
    f.points[i].share = f.points[i].tokens_per_s / f.tokens_per_s;
  }
  std::erase_if(f.points, [](const FrontierPoint& p) { return p.tokens_per_s == 0; });
  prune(f.points);
  SLUICE_ASSIGN(f.cards, find_cards(config, interrupted, say));
  return f;
}

std::string describe(const Frontier& f) {
  std::string out = fmt::format("{:<16} {:>14} {:>12} {:>8}  {}\n", "with this card", "device cap", "tok/s",
                                "MFU", "what binds");
  for (const ComparedCard& c : f.cards) {
    const std::string speed = c.trains() ? fmt::format("{:>12.0f} {:>6.1f} %  {}", c.found.speed.tokens_per_s,
                                                       100 * c.found.speed.mfu, c.found.binds)
                                         : "does not fit: " + c.missing;
    out += fmt::format("{:<16} {:>14} {}\n", c.name(), cap_text(c.caps[kDevice]), speed);
  }
  out += fmt::format("\nwithout caps: {:.0f} tok/s with {} on {}\n\n", f.tokens_per_s,
                     format_bytes(f.device_bytes),
                     f.devices == 1 ? "the device" : "the fullest of the devices, whose cap is that of each");
  out += fmt::format("{:>14} {:>14} {:>12} {:>14}  {}\n", "device cap", "host cap", "tok/s", "of uncapped",
                     "smallest card with that memory");
  for (const FrontierPoint& p : f.points) {
    const auto fits = std::find_if(cards().begin(), cards().end(), [&](const Card& c) {
      return c.compared && c.usable_bytes() >= p.caps[kDevice];
    });
    out += fmt::format("{:>14} {:>14} {:>12.0f} {:>12.1f} %  {}\n", cap_text(p.caps[kDevice]),
                       cap_text(p.caps[kHost]), p.tokens_per_s, 100 * p.share,
                       fits == cards().end() ? "none" : fits->name);
  }
  return out;
}

}  // namespace sluice::core
