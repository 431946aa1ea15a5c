// SPDX-License-Identifier: Apache-2.0
#include "bench/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/checksum.h"
#include "base/stopwatch.h"
#include "checkpoint/layout.h"
#include "dataset/batches.h"
#include "optimizer/values.h"
#include "run/processes/processes.h"
#include "run/session/breakdown.h"
#include "run/session/session.h"
#include "setup/settle.h"

namespace sluice::core {
namespace {

constexpr std::string_view kNames[] = {
    "none", "per tensor", "flat", "flat, library's", "planned", "planned, buckets", "planned, sharded state"};

// Seconds that compute lanes spend on each; what is computed a second time counts with the backward pass,
// which asks for it.
struct Spent {
  double forward_s = 0, backward_s = 0, update_s = 0;

  void add(const Program& program, const Plan& plan, std::span<const Interval> timeline) {
    for (size_t id = 0; id < plan.actions.size(); ++id) {
      const Action& a = plan.actions[id];
      if (!plan.computes(a)) continue;
      const Phase phase = program.task(a.task).phase;
      double& of = phase == Phase::Update                    ? update_s
                   : phase == Phase::Forward && !a.recompute ? forward_s
                                                             : backward_s;
      of += (timeline[id].end_ns - timeline[id].start_ns) / 1e9 / double(plan.devices());
    }
  }
};

class DataParallel {
 public:
  DataParallel(ProcessGroup& group, Session& session, const std::atomic<bool>& interrupted)
      : group_(group), session_(session), interrupted_(interrupted) {
    const BuiltProgram& model = session.engine().prepared().stages.main.model;
    rows_ = Rows(model.layout, model.shape.tokens());
    const BytesByTier bytes = session.engine().memory().bytes;
    start_bytes_ = double(bytes[kDevice] + bytes[kHost]);
    for (const StoredTensor& t : layout_of(model, false).weights) {
      weights_.push_back(t.info.name);
      if (session.engine().check_tensor({TensorKind::Gradient}, t.info.name).ok())
        trained_.push_back(t.info.name);
    }
  }

  // The same of a session whose plan exchanges.
  Result<DataParallelResult> planned(GradientExchange exchange, const BenchOptions& options) {
    Engine& engine = session_.engine();
    const Plan& plan = engine.prepared().stages.main.plan;
    const Program& program = engine.prepared().stages.main.model.program;
    DataParallelResult out{.exchange = exchange};
    for (const ParamObjects& p : engine.prepared().stages.main.model.params) {
      if (p.grad.valid()) out.bytes += program.object(p.grad).elements() * int64_t{sizeof(float)};
    }
    out.calls = int64_t(exchanges(plan).size());
    double step_s = 0, waited_s = 0;
    Spent spent;
    for (int64_t i = 0; i < options.warm_up + options.steps; ++i) {
      if (i == options.warm_up) step_s = waited_s = 0, spent = {};
      SLUICE_ASSIGN(const bool stop, any(group_, interrupted_));
      if (stop) return error(ErrorKind::Cancelled, "interrupted");
      std::vector<Interval> timeline;
      const Stopwatch watch;
      SLUICE_TRY(session_.step(&timeline));
      step_s += watch.seconds();
      waited_s += breakdown_of(plan, timeline).stall_devices_ns / 1e9;
      spent.add(program, plan, timeline);
    }
    const auto steps = double(options.steps);
    SLUICE_ASSIGN(out.step, over_ranks(step_s / steps));
    SLUICE_ASSIGN(out.passes, over_ranks((step_s - waited_s) / steps));
    SLUICE_ASSIGN(out.summing, over_ranks(waited_s / steps));
    SLUICE_TRY(put(spent, steps, out));
    return peak_and_weights(std::move(out));
  }

