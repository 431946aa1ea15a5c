// SPDX-License-Identifier: Apache-2.0
#include "measure/calibrate.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "base/bytes.h"
#include "io/file.h"
#include "io/sealed.h"
#include "measure/link_runs.h"

namespace sluice::core {
namespace {

using nlohmann::json;

// Copies between the host and devices, between devices, and from the disk, added up.
struct CopySums {
  LinkSums loads, stores, peers, reads;

  LinkSums& of(const LaneEnds& ends) {
    return ends.from == kDisk ? reads : ends.hands_over() ? peers : ends.loads() ? loads : stores;
  }
};

// Copies give the rates if there were enough.
void learn_rates(Profile& profile, const CopySums& copies, int64_t enough = kGiB) {
  profile.set_host_rates(copies.loads.rate(profile.bytes_per_s(kHost, kDevice), enough),
                         copies.stores.rate(profile.bytes_per_s(kDevice, kHost), enough));
  profile.set_peer_bytes_per_s(copies.peers.rate(profile.peer_bytes_per_s(), enough));
  for (Link& link : profile.links) {
    // A disk takes as long for a sixteenth.
    if (link.from == kDisk) link.bytes_per_s = copies.reads.rate(link.bytes_per_s, enough / 16);
  }
}

struct LinkRates {
  double load_bytes_per_s = 0, store_bytes_per_s = 0;
  double busy_ns = 0;  // of one launch beside both copies, in the mean
};

// The copies of measure_links(): into the first `bytes` of every device, from the next ones. On the host each
// device has `places` pairs of as much of its own.
struct LinkTest {
  int64_t bytes = 0;
  uint32_t pairs = 0;  // of both; the first one warms up
  int64_t places = 1;

