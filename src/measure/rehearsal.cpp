// SPDX-License-Identifier: Apache-2.0
#include "measure/rehearsal.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/philox.h"
#include "measure/link_runs.h"
#include "ops/op.h"
#include "ops/step_args.h"

namespace sluice::core {
namespace {

// How floats of a kind are distributed: around `middle`, triangular, to `width` on either side. It matters to
// the power that products draw, and by that to the clock. Scores that are all alike, or gradients of a
// softmax that are all zero but one, make them faster than they will be.
struct Spread {
  Values values;
  float middle, width;
};
constexpr Spread kSpreads[] = {
    {Values::Activations, 0, 2.5f},
    // Unlike activations: where a row of one is a row of the other, no other counts.
    {Values::Weights, 0, 0.05f},
    {Values::Squares, 1, 0.5f},
    // The logarithm of how many keys there are, about.
    {Values::LogSumExp, 9, 0.5f},
};

// Floats that come from blocks of their kind; other operands are made one by one.
bool is_spread(const Operand& operand) {
  const bool spread =
      std::ranges::any_of(kSpreads, [&](const Spread& s) { return s.values == operand.values; });
  return spread && operand.format != DType::F64;
}
size_t spread_of(const Operand& operand) {
  return size_t(std::ranges::find(kSpreads, operand.values, &Spread::values) - kSpreads);
}

constexpr DType kTypes[] = {DType::F32, DType::BF16};  // of floats that are spread
size_t index_of(DType type) {
  // Compact state and codes: any bytes will do, and their scales are bf16.
  if (bits_of(type) <= 8) return 1;
  return with_type(type, []<class T>(T) { return std::is_same_v<T, float> ? size_t{0} : size_t{1}; });
}

// A routing by chance: experts have unequally many rows, as in a step, and none has more than there are
// tokens.
std::vector<std::byte> routing_by_chance(const Mixture& mixture) {
  const int64_t experts = mixture.experts, rows = mixture.rows(), apart = experts / mixture.top_k;
  const RoutingLayout layout{experts, rows};
  std::vector<int32_t> routing(size_t(layout.elements())), expert(static_cast<size_t>(rows)),
      next(static_cast<size_t>(experts) + 1, 0);
  for (int64_t i = 0; i < rows; ++i) {
    // A token's choices are from as many parts of the experts.
    const int64_t token = i / mixture.top_k, part = i % mixture.top_k;
    const int64_t first = philox(7, uint64_t(token), 0).v[0],
                  in_part = philox(7, uint64_t(i), 1).v[0] % apart;
    expert[size_t(i)] = int32_t((first + part * apart + in_part) % experts);
    ++next[size_t(expert[size_t(i)]) + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::copy(next.begin(), next.end(), routing.begin() + layout.begin());
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t row = next[size_t(expert[size_t(i)])]++;
    routing[size_t(layout.choice() + row)] = int32_t(i);
    routing[size_t(layout.row() + i)] = row;
  }
  const auto bytes = std::as_bytes(std::span(routing));
  return {bytes.begin(), bytes.end()};
}

// The choices of experts that an op follows; null: it follows none.
const Mixture* mixture_of(const Op& op) {
  return std::visit(
      []<class T>(const T& of) -> const Mixture* {
        if constexpr (requires { requires std::same_as<decltype(of.mixture), Mixture>; }) return &of.mixture;
        return nullptr;
      },
      op);
}

// An operand made on the host: ids below their limit, positions that count up, a clip scale and step
// arguments that make an update do its work, zeros for sums.
std::vector<std::byte> small_values(const Operand& operand) {
  std::vector<std::byte> out(static_cast<size_t>(operand.bytes()), std::byte{0});
  const auto fill = [&]<class T>(T type, auto value) {
    auto* to = reinterpret_cast<decltype(type)*>(out.data());
    for (int64_t i = 0; i < operand.elements; ++i) to[i] = static_cast<T>(value(i));
  };
  switch (operand.values) {
    case Values::Ids:
      fill(int32_t{}, [&](int64_t i) {
        return philox(7, static_cast<uint64_t>(i), 0).v[0] % static_cast<uint64_t>(operand.limit);
      });
      break;
    case Values::Positions:
      fill(int32_t{}, [&](int64_t i) { return operand.limit > 0 ? i % operand.limit : i; });
      break;
    // Half full, and all new tokens count.
    case Values::Spans:
      fill(int32_t{}, [&](int64_t i) {
        return i % 2 == 0 ? operand.limit / 2 : int64_t{std::numeric_limits<int32_t>::max()};
      });
      break;
    case Values::Frequencies:
      fill(float{}, [&](int64_t i) { return std::pow(10000.0, -double(i) / double(operand.elements)); });
      break;
    case Values::Clip:
      fill(float{}, [](int64_t) { return 1; });
      break;
    case Values::StepScalars: {
      const StepArgs args{
          .step = 1, .seed = 1, .learning_rate = 1e-4f, .loss_scale = 1e-4f, .update = 1, .updates = 1};
      std::memcpy(out.data(), &args, sizeof args);
      break;
    }
    case Values::Activations:
    case Values::Weights:
    case Values::Squares:
    case Values::LogSumExp:
    case Values::Routing:
      break;
  }
  return out;
}

// The shape of a block of attention in whose rows documents begin; null: the op is none.
const AttnShape* packed_shape(const Op& op) {
  return std::visit(
      []<class T>(const T& attention) -> const AttnShape* {
        if constexpr (requires { requires std::same_as<decltype(attention.shape), AttnShape>; }) {
          return attention.shape.packed ? &attention.shape : nullptr;
        }
        return nullptr;
      },
      op);
}

// Rows one after the other, in which documents begin as in those of the sample.
std::vector<std::byte> positions_of_rows(const Operand& operand, const RowSample& rows) {
  std::vector<int32_t> out(static_cast<size_t>(operand.elements));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = rows.positions.empty() ? static_cast<int32_t>(int64_t(i) % rows.sequence)
                                    : rows.positions[i % rows.positions.size()];
  }
  const auto bytes = std::as_bytes(std::span(out));
  return {bytes.begin(), bytes.end()};
}

// As small_values(), where the positions that attention over packed rows looks at, and all that has a state,
// are those of the data.
std::vector<std::byte> values_for(const Op& op, const Operand& operand, const RowSample& rows) {
  if (operand.values == Values::Routing) return routing_by_chance(*mixture_of(op));
  if (operand.values == Values::Positions && work(op).unit == Unit::StateProduct && rows.sequence > 0)
    return positions_of_rows(operand, rows);
  const AttnShape* shape = operand.values == Values::Positions ? packed_shape(op) : nullptr;
  if (shape == nullptr) return small_values(operand);
  const std::vector<int32_t> positions = typical_positions(*shape, rows);
  const auto bytes = std::as_bytes(std::span(positions));
  return {bytes.begin(), bytes.end()};
}

// Blocks of floats in the host arena, from which the device's are filled over the load lane. Operands of a
// large model are gigabytes: made one by one, and copied from pageable memory, they would take minutes.
class FloatBlocks {
 public:
  // A block repeats after a prime number of elements, so that the rows of no matrix are alike. Several
  // periods make one, for copies to be large: as many as fit.
  static constexpr int64_t kPeriod = 65521, kMostPeriods = 32;
  static int64_t bytes_of(int64_t periods) { return int64_t(std::size(kSpreads)) * bytes_of_each(periods); }
  // So many that the blocks, and the one that is being made beside them, take no more than `most_bytes`.
  static int64_t periods_within(int64_t most_bytes) {
    const int64_t bytes = bytes_of(1) + kPeriod * size_of(kTypes[0]);
    return std::clamp<int64_t>(most_bytes / bytes, 1, kMostPeriods);
  }
  // So many that one copy fills `bytes` bytes of the smallest type.
  static int64_t periods_of(int64_t bytes) {
    return std::clamp<int64_t>(1 + bytes / (kPeriod * size_of(kTypes[1])), 1, kMostPeriods);
  }

