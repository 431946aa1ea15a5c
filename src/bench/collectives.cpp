// SPDX-License-Identifier: Apache-2.0
#include "bench/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/stopwatch.h"

namespace sluice::core {
namespace {

// A value exact in bf16. Values differ in size so far that sums over ranks round, and round otherwise in
// another order.
float value_of(int rank, size_t element) {
  uint32_t mixed = uint32_t(element) * 2654435761u + uint32_t(rank + 1) * 0x9e3779b9u;
  mixed = (mixed ^ mixed >> 16) * 0x85ebca6bu;  // neighbours in either become unlike
  mixed ^= mixed >> 13;
  const auto mantissa = float(128 + (mixed >> 24) % 128);  // of bf16's eight bits
  return std::ldexp((mixed & 1) != 0 ? mantissa : -mantissa, int(mixed >> 8) % 40 - 20);
}

void fill(std::span<std::byte> values, DType dtype, int rank) {
  with_type(dtype, [&]<class T>(T) {
    auto* const to = reinterpret_cast<T*>(values.data());
    for (size_t i = 0; i < values.size() / sizeof(T); ++i) to[i] = T(value_of(rank, i));
  });
}

// Elements of `values` that are not the sum that one process makes of all ranks' values.
int64_t wrong_sums(std::span<const std::byte> values, DType dtype, int ranks) {
  return with_type(dtype, [&]<class T>(T) {
    const auto* const found = reinterpret_cast<const T*>(values.data());
    const size_t elements = values.size() / sizeof(T);
    constexpr size_t kAtOnce = 4096;
    std::vector<std::vector<float>> of_rank(static_cast<size_t>(ranks), std::vector<float>(kAtOnce));
    int64_t wrong = 0;
    for (size_t begin = 0; begin < elements; begin += kAtOnce) {
      const size_t count = std::min(kAtOnce, elements - begin);
      std::vector<std::span<float>> parts;
      for (int r = 0; r < ranks; ++r) {
        for (size_t i = 0; i < count; ++i) of_rank[size_t(r)][i] = value_of(r, begin + i);
        parts.push_back(std::span(of_rank[size_t(r)]).first(count));
      }
      add_by_tree(parts, parts[0]);
      for (size_t i = 0; i < count; ++i) {
        const T expected(parts[0][i]);
        wrong += std::memcmp(&expected, &found[begin + i], sizeof(T)) != 0 ? 1 : 0;
      }
    }
    return wrong;
  });
}

// The ranks of one measurement, and what they agree on.
class Timing {
 public:
  Timing(ProcessGroup& group, double seconds, const std::atomic<bool>& interrupted)
      : group_(group), seconds_(seconds), interrupted_(interrupted) {}

