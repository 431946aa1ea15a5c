#include "train/calibrate.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

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
      ids[i] = static_cast<int32_t>(position ? i % row : philox(7, static_cast<uint64_t>(i), 0).v[0] % uint64_t(vocab));
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
  SLUICE_TRY(backend.begin(static_cast<uint32_t>(copies.size())));
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

Result<std::vector<Interval>> run(Backend& backend, std::span<const std::pair<const Op*, const Placement*>> launches) {
  SLUICE_TRY(backend.begin(static_cast<uint32_t>(launches.size())));
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

double median_ns(std::span<const Interval> timeline) {
  std::vector<double> ns;
  for (const Interval& t : timeline) ns.push_back(t.end_ns - t.start_ns);
  std::nth_element(ns.begin(), ns.begin() + long(ns.size() / 2), ns.end());
  return ns[ns.size() / 2];
}

// An op with its operands in the arena, and how long it takes.
struct Timed {
  const Op* op = nullptr;
  Placement placed;
  double ns = 0;
};

// Median over repetitions of one op, after `heat_ns` of `heater`.
Status time_op(Backend& backend, const Timed& heater, double heat_ns, Timed& timed) {
  const std::pair<const Op*, const Placement*> launch{timed.op, &timed.placed}, heat{heater.op, &heater.placed};
  SLUICE_ASSIGN(const std::vector<Interval> warm, run(backend, std::vector(2, launch)));
  // About 30 ms per op, three to fifteen repetitions.
  const double each = std::max(warm.back().end_ns - warm.back().start_ns, 1.0);
  const auto repetitions = static_cast<size_t>(std::clamp(3e7 / each, 3.0, 15.0));
  std::vector launches(heater.ns > 0 ? static_cast<size_t>(heat_ns / heater.ns) : 0, heat);
  launches.insert(launches.end(), repetitions, launch);
  SLUICE_ASSIGN(const std::vector<Interval> timeline, run(backend, launches));
  timed.ns = median_ns(std::span(timeline).last(repetitions));
  return {};
}

// Sustained rates of both directions at once. The arenas hold 2 * bytes each.
Status measure_links(Backend& backend, Arenas arenas, int64_t bytes, Profile& profile) {
  constexpr uint32_t kPairs = 6;  // the first one warms up
  SLUICE_TRY(backend.begin(2 * kPairs));
  Status status;
  for (uint32_t i = 0; i < 2 * kPairs && status.ok(); ++i) {
    const bool load = i % 2 == 0;
    const Copy copy = load ? Copy{arenas.device, arenas.host, bytes}
                           : Copy{arenas.host + bytes, arenas.device + bytes, bytes};
    status = backend.submit({i, load ? Lane::Load : Lane::Store, {}, copy, 0});
  }
  std::vector<Interval> timeline;
  if (const auto fault = backend.finish(&timeline)) return fault->error;
  SLUICE_TRY(status);
  double ns[2] = {0, 0};
  for (uint32_t i = 2; i < 2 * kPairs; ++i) ns[i % 2] += timeline[i].end_ns - timeline[i].start_ns;
  profile.load_bytes_per_s = 1e9 * double(bytes) * (kPairs - 1) / ns[0];
  profile.store_bytes_per_s = 1e9 * double(bytes) * (kPairs - 1) / ns[1];
  return {};
}

// Returns whether the cache has the links.
bool read_cache(const std::filesystem::path& path, Profile& profile) {
  const auto text = read_file(path);
  if (!text.ok()) return false;  // no cache yet
  const json root = json::parse(*text, nullptr, false);
  if (!root.is_object() || root.value("machine", "") != profile.name || !root.contains("ns")) return false;
  for (const auto& [key, ns] : root["ns"].items()) {
    if (ns.is_number() && ns.get<double>() > 0) profile.measured_ns.emplace(key, ns.get<double>());
  }
  const double load = root.value("load_bytes_per_s", 0.0), store = root.value("store_bytes_per_s", 0.0);
  if (!(load > 0) || !(store > 0)) return false;
  profile.load_bytes_per_s = load;
  profile.store_bytes_per_s = store;
  profile.device_overhead_bytes = root.value("device_overhead_bytes", profile.device_overhead_bytes);
  return true;
}

}  // namespace

Status calibrate(Backend& backend, std::span<const Op> ops, const std::filesystem::path& cache, double heat_ns,
                 Profile& profile, const Progress& progress) {
  constexpr int64_t kLinkBytes = 16 * kMiB;
  const bool links_known = read_cache(cache, profile);
  std::vector<Op> missing;
  int64_t bytes = 0;
  for (const Op& op : ops) {
    if (profile.measured_ns.count(cost_key(op))) continue;
    missing.push_back(op);
    bytes = std::max(bytes, bytes_of(op, backend));
  }
  if (missing.empty() && links_known) return {};
  const auto heaviest =
      std::max_element(missing.begin(), missing.end(), [](const Op& a, const Op& b) { return flops(a) < flops(b); });
  const int64_t heater_bytes = heat_ns > 0 && heaviest != missing.end() ? bytes_of(*heaviest, backend) : 0;
  SLUICE_ASSIGN(const Arenas arenas, backend.reserve(std::max(bytes + heater_bytes, 2 * kLinkBytes),
                                                     2 * kLinkBytes + FloatBlocks::kBytes));
  SLUICE_TRY(backend.prepare(missing));
  if (!links_known) SLUICE_TRY(measure_links(backend, arenas, kLinkBytes, profile));
  SLUICE_ASSIGN(const FloatBlocks blocks, FloatBlocks::create(backend, arenas.host + 2 * kLinkBytes));
  Timed heater;
  if (heater_bytes > 0) {
    heater.op = &*heaviest;
    SLUICE_ASSIGN(heater.placed, place(*heaviest, backend, blocks, arenas.device));
    SLUICE_TRY(time_op(backend, Timed(), 0, heater));
  }
  const auto total = static_cast<int64_t>(missing.size());
  for (int64_t i = 0; i < total; ++i) {
    progress(i, total);
    Timed timed{&missing[static_cast<size_t>(i)]};
    SLUICE_ASSIGN(timed.placed, place(*timed.op, backend, blocks, arenas.device + heater_bytes));
    SLUICE_TRY(time_op(backend, heater, heat_ns, timed));
    profile.measured_ns[cost_key(*timed.op)] = timed.ns;
  }
  // What the process holds on the device beside its arena: context, kernels, library handles.
  const MemoryUse use = backend.memory();
  profile.device_overhead_bytes =
      std::max<int64_t>(0, use.device_bytes - std::max(bytes + heater_bytes, 2 * kLinkBytes));
  progress(total, total);
  json root = {{"machine", profile.name},
               {"load_bytes_per_s", profile.load_bytes_per_s},
               {"store_bytes_per_s", profile.store_bytes_per_s},
               {"device_overhead_bytes", profile.device_overhead_bytes},
               {"ns", json::object()}};
  for (const auto& [key, ns] : profile.measured_ns) root["ns"][key] = ns;
  SLUICE_TRY(make_directories(cache.parent_path()));
  return write_file(cache, root.dump(1));
}

}  // namespace sluice
