// SPDX-License-Identifier: Apache-2.0
#include "bench/sizes.h"

#include <fmt/format.h>

#include "host/host_memory.h"
#include "measure/rehearsal.h"
#include "run/inputs/resolve.h"

namespace sluice::core {
namespace {

Result<MeasuredProducts> measured_products(const ModelSpec& spec, const BenchCell& cell,
                                           const Numerics& numerics, const Machine& machine) {
  MeasuredProducts out;
  std::vector<CountedOp> ops;
  for (MatrixProduct& product : products_of(spec, {cell.seq_len, cell.batch}, numerics)) {
    ops.push_back({product.op, product.count});
    out.of.push_back({std::move(product)});
  }
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, machine.make());
  // The host's part is made before the device's, and gone after.
  BytesByTier most(available_bytes() / 2);
  if (!machine.traits().shares_cores) most[kDevice] = machine.device_total_bytes / 2;
  Rehearsal rehearsal(ops, *backend, most);
  SLUICE_ASSIGN(const Arenas arenas, backend->reserve(rehearsal.arena_bytes()));
  std::vector<SharedOp> all;
  for (const CountedOp& counted : ops) all.push_back(counted.op);
  SLUICE_TRY(backend->prepare(all));
  SLUICE_TRY(rehearsal.fill(*backend, arenas, {}));
  const auto length = Rehearsal::Length::of(machine.traits().settle_ns);
  SLUICE_ASSIGN(const Rehearsal::Times times, rehearsal.time(*backend, length, {}, [](int64_t, int64_t) {}));
  for (size_t i = 0; i < times.ns.size(); ++i) out.of[i].s = times.ns[i] / 1e9;
  return out;
}

Table products_table(const SizeBench& bench) {
  Table table{.key = "products",
              .title = fmt::format("Products of a step of {} tokens",
                                   to_text(double(bench.cell.seq_len * bench.cell.batch), Form::Count)),
              .row_title = "product"};
  table.columns = {{"m", "m", Form::Count},         {"n", "n", Form::Count},
                   {"k", "k", Form::Count},         {"count", "times", Form::Count},
                   {"one_s", "one", Form::Seconds}, {"flops_per_s", "rate", Form::FlopsPerSecond}};
  for (const auto& [p, s] : bench.now.of) {
    table.rows.push_back(
        {p.name,
         {double(p.m), double(p.n), double(p.k), double(p.count), s, p.flops() / double(p.count) / s}});
  }
  return table;
}

Table advice_table(const SizeBench& bench) {
  Table table{.key = "dimensions", .title = "Dimensions", .row_title = "dimension"};
  table.columns = {{"size", "size", Form::Count},
                   {"better", "next", Form::Count},
                   {"step_s", "products at next", Form::Seconds},
                   {"flops_per_s", "rate", Form::FlopsPerSecond},
                   {"gain", "faster by", Form::Share}};
  for (const MeasuredAdvice& m : bench.advice) {
    const auto& [a, next, beside] = m;
    Row row{.name = a.name, .values = {double(a.size)}, .note = a.why};
    row.values.resize(table.columns.size());
    if (a.next) row.values[1] = double(*a.next);
    if (!next.of.empty()) {
      row.values[2] = next.s();
      row.values[3] = next.flops_per_s();
      row.values[4] = m.gain();
    }
    table.rows.push_back(std::move(row));
  }
  table.formulas = {
      "Faster by: FLOP/s of all products with this size at next, by those as they are, measured just before "
      "and just after, less 1. Sizes of queries and keys follow from heads and are not changed alone."};
  return table;
}

}  // namespace

double MeasuredProducts::s() const {
  double sum = 0;
  for (const auto& [product, s] : of) sum += double(product.count) * s;
  return sum;
}

double MeasuredProducts::flops_per_s() const {
  double flops = 0;
  for (const auto& [product, s] : of) flops += product.flops();
  return flops / s();
}

Result<SizeBench> run_sizes(const BenchCell& cell, const Machine& on, const std::atomic<bool>& interrupted,
                            const std::function<void(const std::string&)>& say) {
  const Machine machine = machine_for(cell, on);
  SLUICE_ASSIGN(const Numerics numerics, resolve_numerics(cell.config, machine));
  SizeBench out{cell, {}, {}};
  say("as it is");
  SLUICE_ASSIGN(out.now, measured_products(cell.spec, cell, numerics, machine));
  double before = out.now.flops_per_s();
  for (SizeAdvice& advice : advise_sizes(cell.spec)) {
    if (interrupted) return error(ErrorKind::Cancelled, "interrupted");
    const auto changed = advice.next ? resized(cell.spec, advice.dimension, *advice.next) : std::nullopt;
    out.advice.push_back({std::move(advice), {}});
    if (!changed) continue;
    MeasuredAdvice& measured = out.advice.back();
    say(fmt::format("{} of {}", measured.advice.name, *measured.advice.next));
    SLUICE_ASSIGN(measured.at_next, measured_products(*changed, cell, numerics, machine));
    SLUICE_ASSIGN(const MeasuredProducts again, measured_products(cell.spec, cell, numerics, machine));
    measured.beside = (before + again.flops_per_s()) / 2;
    before = again.flops_per_s();
  }
  return out;
}

Page sizes_page(const SizeBench& bench) {
  Page page{.title = fmt::format("Sizes of {}", bench.cell.model),
            .legend = {"Products alone, as often as a step has them, in their mix; what else a step does is "
                       "not there."}};
  Section section{.key = "sizes", .title = "Products at their sizes and at others"};
  section.facts.push_back({"step_s", "all products of a step", bench.now.s(), Form::Seconds,
                           "the table below, each as many times"});
  section.facts.push_back(
      {"flops_per_s", "their rate", bench.now.flops_per_s(), Form::FlopsPerSecond, "2 m n k / time"});
  section.tables = {advice_table(bench), products_table(bench)};
  page.sections.push_back(std::move(section));
  return page;
}

}  // namespace sluice::core
