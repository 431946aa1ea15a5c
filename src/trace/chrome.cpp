// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "trace/trace.h"

namespace sluice::core {
namespace {

// A number of thousandths as a decimal number: a step has a million of these, which take several times as
// long by way of floating point.
void put_thousandths(std::string& out, int64_t number) {
  if (number < 0) out += '-';  // an activity by another clock may begin before its step
  const uint64_t size = number < 0 ? -uint64_t(number) : uint64_t(number);
  const fmt::format_int whole(size / 1000), part(1000 + size % 1000);
  out.append(whole.data(), whole.size()).append(".").append(part.data() + 1, 3);
}

// Start and length in us with three digits, both of whole ns: rounded apart, neighbours would overlap by one,
// which viewers refuse.
void put_times(std::string& out, const Interval& time) {
  const int64_t start = std::llround(time.start_ns), end = std::llround(time.end_ns);
  put_thousandths(out.append("\"ts\":"), start);
  put_thousandths(out.append(",\"dur\":"), end - start);
}

// Kinds of which there is nothing at any time are left out.
void put_counters(std::string& out, std::string_view name, const std::vector<MemoryPoint>& history) {
  std::vector<std::pair<size_t, std::string_view>> kinds;
  for (size_t k = 0; !history.empty() && k < history.front().bytes.size(); ++k) {
    if (std::ranges::all_of(history, [k](const MemoryPoint& p) { return p.bytes[k] == 0; })) continue;
    kinds.emplace_back(k, k < kObjectKinds ? name_of(static_cast<ObjectKind>(k)) : "workspace");
  }
  for (const MemoryPoint& p : history) {
    out.append(",\n{\"ph\":\"C\",\"pid\":1,\"name\":\"").append(name).append(" MiB\",\"ts\":");
    put_thousandths(out, std::llround(p.ns));
    out.append(",\"args\":{");
    for (const auto& [k, kind] : kinds) {
      out.append(k == kinds.front().first ? "\"" : ",\"").append(kind).append("\":");
      put_thousandths(out, std::llround(double(p.bytes[k]) * (1000.0 / (1024.0 * 1024.0))));
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
    fmt::format_to(put, ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":\"{}\",", row_of[a.stream],
                   escaped(a.name));
    put_times(out, a.time);
    fmt::format_to(put, ",\"args\":{{\"action\":\"{}\"",
                   a.command ? describe(program, plan.actions[*a.command]) : "");
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
    fmt::format_to(put, ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":\"{}\",", a.lane.index() + 1,
                   describe(program, a));
    put_times(out, timeline[id]);
    out += ",\"args\":{";
    if (a.kind == ActionKind::Run) {
      fmt::format_to(put, "\"op\":\"{}\",\"recompute\":{}", to_text(program.task(a.task).op), a.recompute);
    } else {
      fmt::format_to(put, "\"bytes\":{}", a.bytes);
    }
    put_thousandths(out.append(",\"predicted_us\":"), std::llround(a.cost_ns));
    out += "}}";
  }
  put_activities(out, program, plan, activities);
  const MemoryHistory memory = memory_history(program, plan, timeline);
  for (const Tier tier : plan.lanes.tiers()) put_counters(out, name_of(tier), memory[tier]);
  return out + "\n]}\n";
}

}  // namespace sluice::core
