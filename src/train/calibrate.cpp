#include "train/calibrate.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/bytes.h"
#include "base/philox.h"
#include "io/file.h"

namespace sluice {
namespace {

using nlohmann::json;

// Small operands, made on the host: ids below the vocabulary, positions that count up, a clip scale and step
// arguments that make AdamW do its work, zeros for sums.
std::vector<std::byte> small_values(const Op& op, const Operand& operand) {
  std::vector<std::byte> out(static_cast<size_t>(operand.bytes()), std::byte{0});
  if (operand.name == "args") {
    const StepArgs args{1, 1, 1e-4f, 0.1f, 0.05f, 1e-4f, 1, 0};
    std::copy_n(reinterpret_cast<const std::byte*>(&args), sizeof args, out.begin());
  } else if (operand.dtype == DType::I32) {
    int64_t row = operand.elements, vocab = 1;
    if (const auto* a = std::get_if<AttnFwd>(&op)) row = a->shape.q_len;
    if (const auto* a = std::get_if<AttnBwd>(&op)) row = a->shape.q_len;
    if (const auto* a = std::get_if<Embed>(&op)) vocab = a->vocab;
    if (const auto* a = std::get_if<EmbedBwd>(&op)) vocab = a->vocab;
    if (const auto* a = std::get_if<HeadLoss>(&op)) vocab = a->vocab;
    auto* ids = reinterpret_cast<int32_t*>(out.data());
    for (int64_t i = 0; i < operand.elements; ++i) {
      const bool position = operand.name == "pos";
      ids[i] = static_cast<int32_t>(position ? i % row
                                             : philox(7, static_cast<uint64_t>(i), 0).v[0] % uint64_t(vocab));
    }
  } else if (operand.name == "clip") {
    auto* clip = reinterpret_cast<float*>(out.data());
    clip[0] = clip[1] = 1;
  }
  return out;
}

// Blocks of floats in the host arena, from which large operands are filled over the load lane. The operands
// of a large model are tens of gigabytes together: made one by one, and copied from pageable memory, they
// would take minutes.
class FloatBlocks {
 public:
  // A block repeats after a prime number of elements, so that the rows of no matrix are alike.
  static constexpr int64_t kPeriod = 65521, kElements = 32 * kPeriod;
  static constexpr int64_t kBytes = 2 * kElements * (4 + 2);

  // Writes the blocks to `host`, kBytes of the backend's host arena.
  static Result<FloatBlocks> create(Backend& backend, std::byte* host) {
    std::vector<float> random(kPeriod);
    for (int64_t i = 0; i < kPeriod; ++i) {
      const Philox4 r = philox(1, static_cast<uint64_t>(i), 0);
      random[size_t(i)] = (uniform_open(r.v[0]) + uniform_open(r.v[1]) - 1.0f) * 0.5f;
    }
    const FloatBlocks blocks(host);
    for (const bool positive : {false, true}) {
      std::vector<float> wide(kElements);
      for (int64_t i = 0; i < kElements; ++i)
        wide[size_t(i)] = random[size_t(i % kPeriod)] + (positive ? 1.0f : 0.0f);
      std::vector<Bf16> narrow(kElements);
      std::transform(wide.begin(), wide.end(), narrow.begin(), [](float x) { return Bf16(x); });
      std::byte* at = host + offset(DType::F32, positive);
      SLUICE_TRY(backend.upload(at, reinterpret_cast<const std::byte*>(wide.data()), 4 * kElements));
      at = host + offset(DType::BF16, positive);
      SLUICE_TRY(backend.upload(at, reinterpret_cast<const std::byte*>(narrow.data()), 2 * kElements));
    }
    return blocks;
  }

  // Adds the copies that fill an operand of floats at `to`.
  void fill(const Operand& operand, std::byte* to, std::vector<Copy>& copies) const {
    // Second moments and softmax statistics must not be negative or tiny.
    const bool positive = operand.name == "v" || operand.name == "lse";
    const std::byte* from = host_ + offset(operand.dtype, positive);
    const int64_t block = kElements * size_of(operand.dtype);
    for (int64_t done = 0; done < operand.bytes(); done += block) {
      copies.push_back({to + done, from, std::min(block, operand.bytes() - done)});
    }
  }

