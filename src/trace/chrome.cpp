// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <map>

#include "trace/trace.h"

namespace sluice::core {
namespace {

// Start and length in us with three digits, both of whole ns: rounded apart, neighbours would overlap by one,
// which viewers refuse.
std::string times_of(const Interval& time) {
  const int64_t start = std::llround(time.start_ns), end = std::llround(time.end_ns);
  return fmt::format("\"ts\":{:.3f},\"dur\":{:.3f}", double(start) / 1e3, double(end - start) / 1e3);
}

void put_counters(std::string& out, std::string_view name, const std::vector<MemoryPoint>& history) {
  for (const MemoryPoint& p : history) {
    fmt::format_to(std::back_inserter(out),
                   ",\n{{\"ph\":\"C\",\"pid\":1,\"name\":\"{} MiB\",\"ts\":{:.3f},\"args\":{{", name,
                   p.ns / 1e3);
    for (size_t k = 0; k < p.bytes.size(); ++k) {
      const std::string_view kind = k < kObjectKinds ? name_of(static_cast<ObjectKind>(k)) : "workspace";
      fmt::format_to(std::back_inserter(out), "{}\"{}\":{:.3f}", k == 0 ? "" : ",", kind,
                     double(p.bytes[k]) / (1024.0 * 1024.0));
    }
    out += "}}";
  }
}

// Names of kernels come from outside.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out;
}

// Rows below the lanes, one per stream. A stream is named after the lane that it works for, if one is known.
void put_activities(std::string& out, const Program& program, const Plan& plan,
                    std::span<const DeviceActivity> activities) {
  auto put = std::back_inserter(out);
  std::map<uint32_t, std::string> rows;
  for (const DeviceActivity& a : activities) {
    std::string& row = rows[a.stream];
    if (row.empty() && a.command)
      row = fmt::format("stream {} ({})", a.stream, name_of(plan.lanes[plan.actions[*a.command].lane]));
  }
  constexpr int kFirstRow = 100;
  std::map<uint32_t, int> row_of;
  const auto put_row = [&](int row, std::string_view event, std::string_view key, const std::string& value) {
    fmt::format_to(put, ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"{}\",\"args\":{{\"{}\":{}}}}}",
                   row, event, key, value);
  };
  for (const auto& [stream, name] : rows) {
    const int row = kFirstRow + int(row_of.size());
    row_of[stream] = row;
    put_row(row, "thread_name", "name",
            fmt::format("\"{}\"", name.empty() ? fmt::format("stream {}", stream) : name));
    put_row(row, "thread_sort_index", "sort_index", fmt::format("{}", row));
  }
  for (const DeviceActivity& a : activities) {
    fmt::format_to(put, ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":\"{}\",{},", row_of[a.stream],
                   escaped(a.name), times_of(a.time));
    fmt::format_to(put, "\"args\":{{\"action\":\"{}\"",
                   a.command ? label(program, plan.actions[*a.command]) : "");
    if (a.bytes > 0) fmt::format_to(put, ",\"bytes\":{}", a.bytes);
    out += "}}";
  }
}

}  // namespace

std::string chrome_trace(const Program& program, const Plan& plan, std::span<const Interval> timeline,
                         std::span<const DeviceActivity> activities) {
  std::string out =
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"one step\"}}";
  auto put = std::back_inserter(out);
  for (const Lane lane : plan.lanes) {
    fmt::format_to(
        put, ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":\"{}\"}}}}",
        lane.index() + 1, name_of(plan.lanes[lane]));
  }
  // Object and task names hold letters, digits, dots and underscores only, so nothing needs escaping.
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    fmt::format_to(put, ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":\"{}\",{},\"args\":{{",
                   a.lane.index() + 1, label(program, a), times_of(timeline[id]));
    if (a.kind == ActionKind::Run) {
      fmt::format_to(put, "\"op\":\"{}\",\"recompute\":{}", text(program.task(a.task).op), a.recompute);
    } else {
      fmt::format_to(put, "\"bytes\":{}", a.bytes);
    }
    fmt::format_to(put, ",\"predicted_us\":{:.3f}}}}}", a.cost_ns / 1e3);
  }
  put_activities(out, program, plan, activities);
  const MemoryHistory memory = memory_history(program, plan, timeline);
  for (const Tier tier : plan.lanes.tiers()) put_counters(out, name_of(tier), memory[tier]);
  return out + "\n]}\n";
}

}  // namespace sluice::core
