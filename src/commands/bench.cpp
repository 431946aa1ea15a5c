// SPDX-License-Identifier: Apache-2.0
#include "commands/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "bench/attention.h"
#include "bench/cell_pages.h"
#include "bench/collectives.h"
#include "bench/data_parallel.h"
#include "bench/links.h"
#include "bench/precision.h"
#include "bench/results.h"
#include "bench/sizes.h"
#include "comm/launch.h"
#include "commands/job.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "commands/working.h"
#include "config/files/load_config.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/jsonl.h"
#include "io/lock_file.h"
#include "what_if/grid.h"

namespace sluice::core {
namespace {

// Prints the page and writes its files.
Status publish(const Page& page, const Stamp& stamp, const BenchRequest& r) {
  const std::filesystem::path dir = r.out_dir, lines = dir / (r.what + ".jsonl");
  SLUICE_TRY(make_directories(dir));
  SLUICE_TRY(write_file(lines, to_jsonl(page, stamp)));
  SLUICE_ASSIGN(const auto paths, write_page(page, stamp, dir, r.what));
  show_text(to_text(page));
  say("\nsaved: {}", lines.string());
  for (const auto& path : paths) say(", {}", path.filename().string());
  say("\n");
  return {};
}

// Publishes what was measured in one piece, unless that was interrupted.
template <class Found>
Result<Ending> publish(const Result<Found>& found, Page (*page)(const Found&), const Machine& machine,
                       const BenchRequest& r) {
  if (!found.ok() && found.error().kind == ErrorKind::Cancelled) return Ending::Stopped;
  if (!found.ok()) return found.error();
  SLUICE_TRY(publish(page(*found), stamp_on(machine.description), r));
  return Ending::Done;
}

Result<Ending> precision(const BenchRequest& r, Requests& /*asked*/) {
  if (r.models.size() > 1) return error("bench precision: takes one model, got {}", r.models.size());
  const std::string model = r.models.empty() ? "tiny" : r.models.front();
  SLUICE_ASSIGN(const ModelSpec spec, bench_model(model));
  SLUICE_TRY(publish(precision_page(model, spec), stamp_on("any machine"), r));
  return Ending::Done;
}

// The formats of --compute, where `otherwise` stands for auto.
Result<std::vector<std::string>> formats_of(const BenchRequest& r, std::string_view otherwise) {
  SLUICE_ASSIGN(std::vector<std::string> formats, parse_words("--compute", r.compute));
  for (std::string& format : formats) {
    if (format == "auto") format = otherwise;
  }
  return formats;
}

// The cells that were asked for, in order: models, lengths, formats.
Result<std::vector<BenchCell>> cells_of(const BenchRequest& r, const Machine& machine) {
  SLUICE_ASSIGN(const std::vector<int64_t> lengths, parse_counts("--seq-len", r.seq_len));
  SLUICE_ASSIGN(const std::vector<std::string> formats, formats_of(r, machine.fast_bf16 ? "bf16" : "f32"));
  const std::vector<std::string> models = r.models.empty() ? std::vector<std::string>{"small"} : r.models;
  std::vector<BenchCell> out;
  for (const std::string& model : models) {
    for (const int64_t seq_len : lengths) {
      for (const std::string& format : formats) {
        SLUICE_ASSIGN(BenchCell cell,
                      make_cell(model, seq_len, r.batch > 0 ? r.batch : 4, format, r.settings));
        out.push_back(std::move(cell));
      }
    }
  }
  return out;
}

// The machine at hand, after a look at the numbers of the request.
Result<Machine> machine_of(const BenchRequest& r) {
  if (r.steps < 1) return error("--steps {}: allowed are positive whole numbers", r.steps);
  for (const auto& [option, value] : {std::pair{"--batch", r.batch}, {"--warm-up", r.warm_up}}) {
    if (value < 0) return error("{} {}: allowed are 0 and positive whole numbers", option, value);
  }
  std::vector<std::string> settings = r.settings;
  if (!r.devices.empty()) settings.push_back("run.devices=" + r.devices);
  SLUICE_ASSIGN(const RunConfig base, load_config("", settings));
  SLUICE_ASSIGN(Machine machine, resolve_machine(base, ""));
  if (!machine.traits().runs_models) {
    return error("run.backend = {}: only machines that are here are measured", base.run.backend);
  }
  return machine;
}

// The cells that were asked for, in order: columns, lengths, formats.
Result<std::vector<AttentionCell>> attention_cells_of(const BenchRequest& r, const Machine& machine) {
  SLUICE_ASSIGN(const std::vector<int64_t> lengths, parse_counts("--seq-len", r.seq_len));
  SLUICE_ASSIGN(const std::vector<int64_t> columns, parse_counts("--head-dim", r.head_dim));
  // Beside a naive one in f32 the fused one is f32, too, where that can be.
  SLUICE_ASSIGN(const std::vector<std::string> formats,
                formats_of(r, machine.traits().shares_cores ? "f32" : "bf16"));
  std::vector<AttentionCell> out;
  for (const int64_t head_dim : columns) {
    if (head_dim % 2 != 0 || head_dim > 512) {
      return error("--head-dim {}: allowed are even numbers from 2 to 512", head_dim);
    }
    for (const int64_t length : lengths) {
      for (const std::string& format : formats) {
        if (format != "f32" && format != "bf16")
          return error("--compute {}: allowed are auto, f32, bf16", format);
        const DType dtype = format == "f32" ? DType::F32 : DType::BF16;
        out.push_back({r.batch > 0 ? r.batch : 8, length, head_dim, dtype});
      }
    }
  }
  return out;
}

Result<Ending> links(const BenchRequest& r, Requests& asked) {
  if (!r.models.empty()) return error("bench links: takes no model, got {}", r.models.front());
  SLUICE_ASSIGN(const Machine machine, machine_of(r));
  Working working("measuring links");
  asked.stop_is_handled = true;
  const auto found = run_links(machine, {}, asked.stop);
  working.stop();
  return publish(found, links_page, machine, r);
}

Result<CollectiveOptions> collective_options_of(const BenchRequest& r) {
  if (!r.models.empty()) return error("bench {}: takes no model, got {}", r.what, r.models.front());
  CollectiveOptions out{.sums = r.what == "allreduce"};
  SLUICE_ASSIGN(const std::vector<std::string> sizes, parse_words("--bytes", r.bytes));
  for (const std::string& size : sizes) {
    const Result<int64_t> bytes = parse_bytes(size);
    if (!bytes.ok()) return error("--bytes {}", bytes.message());
    if (*bytes % 4 != 0 || *bytes > 64 * kGiB)
      return error("--bytes {}: allowed are multiples of 4 bytes up to 64GiB", size);
    out.bytes.push_back(*bytes);
  }
  SLUICE_ASSIGN(const std::vector<std::string> formats, formats_of(r, "f32"));
  for (const std::string& format : formats) {
    if (format != "f32" && format != "bf16")
      return error("--compute {}: allowed are auto, f32, bf16", format);
    out.dtypes.push_back(format == "f32" ? DType::F32 : DType::BF16);
  }
  return out;
}

// The processes that were started together with this one.
Result<std::unique_ptr<ProcessGroup>> processes_of(const BenchRequest& r) {
  SLUICE_ASSIGN(const std::optional<ProcessLaunch> launch, launch_of_this_process());
  if (!launch || launch->size < 2)
    return error("bench {}: measures processes that are started together; type: mpirun -np 2 sluice bench {}",
                 r.what, r.what);
  return join_processes(*launch);
}

// How the devices of a group are joined, where memory of devices is asked for: by run.backend, or as torchrun
// launched processes with GPUs. Empty: memory of hosts. Every process has to call it.
Result<std::function<Result<JoinedDevices>(Network&)>> devices_of(const BenchRequest& r,
                                                                  ProcessGroup& group) {
  SLUICE_ASSIGN(const int place, place_here(group));
  SLUICE_ASSIGN(const RunConfig config, load_config("", r.settings));
  SLUICE_ASSIGN(const std::optional<ProcessLaunch> launch, launch_of_this_process());
  const bool met = launch && launch->meeting;
  if (config.run.backend == "cpu" && met) return refused_on_cpus(*launch);
  if (config.run.backend == "cpu" || (config.run.backend == "auto" && !met))
    return std::function<Result<JoinedDevices>(Network&)>();
  SLUICE_ASSIGN(const Machine machine, resolve_machine(config, "", place));
  if (machine.backend->join == nullptr)
    return error("run.backend = {}: memory of hosts is measured without it", machine.backend->name);
  return std::function<Result<JoinedDevices>(Network&)>(
      [kind = machine.backend, options = machine.options](Network& network) {
        BackendOptions with = options;
        with.network = &network;
        return kind->join(with);
      });
}

// An error that all processes find in a request: process 0 prints it.
Result<Ending> said_once(const Error& wrong) {
  const auto launch = launch_of_this_process();
  // Launchers end everybody at the first that fails, which here is the one that speaks.
  if (launch.ok() && *launch && (*launch)->rank > 0) return Ending::Done;
  return wrong;
}

// Measures something among processes; process 0 shows it.
template <class Found>
Result<Ending> among_processes(
    const BenchRequest& r, Requests& asked, Page (*page)(const Found&),
    const std::function<Result<Found>(ProcessGroup&, const std::function<void(const std::string&)>& doing)>&
        run) {
  SLUICE_ASSIGN(const std::unique_ptr<ProcessGroup> group, processes_of(r));
  const bool speaks = group->rank() == 0;
  std::optional<Working> working;
  if (speaks) working.emplace("measuring");
  asked.stop_is_handled = true;
  const Result<Found> found = run(*group, [&](const std::string& what) {
    if (working) working->say("measuring", 0, 0, what);
  });
  working.reset();
  if (!found.ok()) {
    say(stderr, "sluice: process {} of {}: {}\n", group->rank(), group->size(), found.message());
    group->abandon();
  }
  if (!found->whole) return Ending::Stopped;
  if (speaks) {
    const std::string machine = fmt::format("{} processes, {} of them on a host of {} cores",
                                            found->processes, found->here, found->cores);
    SLUICE_TRY(publish(page(*found), stamp_on(machine), r));
  }
  return Ending::Done;
}

Result<Ending> collectives(const BenchRequest& r, Requests& asked) {
  const Result<CollectiveOptions> options = collective_options_of(r);
  if (!options.ok()) return said_once(options.error());
  return among_processes<CollectiveBench>(
      r, asked, collectives_page, [&](ProcessGroup& group, const auto& doing) -> Result<CollectiveBench> {
        CollectiveOptions with = *options;
        SLUICE_ASSIGN(with.join, devices_of(r, group));
        return run_collectives(group, with, asked.stop, doing);
      });
}

struct DataParallelRequest {
  Machine machine;
  BenchCell cell;
};
Result<DataParallelRequest> data_parallel_request_of(const BenchRequest& r) {
  SLUICE_ASSIGN(Machine machine, machine_of(r));
  if (!machine.traits().shares_cores)
    return error("bench ddp measures processes on CPUs; add --set run.backend=cpu");
  SLUICE_ASSIGN(const std::vector<BenchCell> cells, cells_of(r, machine));
  if (cells.size() > 1) return error("bench ddp: takes one model, length and format, got {}", cells.size());
  return DataParallelRequest{std::move(machine), cells.front()};
}

Result<Ending> data_parallel(const BenchRequest& r, Requests& asked) {
  const auto launch = launch_of_this_process();
  if (launch.ok() && *launch && (*launch)->meeting) return said_once(refused_on_cpus(**launch));
  const Result<DataParallelRequest> request = data_parallel_request_of(r);
  if (!request.ok()) return said_once(request.error());
  return among_processes<
      DataParallelBench>(r, asked, data_parallel_page, [&](ProcessGroup& group, const auto& doing) {
    return run_data_parallel(group, request->cell, request->machine, {r.steps, r.warm_up}, asked.stop, doing);
  });
}

Result<Ending> sizes(const BenchRequest& r, Requests& asked) {
  SLUICE_ASSIGN(const Machine machine, machine_of(r));
  SLUICE_ASSIGN(const std::vector<BenchCell> cells, cells_of(r, machine));
  if (cells.size() > 1) return error("bench sizes: takes one model, length and format, got {}", cells.size());
  Working working("measuring products");
  asked.stop_is_handled = true;
  const auto found = run_sizes(cells.front(), machine, asked.stop, [&](const std::string& what) {
    working.say("measuring products", 0, 0, what);
  });
  working.stop();
  return publish(found, sizes_page, machine, r);
}

std::string name_of(const BenchCell& c) {
  return fmt::format("{}, {} x {}, {}", c.model, c.batch, c.seq_len, c.compute);
}

// Cells that `run` measures and `parse` reads back from lines of `file`; `page` shows them.
template <class Cell, class Found>
struct Cells {
  const char* file;
  Result<Found> (*run)(const Cell&, const Machine&, const BenchOptions&, const std::atomic<bool>&,
                       const std::function<void(const std::string&)>&);
  std::optional<Found> (*parse)(const nlohmann::json&);
  Page (*page)(std::span<const Found>);
};

// Measures what the file does not have yet, and shows all of them.
template <class Cell, class Found>
Result<Ending> measure(const BenchRequest& r, Requests& asked, const Machine& machine,
                       const std::vector<Cell>& cells, const Cells<Cell, Found>& kind) {
  SLUICE_TRY(make_directories(r.out_dir));
  const std::filesystem::path dir = r.out_dir, path = dir / kind.file;
  auto lock = LockFile::take(dir / "bench.lock");
  if (!lock.ok()) return error_at("--out", lock.error());
  SLUICE_ASSIGN(const auto known, load_measured(path, kind.parse));
  SLUICE_ASSIGN(JsonLines file, JsonLines::open(path));
  const BenchOptions options{r.steps, r.warm_up};
  std::vector<Found> results;
  Working working("measuring cells");
  const auto total = int64_t(cells.size());
  asked.stop_is_handled = true;
  for (const Cell& cell : cells) {
    const auto it = known.find(inputs_of(cell, machine, options));
    // A cell that did not fit or failed is tried again.
    if (!r.fresh && it != known.end() && it->second.ok()) {
      results.push_back(it->second);
      continue;
    }
    const auto doing = [&](const std::string& what) {
      working.say("measuring cells", int64_t(results.size()), total,
                  fmt::format("{}: {}", name_of(cell), what));
    };
    auto result = kind.run(cell, machine, options, asked.stop, doing);
    if (!result.ok() && result.error().kind != ErrorKind::Cancelled) return result.error();
    if (!result.ok()) break;
    SLUICE_TRY(file.append(to_json(*result)));
    results.push_back(std::move(*result));
  }
  working.stop();
  SLUICE_TRY(publish(kind.page(results), stamp_on(machine.description), r));
  lock->remove();
  if (int64_t(results.size()) == total) return Ending::Done;
  say("interrupted; the same command goes on from {}\n", path.string());
  return Ending::Interrupted;
}

Result<Ending> attention(const BenchRequest& r, Requests& asked) {
  if (!r.models.empty()) return error("bench attention: takes no model, got {}", r.models.front());
  SLUICE_ASSIGN(const Machine machine, machine_of(r));
  SLUICE_ASSIGN(const std::vector<AttentionCell> cells, attention_cells_of(r, machine));
  return measure<AttentionCell, AttentionResult>(
      r, asked, machine, cells, {"attention_cells.jsonl", run_attention, attention_of, attention_page});
}

template <Page (*kPage)(std::span<const CellResult>)>
Result<Ending> steps(const BenchRequest& r, Requests& asked) {
  SLUICE_ASSIGN(const Machine machine, machine_of(r));
  SLUICE_ASSIGN(const std::vector<BenchCell> cells, cells_of(r, machine));
  return measure<BenchCell, CellResult>(r, asked, machine, cells, {"cells.jsonl", run_cell, cell_of, kPage});
}

struct Bench {
  std::string_view name;
  Result<Ending> (*run)(const BenchRequest& request, Requests& asked);
};
constexpr Bench kBenches[] = {{"model", steps<model_page>},     {"allreduce", collectives},
                              {"attention", attention},         {"ddp", data_parallel},
                              {"kernels", steps<kernels_page>}, {"links", links},
                              {"memory", steps<memory_page>},   {"precision", precision},
                              {"sendrecv", collectives},        {"sizes", sizes}};

}  // namespace

std::vector<std::string> bench_names() {
  std::vector<std::string> out;
  for (const Bench& b : kBenches) out.emplace_back(b.name);
  return out;
}

Outcome bench(const BenchRequest& request, Requests& asked) {
  for (const Bench& b : kBenches) {
    if (b.name != request.what) continue;
    return outcome(b.run(request, asked));
  }
  return {Ending::Failed,
          fmt::format("bench {}: allowed are {}", request.what, fmt::join(bench_names(), ", "))};
}

}  // namespace sluice::core