  // After the steps that warm up. The error of an interruption on any rank is Cancelled.
  Result<DataParallelResult> of(GradientExchange exchange, const BenchOptions& options) {
    DataParallelResult out{.exchange = exchange};
    double step_s = 0, passes_s = 0, sum_s = 0;
    Spent spent;
    const Prepared& p = session_.engine().prepared();
    for (int64_t i = 0; i < options.warm_up + options.steps; ++i) {
      if (i == options.warm_up) step_s = passes_s = sum_s = 0, spent = {};
      SLUICE_ASSIGN(const bool stop, any(group_, interrupted_));
      if (stop) return error(ErrorKind::Cancelled, "interrupted");
      Stopwatch watch;
      // Rows that no other rank has in any step.
      fill_rows(*session_.data().train, next_row_step_ * group_.size() + group_.rank(), 0,
                rows_.part(0, rows_.tokens()));
      ++next_row_step_;
      std::vector<Interval> timeline;
      SLUICE_TRY(session_.engine().make_passes(rows_, {}, &timeline));
      const double passed = watch.lap();
      spent.add(p.stages.main.model.program, p.stages.main.plan, timeline);
      SLUICE_TRY(add_gradients(exchange, out));
      const double summed = watch.lap();
      SLUICE_TRY(session_.engine().decide_update(1e-4, values_of(p.optimizer)));
      passes_s += passed, sum_s += summed, step_s += passed + summed + watch.seconds();
    }
    const auto steps = double(options.steps);
    SLUICE_ASSIGN(out.step, over_ranks(step_s / steps));
    SLUICE_ASSIGN(out.passes, over_ranks(passes_s / steps));
    SLUICE_ASSIGN(out.summing, over_ranks(sum_s / steps));
    SLUICE_TRY(put(spent, steps, out));
    return peak_and_weights(std::move(out));
  }

 private:
  Result<DataParallelResult> peak_and_weights(DataParallelResult out) {
    // Both memories of a step lie in the host's here.
    const BytesByTier peak = session_.engine().memory().peak_bytes;
    SLUICE_ASSIGN(const auto peaks, gathered(group_, double(peak[kDevice] + peak[kHost])));
    SLUICE_ASSIGN(const auto starts, gathered(group_, start_bytes_));
    out.peak_bytes = std::ranges::max(peaks);
    out.start_bytes = std::ranges::max(starts);
    if (out.exchange == GradientExchange::None) return out;  // each has weights of its own
    SLUICE_ASSIGN(out.unequal, unequal_weights());
    return out;
  }
  Status put(const Spent& spent, double steps, DataParallelResult& out) {
    SLUICE_ASSIGN(out.forward, over_ranks(spent.forward_s / steps));
    SLUICE_ASSIGN(out.backward, over_ranks(spent.backward_s / steps));
    SLUICE_ASSIGN(out.update, over_ranks(spent.update_s / steps));
    return {};
  }
  Result<Measured> over_ranks(double own) {
    SLUICE_ASSIGN(const auto all, gathered(group_, own));
    return measured_of(all);
  }
  Status add_gradients(GradientExchange exchange, DataParallelResult& out) {
    if (exchange == GradientExchange::None) return {};
    Engine& engine = session_.engine();
    const float share = 1.0f / float(group_.size());
    out.calls = exchange == GradientExchange::PerTensor ? int64_t(trained_.size()) : 1;
    out.bytes = 0;
    flat_.clear();
    std::vector<size_t> begins;
    for (const std::string& name : trained_) {
      SLUICE_ASSIGN(std::vector<float> gradient, engine.tensor({TensorKind::Gradient}, name));
      out.bytes += int64_t(gradient.size() * sizeof(float));
      if (exchange != GradientExchange::PerTensor) {
        begins.push_back(flat_.size());
        flat_.insert(flat_.end(), gradient.begin(), gradient.end());
        continue;
      }
      SLUICE_TRY(group_.sum(std::as_writable_bytes(std::span(gradient)), DType::F32));
      for (float& g : gradient) g *= share;
      SLUICE_TRY(engine.set_tensor({TensorKind::Gradient}, name, gradient));
    }
    if (exchange == GradientExchange::PerTensor) return {};
    if (exchange == GradientExchange::Flat) {
      SLUICE_TRY(group_.sum(std::as_writable_bytes(std::span(flat_)), DType::F32));
    } else {
      SLUICE_TRY(group_.sum_in_any_order(flat_));
    }
    for (float& g : flat_) g *= share;
    begins.push_back(flat_.size());
    for (size_t i = 0; i < trained_.size(); ++i) {
      SLUICE_TRY(engine.set_tensor({TensorKind::Gradient}, trained_[i],
                                   std::span(flat_).subspan(begins[i], begins[i + 1] - begins[i])));
    }
    return {};
  }