  LinkCopy load(Lane lane, size_t d) const {
    return {lane, {{kHost, int64_t(d) * host_room()}, {Tier::device(d), 0}, bytes}, places, room()};
  }
  LinkCopy store(Lane lane, size_t d) const {
    const Copy copy{{Tier::device(d), bytes}, {kHost, int64_t(d) * host_room() + bytes}, bytes};
    return {lane, copy, places, room()};
  }
  LinkCopy hand_over(Lane lane, size_t from, size_t to) const {
    return {lane, {{Tier::device(from), bytes}, {Tier::device(to), 0}, bytes}};
  }
  int64_t room() const { return 2 * bytes; }
  int64_t host_room() const { return places * room(); }
  BytesByTier arenas(size_t devices) const {
    BytesByTier out;
    out[kHost] = int64_t(devices) * host_room();
    for (size_t d = 0; d < devices; ++d) out[Tier::device(d)] = room();
    return out;
  }
  std::vector<HostPart> host_parts(size_t devices) const {
    std::vector<HostPart> out;
    for (size_t d = 0; d < devices; ++d)
      out.push_back({int64_t(d) * host_room(), int64_t(d + 1) * host_room(), Tier::device(d)});
    return out;
  }
};

// Sustained rates of both directions at once, beside `launches` of `busy`, with the links of all devices at
// work; the first one's are taken.
Result<LinkRates> measure_links(Backend& backend, const LinkTest& test, const Launch& busy,
                                uint32_t launches) {
  std::vector<LinkCopy> copies;
  for (size_t d = 0; d < backend.lanes().devices(); ++d) {
    const Tier device = Tier::device(d);
    copies.push_back(test.load(backend.lanes().copy(kHost, device), d));
    copies.push_back(test.store(backend.lanes().copy(device, kHost), d));
  }
  SLUICE_ASSIGN(auto runs, run_copies(backend, copies, test.pairs, busy, launches));
  runs = while_all_work(runs);
  const auto& computing = runs[backend.lanes().compute()];
  const double bytes = double(test.bytes);
  return LinkRates{1e9 * bytes / mean_ns(runs[copies[0].lane]), 1e9 * bytes / mean_ns(runs[copies[1].lane]),
                   computing.empty() ? 0 : mean_ns(computing)};
}

// The copies of a step beside the ops of each device: with the host, and to the next device where both are
// joined.
Rehearsal::Traffic traffic_of(const StepMix& step, const LinkTest& test, const LaneTable& lanes,
                              const Profile& profile) {
  Rehearsal::Traffic out{{}, profile.transfer_latency_ns};
  const size_t devices = lanes.devices();
  for (size_t d = 0; d < devices; ++d) {
    const Tier device = Tier::device(d), next = Tier::device((d + 1) % devices);
    const auto add = [&](const LinkCopy& link, int64_t bytes, double ns) {
      out.links.push_back({link, double(bytes) / double(test.bytes), ns, d});
    };
    add(test.load(lanes.copy(kHost, device), d), step.loaded_bytes, profile.load_ns(test.bytes));
    add(test.store(lanes.copy(device, kHost), d), step.stored_bytes, profile.store_ns(test.bytes));
    if (device == next || !profile.joins(device, next)) continue;
    add(test.hand_over(lanes.copy(device, next), d, (d + 1) % devices), step.handed_over_bytes,
        profile.transfer_ns(test.bytes, device, next));
  }
  return out;
}

// The slowest of the links from each device to the next, all at work at once; 0 where none are joined.
Result<double> measure_peers(Backend& backend, const LinkTest& test) {
  const size_t devices = backend.lanes().devices();
  std::vector<LinkCopy> copies;
  for (size_t d = 0; d < devices; ++d) {
    const Tier from = Tier::device(d), to = Tier::device((d + 1) % devices);
    const auto lane = backend.lanes().find(from, to);
    if (from == to || !lane) continue;
    copies.push_back(test.hand_over(*lane, d, (d + 1) % devices));
  }
  if (copies.empty()) return 0.0;
  SLUICE_ASSIGN(const auto runs, run_copies(backend, copies, test.pairs));
  double slowest_ns = 1;
  for (const std::vector<Interval>& of : runs) {
    if (!of.empty()) slowest_ns = std::max(slowest_ns, median_ns(of));
  }
  return 1e9 * double(test.bytes) / slowest_ns;
}

// The links of a machine whose copies take cores and memory bandwidth from compute, and how much of them.
Status measure_shared(Backend& backend, LinkTest test, const Launch& product, Profile& profile) {
  SLUICE_ASSIGN(const std::vector<Interval> warm, run_repeatedly(backend, product, 2));
  // About 30 ms, three to fifteen times.
  const auto repeats = size_t(std::clamp(3e7 / median_ns(std::span(warm).last(1)), 3.0, 15.0));
  SLUICE_ASSIGN(const std::vector<Interval> runs, run_repeatedly(backend, product, repeats));
  const double product_ns = median_ns(runs);
  SLUICE_ASSIGN(const LinkRates alone, measure_links(backend, test, product, 0));
  // Products for well beyond the copies' time, which grows when products run.
  constexpr double kWindowNs = 1e8;
  const double pair_ns = 1e9 * double(test.bytes) / std::min(alone.load_bytes_per_s, alone.store_bytes_per_s);
  test.pairs = static_cast<uint32_t>(std::clamp(kWindowNs / pair_ns, 6.0, 500.0));
  const auto launches = static_cast<uint32_t>(std::clamp(4 * pair_ns * test.pairs / product_ns, 8.0, 5000.0));
  SLUICE_ASSIGN(const LinkRates shared, measure_links(backend, test, product, launches));
  profile.set_host_rates(shared.load_bytes_per_s, shared.store_bytes_per_s);
  constexpr double kCopyLanes = 2;
  if (shared.busy_ns > 0) {
    profile.copy_slowdown = std::max(0.0, (shared.busy_ns / product_ns - 1) / kCopyLanes);
  }
  return {};
}

double number_or(const json& object, const char* key, double otherwise) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}

struct Bounds {
  const char* key;
  double least, most;
};
// From a byte a second to a thousand terabytes; what a copy costs is part of a core or some; a petabyte.
constexpr Bounds kRates[] = {
    {"load_bytes_per_s", 1, 1e15}, {"store_bytes_per_s", 1, 1e15}, {"peer_bytes_per_s", 1, 1e15}};
constexpr Bounds kOthers[] = {{"copy_slowdown", 0, 100},
                              {"device_overhead_bytes", 0, 1e15},
                              {"device_held_bytes", 0, 1e15},
                              {"host_growth_bytes", 0, 1e15},
                              {"link_bytes", 1, 1e15}};
constexpr double kLongestNs = 1e15;  // some days: no op takes that

Status check(const json& table, std::span<const Bounds> all) {
  for (const auto& [key, least, most] : all) {
    const auto it = table.find(key);
    if (it == table.end()) continue;
    if (!it->is_number()) return error("{} is no number", key);
    const double value = it->get<double>();
    if (!(value >= least && value <= most))
      return error("{} = {}: between {} and {} make sense", key, value, least, most);
  }
  return {};
}

// Links with both directions busy, and by kind of step the times of ops by cost key and the links as they
// were beside them.
Result<json> parse_costs(std::string_view text) {
  json root = json::parse(text, nullptr, false);
  if (!root.is_object() || !root.contains("steps") || !root["steps"].is_object())
    return error("it is no JSON object with steps");
  SLUICE_TRY(check(root, kRates));
  SLUICE_TRY(check(root, kOthers));
  for (const auto& [kind, step] : root["steps"].items()) {
    if (!step.is_object() || !step.contains("ns") || !step["ns"].is_object())
      return error("'{}' has no times", kind);
    SLUICE_TRY(check(step, kRates));
    for (const auto& [op, ns] : step["ns"].items()) {
      if (!ns.is_number() || !(ns.get<double>() > 0 && ns.get<double>() <= kLongestNs))
        return error("'{}' takes {} ns", op, ns.is_number() ? ns.get<double>() : NAN);
    }
  }
  return root;
}

// By its name, too: GPUs of one name have files of their own.
// Where copies take no cores, also by how they were measured.
SealedRequest request_of(const std::filesystem::path& path, const Profile& profile, bool shared_cores) {
  SealedRequest request("costs 4");
  request.add("machine", profile.name).add("file", path.filename().string());
  if (!shared_cores) request.add("measured", "on all devices, through much of the host");
  return request;
}

// The content of the file, or nothing. `warn`, if any, hears of a file that is rejected.
json read_cache(const std::filesystem::path& path, const Profile& profile, bool shared_cores,
                const std::function<void(const std::string&)>& warn = {}) {
  const json nothing = {{"steps", json::object()}};
  if (path.empty()) return nothing;
  auto read = [&]() -> Result<json> {
    SLUICE_ASSIGN(const std::string content, read_sealed(path, request_of(path, profile, shared_cores)));
    auto costs = parse_costs(content);
    if (!costs.ok()) return error("{} is not believed: {}", path.string(), costs.message());
    return costs;
  }();
  if (read.ok()) return std::move(*read);
  if (warn && read.error().kind != ErrorKind::NotFound)
    warn(fmt::format("{}; costs are measured anew", read.message()));
  return nothing;
}

int64_t overhead_in(const json& cache, const Profile& profile) {
  return int64_t(number_or(cache, "device_overhead_bytes", double(profile.overhead_bytes[kDevice])));
}

constexpr int64_t kHeldGrain = 16 * kMiB;  // so that starts which differ by less have equal plans

// By what the process holds more of a device than the one that measured did, before either took an arena.
int64_t held_more(const json& cache, const CalibrateOptions& options) {
  const int64_t more = options.device_held_bytes - int64_t(number_or(cache, "device_held_bytes", 1e15));
  return more < kHeldGrain / 2 ? 0 : align_up(more, kHeldGrain);
}

// Plans with what measuring left in the process beyond what had been set aside for it.
void take_host_growth(const json& cache, const CalibrateOptions& options, Profile& profile) {
  const auto growth = int64_t(number_or(cache, "host_growth_bytes", 0));
  if (growth == 0) return;
  int64_t& planned = profile.overhead_bytes[kHost];
  planned = std::max(planned, align_up(options.host_held_bytes + growth, kHeldGrain));
}

bool take_links(const json& table, Profile& profile) {
  const double load = number_or(table, "load_bytes_per_s", 0),
               store = number_or(table, "store_bytes_per_s", 0);
  const double peer = number_or(table, "peer_bytes_per_s", 0);
  const bool joined = profile.peer_bytes_per_s() > 0;
  if (!(load > 0) || !(store > 0) || (joined && !(peer > 0))) return false;
  profile.set_host_rates(load, store);
  if (joined) profile.set_peer_bytes_per_s(peer);
  return true;
}

void keep_links(const Profile& profile, json& table) {
  table["load_bytes_per_s"] = profile.bytes_per_s(kHost, kDevice);
  table["store_bytes_per_s"] = profile.bytes_per_s(kDevice, kHost);
  if (profile.peer_bytes_per_s() > 0) table["peer_bytes_per_s"] = profile.peer_bytes_per_s();
}

int64_t wished_link_bytes(const CalibrateOptions& options, const Profile& profile) {
  return link_copy_bytes(options.most_bytes, profile.lanes().devices());
}

// Returns whether the cache has the links, and what compute loses to copies if they share cores.
bool take_cache(const json& cache, const CalibrateOptions& options, Profile& profile) {
  const double slowdown = number_or(cache, "copy_slowdown", -1);
  // Rates of copies that were small for want of room do for those that have as little.
  const bool large_enough =
      4 * number_or(cache, "link_bytes", 1e18) >= double(wished_link_bytes(options, profile));
  const bool links_known =
      large_enough && take_links(cache, profile) && (!options.shared_cores || slowdown >= 0);
  if (links_known && options.shared_cores) profile.copy_slowdown = slowdown;
  if (links_known) {
    profile.set_device_overhead(overhead_in(cache, profile) + held_more(cache, options));
    take_host_growth(cache, options, profile);
  }
  if (const auto known = cache["steps"].find(options.kind); known != cache["steps"].end()) {
    for (const auto& [key, ns] : (*known)["ns"].items()) {
      profile.measured_ns[key] = ns.get<double>();
    }
    take_links(*known, profile);
  }
  return links_known;
}

bool all_known(std::span<const CountedOp> ops, const Profile& profile) {
  return std::all_of(ops.begin(), ops.end(), [&](const CountedOp& counted) {
    return profile.measured_ns.contains(cost_key(counted.op));
  });
}

// How long known ops were found to take, by how long they took now. 1: none is known.
double known_to_now(std::span<const CountedOp> ops, std::span<const double> ns, const Profile& profile) {
  double known = 0, now = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto it = profile.measured_ns.find(cost_key(ops[i].op));
    if (it == profile.measured_ns.end()) continue;
    known += double(ops[i].count) * it->second;
    now += double(ops[i].count) * ns[i];
  }
  return known > 0 && now > 0 ? known / now : 1;
}

