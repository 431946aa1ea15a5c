// SPDX-License-Identifier: Apache-2.0
#include "what_if/frontier.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <tuple>

#include "what_if/grid.h"

namespace sluice::core {
namespace {

constexpr int64_t kPrecision = 32;

RunConfig with_device_cap(const RunConfig& config, int64_t bytes) {
  BytesByTier caps = config.caps;
  caps[kDevice] = bytes;
  return under(config, caps);
}

// Finds the speeds of points, in parallel. Those that do not fit, and those that a stop leaves out, have
// none.
Status plan_points(std::vector<FrontierPoint>& points, const RunConfig& config, const Machine& machine,
                   const StudyWatch& watch) {
  const std::string doing = "planning pairs of caps";
  std::mutex mutex;
  Status status;
  int64_t done = 0;
  const auto count = int64_t(points.size());
  watch.say(doing, 0, count);
  for_each_parallel(count, planning_threads(machine), [&](int64_t i) {
    if (watch.stop.stop_requested()) return;
    FrontierPoint& point = points[size_t(i)];
    const auto found = outlook(under(config, point.caps), machine, watch);
    const std::lock_guard lock(mutex);
    if (!found.ok()) {
      if (found.error().kind != ErrorKind::Cancelled) status = found.error();
      return;
    }
    point.tokens_per_s = found->fits() ? found->speed.tokens_per_s : 0;
    watch.say(doing, ++done, count);
    watch.row(
        fmt::format("device {}, host {}: {}", cap_text(point.caps[kDevice]), cap_text(point.caps[kHost]),
                    found->fits() ? fmt::format("{:.0f} tokens/s", point.tokens_per_s) : "does not fit"));
  });
  return status;
}

std::vector<ComparedCard> find_cards(const RunConfig& config, const StudyWatch& watch) {
  std::vector<CardsOfHost> measured;
  for (const Card& card : cards()) {
    if (card.compared) measured.push_back({card});
  }
  const int64_t host_cap = config.caps[kHost];
  return compare_cards(with_device_cap(config, kUnlimited), measured, std::span(&host_cap, 1), watch);
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
// below. Less host memory makes the device hold more.
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

namespace {

// The pairs of caps, and the cards, once the run without caps is planned.
Status find_points(Frontier& f, const RunConfig& config, const Machine& machine, const StudyWatch& watch) {
  const int64_t most = readable_cap(f.device_bytes);
  LeastCaps least(
      [&](const BytesByTier& caps) -> Result<bool> {
        if (watch.stop.stop_requested()) return error(ErrorKind::Cancelled, "interrupted");
        watch.say(
            fmt::format("trying device {} beside host {}", cap_text(caps[kDevice]), cap_text(caps[kHost])), 0,
            0);
        return fits(under(config, caps), machine, watch);
      },
      kPrecision);
  BytesByTier caps = config.caps;
  caps[kDevice] = most;
  least.know(caps, true);
  caps = BytesByTier(kUnlimited);
  caps[kDevice] = machine.profile.held_beside(kDevice, 0, 0);
  least.know(caps, false);
  SLUICE_ASSIGN(const int64_t smallest, least.cap(kDevice, config.caps));
  SLUICE_ASSIGN(const Outlook tight,
                outlook(with_device_cap(config, readable_cap(smallest)), machine, watch));
  if (tight.refusal) return *tight.refusal;
  for (const int64_t host_cap : host_caps(config.caps[kHost], tight.bytes[kHost])) {
    caps = config.caps;
    caps[kHost] = host_cap;
    SLUICE_ASSIGN(const int64_t device_cap, least.cap(kDevice, caps));
    if (device_cap == 0) continue;
    for (const int64_t cap : ladder(readable_cap(device_cap), std::max(most, readable_cap(device_cap)))) {
      caps[kDevice] = cap;
      f.points.push_back({caps});
    }
  }
  SLUICE_TRY(plan_points(f.points, config, machine, watch));
  if (!watch.stop.stop_requested()) f.cards = find_cards(config, watch);
  return {};
}

}  // namespace

Result<Frontier> find_frontier(const RunConfig& config, const Machine& given, const StudyWatch& watch) {
  Frontier f;
  Machine machine = given;
  machine.card.reset();  // how much memory is worth is asked beyond what the card has, too
  watch.say("planning without caps", 0, 0);
  SLUICE_ASSIGN(const Outlook all, outlook(with_device_cap(config, kUnlimited), machine, watch));
  if (all.refusal) return *all.refusal;
  f.tokens_per_s = all.speed.tokens_per_s;
  f.devices = machine.devices();
  f.device_bytes = fullest_device(all.bytes);
  watch.row(
      fmt::format("without caps: {:.0f} tokens/s with {}", f.tokens_per_s, format_bytes(f.device_bytes)));
  const Status found = find_points(f, config, machine, watch);
  if (!found.ok() && found.error().kind != ErrorKind::Cancelled) return found.error();
  std::erase_if(f.points, [](const FrontierPoint& p) { return p.tokens_per_s == 0; });
  for (FrontierPoint& p : f.points) p.share = p.tokens_per_s / f.tokens_per_s;
  prune(f.points);
  return f;
}

std::string describe(const Frontier& f) {
  std::string out;
  if (!f.cards.empty())
    out += fmt::format("{:<16} {:>14} {:>12} {:>8}  {}\n", "with this card", "device cap", "tok/s", "MFU",
                       "what binds");
  for (const ComparedCard& c : f.cards) {
    const std::string speed = c.trains() ? fmt::format("{:>12.0f} {:>6.1f} %  {}", c.found.speed.tokens_per_s,
                                                       100 * c.found.speed.mfu, c.found.binds)
                                         : "does not fit: " + c.missing;
    out += fmt::format("{:<16} {:>14} {}\n", c.name(), cap_text(c.caps[kDevice]), speed);
  }
  out += fmt::format("{}without caps: {:.0f} tok/s with {} on {}\n\n", f.cards.empty() ? "" : "\n",
                     f.tokens_per_s, format_bytes(f.device_bytes),
                     f.devices == 1 ? "the device" : "the fullest of the devices, whose cap is that of each");
  if (f.points.empty()) return out;
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