  // After one call that warms up and one that says how long they take. The error of an interruption of any
  // rank is Cancelled.
  Result<CallTime> of(const std::function<Status()>& call) {
    return of_several([&](int64_t calls) -> Result<double> {
      const Stopwatch watch;
      for (int64_t i = 0; i < calls; ++i) SLUICE_TRY(call());
      return watch.seconds();
    });
  }
  // The same of what makes so many calls and says how many seconds they took.
  using Several = std::function<Result<double>(int64_t calls)>;
  Result<CallTime> of_several(const Several& several) {
    SLUICE_TRY(several(1));
    SLUICE_ASSIGN(const double one, slowest(several, 1));
    const auto calls =
        std::max<int64_t>(3, std::min<int64_t>(int64_t(seconds_ / std::max(one, 1e-7)), 100'000));
    SLUICE_ASSIGN(const double all, slowest(several, calls));
    return CallTime{all / double(calls), calls};
  }

  // The sum over ranks.
  Result<int64_t> total(int64_t own) {
    SLUICE_ASSIGN(const auto all, gathered(group_, own));
    int64_t out = 0;
    for (const int64_t one : all) out += one;
    return out;
  }

 private:
  // Seconds of the slowest rank, the same on all.
  Result<double> slowest(const Several& several, int64_t calls) {
    SLUICE_TRY(group_.barrier());
    SLUICE_ASSIGN(const double own, several(calls));
    SLUICE_ASSIGN(const auto all, gathered(group_, interrupted_ ? -1.0 : own));
    if (std::ranges::min(all) < 0) return error(ErrorKind::Cancelled, "interrupted");
    return std::ranges::max(all);
  }

  ProcessGroup& group_;
  double seconds_;
  const std::atomic<bool>& interrupted_;
};

Result<CollectiveResult> measured_sum(ProcessGroup& group, int64_t bytes, DType dtype, Timing timing) {
  CollectiveResult out{.ranks = group.size(), .bytes = bytes, .dtype = dtype};
  std::vector<std::byte> values(static_cast<size_t>(bytes));
  fill(values, dtype, group.rank());
  SLUICE_TRY(group.sum(values, dtype));
  SLUICE_ASSIGN(out.wrong, timing.total(wrong_sums(values, dtype, group.size())));
  // Sums of sums of sums would overflow.
  std::memset(values.data(), 0, values.size());
  SLUICE_ASSIGN(out.ours, timing.of([&] { return group.sum(values, dtype); }));
  if (dtype == DType::F32) {
    const std::span floats(reinterpret_cast<float*>(values.data()), values.size() / sizeof(float));
    SLUICE_ASSIGN(out.library, timing.of([&] { return group.sum_in_any_order(floats); }));
  }
  return out;
}

Result<CollectiveResult> measured_send(ProcessGroup& group, int64_t bytes, DType dtype, Timing timing) {
  CollectiveResult out{.ranks = group.size(), .bytes = bytes, .dtype = dtype};
  const int next = (group.rank() + 1) % group.size(), last = (group.rank() - 1 + group.size()) % group.size();
  std::vector<std::byte> own(static_cast<size_t>(bytes)), received(own.size()), expected(own.size());
  fill(own, dtype, group.rank());
  fill(expected, dtype, last);
  SLUICE_ASSIGN(out.ours, timing.of([&] { return group.exchange(own, next, received, last); }));
  SLUICE_ASSIGN(out.wrong, timing.total(received == expected ? 0 : bytes / size_of(dtype)));
  return out;
}

// The same of memory of devices.
Result<CollectiveResult> measured_on_devices(ProcessGroup& group, DeviceNetwork& devices, bool sums,
                                             int64_t bytes, DType dtype, Timing timing) {
  using Call = DeviceNetwork::Call;
  CollectiveResult out{.ranks = group.size(), .bytes = bytes, .dtype = dtype};
  std::vector<std::byte> values(static_cast<size_t>(bytes));
  fill(values, dtype, group.rank());
  SLUICE_TRY(devices.make(sums ? Call::Sum : Call::PassOn, values, dtype));
  int64_t wrong = 0;
  if (sums) {
    wrong = wrong_sums(values, dtype, group.size());
  } else {
    std::vector<std::byte> expected(values.size());
    fill(expected, dtype, (group.rank() - 1 + group.size()) % group.size());
    wrong = values == expected ? 0 : bytes / size_of(dtype);
  }
  SLUICE_ASSIGN(out.wrong, timing.total(wrong));
  const auto time = [&](Call call) {
    return timing.of_several([&, call](int64_t calls) { return devices.time(call, bytes, dtype, calls); });
  };
  SLUICE_ASSIGN(out.ours, time(sums ? Call::Sum : Call::PassOn));
  if (sums) {
    SLUICE_ASSIGN(out.library, time(Call::LibrarySum));
  }
  return out;
}

}  // namespace

Result<CollectiveBench> run_collectives(ProcessGroup& group, const CollectiveOptions& options,
                                        const std::atomic<bool>& interrupted,
                                        const std::function<void(const std::string&)>& doing) {
  CollectiveBench out{.sums = options.sums,
                      .processes = group.size(),
                      .here = group.here(),
                      .cores = int(std::thread::hardware_concurrency())};
  std::vector<int> counts;
  for (int ranks = 2; ranks < group.size(); ranks *= 2) counts.push_back(ranks);
  counts.push_back(group.size());
  for (const int ranks : counts) {
    SLUICE_ASSIGN(const std::unique_ptr<ProcessGroup> some, group.first(ranks));
    JoinedDevices devices;
    if (options.join && some != nullptr) {
      SLUICE_ASSIGN(devices, options.join(*some));
      if (devices.network == nullptr)
        return error("devices cannot be joined, so that there is nothing to measure: {}", devices.why_not);
      out.joined_by = devices.network->name();
    }
    for (const DType dtype : options.dtypes) {
      for (const int64_t bytes : options.bytes) {
        doing(fmt::format("{} ranks, {}, {}", ranks, to_text(double(bytes), Form::Memory), name_of(dtype)));
        const auto measure = [&](Timing timing) {
          if (devices.network)
            return measured_on_devices(*some, *devices.network, options.sums, bytes, dtype, timing);
          return (options.sums ? measured_sum : measured_send)(*some, bytes, dtype, timing);
        };
        SLUICE_ASSIGN(const bool stop, any(group, interrupted));
        if (stop) return out;
        // Rank 0 is of every group, and tells the others; of what was interrupted no ranks.
        CollectiveResult found;
        if (some != nullptr) {
          const auto result = measure(Timing(*some, options.seconds, interrupted));
          if (!result.ok() && result.error().kind != ErrorKind::Cancelled) return result.error();
          if (result.ok()) found = *result;
        }
        SLUICE_TRY(group.broadcast(std::as_writable_bytes(std::span(&found, 1)), 0));
        if (found.ranks == 0) return out;
        out.results.push_back(found);
      }
    }
  }
  out.whole = true;
  return out;
}

Page collectives_page(const CollectiveBench& bench) {
  Page page{.title = bench.sums ? "All-reduce" : "Send and receive", .legend = {}};
  page.legend.push_back(
      bench.sums ? "Every rank's values become their sums over all ranks. Ours adds in the fixed order of "
                   "ranks, f32 "
                   "whatever the type; the library's order is its own, and bits may differ from run to run."
                 : "Each rank sends to the next while it receives from the one before.");
  page.legend.push_back(
      "Times are means of calls, by the slowest rank, of zeros. algbw = bytes / time; busbw = algbw x " +
      std::string(bench.sums ? "2 (n - 1) / n for n ranks." : "1."));
  if (!bench.joined_by.empty())
    page.legend.push_back(fmt::format("From device to device by {}, one device of each process{}.",
                                      bench.joined_by,
                                      bench.sums ? "; the library's sums are its all-reduce, which is not "
                                                   "reproducible and is not trained with"
                                                 : ", with a copy of what came to where it is sent on from"));
  if (bench.here > bench.cores)
    page.legend.push_back(fmt::format("{} processes share {} cores: times are not those of as many cores.",
                                      bench.here, bench.cores));
  Section section{.key = bench.sums ? "allreduce" : "sendrecv", .title = page.title};
  Table table{.key = "calls", .title = "Time of a call and what it moves", .row_title = "ranks, type, bytes"};
  table.columns = {{"ranks", "ranks", Form::Count},
                   {"bytes", "size", Form::Memory},
                   {"elements", "count", Form::Count},
                   {"seconds", "time", Form::Seconds},
                   {"algbw_bytes_per_s", "algbw", Form::BytesPerSecond},
                   {"busbw_bytes_per_s", "busbw", Form::BytesPerSecond},
                   {"wrong", "#wrong", Form::Count}};
  if (bench.sums) {
    table.columns.push_back({"library_seconds", "library's time", Form::Seconds});
    table.columns.push_back({"library_busbw_bytes_per_s", "library's busbw", Form::BytesPerSecond});
    table.columns.push_back({"of_library", "of library", Form::Share});
  }
  table.columns.push_back({"timed_calls", "calls", Form::Count});
  Plot plot{.title = page.title,
            .subtitle = "",
            .x_label = "bytes of each rank",
            .y_label = "bus bandwidth, GB/s",
            .series = {},
            .x_scale = Scale::PowersOfTwo,
            .y_scale = Scale::Linear,
            .marks = {}};
  const auto point = [&](const std::string& name, double bytes, double busbw) {
    if (plot.series.empty() || plot.series.back().name != name)
      plot.series.push_back({.name = name, .points = {}, .marked = true});
    plot.series.back().points.push_back({bytes, busbw / 1e9});
  };
  std::vector<Series> library;
  for (const CollectiveResult& r : bench.results) {
    const double factor = bench.sums ? 2.0 * (r.ranks - 1) / r.ranks : 1.0;
    const double algbw = double(r.bytes) / r.ours.seconds;
    Row row{.name =
                fmt::format("{}, {}, {}", r.ranks, name_of(r.dtype), to_text(double(r.bytes), Form::Memory))};
    row.values = {double(r.ranks), double(r.bytes), double(r.bytes / size_of(r.dtype)), r.ours.seconds, algbw,
                  algbw * factor,  double(r.wrong)};
    point(fmt::format("{} ranks, {}", r.ranks, name_of(r.dtype)), double(r.bytes), algbw * factor);
    if (bench.sums) {
      std::optional<double> seconds, busbw, share;
      if (r.library.calls > 0) {
        seconds = r.library.seconds;
        busbw = double(r.bytes) / r.library.seconds * factor;
        share = r.library.seconds / r.ours.seconds;
        const std::string name = fmt::format("{} ranks, {}, the library's", r.ranks, name_of(r.dtype));
        if (library.empty() || library.back().name != name)
          library.push_back({.name = name, .points = {}, .marked = true});
        library.back().points.push_back({double(r.bytes), *busbw / 1e9});
      }
      row.values.insert(row.values.end(), {seconds, busbw, share});
    }
    row.values.push_back(double(r.ours.calls));
    table.rows.push_back(std::move(row));
  }
  plot.series.insert(plot.series.end(), library.begin(), library.end());
  section.tables.push_back(std::move(table));
  section.plots.push_back(std::move(plot));
  page.sections.push_back(std::move(section));
  return page;
}

}  // namespace sluice::core
