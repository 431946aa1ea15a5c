// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "report/report.h"

namespace sluice::core {
namespace {

std::string describe_kinds(const BytesByKind& bytes) {
  std::string out;
  for (size_t k = 0; k < bytes.size(); ++k) {
    if (bytes[k] == 0) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", report_kind(k), format_bytes(bytes[k]));
  }
  return out.empty() ? "nothing" : out;
}

class Page {
 public:
  explicit Page(const PlanSummary& summary) : s_(summary), step_(std::max(summary.step_ns, 1.0)) {}

  std::string str() {
    head();
    time();
    links();
    memory();
    saved();
    repeated();
    stalls();
    what_ifs();
    return std::move(out_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  double share(double ns) const { return 100 * ns / step_; }

  void head() {
    line("step     {:.1f} ms predicted{}", step_ / 1e6,
         s_.tokens_per_s > 0 ? fmt::format(": {:.0f} tok/s, {:.2f} model TFLOP/s, MFU {:.1f} %, HFU {:.1f} %",
                                           s_.tokens_per_s, s_.model_tflops, 100 * s_.mfu, 100 * s_.hfu)
                             : "");
    for (const auto& [name, words] : s_.facts)
      if (name == kPeakFact) line("{:<8} {}", name, words);
    line("bound    no plan is faster than {:.1f} ms; gap {:.1f} %{}", s_.lower_bound_ns / 1e6, 100 * s_.gap(),
         s_.least_bound_ns < s_.lower_bound_ns
             ? fmt::format(". None of a shape that was tried is faster than {:.1f} ms; gap {:.1f} %",
                           s_.least_bound_ns / 1e6, 100 * s_.gap_of_shapes())
             : "");
    line("binds    {}", s_.binds);
    if (!s_.more_memory.empty()) line("more     {}", s_.more_memory);
    line("policy   {}", s_.policy);
  }

  void time() {
    line("\ncompute lane{:>22}{:>9}", "ms", "share");
    const auto row = [&](std::string_view name, double ns) {
      if (ns > 1e-6 * step_) line("  {:<22}{:>10.1f}{:>7.1f} %", name, ns / 1e6, share(ns));
    };
    row("every task once", s_.time.once_ns);
    row("computed again", s_.time.again_ns);
    row("slowed by copies", s_.time.slowed_ns);
    for (size_t c = 0; c < kStallCauses; ++c) row(name_of(static_cast<StallCause>(c)), s_.time.stalls_ns[c]);
    row("last transfers", s_.time.tail_ns);
  }

  void links() {
    line("\nlinks{:>17}{:>11}{:>13}{:>11}   by kind", "busy", "transfers", "moved", "rate");
    for (const Lane lane : s_.table) {
      if (s_.table[lane].computes()) continue;
      const LaneReport& l = s_.lanes[lane];
      const int64_t bytes = sum(l.bytes);
      const double rate = l.busy_ns > 0 ? double(bytes) / l.busy_ns : 0;
      line("  {:<12}{:>6.1f} %{:>11}{:>13}{:>6.1f} GB/s   {}", name_of(s_.table[lane]), share(l.busy_ns),
           l.actions, format_bytes(bytes), rate, describe_kinds(l.bytes));
    }
  }

  void memory() {
    line("\nmemory{:>18}{:>13}{:>13}{:>13}   between steps", "cap", "overhead", "arena", "peak in use");
    for (const Tier tier : s_.table.tiers()) {
      const TierReport& t = s_.tiers[tier];
      line("  {:<10}{:>12}{:>13}{:>13}{:>13}   {}", name_of(tier), format_bytes(t.cap_bytes),
           format_bytes(t.overhead_bytes), format_bytes(t.arena_bytes), format_bytes(t.peak_bytes),
           describe_kinds(t.homes));
    }
  }

  void saved() {
    if (s_.saved.empty()) return;
    line("\nfor backward{:>14}{:>12}{:>12}{:>12}", "bytes", "on device", "on host", "again");
    for (const RoleReport& r : s_.saved) {
      const double bytes = double(std::max<int64_t>(1, r.bytes));
      line("  {:<12}{:>12}{:>10.0f} %{:>10.0f} %{:>10.0f} %", r.role, format_bytes(r.bytes),
           100 * double(r.saved_bytes[0]) / bytes, 100 * double(r.saved_bytes[1]) / bytes,
           100 * double(r.saved_bytes[2]) / bytes);
    }
  }

  void repeated() {
    if (s_.repeated.empty()) return;
    line("\ncomputed again{:>8}{:>10}{:>9}", "runs", "ms", "share");
    for (const RepeatedTask& t : s_.repeated) {
      line("  {:<12}{:>8}{:>10.1f}{:>7.1f} %", t.what, t.runs, t.ns / 1e6, share(t.ns));
    }
  }

  void stalls() {
    constexpr size_t kShown = 5;
    if (s_.longest_stalls.empty()) return;
    line("\n{} stalls, the longest:", s_.stall_count);
    for (size_t i = 0; i < std::min(kShown, s_.longest_stalls.size()); ++i) {
      const LongStall& l = s_.longest_stalls[i];
      double ns = 0;
      for (const double part : l.ns) ns += part;
      line("  {:>8.2f} ms at {:.1f} ms, before {}{}", ns / 1e6, l.begin_ns / 1e6, l.before,
           l.waited_for.empty() ? "" : ", for " + l.waited_for);
    }
  }

  void what_ifs() {
    if (s_.what_ifs.empty()) return;
    line("\nwhat if{:>38}", "speed");
    for (const WhatIf& w : s_.what_ifs) {
      const double gain = 100 * (w.speedup - 1);
      line("  {:<34}{}", w.change, w.speedup == 0 ? "does not fit" : fmt::format("{:>+7.1f} %", gain));
    }
  }

  const PlanSummary& s_;
  const double step_;
  std::string out_;
};

}  // namespace

std::string to_page_of_text(const PlanSummary& summary) {
  return Page(summary).str();
}

std::string describe_stalls(const std::array<double, kStallCauses>& stalls_ns, double step_ns) {
  std::string out;
  for (size_t c = 0; c < kStallCauses; ++c) {
    fmt::format_to(std::back_inserter(out), "{}{:.1f} ms ({:.1f} %) {}", c == 0 ? "" : ", ",
                   stalls_ns[c] / 1e6, 100 * stalls_ns[c] / std::max(step_ns, 1.0),
                   name_of(static_cast<StallCause>(c)));
  }
  return out;
}

}  // namespace sluice::core