Status write_cache(const std::filesystem::path& path, bool shared_cores, const Profile& profile, json cache) {
  if (path.empty()) return {};
  cache["device_overhead_bytes"] = profile.overhead_bytes[kDevice];
  if (shared_cores) cache["copy_slowdown"] = profile.copy_slowdown;
  SLUICE_TRY(make_directories(path.parent_path()));
  return write_sealed(path, request_of(path, profile, shared_cores), cache.dump(1) + '\n');
}

}  // namespace

Status check_costs(std::string_view text) {
  const auto costs = parse_costs(text);
  return costs.ok() ? Status() : costs.error();
}

bool recall(std::span<const CountedOp> ops, const std::filesystem::path& path,
            const CalibrateOptions& options, Profile& profile) {
  const bool links_known =
      take_cache(read_cache(path, profile, options.shared_cores, options.warn), options, profile);
  return links_known && all_known(ops, profile);
}

Status calibrate(Backend& backend, const StepMix& step, const std::filesystem::path& path,
                 const CalibrateOptions& options, Profile& profile, const OpProgress& progress) {
  constexpr uint32_t kPairs = 6;
  const size_t devices = backend.lanes().devices();
  json cache = read_cache(path, profile, options.shared_cores);
  const bool links_known = take_cache(cache, options, profile), ops_known = all_known(step.ops, profile);
  if (ops_known && links_known) return {};
  const bool copies = !links_known || !options.shared_cores;
  LinkTest test{copies ? wished_link_bytes(options, profile) : 0, kPairs};
  if (!options.shared_cores && (!links_known || step.loaded_bytes + step.stored_bytes > 0))
    test.places = link_places(options.most_bytes[kHost], devices, test.bytes);
  // One op more or less changes the mix: all run, also those whose times are known.
  BytesByTier rest = options.most_bytes;
  for (const Tier tier : {kDevice, kHost}) rest[tier] -= test.arenas(devices)[tier];
  Rehearsal rehearsal(step.ops, backend, rest, step.rows, options.shared_cores ? 1 : devices);
  BytesByTier bytes = rehearsal.arena_bytes();
  // One op's needs may leave less.
  if (copies) {
    test.bytes =
        std::max(kLeastLinkBytes, std::min(test.bytes, (options.most_bytes[kDevice] - bytes[kDevice]) / 2) /
                                      kLeastLinkBytes * kLeastLinkBytes);
  }
  const BytesByTier links = test.arenas(devices);
  for (const Tier tier : links.tiers()) bytes[tier] += links[tier];
  std::vector<SharedOp> ops;
  for (const CountedOp& counted : step.ops) ops.push_back(counted.op);
  backend.set_host_parts(test.host_parts(devices));
  SLUICE_ASSIGN(const Arenas arenas, backend.reserve(bytes));
  SLUICE_TRY(backend.prepare(ops));
  SLUICE_TRY(rehearsal.fill(backend, arenas, links));
  if (!links_known && options.shared_cores && !ops.empty()) {
    const auto heaviest = std::max_element(ops.begin(), ops.end(),
                                           [](const Op& a, const Op& b) { return flops(a) < flops(b); });
    SLUICE_TRY(measure_shared(backend, test, rehearsal.launch(size_t(heaviest - ops.begin())), profile));
  } else if (!links_known) {
    SLUICE_ASSIGN(const LinkRates rates, measure_links(backend, test, Launch(), 0));
    profile.set_host_rates(rates.load_bytes_per_s, rates.store_bytes_per_s);
  }
  if (!links_known) {
    SLUICE_ASSIGN(const double peer_bytes_per_s, measure_peers(backend, test));
    profile.set_peer_bytes_per_s(peer_bytes_per_s);
    keep_links(profile, cache);
    cache["link_bytes"] = wished_link_bytes(options, profile);
  }
  if (!ops_known) {
    Rehearsal::Traffic traffic;
    if (!options.shared_cores) traffic = traffic_of(step, test, backend.lanes(), profile);
    SLUICE_ASSIGN(const Rehearsal::Times times,
                  rehearsal.time(backend, options.rehearsal, traffic, progress));
    json& of_kind = cache["steps"][options.kind];
    const std::vector<double>& ns = options.shared_cores ? times.mean_ns : times.ns;
    const double moment = options.as_known && options.shared_cores ? known_to_now(step.ops, ns, profile) : 1;
    for (size_t i = 0; i < ops.size(); ++i) {
      // Known costs stay, above all those of a step.
      const auto [it, fresh] = profile.measured_ns.try_emplace(cost_key(ops[i]), moment * ns[i]);
      if (fresh) of_kind["ns"][it->first] = it->second;
    }
    CopySums copied;
    for (size_t i = 0; i < traffic.links.size(); ++i)
      copied.of(backend.lanes()[traffic.links[i].lane]) += times.links[i];
    learn_rates(profile, copied);
    if (!options.shared_cores) keep_links(profile, of_kind);
  }
  // Memory of the process on the device beside its arena: context, kernels, library handles.
  int64_t overhead_bytes =
      std::max<int64_t>(0, backend.memory()[kDevice] - bytes[kDevice] - profile.table_bytes(bytes[kHost]));
  // Programs between steps and library plans for other shapes load a few more kernels.
  constexpr int64_t kLaterKernels = 48 * kMiB;
  if (overhead_bytes > 0) overhead_bytes += kLaterKernels;
  // A step may have held more.
  profile.set_device_overhead(std::max(overhead_bytes, overhead_in(cache, profile)));
  if (options.device_held_bytes > 0) cache["device_held_bytes"] = options.device_held_bytes;
  // Libraries keep their kernels on the host, too, and the search that follows leaves fragments. Of
  // Qwen3-30B-A3B's adapters an H200's process held some 1,100 MiB now; 788 had been set aside.
  constexpr int64_t kLaterOnHost = 64 * kMiB;
  if (options.host_held_bytes > 0 && !options.shared_cores) {
    const int64_t held = backend.memory()[kHost] - bytes[kHost] + kLaterOnHost;
    const double known = number_or(cache, "host_growth_bytes", 0);
    cache["host_growth_bytes"] = std::max(known, double(held - options.host_held_bytes));
    take_host_growth(cache, options, profile);
  }
  return write_cache(path, options.shared_cores, profile, std::move(cache));
}

