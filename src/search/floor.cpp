// SPDX-License-Identifier: Apache-2.0
#include "search/floor.h"

#include <algorithm>
#include <cmath>

namespace sluice::core {
namespace {

// Budgets to the octave: each is half a per cent more than the one before.
constexpr int kToTheOctave = 128;
constexpr double kClose = 1.3;
// Packing is no even business: a plan of a smaller budget may take less of the host. In large programs, whose
// plans cost more and vary less, it is at most so many steps below.
constexpr int kSteps = 8;
// Parts of what can be pinned at most, tried until one packs.
constexpr int kParts = 32;
constexpr int kTried[] = {32, 31, 30, 28, 24, 16, 0};
constexpr double kLeastShare = 0.8;  // of the device's budget
// Plans of few rounds take about as much of the host as those of all: packing differs by less than this part.
constexpr int64_t kGuideIsOff = 64;

}  // namespace

int64_t Floor::least_on_device() {
  if (least_on_device_ == 0) least_on_device_ = std::max<int64_t>(1, plans_.least_on_device());
  return least_on_device_;
}

int64_t Floor::resident_bytes() {
  if (resident_bytes_ == 0) resident_bytes_ = std::max<int64_t>(1, plans_.resident_bytes());
  return resident_bytes_;
}

int64_t Floor::least_budget() {
  if (least_budget_ == 0) {
    least_budget_ = least_on_device();
    // The budgets that small programs are searched at begin with the least, which is worth finding out.
    if (!plans_.is_large() && tightest().device_bytes < kUnlimited) least_budget_ = tightest().device_bytes;
  }
  return least_budget_;
}

// By square roots and products, which are rounded alike everywhere: plans are the same on every machine.
int64_t Floor::budget(int step) {
  double root = 2, bytes = double(least_budget());
  for (int n = kToTheOctave; n > 1; n /= 2) root = std::sqrt(root);
  for (int i = 0; i < step % kToTheOctave; ++i) bytes *= root;
  return align_up(int64_t(std::ldexp(bytes, step / kToTheOctave)), plans_.limits.alignment);
}

int64_t Floor::bytes_in_all_tiers() {
  if (all_bytes_ == 0) all_bytes_ = plans_.least_in_all_tiers();
  return all_bytes_;
}

bool Floor::fits_by_bytes(int64_t device_bytes, int64_t host_bytes) {
  const double devices = double(plans_.placement().devices);
  return device_bytes >= least_budget() &&
         devices * double(device_bytes) + double(host_bytes) >= double(bytes_in_all_tiers());
}

bool Floor::leaves_much(int64_t device_bytes, int64_t host_bytes) {
  constexpr double kMoreOnDevice = 1.5, kMoreInAll = 1.2;
  const double devices = double(plans_.placement().devices);
  return double(device_bytes) > kMoreOnDevice * double(least_budget()) &&
         devices * double(device_bytes) + double(host_bytes) > kMoreInAll * double(bytes_in_all_tiers());
}

int Floor::step_within(int64_t device_bytes) {
  int step = -1;
  while (budget(step + kToTheOctave) <= device_bytes) step += kToTheOctave;
  while (budget(step + 1) <= device_bytes) ++step;
  return step;
}

const Floor::Point& Floor::tightest() {
  if (tightest_) return *tightest_;
  tightest_ = Point{{.rule = SaveRule::LeastDevice, .floor = true}};
  const StepSchedule s = plans_.unrolled(false, plans_.all_again());
  Limits limits = plans_.limits;
  limits.bytes[kHost] = kUnlimited / 4;
  limits.host_is_short = limits.host_closely = true;
  const auto fits = [&](int64_t budget) {
    limits.set_device_bytes(budget);
    const auto cuts = plans_.gaps_cut(s, limits, {}, 0);
    if (!cuts) return false;
    std::vector<Residency> least = plans_.resident(s, limits, *cuts, 0);
    // Nothing early, nothing lingering: the tightest there is.
    MissingRoom missing_room;
    for (const bool search_places : {false, true}) {
      if (search_places && !plans_.is_small()) break;
      limits.search_places = search_places;
      const auto plan = plans_.emitted(s, least, limits, missing_room);
      if (!plan) continue;
      tightest_->device_bytes = budget;
      tightest_->host_bytes = plans_.host_bytes(*plan);
      return true;
    }
    return false;
  };
  const int64_t floor = least_on_device();
  if (guide_ != nullptr && guide_->tightest().device_bytes < kUnlimited) {
    if (fits(guide_->tightest().device_bytes)) return *tightest_;
  }
  int64_t high = floor;
  while (!fits(high)) {
    if (high > 8 * floor) return *tightest_;
    high += high / 8 + limits.alignment;
  }
  int64_t low = floor - 1;
  while (high - low > std::max<int64_t>(limits.alignment, floor / 256)) {
    const int64_t middle = align_up(low + (high - low) / 2, limits.alignment);
    if (middle >= high) break;
    (fits(middle) ? high : low) = middle;
  }
  return *tightest_;
}

const Floor::Point& Floor::at(int step) {
  const auto [it, is_new] = known_.try_emplace(step);
  Point& point = it->second;
  if (!is_new) return point;
  const int64_t device = budget(step);
  // Close to the least of the device nothing packs below the tightest.
  if (double(device) < kClose * double(least_on_device()) && device < tightest().device_bytes) return point;
  const auto packs = [&](const Policy& policy) {
    const auto found = plans_.build(policy, device);
    if (!found) return false;
    const int64_t host = plans_.host_bytes(found->plan);
    if (host >= point.host_bytes) return true;
    point.policy = policy;
    point.policy.device_share = found->device_share;  // with which it packs at once
    point.device_bytes = device, point.host_bytes = host;
    return true;
  };
  if (resident_bytes() <= device && packs({.floor = true})) return point;
  const int64_t most = plans_.most_spared(device);
  const auto packs_with = [&](int part, double share = 1) {
    return packs({.rule = SaveRule::LeastHost,
                  .floor = true,
                  .pinned_bytes = most / kParts * part,
                  .device_share = share});
  };
  if (guide_ != nullptr) {
    const Point& near = guide_->at(step);
    point.part = near.part;
    if (near.part >= 0 && packs_with(near.part, near.policy.device_share)) return point;
  }
  int works = -1, fails = kParts + 1;
  for (const int part : kTried) {
    if (most == 0 && part > 0) continue;
    // Whether anything packs is asked early of a large program, by the least share at once.
    if (plans_.is_large() && part == kTried[1] && !packs_with(0, kLeastShare)) break;
    if (packs_with(part)) {
      works = part;
      break;
    }
    fails = part;
  }
  while (works > 0 && fails - works > 1) {
    const int middle = (works + fails) / 2;
    (packs_with(middle) ? works : fails) = middle;
  }
  point.part = works;
  return point;
}

bool Floor::works(int step, int64_t host_bytes) {
  if (guide_ != nullptr && guide_->at(step).host_bytes > host_bytes + host_bytes / kGuideIsOff) return false;
  return at(step).host_bytes <= host_bytes;
}

// All plans are alike above the bytes that everything takes.
std::pair<int, int> Floor::steps_within(int64_t device_bytes) {
  const int64_t all = resident_bytes();
  const int last = step_within(std::min(device_bytes, all + all / 4));
  return {plans_.is_large() ? std::max(0, last - kSteps) : 0, last};
}

int64_t Floor::least_host_by_bytes(int step) {
  const double rest =
      double(bytes_in_all_tiers()) - double(plans_.placement().devices) * double(budget(step));
  return std::max(plans_.always_on_host(), int64_t(rest));
}

std::optional<Floor::Point> Floor::leanest(int64_t device_bytes) {
  std::optional<Point> out;
  if (tightest().device_bytes <= device_bytes) out = tightest();
  if (!plans_.limits.fixed_homes.empty()) return out;
  if (guide_ != nullptr) {
    const auto leanest = guide_->leanest(device_bytes);
    if (!leanest || leanest->policy.rule == SaveRule::LeastDevice) return out;
    const Point& point = at(step_within(leanest->device_bytes));
    return !out || point.host_bytes < out->host_bytes ? point : out;
  }
  const auto [first, last] = steps_within(device_bytes);
  for (int step = last; step >= first; --step) {
    if (out && least_host_by_bytes(step) >= out->host_bytes) break;
    const Point& point = at(step);
    if (point.host_bytes < kUnlimited && (!out || point.host_bytes < out->host_bytes)) out = point;
  }
  return out;
}

std::optional<Floor::Point> Floor::within(int64_t device_bytes, int64_t host_bytes) {
  if (plans_.limits.fixed_homes.empty()) {
    const auto [first, last] = steps_within(device_bytes);
    for (int step = last; step >= first; --step) {
      if (least_host_by_bytes(step) > host_bytes) break;
      if (works(step, host_bytes)) return at(step);
    }
    if (!fits_by_bytes(device_bytes, host_bytes)) return std::nullopt;
  }
  if (tightest().device_bytes <= device_bytes && tightest().host_bytes <= host_bytes) return tightest();
  return std::nullopt;
}

std::optional<Floor::Point> Floor::closest(int64_t device_bytes, int64_t host_bytes) {
  if (!plans_.limits.fixed_homes.empty()) return within(device_bytes, host_bytes);
  const int last = steps_within(device_bytes).second;
  if (last < 0 || least_host_by_bytes(last) > host_bytes || !works(last, host_bytes)) return std::nullopt;
  return at(last);
}

int64_t Floor::least_device(int64_t host_bytes) {
  const int64_t least = tightest().host_bytes <= host_bytes ? tightest().device_bytes : kUnlimited;
  if (!plans_.limits.fixed_homes.empty()) return least;
  const int last = steps_within(least).second;
  int step = 0;
  while (step <= last && least_host_by_bytes(step) > host_bytes) ++step;
  // Where every plan takes long, most are jumped over.
  int low = step - 1, by = 1;
  for (; step <= last && !works(step, host_bytes); step += by) {
    low = step;
    if (plans_.is_large()) by *= 2;
  }
  while (step - low > 1) {
    const int middle = low + (step - low) / 2;
    (middle <= last && works(middle, host_bytes) ? step : low) = middle;
  }
  if (step > last) return least;
  for (int before = step - 1; plans_.is_large() && before >= std::max(0, step - kSteps); --before) {
    if (works(before, host_bytes)) step = before;
  }
  return std::min(least, budget(step));
}

}  // namespace sluice::core