 private:
  explicit FloatBlocks(const std::byte* host) : host_(host) {}
  static int64_t offset(DType dtype, bool positive) {
    return kElements * ((dtype == DType::F32 ? 0 : 4 + 4) + (positive ? size_of(dtype) : 0));
  }

  const std::byte* host_;
};

Status load_all(Backend& backend, std::span<const Copy> copies) {
  SLUICE_TRY(backend.begin(static_cast<uint32_t>(copies.size()), true));
  Status status;
  for (uint32_t i = 0; i < copies.size() && status.ok(); ++i) {
    status = backend.submit({i, Lane::Load, {}, copies[i], 0});
  }
  if (const auto fault = backend.finish(nullptr)) return fault->error;
  return status;
}

struct Placement {
  std::vector<Buffer> operands;
  Buffer workspace;
};

int64_t bytes_of(const Op& op, const Backend& backend) {
  int64_t total = align_up(backend.workspace_bytes(op), backend.alignment());
  for (const Operand& o : operands(op)) total += align_up(o.bytes(), backend.alignment());
  return total;
}

// Places an op at `base` and gives it values that it can really meet: small normal-like floats, and what
// small_values says.
Result<Placement> place(const Op& op, Backend& backend, const FloatBlocks& blocks, std::byte* base) {
  Placement out;
  std::vector<Copy> copies;
  for (const Operand& operand : operands(op)) {
    const bool floats = operand.dtype == DType::F32 || operand.dtype == DType::BF16;
    if (floats && operand.name != "clip") {
      if (operand.access != Access::Write) blocks.fill(operand, base, copies);
    } else {
      SLUICE_TRY(backend.upload(base, small_values(op, operand).data(), operand.bytes()));
    }
    out.operands.push_back({base, operand.bytes()});
    base += align_up(operand.bytes(), backend.alignment());
  }
  if (!copies.empty()) SLUICE_TRY(load_all(backend, copies));
  out.workspace = {base, backend.workspace_bytes(op)};
  return out;
}

Result<std::vector<Interval>> run(Backend& backend,
                                  std::span<const std::pair<const Op*, const Placement*>> launches) {
  SLUICE_TRY(backend.begin(static_cast<uint32_t>(launches.size()), true));
  Status status;
  for (uint32_t i = 0; i < launches.size() && status.ok(); ++i) {
    const auto& [op, placed] = launches[i];
    status = backend.submit({i, Lane::Compute, {}, Launch{op, placed->operands, placed->workspace}, 0});
  }
  std::vector<Interval> timeline;
  if (const auto fault = backend.finish(&timeline)) return fault->error;
  SLUICE_TRY(status);
  return timeline;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double median_ns(std::span<const Interval> timeline) {
  std::vector<double> ns;
  for (const Interval& t : timeline) ns.push_back(t.end_ns - t.start_ns);
  return median(std::move(ns));
}

// An op with its operands in the arena, and how long it takes.
struct Timed {
  const Op* op = nullptr;
  Placement placed;
  double ns = 0;
};

// Median over repetitions of one op, after as many more of it as take `heat_ns`: each op at the clocks that
// its own load leaves a device.
Status time_op(Backend& backend, double heat_ns, Timed& timed) {
  constexpr double kMostLaunches = 2000;  // of heating: ops far below a millisecond draw little power
  const std::pair<const Op*, const Placement*> launch{timed.op, &timed.placed};
  SLUICE_ASSIGN(const std::vector<Interval> warm, run(backend, std::vector(2, launch)));
  // About 30 ms per op, three to fifteen repetitions.
  const double each = std::max(warm.back().end_ns - warm.back().start_ns, 1.0);
  const auto repetitions = static_cast<size_t>(std::clamp(3e7 / each, 3.0, 15.0));
  const auto heating = static_cast<size_t>(std::min(heat_ns / each, kMostLaunches));
  SLUICE_ASSIGN(const std::vector<Interval> timeline,
                run(backend, std::vector(heating + repetitions, launch)));
  timed.ns = median_ns(std::span(timeline).last(repetitions));
  return {};
}

struct LinkRates {
  double load_bytes_per_s = 0, store_bytes_per_s = 0;
  double busy_ns = 0;  // of one launch beside both copies, in the mean
};

// Where the copies of measure_links() are, and how many there are.
struct LinkTest {
  Arenas arenas;       // each holds 2 * bytes
  int64_t bytes = 0;   // of a copy
  uint32_t pairs = 0;  // of a load and a store; the first one warms up
};

// Sustained rates of both directions at once, beside `launches` of `busy`. What is measured lies inside the
// time in which all three lanes were at work.
Result<LinkRates> measure_links(Backend& backend, const LinkTest& test, const Timed& busy,
                                uint32_t launches) {
  SLUICE_TRY(backend.begin(2 * test.pairs + launches, true));
  Status status;
  for (uint32_t i = 0; i < 2 * test.pairs && status.ok(); ++i) {
    const bool load = i % 2 == 0;
    const Copy copy = load ? Copy{test.arenas.device, test.arenas.host, test.bytes}
                           : Copy{test.arenas.host + test.bytes, test.arenas.device + test.bytes, test.bytes};
    status = backend.submit({i, load ? Lane::Load : Lane::Store, {}, copy, 0});
  }
  for (uint32_t i = 0; i < launches && status.ok(); ++i) {
    const Launch launch{busy.op, busy.placed.operands, busy.placed.workspace};
    status = backend.submit({2 * test.pairs + i, Lane::Compute, {}, launch, 0});
  }
  std::vector<Interval> timeline;
  if (const auto fault = backend.finish(&timeline)) return fault->error;
  SLUICE_TRY(status);
  const std::span copies = std::span(timeline).first(2 * test.pairs),
                  computing = std::span(timeline).subspan(copies.size());
  const double first_ns = std::max(copies[0].end_ns, copies[1].end_ns);
  double last_ns = std::min(copies[copies.size() - 2].end_ns, copies[copies.size() - 1].end_ns);
  if (!computing.empty()) last_ns = std::min(last_ns, computing.back().end_ns);
  const auto mean_ns = [&](std::span<const Interval> lane, size_t stride) {
    double inside = 0, all = 0;
    int64_t inside_count = 0, count = 0;
    for (size_t i = 0; i < lane.size(); i += stride) {
      const double ns = lane[i].end_ns - lane[i].start_ns;
      const bool counts = lane[i].start_ns >= first_ns && lane[i].end_ns <= last_ns;
      inside += counts ? ns : 0;
      inside_count += counts;
      all += ns;
      ++count;
    }
    // On a machine busy with other things the lanes may not have met.
    return inside_count > 0 ? inside / double(inside_count) : all / double(std::max<int64_t>(1, count));
  };
  const double load_ns = std::max(1.0, mean_ns(copies, 2)),
               store_ns = std::max(1.0, mean_ns(copies.subspan(1), 2));
  return LinkRates{1e9 * double(test.bytes) / load_ns, 1e9 * double(test.bytes) / store_ns,
                   mean_ns(computing, 1)};
}

// The links of a machine whose copies take cores and memory bandwidth from compute, and how much of them.
Status measure_shared(Backend& backend, LinkTest test, Timed& product, Profile& profile) {
  SLUICE_TRY(time_op(backend, 0, product));
  SLUICE_ASSIGN(const LinkRates alone, measure_links(backend, test, product, 0));
  // Products for well beyond the copies' time, which grows when products run.
  constexpr double kWindowNs = 3e8;
  const double pair_ns = 1e9 * double(test.bytes) / std::min(alone.load_bytes_per_s, alone.store_bytes_per_s);
  test.pairs = static_cast<uint32_t>(std::clamp(kWindowNs / pair_ns, 6.0, 500.0));
  const auto launches = static_cast<uint32_t>(std::clamp(4 * pair_ns * test.pairs / product.ns, 8.0, 5000.0));
  SLUICE_ASSIGN(const LinkRates shared, measure_links(backend, test, product, launches));
  profile.load_bytes_per_s = shared.load_bytes_per_s;
  profile.store_bytes_per_s = shared.store_bytes_per_s;
  constexpr double kCopyLanes = 2;
  if (shared.busy_ns > 0) {
    profile.copy_slowdown = std::max(0.0, (shared.busy_ns / product.ns - 1) / kCopyLanes);
  }
  return {};
}

double number_or(const json& object, const char* key, double otherwise) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}

// What a cache holds for a machine: its links, times of ops, and by kind of step what ops took within one.
json read_cache(const std::filesystem::path& path, const Profile& profile) {
  // Files of the first format have what steps taught among the times.
  constexpr int kFormat = 2;
  const json nothing = {
      {"format", kFormat}, {"machine", profile.name}, {"ns", json::object()}, {"learnt", json::object()}};
  const auto text = read_file(path);
  if (!text.ok()) return nothing;
  json root = json::parse(*text, nullptr, false);
  if (!root.is_object() || !root.contains("format") || root["format"] != kFormat ||
      !root.contains("machine") || root["machine"] != profile.name)
    return nothing;
  for (const char* table : {"ns", "learnt"}) {
    if (!root.contains(table) || !root[table].is_object()) root[table] = json::object();
  }
  for (auto& table : root["learnt"]) {
    if (!table.is_object()) table = json::object();
  }
  return root;
}

int64_t overhead_in(const json& cache, const Profile& profile) {
  return int64_t(number_or(cache, "device_overhead_bytes", double(profile.device_overhead_bytes)));
}

// Returns whether the cache has the links, and what compute loses to copies if they share cores.
bool take_cache(const json& cache, const CalibrateOptions& options, Profile& profile) {
  const auto take = [&](const json& table) {
    for (const auto& [key, ns] : table.items()) {
      if (ns.is_number() && ns.get<double>() > 0) profile.measured_ns[key] = ns.get<double>();
    }
  };
  take(cache["ns"]);
  if (cache["learnt"].contains(options.kind)) take(cache["learnt"][options.kind]);
  const double load = number_or(cache, "load_bytes_per_s", 0),
               store = number_or(cache, "store_bytes_per_s", 0),
               slowdown = number_or(cache, "copy_slowdown", -1);
  if (!(load > 0) || !(store > 0) || (options.shared_cores && !(slowdown >= 0))) return false;
  if (options.shared_cores) profile.copy_slowdown = slowdown;
  profile.load_bytes_per_s = load;
  profile.store_bytes_per_s = store;
  profile.device_overhead_bytes = overhead_in(cache, profile);
  return true;
}

Status write_cache(const std::filesystem::path& path, bool shared_cores, const Profile& profile, json cache) {
  cache["load_bytes_per_s"] = profile.load_bytes_per_s;
  cache["store_bytes_per_s"] = profile.store_bytes_per_s;
  cache["device_overhead_bytes"] = profile.device_overhead_bytes;
  if (shared_cores) cache["copy_slowdown"] = profile.copy_slowdown;
  SLUICE_TRY(make_directories(path.parent_path()));
  return write_file(path, cache.dump(1));
}

}  // namespace

Status calibrate(Backend& backend, std::span<const Op> ops, const std::filesystem::path& path,
                 const CalibrateOptions& options, Profile& profile, const Progress& progress) {
  constexpr int64_t kLinkBytes = 16 * kMiB;
  constexpr uint32_t kPairs = 6;
  json cache = read_cache(path, profile);
  const bool links_known = take_cache(cache, options, profile);
  std::vector<Op> missing;
  int64_t bytes = 0;
  for (const Op& op : ops) {
    if (profile.measured_ns.count(cost_key(op))) continue;
    missing.push_back(op);
    bytes = std::max(bytes, bytes_of(op, backend));
  }
  if (missing.empty() && links_known) return {};
  const auto heaviest_of = [](std::span<const Op> from) {
    return *std::max_element(from.begin(), from.end(),
                             [](const Op& a, const Op& b) { return flops(a) < flops(b); });
  };
  const bool with_product = !links_known && options.shared_cores;
  Timed product;
  Op beside;
  std::vector<Op> prepared = missing;
  if (with_product) {
    beside = heaviest_of(ops);
    product.op = &beside;
    prepared.push_back(beside);
    bytes = std::max(bytes, 2 * kLinkBytes + bytes_of(beside, backend));
  }
  const int64_t device_bytes = std::max(bytes, 2 * kLinkBytes);
  SLUICE_ASSIGN(const Arenas arenas, backend.reserve(device_bytes, 2 * kLinkBytes + FloatBlocks::kBytes));
  SLUICE_TRY(backend.prepare(prepared));
  SLUICE_ASSIGN(const FloatBlocks blocks, FloatBlocks::create(backend, arenas.host + 2 * kLinkBytes));
  if (with_product) {
    SLUICE_ASSIGN(product.placed, place(beside, backend, blocks, arenas.device + 2 * kLinkBytes));
    SLUICE_TRY(measure_shared(backend, {arenas, kLinkBytes, kPairs}, product, profile));
  } else if (!links_known) {
    SLUICE_ASSIGN(const LinkRates rates, measure_links(backend, {arenas, kLinkBytes, kPairs}, Timed(), 0));
    profile.load_bytes_per_s = rates.load_bytes_per_s;
    profile.store_bytes_per_s = rates.store_bytes_per_s;
  }
  const auto total = static_cast<int64_t>(missing.size());
  for (int64_t i = 0; i < total; ++i) {
    progress(i, total);
    Timed timed{&missing[static_cast<size_t>(i)]};
    SLUICE_ASSIGN(timed.placed, place(*timed.op, backend, blocks, arenas.device));
    SLUICE_TRY(time_op(backend, options.heat_ns, timed));
    profile.measured_ns[cost_key(*timed.op)] = cache["ns"][cost_key(*timed.op)] = timed.ns;
  }
  // What the process holds on the device beside its arena: context, kernels, library handles.
  const MemoryUse use = backend.memory();
  profile.device_overhead_bytes = std::max<int64_t>(0, use.device_bytes - device_bytes);
  // Programs between steps and library plans for other shapes load a few more kernels.
  constexpr int64_t kLaterKernels = 48 * kMiB;
  if (profile.device_overhead_bytes > 0) profile.device_overhead_bytes += kLaterKernels;
  // A step may have held more.
  profile.device_overhead_bytes = std::max(profile.device_overhead_bytes, overhead_in(cache, profile));
  progress(total, total);
  return write_cache(path, options.shared_cores, profile, std::move(cache));
}

namespace {

// What a run would have taken without copies beside it, which slow it down as the simulator has it: each of
// the time's parts is divided by 1 + copies * slowdown.
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

}  // namespace

Status learn(const Program& program, const Plan& plan, std::span<const Interval> timeline,
             int64_t device_overhead_bytes, const CalibrateOptions& options,
             const std::filesystem::path& path, Profile profile) {
  const WithoutCopies alone(plan, timeline, profile.copy_slowdown);
  std::map<std::string, std::vector<double>> runs;
  for (size_t i = 0; i < timeline.size(); ++i) {
    if (plan.actions[i].kind != ActionKind::Run) continue;
    runs[cost_key(program.task(plan.actions[i].task).op)].push_back(alone.ns(timeline[i]));
  }
  json cache = read_cache(path, profile);
  json& learnt = cache["learnt"][options.kind];
  for (const auto& [key, ns] : runs) learnt[key] = median(ns);
  profile.device_overhead_bytes = std::max(profile.device_overhead_bytes, device_overhead_bytes);
  return write_cache(path, options.shared_cores, profile, std::move(cache));
}

}  // namespace sluice