namespace {

// The time of a run without copies beside it, by the simulator's slowdown: each of the time's parts is
// divided by 1 + copies * slowdown.
class WithoutCopies {
 public:
  WithoutCopies(const Plan& plan, std::span<const Interval> timeline, double slowdown) : slowdown_(slowdown) {
    if (slowdown <= 0) return;
    for (size_t i = 0; i < timeline.size(); ++i) {
      if (plan.actions[i].kind == ActionKind::Run) continue;
      changes_.push_back({timeline[i].start_ns, 1});
      changes_.push_back({timeline[i].end_ns, -1});
    }
    std::sort(changes_.begin(), changes_.end());
    int copies = 0;
    for (auto& [ns, change] : changes_) change = copies += change;
  }

  double ns(const Interval& run) const {
    const auto after = std::upper_bound(changes_.begin(), changes_.end(), std::pair(run.start_ns, INT_MAX));
    int copies = after == changes_.begin() ? 0 : std::prev(after)->second;
    double sum = 0, now = run.start_ns;
    for (auto it = after; it != changes_.end() && it->first < run.end_ns; ++it) {
      sum += (it->first - now) / (1 + copies * slowdown_);
      std::tie(now, copies) = *it;
    }
    return sum + (run.end_ns - now) / (1 + copies * slowdown_);
  }

