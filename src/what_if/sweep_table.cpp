// SPDX-License-Identifier: Apache-2.0
#include "what_if/sweep_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <tuple>

#include "io/csv.h"
#include "io/file.h"
#include "what_if/grid.h"

namespace sluice::core {
namespace {

// Every column with how its field is written and read, in the order of the file.
template <class Row, class F>
void visit_columns(Row& r, F&& column) {
  column("model", r.model), column("seq_len", r.seq_len), column("device_cap_gib", r.caps[kDevice]),
      column("host_cap_gib", r.caps[kHost]);
  column("machine", r.machine), column("mode", r.mode), column("tokens_per_step", r.tokens_per_step),
      column("status", r.status);
  column("tokens_per_s", r.tokens_per_s), column("model_tflops", r.model_tflops), column("mfu", r.mfu),
      column("hfu", r.hfu);
  column("step_ms", r.step_ms), column("lower_bound_ms", r.lower_bound_ms);
  column("needs_device_gib", r.needs[kDevice]), column("needs_host_gib", r.needs[kHost]);
  column("shape", r.shape), column("slower_than", r.slower_than), column("planning_s", r.planning_s),
      column("inputs", r.inputs), column("message", r.message);
}

// Byte counts are GiB in the file. A division by a power of two is exact, and so is the shortest text that
// reads back.
bool is_size(std::string_view name) {
  return name.ends_with("_gib");
}

std::string print(std::string_view, const std::string& v) {
  return v;
}
std::string print(std::string_view name, double v) {
  return name == "planning_s" ? fmt::format("{:.2f}", v) : fmt::format("{:.9g}", v);
}
std::string print(std::string_view name, int64_t v) {
  if (!is_size(name)) return fmt::format("{}", v);
  if (v == 0) return "";
  return v == kUnlimited ? "none" : fmt::format("{}", double(v) / double(kGiB));
}

bool read(std::string_view, const std::string& text, std::string& field) {
  field = text;
  return true;
}
template <class T>
bool read_number(const std::string& text, T& field) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), field);
  return ec == std::errc() && end == text.data() + text.size();
}
bool read(std::string_view, const std::string& text, double& field) {
  return read_number(text, field);
}
bool read(std::string_view name, const std::string& text, int64_t& field) {
  if (!is_size(name)) return read_number(text, field);
  double gib = 0;
  if (text != "" && text != "none" && !read_number(text, gib)) return false;
  field = text == "none" ? kUnlimited : int64_t(gib * double(kGiB));
  return true;
}

std::optional<SweepRow> parse_row(std::string_view line) {
  const auto fields = parse_csv_line(line);
  SweepRow row;
  size_t count = 0;
  visit_columns(row, [&](auto, auto&) { ++count; });
  if (!fields || fields->size() != count) return std::nullopt;
  bool good = true;
  size_t at = 0;
  visit_columns(
      row, [&](std::string_view name, auto& field) { good = read(name, (*fields)[at++], field) && good; });
  if (!good || row.inputs.size() != 16) return std::nullopt;
  return row;
}

auto order(const SweepRow& r) {
  return std::tie(r.model, r.machine, r.mode, r.seq_len, r.tokens_per_step, r.caps[kHost], r.caps[kDevice],
                  r.inputs);
}

}  // namespace

std::string sweep_header() {
  const SweepRow row;
  std::vector<std::string> names;
  visit_columns(row, [&](std::string_view name, const auto&) { names.emplace_back(name); });
  return csv_line(names);
}

std::string sweep_line(const SweepRow& row) {
  std::vector<std::string> fields;
  visit_columns(row, [&](std::string_view name, const auto& field) { fields.push_back(print(name, field)); });
  return csv_line(fields);
}

Result<std::vector<SweepRow>> load_sweep(const std::filesystem::path& path) {
  std::vector<SweepRow> rows;
  if (!std::filesystem::exists(path)) return rows;
  SLUICE_ASSIGN(const std::string text, read_file(path));
  const std::string header = sweep_header();
  size_t at = 0;
  for (int64_t number = 1; at < text.size(); ++number) {
    const size_t end = text.find('\n', at);
    const bool whole = end != std::string::npos;
    const std::string line = text.substr(at, whole ? end - at : end);
    if (number == 1) {
      if (whole ? line + "\n" != header : !header.starts_with(line)) {
        return error(
            "{}: its columns are not those of this version; move it away or name another directory with "
            "--out",
            path.string());
      }
      // Not even the header was finished.
      if (!whole) break;
    } else {
      auto row = whole ? parse_row(line) : std::nullopt;
      if (row) {
        rows.push_back(std::move(*row));
      } else if (whole) {
        return error("{}:{}: not a row of a sweep: {}", path.string(), number, line);
      }
    }
    if (!whole) break;
    at = end + 1;
  }
  if (at == text.size() && at > 0) return rows;
  std::string mended = header;
  for (const SweepRow& row : rows) mended += sweep_line(row);
  SLUICE_TRY(write_file(path, mended));
  return rows;
}

void sort_sweep(std::vector<SweepRow>& rows) {
  std::sort(rows.begin(), rows.end(),
            [](const SweepRow& a, const SweepRow& b) { return order(a) < order(b); });
}

namespace {

// The fastest row with no more memory in either cap; null: none is faster than `r`.
const SweepRow* faster_with_less(const SweepRow& r, std::span<const SweepRow> rows) {
  const SweepRow* best = nullptr;
  for (const SweepRow& less : rows) {
    const bool same = less.model == r.model && less.machine == r.machine && less.mode == r.mode &&
                      less.seq_len == r.seq_len && less.tokens_per_step == r.tokens_per_step;
    const bool smaller = within(less.caps, r.caps);
    if (same && smaller && less.ok() && (!best || less.tokens_per_s > best->tokens_per_s)) best = &less;
  }
  const bool has_result = r.ok() || r.status == "infeasible";
  // The file keeps nine digits.
  return best && has_result && best->tokens_per_s > r.tokens_per_s * (1 + 1e-8) ? best : nullptr;
}

std::string caps_of(const SweepRow& r) {
  return fmt::format("device {} host {}", cap_text(r.caps[kDevice]), cap_text(r.caps[kHost]));
}

constexpr std::string_view kPlanFor = "the plan for ";
bool took_plan(const SweepRow& r) {
  return r.message.starts_with(kPlanFor);
}

}  // namespace

int64_t take_faster_plans(std::span<SweepRow> rows) {
  const std::vector<SweepRow> found(rows.begin(), rows.end());
  for (SweepRow& r : rows) {
    const SweepRow* best = r.mode == "simulate" ? faster_with_less(r, found) : nullptr;
    if (!best) continue;
    SweepRow taken = *best;
    taken.caps = r.caps;
    taken.inputs = r.inputs;
    taken.planning_s = r.planning_s;
    taken.lower_bound_ms = r.lower_bound_ms;  // the other is no bound with more memory; 0: unknown
    if (!took_plan(taken)) taken.message = std::string(kPlanFor) + caps_of(*best);
    r = std::move(taken);
  }
  return std::count_if(rows.begin(), rows.end(), took_plan);
}

int64_t mark_slower(std::span<SweepRow> rows) {
  int64_t count = 0;
  for (SweepRow& r : rows) {
    const SweepRow* best = faster_with_less(r, rows);
    r.slower_than = best ? fmt::format("{}: {:.0f} tok/s", caps_of(*best), best->tokens_per_s) : "";
    count += best != nullptr;
  }
  return count;
}

}  // namespace sluice::core