  // Writes the blocks to bytes_of(periods) of the backend's host arena, from `base` on.
  static Result<FloatBlocks> create(Backend& backend, int64_t periods, int64_t base) {
    const FloatBlocks blocks(periods, base);
    for (size_t kind = 0; kind < std::size(kSpreads); ++kind) {
      const auto& [values, middle, width] = kSpreads[kind];
      std::vector<float> period(kPeriod);
      for (int64_t i = 0; i < kPeriod; ++i) {
        const Philox4 r = philox(uint64_t(kind), static_cast<uint64_t>(i), 0);
        period[size_t(i)] = middle + width * (uniform_open(r.v[0]) + uniform_open(r.v[1]) - 1.0f);
      }
      for (const DType type : kTypes) {
        SLUICE_TRY(with_type(type, [&]<class T>(T) {
          std::vector<T> block(size_t(blocks.elements_));
          for (int64_t i = 0; i < blocks.elements_; ++i) block[size_t(i)] = T(period[size_t(i % kPeriod)]);
          const auto bytes = std::as_bytes(std::span(block));
          return backend.upload(blocks.place(type, kind), bytes.data(), int64_t(bytes.size()));
        }));
      }
    }
    return blocks;
  }

  // Adds the copies that fill `bytes` bytes of a device on its lane `load`.
  void fill(const Location& to, int64_t bytes, DType dtype, size_t kind, Lane load,
            std::vector<Command>& copies) const {
    const int64_t block = elements_ * size_of(dtype);
    for (int64_t done = 0; done < bytes; done += block) {
      const Copy copy{place(dtype, kind), {to.tier, to.offset + done}, std::min(block, bytes - done)};
      copies.push_back({uint32_t(copies.size()), load, {}, copy, 0});
    }
  }