 private:
  const double slowdown_;
  std::vector<std::pair<double, int>> changes_;  // when, and how many copies are under way from then on
};

// REQUIRES: not empty.
double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

// Times of all runs of an op by cost_key(), and what links carried, from a measured step.
struct Taught {
  std::map<std::string, std::vector<double>> ns;
  CopySums copies;
};
Taught taught_by(const Program& program, const Plan& plan, std::span<const Interval> timeline,
                 const Profile& profile) {
  const WithoutCopies alone(plan, timeline, profile.copy_slowdown);
  Taught out;
  for (size_t i = 0; i < timeline.size(); ++i) {
    const Action& a = plan.actions[i];
    if (a.kind == ActionKind::Run) {
      out.ns[cost_key(program.task(a.task).op)].push_back(alone.ns(timeline[i]));
    } else {
      out.copies.of(a.ends()).add(a.bytes, timeline[i], profile.transfer_latency_ns);
    }
  }
  return out;
}

}  // namespace

Profile learnt(const Program& program, const Plan& plan, std::span<const Interval> timeline,
               bool shared_cores, Profile profile) {
  const Taught taught = taught_by(program, plan, timeline, profile);
  for (const auto& [key, ns] : taught.ns) profile.measured_ns[key] = mean(ns);
  // On shared cores it is from copies that what they cost ops is known: both are as in this step.
  learn_rates(profile, taught.copies, shared_cores ? kMiB : kGiB);
  return profile;
}

Status learn(const Program& program, const Plan& plan, std::span<const Interval> timeline,
             int64_t device_overhead_bytes, const CalibrateOptions& options,
             const std::filesystem::path& path, Profile profile) {
  const Taught taught = taught_by(program, plan, timeline, profile);
  json cache = read_cache(path, profile, options.shared_cores);
  if (!cache.contains("load_bytes_per_s")) keep_links(profile, cache);
  json& of_kind = cache["steps"][options.kind];
  for (const auto& [key, ns] : taught.ns) of_kind["ns"][key] = options.shared_cores ? mean(ns) : median(ns);
  if (!options.shared_cores) {
    learn_rates(profile, taught.copies);
    keep_links(profile, of_kind);
  }
  profile.set_device_overhead(std::max(profile.overhead_bytes[kDevice], device_overhead_bytes));
  return write_cache(path, options.shared_cores, profile, std::move(cache));
}

}  // namespace sluice::core
