// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "base/bytes.h"
#include "io/csv.h"
#include "search/planner.h"

namespace sluice::core::corpus {
namespace {

constexpr double kTolerance = 0.005;
constexpr const char* kColumns =
    "model,shape,updates,machine,device cap,host cap,makespan ns,lower bound ns,least device bytes\n";
constexpr size_t kKeys = 6;

std::string cap_text(int64_t bytes) {
  if (bytes == kUnlimited) return "none";
  return bytes % kMiB == 0 ? fmt::format("{}MiB", bytes / kMiB) : fmt::format("{}KiB", bytes / kKiB);
}

std::vector<std::string> keys_of(const Group& g, const Caps& caps) {
  return {g.model, g.shape, g.updates, g.machine, cap_text(caps.device_bytes), cap_text(caps.host_bytes)};
}

std::string joined(std::span<const std::string> keys) {
  return fmt::format("{} {} {} {} device {} host {}", keys[0], keys[1], keys[2], keys[3], keys[4], keys[5]);
}

std::string number(double value) {
  return value == 0 ? "" : fmt::format("{:.0f}", value);
}

Verdict verdict_of(double committed, double now) {
  if (now > committed * (1 + kTolerance)) return Verdict::Worse;
  return now < committed * (1 - kTolerance) ? Verdict::Better : Verdict::Same;
}

}  // namespace

Row plan_cell(const Program& program, const Profile& profile, const Caps& caps) {
  PlanRequest request;
  request.caps[kDevice] = caps.device_bytes;
  request.caps[kHost] = caps.host_bytes;
  Row row;
  if (const auto plan = make_plan(program, profile, request); plan.ok()) {
    row.makespan_ns = std::round(plan->makespan_ns);
    row.lower_bound_ns = std::round(plan->lower_bound_ns);
  } else if (const auto least = minimal_device_bytes(program, profile, request); least.ok()) {
    row.least_device_bytes = *least;
  }
  return row;
}

std::string name_of(const Group& group, const Caps& caps) {
  return joined(keys_of(group, caps));
}

Result<Table> parse_table(std::string_view csv) {
  Table table;
  for (size_t begin = csv.find('\n') + 1; begin < csv.size();) {
    const size_t end = std::min(csv.find('\n', begin), csv.size());
    const std::string_view line = csv.substr(begin, end - begin);
    const auto fields = parse_csv_line(line);
    if (!fields || fields->size() != kKeys + 3) return error("not a row of the corpus: {}", line);
    const auto value = [&](size_t column) { return std::strtod((*fields)[kKeys + column].c_str(), nullptr); };
    table[joined(*fields)] = {value(0), value(1), int64_t(value(2))};
    begin = end + 1;
  }
  return table;
}

std::string to_csv(const std::vector<Group>& groups, const Table& table) {
  std::string out = kColumns;
  for (const Group& g : groups) {
    for (const Caps& caps : g.caps) {
      const Row& row = table.at(name_of(g, caps));
      std::vector<std::string> fields = keys_of(g, caps);
      for (const double v : {row.makespan_ns, row.lower_bound_ns, double(row.least_device_bytes)}) {
        fields.push_back(number(v));
      }
      out += csv_line(fields);
    }
  }
  return out;
}

Comparison compare(const std::string& cell, const Row& committed, const Row& now) {
  const auto words = [&](std::string_view what, double before, double after) {
    return fmt::format("{}: {} {:.0f}, now {:.0f} ({:+.2f} %)", cell, what, before, after,
                       100 * (after / before - 1));
  };
  const bool fitted = committed.makespan_ns > 0, fits = now.makespan_ns > 0;
  if (fitted && !fits) return {Verdict::Worse, fmt::format("{}: had a plan, now none fits", cell)};
  if (!fitted && fits) return {Verdict::Better, fmt::format("{}: had no plan, now one fits", cell)};
  if (fits) {
    // A smaller bound says less.
    if (const Verdict v = verdict_of(now.lower_bound_ns, committed.lower_bound_ns); v != Verdict::Same) {
      return {v, words("lower bound, ns", committed.lower_bound_ns, now.lower_bound_ns)};
    }
    return {verdict_of(committed.makespan_ns, now.makespan_ns),
            words("makespan, ns", committed.makespan_ns, now.makespan_ns)};
  }
  const int64_t before = committed.least_device_bytes, after = now.least_device_bytes;
  if ((before == 0) != (after == 0)) {
    return {
        after == 0 ? Verdict::Worse : Verdict::Better,
        fmt::format("{}: {}", cell,
                    after == 0 ? "some device cap did, now none does" : "no device cap did, now one does")};
  }
  return {verdict_of(double(before), double(after)),
          words("least device bytes", double(before), double(after))};
}

}  // namespace sluice::core::corpus