  Result<double> unequal_weights() {
    double unequal = 0;
    Engine& engine = session_.engine();
    // Where state is sharded the others make the pending update when process 0 does.
    if (group_.rank() == 0) SLUICE_TRY(engine.tensor({}, weights_.front()));
    SLUICE_TRY(engine.meet());
    for (const std::string& name : weights_) {
      SLUICE_ASSIGN(const std::vector<float> weight, engine.tensor({}, name));
      SLUICE_ASSIGN(const auto sums, gathered(group_, checksum_of(std::as_bytes(std::span(weight)))));
      unequal += std::ranges::any_of(sums, [&](const Checksum& c) { return c != sums.front(); }) ? 1 : 0;
    }
    return unequal;
  }

  ProcessGroup& group_;
  Session& session_;
  const std::atomic<bool>& interrupted_;
  Rows rows_;
  int64_t next_row_step_ = 0;
  std::vector<std::string> weights_, trained_;
  std::vector<float> flat_;
  double start_bytes_ = 0;
};

}  // namespace

std::string_view name_of(GradientExchange exchange) {
  return kNames[size_t(exchange)];
}

Result<DataParallelBench> run_data_parallel(ProcessGroup& group, const BenchCell& cell,
                                            const Machine& machine, const BenchOptions& options,
                                            const std::atomic<bool>& interrupted,
                                            const std::function<void(const std::string&)>& doing) {
  DataParallelBench out{.model = cell.model,
                        .compute = cell.compute,
                        .seq_len = cell.seq_len,
                        .batch = cell.batch,
                        .steps = options.steps,
                        .processes = group.size(),
                        .here = group.here(),
                        .cores = int(std::thread::hardware_concurrency())};
  // Between passes and update gradients are at home.
  SLUICE_ASSIGN(RunConfig config, typed_config({"train.deferred_update=true"}, cell.config));
  config = started(std::move(config), {.threads = std::max(1, out.cores / group.here())});
  out.threads = int(config.run.threads);
  const StepSpec step{.model = cell.spec};
  doing("planning");
  // Steps whose sums are planned have rows of all processes.
  Machine shared = machine;
  SLUICE_ASSIGN(const JoinedDevices joined, share_steps(shared, group));
  const TrainKeys& own = config.train;
  const RunConfig of_all = in_rows(config, own.seq_len, own.tokens_per_step * group.size());
  SLUICE_ASSIGN(const RunConfig sharded, typed_config({"run.shard_state=true"}, of_all));
  const auto keep = [&](Result<DataParallelResult> result) -> Status {
    if (!result.ok()) return result.error();
    out.results.push_back(*result);
    return {};
  };
  const auto measure = [&](const Machine& on, RunConfig with,
                           std::initializer_list<GradientExchange> ways) -> Status {
    SLUICE_ASSIGN(const Prepared prepared, prepare_on(std::move(with), on, step, {}));
    SLUICE_ASSIGN(const std::unique_ptr<Session> session, Session::open(prepared));
    DataParallel processes(group, *session, interrupted);
    for (const GradientExchange way : ways) {
      doing(std::string(name_of(way)));
      SLUICE_TRY(keep(way >= GradientExchange::Planned ? processes.planned(way, options)
                                                       : processes.of(way, options)));
    }
    return {};
  };
  Status measured = measure(shared, of_all, {GradientExchange::Planned});
  Machine in_buckets = shared;
  in_buckets.bucket_bytes = kBucketBytes;
  if (measured.ok()) measured = measure(in_buckets, of_all, {GradientExchange::Buckets});
  if (measured.ok()) measured = measure(shared, sharded, {GradientExchange::Sharded});
  // Last the one after which weights are those of no other: here all begin alike.
  if (measured.ok())
    measured = measure(machine, config,
                       {GradientExchange::PerTensor, GradientExchange::Flat, GradientExchange::FlatLibrary,
                        GradientExchange::None});
  if (!measured.ok() && measured.error().kind != ErrorKind::Cancelled) return measured.error();
  out.whole = measured.ok();
  return out;
}

Page data_parallel_page(const DataParallelBench& bench) {
  Page page{.title = "Data parallel", .legend = {}};
  page.legend.push_back(
      fmt::format("{} processes of {} threads, each with {} and {} x {} tokens of its own, {}.",
                  bench.processes, bench.threads, bench.model, bench.batch, bench.seq_len, bench.compute));
  page.legend.push_back(
      "Planned: gradients are summed on a lane of the plan, beside the backward pass; summing is what the "
      "passes wait for it. Buckets: the same, but sums begin when gradients of 25 MiB are complete. Sharded "
      "state: each process has the optimizer state of a part of the weights alone, and "
      "gives the others what it updates, on the same lane. Otherwise they are summed once the backward pass "
      "is done, in f32, so that all of "
      "summing is exposed; it has what copying gradients out and in takes. The passes have the update of the "
      "step before; what is left of a step is the norm of the sums. Forward, backward and update: what "
      "computing lanes spend on each, without waiting. ± is over processes.");
  if (bench.here * bench.threads > bench.cores)
    page.legend.push_back(
        fmt::format("They share {} cores: times are not those of as many cores.", bench.cores));
  Section section{.key = "data_parallel", .title = page.title};
  Table table{.key = "steps", .title = "A step", .row_title = "gradients summed"};
  table.columns = {{"step_s", "step", Form::Seconds},
                   {"step_deviation_s", "±", Form::Seconds},
                   {"passes_s", "passes and update", Form::Seconds},
                   {"passes_deviation_s", "±", Form::Seconds},
                   {"forward_s", "forward", Form::Seconds},
                   {"forward_deviation_s", "±", Form::Seconds},
                   {"backward_s", "backward", Form::Seconds},
                   {"backward_deviation_s", "±", Form::Seconds},
                   {"update_s", "update", Form::Seconds},
                   {"update_deviation_s", "±", Form::Seconds},
                   {"summing_s", "summing", Form::Seconds},
                   {"summing_deviation_s", "±", Form::Seconds},
                   {"exposed", "of the step", Form::Share},
                   {"calls", "calls", Form::Count},
                   {"bytes", "gradients", Form::Memory},
                   {"unequal", "weights unequal", Form::Count},
                   {"start_bytes", "at the start", Form::Memory},
                   {"peak_bytes", "peak", Form::Memory}};
  Bars bars{.title = "A step of data parallel processes", .subtitle = "seconds", .bars = {}};
  for (const DataParallelResult& r : bench.results) {
    Row row{.name = std::string(name_of(r.exchange))};
    row.values = {r.step.mean,
                  r.step.deviation,
                  r.passes.mean,
                  r.passes.deviation,
                  r.forward.mean,
                  r.forward.deviation,
                  r.backward.mean,
                  r.backward.deviation,
                  r.update.mean,
                  r.update.deviation,
                  r.summing.mean,
                  r.summing.deviation,
                  r.summing.mean / r.step.mean,
                  double(r.calls),
                  double(r.bytes),
                  r.unequal,
                  r.start_bytes,
                  r.peak_bytes};
    table.rows.push_back(std::move(row));
    bars.bars.push_back({std::string(name_of(r.exchange)), r.step.mean, to_text(r.step.mean, Form::Seconds)});
  }
  section.tables.push_back(std::move(table));
  section.bars.push_back(std::move(bars));
  page.sections.push_back(std::move(section));
  return page;
}

}  // namespace sluice::core
