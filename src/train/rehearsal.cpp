#include "train/rehearsal.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/philox.h"
#include "ops/step_args.h"

namespace sluice {
namespace {

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

// Second moments and softmax statistics must not be negative or tiny.
bool is_positive(const Operand& operand) {
  return operand.name == "v" || operand.name == "lse";
}

bool is_small(const Operand& operand) {
  return (operand.dtype != DType::F32 && operand.dtype != DType::BF16) || operand.name == "clip";
}

// Blocks of floats in the host arena, from which the device's are filled over the load lane. Operands of a
// large model are gigabytes: made one by one, and copied from pageable memory, they would take minutes.
class FloatBlocks {
 public:
  // A block repeats after a prime number of elements, so that the rows of no matrix are alike.
  static constexpr int64_t kPeriod = 65521, kElements = 32 * kPeriod;
  static constexpr int64_t kBytes = 2 * kElements * (4 + 2);
  // Where a row of one matrix is a row of another, their product must not be so large that all others vanish
  // in a softmax: products with zeros draw less power.
  static constexpr float kScale = 0.05f;

  // Writes the blocks to `host`, kBytes of the backend's host arena.
  static Result<FloatBlocks> create(Backend& backend, std::byte* host) {
    std::vector<float> random(kPeriod);
    for (int64_t i = 0; i < kPeriod; ++i) {
      const Philox4 r = philox(1, static_cast<uint64_t>(i), 0);
      random[size_t(i)] = (uniform_open(r.v[0]) + uniform_open(r.v[1]) - 1.0f) * kScale;
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

  // Adds the copies that fill `to`.
  void fill(const Buffer& to, DType dtype, bool positive, std::vector<Copy>& copies) const {
    const std::byte* from = host_ + offset(dtype, positive);
    const int64_t block = kElements * size_of(dtype);
    for (int64_t done = 0; done < to.bytes; done += block) {
      copies.push_back({to.data + done, from, std::min(block, to.bytes - done)});
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

// What runs when: number i `times[i]` times, all spread evenly over the whole.
std::vector<size_t> interleaved(std::span<const int64_t> times) {
  std::vector<std::pair<double, size_t>> when;
  for (size_t i = 0; i < times.size(); ++i) {
    for (int64_t k = 0; k < times[i]; ++k) when.emplace_back((double(k) + 0.5) / double(times[i]), i);
  }
  std::sort(when.begin(), when.end());
  std::vector<size_t> order;
  for (const auto& [at, what] : when) order.push_back(what);
  return order;
}

}  // namespace

void LinkSums::add(int64_t copied, const Interval& time, double latency_ns) {
  bytes += copied;
  ns += std::max(0.0, time.end_ns - time.start_ns - latency_ns);
}

double LinkSums::rate(double otherwise) const {
  constexpr int64_t kEnough = kGiB;
  return bytes >= kEnough && ns > 0 ? 1e9 * double(bytes) / ns : otherwise;
}

Rehearsal::Region& Rehearsal::region_of(const Operand& operand) {
  if (is_small(operand)) return small_;
  return floats_[operand.dtype == DType::BF16][is_positive(operand)][operand.access != Access::Read];
}

template <class F>
void Rehearsal::for_each_float_region(F f) {
  for (auto& of_type : floats_) {
    for (auto& of_sign : of_type) {
      for (Region& region : of_sign) f(region);
    }
  }
}

// Finds a place for every operand, in regions that begin where they do so far, and how large those must be.
void Rehearsal::place() {
  offsets_.clear();
  small_.used = 0;
  for (size_t i = 0; i < ops_.size(); ++i) {
    workspace_.used = 0;
    for_each_float_region([](Region& region) { region.used = 0; });
    std::vector<int64_t>& offsets = offsets_.emplace_back();
    const auto take = [&](Region& region, int64_t bytes) {
      offsets.push_back(region.offset + region.used);
      region.used += align_up(bytes, alignment_);
      region.bytes = std::max(region.bytes, region.used);
    };
    for (const Operand& operand : operands(ops_[i].op)) take(region_of(operand), operand.bytes());
    take(workspace_, workspace_bytes_[i]);
  }
}

Rehearsal::Rehearsal(std::span<const CountedOp> ops, const Backend& backend, int64_t most_bytes)
    : ops_(ops.begin(), ops.end()), alignment_(backend.alignment()) {
  int64_t largest = 0;
  for (const CountedOp& counted : ops_) {
    workspace_bytes_.push_back(backend.workspace_bytes(counted.op));
    int64_t bytes = align_up(workspace_bytes_.back(), alignment_);
    for (const Operand& operand : operands(counted.op)) bytes += align_up(operand.bytes(), alignment_);
    largest = std::max(largest, bytes);
  }
  place();
  // Ids, and what a workspace has of them, are addresses: no float may get among them.
  workspace_.offset = small_.bytes;
  const int64_t begin = workspace_.offset + workspace_.bytes;
  int64_t apart = begin, end = begin;
  for_each_float_region([&](const Region& region) { apart += region.bytes; });
  for_each_float_region([&](Region& region) {
    region.offset = apart <= most_bytes ? end : begin;
    end = std::max(end, region.offset + region.bytes);
  });
  place();
  // Libraries try their ways on operands that do not overlap.
  device_bytes_ = std::max(end, largest);
}

int64_t Rehearsal::host_bytes() {
  return FloatBlocks::kBytes;
}

Status Rehearsal::fill(Backend& backend, const Arenas& arenas) {
  SLUICE_ASSIGN(const FloatBlocks blocks, FloatBlocks::create(backend, arenas.host));
  std::vector<Copy> copies;
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const bool positive : {false, true}) {
      for (const Region& region : floats_[dtype == DType::BF16][positive])
        blocks.fill({arenas.device + region.offset, region.bytes}, dtype, positive, copies);
    }
  }
  if (!copies.empty()) SLUICE_TRY(load_all(backend, copies));
  operands_.clear();
  workspaces_.clear();
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Operands wanted = operands(ops_[i].op);
    std::vector<Buffer>& placed = operands_.emplace_back();
    for (size_t k = 0; k < wanted.size(); ++k) {
      placed.push_back({arenas.device + offsets_[i][k], wanted[k].bytes()});
      if (!is_small(wanted[k])) continue;
      SLUICE_TRY(
          backend.upload(placed.back().data, small_values(ops_[i].op, wanted[k]).data(), wanted[k].bytes()));
    }
    workspaces_.push_back({arenas.device + offsets_[i].back(), workspace_bytes_[i]});
  }
  return {};
}

Result<Rehearsal::Times> Rehearsal::time(Backend& backend, double ns, const Copies& copies,
                                         const Progress& progress) const {
  constexpr int64_t kLeastRuns = 3, kMostRuns = 2000;
  const auto total = static_cast<int64_t>(ops_.size());
  std::vector<double> once;
  double step_ns = 0;
  for (int64_t i = 0; i < total; ++i) {
    progress(i, total);
    SLUICE_ASSIGN(const auto timeline, run_all(backend, std::vector(2, launch(size_t(i)))));
    once.push_back(std::max(1.0, timeline.back().end_ns - timeline.back().start_ns));
    step_ns += once.back() * double(ops_[size_t(i)].count);
  }
  std::vector<int64_t> runs;
  double all_ns = 0;
  for (size_t i = 0; i < ops_.size(); ++i) {
    runs.push_back(
        std::clamp<int64_t>(std::llround(double(ops_[i].count) * ns / step_ns), kLeastRuns, kMostRuns));
    all_ns += double(runs.back()) * once[i];
  }
  // The copies come after the ops.
  for (const double per_step : {copies.loads, copies.stores})
    runs.push_back(std::llround(per_step * all_ns / step_ns));
  const std::vector<size_t> order = interleaved(runs);
  std::vector<uint32_t> waits;  // of the copies, for the launch before
  waits.reserve(order.size());
  SLUICE_TRY(backend.begin(static_cast<uint32_t>(order.size()), true));
  Status status;
  std::optional<uint32_t> launched;
  for (uint32_t id = 0; id < order.size() && status.ok(); ++id) {
    const size_t what = order[id];
    if (what < ops_.size()) {
      launched = id;
      status = backend.submit({id, Lane::Compute, {}, launch(what), 0});
      continue;
    }
    const bool load = what == ops_.size();
    if (launched) waits.push_back(*launched);
    const auto after = std::span<const uint32_t>(waits).last(launched ? 1 : 0);
    status =
        backend.submit({id, load ? Lane::Load : Lane::Store, after, load ? copies.load : copies.store, 0});
  }
  std::vector<Interval> timeline;
  if (const auto fault = backend.finish(&timeline)) return fault->error;
  SLUICE_TRY(status);
  std::vector<std::vector<Interval>> of_op(runs.size());
  for (size_t id = 0; id < order.size(); ++id) of_op[order[id]].push_back(timeline[id]);
  Times out;
  for (size_t i = 0; i < ops_.size(); ++i) out.ns.push_back(median_ns(of_op[i]));
  for (const Interval& t : of_op[ops_.size()]) out.loads.add(copies.load.bytes, t, copies.latency_ns);
  for (const Interval& t : of_op[ops_.size() + 1]) out.stores.add(copies.store.bytes, t, copies.latency_ns);
  progress(total, total);
  return out;
}

Result<std::vector<Interval>> run_all(Backend& backend, std::span<const Launch> launches) {
  SLUICE_TRY(backend.begin(static_cast<uint32_t>(launches.size()), true));
  Status status;
  for (uint32_t i = 0; i < launches.size() && status.ok(); ++i)
    status = backend.submit({i, Lane::Compute, {}, launches[i], 0});
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

}  // namespace sluice