 private:
  FloatBlocks(int64_t periods, int64_t base) : elements_(periods * kPeriod), base_(base) {}
  static constexpr int64_t bytes_of_each(int64_t periods) {
    return periods * kPeriod * (size_of(kTypes[0]) + size_of(kTypes[1]));
  }
  Location place(DType dtype, size_t kind) const {
    return {kHost, base_ + int64_t(kind) * bytes_of_each(elements_ / kPeriod) +
                       (index_of(dtype) > 0 ? size_of(kTypes[0]) * elements_ : 0)};
  }

  const int64_t elements_, base_;
};

// Approximate host bytes of a command of a mix, and the least number for meaningful medians.
constexpr int64_t kBytesOfCommand = 1024, kLeastCommands = 8192;

// The order of runs: number i `times[i]` times, each of `ns[i]`, all spread evenly over the whole. Those that
// run equally often follow each other at the distance of their shares of the time, so that copies, which take
// none of it, get between them. Number 0 comes first.
std::vector<size_t> interleaved(std::span<const int64_t> times, std::span<const double> ns) {
  const double all_ns = std::inner_product(times.begin(), times.end(), ns.begin(), 1.0);
  std::vector<std::pair<double, size_t>> when;
  double before_ns = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const double first = ns[i] > 0 ? before_ns / all_ns : 0.5;  // of a time between two runs of it
    for (int64_t k = 0; k < times[i]; ++k) when.emplace_back((double(k) + first) / double(times[i]), i);
    before_ns += double(times[i]) * ns[i];
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

double LinkSums::rate(double otherwise, int64_t enough) const {
  return bytes >= enough && ns > 0 ? 1e9 * double(bytes) / ns : otherwise;
}

Rehearsal::Region& Rehearsal::region_of(const Operand& operand) {
  static_assert(std::size(kTypes) == std::extent_v<decltype(floats_), 0> &&
                std::size(kSpreads) == std::extent_v<decltype(floats_), 1>);
  if (!is_spread(operand)) return small_;
  if (!apart_) return shared_;
  return floats_[index_of(operand.format.type)][spread_of(operand)][operand.access != Access::Read];
}

template <class F>
void Rehearsal::for_each_float_region(F f) {
  f(shared_);
  for (auto& of_type : floats_) {
    for (auto& of_kind : of_type) {
      for (Region& region : of_kind) f(region);
    }
  }
}

// Finds a place for every operand, and the regions. Returns what all of it takes.
int64_t Rehearsal::place() {
  // Once for the sizes of the regions, and once more, when they are known.
  int64_t end = 0;
  for (int pass = 0; pass < 2; ++pass) {
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
    // Ids, and what a workspace has of them, are addresses: no float may get among them.
    workspace_.offset = small_.bytes;
    end = workspace_.offset + workspace_.bytes;
    for_each_float_region([&](Region& region) {
      region.offset = end;
      end += region.bytes;
    });
  }
  return end;
}

Rehearsal::Rehearsal(std::span<const CountedOp> ops, const Backend& backend, const BytesByTier& most_bytes,
                     RowSample rows, size_t devices)
    : ops_(ops.begin(), ops.end()),
      rows_(std::move(rows)),
      alignment_(backend.alignment()),
      most_commands_(std::max(kLeastCommands, most_bytes[kHost] / kBytesOfCommand)),
      periods_(FloatBlocks::periods_within(most_bytes[kHost])),
      placed_(devices) {
  for (const CountedOp& counted : ops_) workspace_bytes_.push_back(backend.workspace_bytes(counted.op));
  device_bytes_ = place();
  if (device_bytes_ > most_bytes[kDevice]) {
    apart_ = false;
    small_ = workspace_ = {};
    for_each_float_region([](Region& region) { region = {}; });
    device_bytes_ = place();
  }
  int64_t largest_bytes = 0;
  for_each_float_region([&](const Region& region) { largest_bytes = std::max(largest_bytes, region.bytes); });
  periods_ = std::min(periods_, FloatBlocks::periods_of(largest_bytes));
}

BytesByTier Rehearsal::arena_bytes() const {
  BytesByTier out{{kHost, FloatBlocks::bytes_of(periods_)}};
  for (size_t d = 0; d < placed_.size(); ++d) out[Tier::device(d)] = device_bytes_;
  return out;
}

Status Rehearsal::fill(Backend& backend, const Arenas& arenas, const BytesByTier& base) {
  SLUICE_ASSIGN(const FloatBlocks blocks, FloatBlocks::create(backend, periods_, base[kHost]));
  std::vector<Command> copies;
  for (size_t d = 0; d < placed_.size(); ++d) {
    const Tier device = Tier::device(d);
    const Lane load = backend.lanes().copy(kHost, device);
    const auto fill = [&](const Region& region, DType dtype, size_t kind) {
      blocks.fill({device, base[device] + region.offset}, region.bytes, dtype, kind, load, copies);
    };
    fill(shared_, DType::BF16, 0);
    for (const DType dtype : kTypes) {
      for (size_t kind = 0; kind < std::size(kSpreads); ++kind) {
        for (const Region& region : floats_[index_of(dtype)][kind]) fill(region, dtype, kind);
      }
    }
  }
  SLUICE_TRY(run_commands(backend, copies));
  placed_.assign(placed_.size(), {});
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Operands wanted = operands(ops_[i].op);
    const auto place_on = [&](size_t d, size_t part, int64_t bytes) {
      const Tier device = Tier::device(d);
      return Buffer{arenas[device] + base[device] + offsets_[i][part], bytes};
    };
    std::vector<std::byte> values;
    for (size_t d = 0; d < placed_.size(); ++d) {
      placed_[d].operands.emplace_back();
      placed_[d].workspaces.push_back(place_on(d, wanted.size(), workspace_bytes_[i]));
    }
    for (size_t k = 0; k < wanted.size(); ++k) {
      const bool made = !is_spread(wanted[k]);
      if (made) values = values_for(ops_[i].op, wanted[k], rows_);
      for (size_t d = 0; d < placed_.size(); ++d) {
        placed_[d].operands[i].push_back(place_on(d, k, wanted[k].bytes()));
        const Tier device = Tier::device(d);
        if (made)
          SLUICE_TRY(
              backend.upload({device, base[device] + offsets_[i][k]}, values.data(), wanted[k].bytes()));
      }
    }
  }
  return {};
}

Result<Rehearsal::Times> Rehearsal::time(Backend& backend, const Length& length, const Traffic& traffic,
                                         const OpProgress& progress) const {
  const auto total = static_cast<int64_t>(ops_.size());
  std::vector<double> estimates;
  for (int64_t i = 0; i < total; ++i) {
    progress(i, total);
    std::vector<Command> commands;
    for (size_t d = 0; d < placed_.size(); ++d) {
      const Lane compute = backend.lanes().compute(Tier::device(d));
      for (int run = 0; run < 2; ++run)
        commands.push_back({uint32_t(commands.size()), compute, {}, launch(size_t(i), d), 0});
    }
    SLUICE_ASSIGN(const auto timeline, run_commands(backend, commands));
    estimates.push_back(median_ns(std::span(timeline).subspan(1, 1)));
  }
  Times times;
  SLUICE_ASSIGN(const double part, run_mix(backend, length, estimates, traffic, times));
  // One estimate that is far too long makes it short, and a device has not found its clock.
  if (part < 0.5) SLUICE_TRY(run_mix(backend, length, std::vector(times.ns), traffic, times));
  progress(total, total);
  return times;
}

// Fills `times`; returns how long that took as a part of what the estimates say.
Result<double> Rehearsal::run_mix(Backend& backend, const Length& length,
                                  const std::vector<double>& estimates, const Traffic& traffic,
                                  Times& times) const {
  constexpr long long kFewRuns = 3, kMostRuns = 2000;
  constexpr double kMostTimes = 2.5, kLittle = 0.01;
  double step_ns = 1;
  for (size_t i = 0; i < ops_.size(); ++i) step_ns += estimates[i] * double(ops_[i].count);
  // In less than half a step, ops that run once or twice in one take more than their share.
  const double ns = std::clamp(Length::kSteps * step_ns, length.least_ns, length.most_ns);
  const double wanted_ns = std::clamp(step_ns / 2, ns, kMostTimes * ns);
  std::vector<int64_t> runs;  // of the ops; then how many copies of each link
  double all_ns = 1;
  // Returns how many commands a part of all runs has.
  const auto shares_of = [&](double part) {
    runs.clear();
    all_ns = 1;
    for (size_t i = 0; i < ops_.size(); ++i) {
      const long long least = kFewRuns * estimates[i] < kLittle * wanted_ns ? kFewRuns : 1;
      const auto share =
          double(std::min(kMostRuns, std::llround(double(ops_[i].count) * wanted_ns / step_ns)));
      runs.push_back(std::max(least, std::llround(part * share)));
      all_ns += double(runs[i]) * estimates[i];
    }
    const int64_t launches = std::accumulate(runs.begin(), runs.end(), int64_t{0}) * int64_t(placed_.size());
    int64_t copies = 0;
    for (const Copies& link : traffic.links) {
      // Copies that a link cannot keep up with would in the end hold the ops up.
      constexpr double kMostBusy = 0.9;
      const double most = link.ns > 0 ? kMostBusy * all_ns / link.ns : 0;
      copies += runs.emplace_back(std::llround(std::min(link.copies * all_ns / step_ns, most)));
    }
    return launches + copies;
  };
  if (const int64_t all = shares_of(1); all > most_commands_) shares_of(double(most_commands_) / double(all));
  std::vector<double> takes(estimates);  // of compute
  takes.resize(runs.size(), 0);
  const std::vector<size_t> order = interleaved(runs, takes);
  std::vector<uint32_t> launched(placed_.size()), waits;  // by device; of the copies, for the launch before
  waits.reserve(order.size());
  std::vector<Command> commands;
  std::vector<size_t> whats;  // by command
  std::vector<int64_t> turns(runs.size());
  const auto add = [&](size_t what, Lane lane, std::span<const uint32_t> after, auto work) {
    commands.push_back({uint32_t(commands.size()), lane, after, work, 0});
    whats.push_back(what);
  };
  for (const size_t what : order) {
    if (what >= ops_.size()) {
      const Copies& link = traffic.links[what - ops_.size()];
      waits.push_back(launched[link.device]);
      add(what, link.lane, std::span<const uint32_t>(waits).last(1), link.at(turns[what]++));
      continue;
    }
    for (size_t d = 0; d < placed_.size(); ++d) {
      launched[d] = uint32_t(commands.size());
      add(what, backend.lanes().compute(Tier::device(d)), {}, launch(what, d));
    }
  }
  SLUICE_ASSIGN(const std::vector<Interval> timeline, run_commands(backend, commands));
  std::vector<std::vector<Interval>> of(runs.size());
  double end_ns = 0;
  for (size_t id = 0; id < whats.size(); ++id) {
    of[whats[id]].push_back(timeline[id]);
    end_ns = std::max(end_ns, timeline[id].end_ns);
  }
  times = {};
  for (size_t i = 0; i < ops_.size(); ++i) {
    times.ns.push_back(median_ns(of[i]));
    times.mean_ns.push_back(mean_ns(of[i]));
  }
  for (size_t i = 0; i < traffic.links.size(); ++i) {
    LinkSums& sums = times.links.emplace_back();
    for (const Interval& t : of[ops_.size() + i])
      sums.add(traffic.links[i].copy.bytes, t, traffic.latency_ns);
  }
  return end_ns / all_ns;
}

Result<std::vector<Interval>> run_repeatedly(Backend& backend, const Launch& launch, size_t times) {
  std::vector<Command> commands;
  for (uint32_t i = 0; i < times; ++i) commands.push_back({i, backend.lanes().compute(), {}, launch, 0});
  return run_commands(backend, commands);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + long(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 == 1 ? *middle : std::midpoint(*std::max_element(values.begin(), middle), *middle);
}

double median_ns(std::span<const Interval> timeline) {
  std::vector<double> ns;
  for (const Interval& t : timeline) ns.push_back(t.end_ns - t.start_ns);
  return std::max(1.0, median(std::move(ns)));
}

}  // namespace sluice::core
