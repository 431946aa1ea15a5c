// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "draw/axis.h"
#include "draw/heatmap.h"
#include "io/file.h"
#include "what_if/grid.h"
#include "what_if/sweep_cells.h"

namespace sluice::core {
namespace {

struct Metric {
  std::string_view file, name;
  double SweepRow::*value;
  double scale;
  int decimals;
};
constexpr Metric kMetrics[] = {
    {"tokens", "tokens/s", &SweepRow::tokens_per_s, 1, 0},
    {"tflops", "model TFLOP/s", &SweepRow::model_tflops, 1, 1},
    {"mfu", "MFU, %", &SweepRow::mfu, 100, 1},
    {"hfu", "HFU, %", &SweepRow::hfu, 100, 1},
};

// A model may be given by the path of its configuration.
std::string short_name(const std::string& model) {
  return model.ends_with(".json") ? std::filesystem::path(model).stem().string() : model;
}

std::string file_name(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  return text;
}

std::string tooltip(const SweepRow& r) {
  const std::string caps =
      fmt::format("device {}, host {}", cap_text(r.caps[kDevice]), cap_text(r.caps[kHost]));
  if (!r.ok()) return r.message.empty() ? caps : caps + ": " + r.message;
  return fmt::format("{}: {} tok/s, step {}, bound {}, shape {}", caps, grouped(r.tokens_per_s, 0),
                     time_text(r.step_ms * 1e6), time_text(r.lower_bound_ms * 1e6), r.shape);
}

HeatmapCell heatmap_cell(const SweepRow& r, const Metric& metric) {
  HeatmapCell cell;
  cell.tooltip = tooltip(r);
  if (r.ok()) {
    cell.value = r.*metric.value * metric.scale;
  } else if (r.status == "error") {
    cell.notes = {"error"};
  } else if (r.status == "infeasible") {
    if (r.needs[kDevice] > 0) cell.notes.push_back("≥ " + cap_text(r.needs[kDevice]));
    if (r.needs[kHost] > 0) cell.notes.push_back("host ≥ " + cap_text(r.needs[kHost]));
    if (cell.notes.size() == 2) cell.notes[1] = "or " + cell.notes[1];
    if (cell.notes.empty()) cell.notes = {"too small"};
  }
  return cell;
}

}  // namespace

void fill(SweepRow& r, const Outlook& found) {
  r.status = "ok";
  r.tokens_per_s = found.speed.tokens_per_s;
  r.model_tflops = found.speed.model_tflops;
  r.mfu = found.speed.mfu;
  r.hfu = found.speed.hfu;
  r.step_ms = found.step_ns / 1e6;
  r.lower_bound_ms = found.lower_bound_ns / 1e6;
  r.shape = to_text(found.shape);
}

void plan_cell(SweepCell& cell, const Machine& machine) {
  using namespace std::chrono;
  const auto begin = steady_clock::now();
  const auto found = outlook(cell.config, machine);
  SweepRow& r = cell.row;
  r.planning_s = duration<double>(steady_clock::now() - begin).count();
  if (found.ok() && found->fits()) return fill(r, *found);
  r.status = found.ok() ? "infeasible" : "error";
  r.message = found.ok() ? found->refusal->message : found.message();
}

Status find_needs(SweepGroup& group, const Machine& machine, const std::atomic<bool>& interrupted) {
  if (group.cells.empty()) return {};
  // A sixteenth: a label is for choosing a cap, and every probe is a search for a plan.
  LeastCaps least(
      [&](const BytesByTier& caps) -> Result<bool> {
        if (interrupted) return error(ErrorKind::Cancelled, "interrupted");
        return fits(under(group.cells.front().config, caps), machine);
      },
      16);
  for (const SweepCell& c : group.cells) {
    if (c.row.status != "error") least.know(c.row.caps, c.row.ok());
  }
  // From the most host memory down: what is found there is the first guess for less.
  for (auto it = group.cells.rbegin(); it != group.cells.rend(); ++it) {
    SweepRow& r = it->row;
    if (r.status != "infeasible" || r.needs != BytesByTier()) continue;
    for (const Tier tier : {kDevice, kHost}) {
      SLUICE_ASSIGN(const int64_t bytes, least.cap(tier, r.caps));
      if (bytes > 0) r.needs[tier] = readable_cap(bytes);
    }
  }
  return {};
}

Result<std::vector<std::filesystem::path>> write_heatmaps(const SweepGroup& group,
                                                          const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> paths;
  if (group.cells.size() < 2) return paths;  // a map of one cell shows nothing
  const SweepRow& first = group.cells.front().row;
  for (const Metric& metric : kMetrics) {
    Heatmap map;
    map.title = metric.name;
    map.subtitle = fmt::format("model {}, sequences of {}, {}, {}", short_name(first.model),
                               grouped(double(first.seq_len), 0), first.machine,
                               first.mode == "measure" ? "measured" : "simulated");
    map.x_label = "device memory";
    map.y_label = "host memory";
    map.decimals = metric.decimals;
    map.shares = metric.scale != 100;
    for (const int64_t cap : group.device_caps) map.columns.push_back(cap_text(cap));
    for (const int64_t cap : group.host_caps) map.rows.push_back(cap_text(cap));
    for (const SweepCell& c : group.cells) map.cells.push_back(heatmap_cell(c.row, metric));
    double most = 0;
    for (const HeatmapCell& c : map.cells) most = std::isfinite(c.value) ? std::max(most, c.value) : most;
    if (most < 10 && most > 0) map.decimals = 2;  // small models on small machines
    const std::string stem = file_name(fmt::format("{}-{}-{}-{}-{}", short_name(first.model), first.seq_len,
                                                   first.machine, first.mode, metric.file));
    SLUICE_TRY(write_file(dir / (stem + ".svg"), heatmap_svg(map)));
    paths.push_back(dir / (stem + ".svg"));
  }
  return paths;
}

}  // namespace sluice::core
