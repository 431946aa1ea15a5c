// SPDX-License-Identifier: Apache-2.0
#include "cost/profile.h"

#include <algorithm>
#include <cmath>

namespace sluice::core {
namespace {

// The softmax of a score takes as long as this many columns more of a head. On an H200, heads of 64 columns
// run at 0.87 of the rate of heads of 128 forward and at 0.90 of it backward.
constexpr double kSoftmaxColumns = 20;
constexpr int64_t kMostLibraryHeadDim = 256;

// Products with a state reach this much of a dense one's rate, those that are computed a second time
// included. It is of gated delta rules of 32 and 48 heads of 128 on an H200, forward and backward alike.
constexpr double kStateShare = 0.1;

// The share of attention's rate beside softmax that an op reaches.
double attention_share(const Work& work, const Rates& rates) {
  const double beside = double(work.head_dim) / (double(work.head_dim) + kSoftmaxColumns);
  if (work.head_dim <= kMostLibraryHeadDim) return beside;
  return beside *
         (work.unit == Unit::AttentionForward ? rates.wide_forward_share : rates.wide_backward_share);
}

double rate_of(const Work& work, const Rates& rates) {
  switch (work.unit) {
    case Unit::Memory:
    case Unit::Product:
      return rates.product_flops;
    case Unit::NarrowProduct:
      return rates.narrow_share * rates.product_flops;
    case Unit::GroupedProduct:
      return rates.grouped_share * rates.product_flops;
    case Unit::StateProduct:
      return kStateShare * rates.product_flops * work.flops / work.hardware_flops();
    case Unit::AttentionForward:
      return attention_share(work, rates) * rates.attention_forward_flops;
    case Unit::AttentionBackward:
      return attention_share(work, rates) * rates.attention_backward_flops;
  }
  return 0;
}

double estimate_ns(const Op& op, const Rates& rates) {
  const Work w = work(op);
  return rates.launch_ns + 1e9 * (std::max((w.flops + rates.idle_part * w.idle_flops) / rate_of(w, rates),
                                           traffic(op) / rates.memory_bytes) +
                                  w.pass_bytes / rates.memory_bytes);
}

}  // namespace

OpCost Profile::cost(const Op& op) const {
  if (lane_of(op) == LaneKind::Network)
    return {network.latency_ns + 1e9 * network_bytes(op) / network.bytes_per_s_beside_compute(),
            workspace_bytes ? align_up(workspace_bytes(op), alignment) : 0};
  const auto it = measured_ns.find(cost_key(op));
  const double ns = it != measured_ns.end() ? it->second : estimate_ns(op, rates);
  return {ns, workspace_bytes ? align_up(workspace_bytes(op), alignment) : 0};
}

int64_t Profile::table_bytes(int64_t host_arena_bytes) const {
  // The driver takes memory by so much.
  constexpr int64_t kGrain = 2 * kMiB;
  if (host_bytes_per_table_byte == 0 || host_arena_bytes == kUnlimited) return 0;
  return align_up(host_arena_bytes / host_bytes_per_table_byte, kGrain);
}

int64_t Profile::held_beside(Tier tier, int64_t arena_bytes, int64_t actions) const {
  if (tier != kHost) return overhead_bytes[tier] + (tier.is_device() ? table_bytes(most_host_bytes) : 0);
  const double of_arena =
      double(host_growth.per_arena_gib) * double(std::max<int64_t>(0, arena_bytes)) / double(kGiB);
  return overhead_bytes[tier] + int64_t(std::ceil(of_arena)) + host_growth.per_action * actions;
}

int64_t Profile::arena_within(Tier tier, int64_t cap_bytes, int64_t actions) const {
  const int64_t room = cap_bytes - held_beside(tier, 0, actions);
  if (tier != kHost || room <= 0) return room;
  const auto fits = [&](int64_t bytes) { return bytes + held_beside(tier, bytes, actions) <= cap_bytes; };
  auto bytes = int64_t(double(room) / (1 + double(host_growth.per_arena_gib) / double(kGiB)));
  while (!fits(bytes)) --bytes;
  while (fits(bytes + 1)) ++bytes;
  return bytes;
}

LaneTable Profile::lanes() const {
  std::vector<LaneEnds> ends;
  for (const Tier tier : tiers_of(devices())) {
    const auto reaches = [&](const Link& link) { return link.from == tier || link.to == tier; };
    if (tier.is_device() && std::any_of(links.begin(), links.end(), reaches)) ends.push_back({tier, tier});
  }
  for (const Link& link : links) ends.push_back({link.from, link.to});
  auto table = LaneTable::of(std::move(ends));
  SLUICE_CHECK(table.ok(), "{}", table.message());
  if (network.bytes_per_s > 0) table->add_networks();
  return std::move(*table);
}

size_t Profile::devices() const {
  size_t devices = 1;
  for (const Link& link : links) {
    for (const Tier tier : {link.from, link.to}) {
      if (tier.is_device()) devices = std::max(devices, tier.index() + 1);
    }
  }
  return devices;
}

void Profile::set_lanes(const LaneTable& lanes, double peer_bytes_per_s) {
  const double load = bytes_per_s(kHost, kDevice), store = bytes_per_s(kDevice, kHost);
  links.clear();
  for (const LaneEnds& ends : lanes.ends()) {
    if (!ends.copies()) continue;
    links.push_back({ends.from, ends.to,
                     ends.from == kHost ? load
                     : ends.to == kHost ? store
                                        : peer_bytes_per_s});
  }
  set_device_overhead(overhead_bytes[kDevice]);
}

void Profile::set_device_overhead(int64_t bytes) {
  for (size_t d = 0; d < devices(); ++d) overhead_bytes[Tier::device(d)] = bytes;
}

void Profile::add_disk(double bytes_per_s) {
  const size_t n = devices();
  for (size_t d = 0; d < n; ++d) links.push_back({kDisk, Tier::device(d), bytes_per_s / double(n)});
}

void Profile::set_host_rates(double load_bytes_per_s, double store_bytes_per_s) {
  for (Link& link : links) {
    if (link.from == kHost) link.bytes_per_s = load_bytes_per_s;
    if (link.to == kHost) link.bytes_per_s = store_bytes_per_s;
  }
}

double Profile::peer_bytes_per_s() const {
  for (const Link& link : links) {
    if (link.from.is_device() && link.to.is_device()) return link.bytes_per_s;
  }
  return 0;
}

void Profile::set_peer_bytes_per_s(double rate) {
  for (Link& link : links) {
    if (link.from.is_device() && link.to.is_device()) link.bytes_per_s = rate;
  }
}

const Link* Profile::find_link(Tier from, Tier to) const {
  const auto joins = [&](const Link& link) { return link.from == from && link.to == to; };
  const auto link = std::find_if(links.begin(), links.end(), joins);
  return link == links.end() ? nullptr : &*link;
}

const Link& Profile::link(Tier from, Tier to) const {
  const Link* const link = find_link(from, to);
  SLUICE_CHECK(link != nullptr, "no link from {} to {}", name_of(from), name_of(to));
  return *link;
}

void Profile::set_bytes_per_s(Tier from, Tier to, double rate) {
  links[static_cast<size_t>(&link(from, to) - links.data())].bytes_per_s = rate;
}

TaskCosts cost_of(const Program& program, const Profile& profile) {
  TaskCosts costs;
  std::unordered_map<std::string, OpCost> known;
  for (const Task& task : program.tasks()) {
    const auto [it, fresh] = known.try_emplace(to_text(task.op));
    if (fresh) it->second = profile.cost(task.op);
    costs.ns.push_back(it->second.ns);
    costs.workspace_bytes.push_back(it->second.workspace_bytes);
  }
  return costs;
}

Rates reached_rates(const Program& program, const Profile& profile) {
  struct Sum {
    double work = 0, ns = 0;
    double per_second() const { return ns > 0 ? 1e9 * work / ns : 0; }
  };
  Sum memory, products, forward, backward;
  for (const auto& [op, count] : counted_ops(program)) {
    const auto found = profile.measured_ns.find(cost_key(op));
    if (found == profile.measured_ns.end()) continue;
    const Work w = work(op);
    const auto add = [&, ns = found->second, n = double(count)](Sum& sum, double amount) {
      sum.work += n * amount, sum.ns += n * ns;
    };
    switch (w.unit) {
      case Unit::Memory:
        add(memory, traffic(op));
        break;
      case Unit::Product:
        add(products, w.flops);
        break;
      case Unit::NarrowProduct:
      case Unit::GroupedProduct:
      case Unit::StateProduct:
        break;
      case Unit::AttentionForward:
        add(forward, w.flops / attention_share(w, profile.rates));
        break;
      case Unit::AttentionBackward:
        add(backward, w.flops / attention_share(w, profile.rates));
        break;
    }
  }
  return {.product_flops = products.per_second(),
          .attention_forward_flops = forward.per_second(),
          .attention_backward_flops = backward.per_second(),
          .memory_bytes = memory.per_second(),
          .launch_ns = profile.rates.launch_ns,
          .idle_part = profile.rates.idle_part,
          .grouped_share = profile.rates.grouped_share,
          .narrow_share = profile.rates.narrow_share,
          .wide_forward_share = profile.rates.wide_forward_share,
          .wide_backward_share = profile.rates.wide_backward_share};
}

std::vector<CountedOp> counted_ops(const Program& program) {
  std::vector<CountedOp> out;
  std::unordered_map<std::string, size_t> known;
  for (const Task& task : program.tasks()) {
    if (lane_of(task.op) != LaneKind::Compute) continue;
    const auto [it, fresh] = known.try_emplace(cost_key(task.op), out.size());
    if (fresh) out.push_back({task.op, 0});
    ++out[it->second].count;
  }
  return out;
}

std::vector<SharedOp> distinct_ops(const Program& program) {
  std::vector<SharedOp> out;
  for (const CountedOp& counted : counted_ops(program)) out.push_back(counted.op);
  return out;
}

}  // namespace sluice::core
