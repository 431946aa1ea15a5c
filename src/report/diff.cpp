// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "report/report.h"

namespace sluice::core {
namespace {

// Times closer than this share of a step, and bytes closer than this share of their lane or tier, are the
// same for a reader.
constexpr double kSameShare = 5e-4;

bool alike(int64_t before, int64_t after, int64_t whole) {
  return std::abs(double(after) - double(before)) <= kSameShare * double(whole);
}

class Diff {
 public:
  Diff(const PlanSummary& before, const PlanSummary& after) : a_(before), b_(after) {}

  std::string str() {
    facts();
    speed();
    time();
    memory();
    saved();
    moved();
    return out_.empty() ? "the plans are the same in everything that a report shows\n" : std::move(out_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  // "12.3 GiB more" or "12.3 GiB less"; REQUIRES: before != after.
  static std::string change(int64_t before, int64_t after) {
    return fmt::format("{} {}", format_bytes(std::abs(after - before)), after > before ? "more" : "less");
  }

  static const std::string* find_fact(const PlanSummary& s, const std::string& name) {
    for (const auto& [key, words] : s.facts) {
      if (key == name) return &words;
    }
    return nullptr;
  }

  void facts() {
    for (const auto& [name, words] : a_.facts) {
      if (name == "caps" || name == "why")
        continue;  // the caps come with their tiers; why the shape is another is long
      const std::string* other = find_fact(b_, name);
      if (other == nullptr) {
        line("{:<9}was {}; the other plan does not say", name, words);
      } else if (*other != words) {
        line("{:<9}was {}\n{:<9}now {}", name, words, "", *other);
      }
    }
    for (const auto& [name, words] : b_.facts) {
      if (find_fact(a_, name) == nullptr) line("{:<9}is {}; the other plan does not say", name, words);
    }
    if (a_.policy != b_.policy) line("policy   was {}\n         now {}", a_.policy, b_.policy);
  }

  void speed() {
    // Steps of different size are compared per token.
    const double before = a_.step_ns / double(std::max<int64_t>(1, a_.tokens));
    const double after = b_.step_ns / double(std::max<int64_t>(1, b_.tokens));
    if (a_.tokens != b_.tokens) line("tokens   {} per step, then {}", a_.tokens, b_.tokens);
    if (std::abs(after - before) > kSameShare * before || a_.tokens != b_.tokens) {
      const double share = after < before ? before / after - 1 : after / before - 1;
      line("step     {:.1f} ms, then {:.1f} ms: {:.1f} % {}{}", a_.step_ns / 1e6, b_.step_ns / 1e6,
           100 * share, after < before ? "faster" : "slower", a_.tokens != b_.tokens ? " per token" : "");
    }
    if (std::abs(b_.lower_bound_ns - a_.lower_bound_ns) > kSameShare * a_.lower_bound_ns) {
      line("bound    {:.1f} ms, then {:.1f} ms", a_.lower_bound_ns / 1e6, b_.lower_bound_ns / 1e6);
    }
    if (std::abs(b_.gap() - a_.gap()) > kSameShare) {
      line("gap      {:.1f} % above the bound, then {:.1f} %", 100 * a_.gap(), 100 * b_.gap());
    }
    if (a_.binds != b_.binds) line("binds    was {}; now {}", a_.binds, b_.binds);
  }

  void time() {
    const auto compare = [&](std::string_view what, double before, double after) {
      const double was = before / std::max(a_.step_ns, 1.0), is = after / std::max(b_.step_ns, 1.0);
      if (std::abs(is - was) > kSameShare) {
        line("time     {:<20} {:.1f} % of the step ({:.1f} ms), then {:.1f} % ({:.1f} ms)", what, 100 * was,
             before / 1e6, 100 * is, after / 1e6);
      }
    };
    compare("computed again", a_.time.again_ns, b_.time.again_ns);
    compare("slowed by copies", a_.time.slowed_ns, b_.time.slowed_ns);
    for (size_t c = 0; c < kStallCauses; ++c) {
      compare(name_of(static_cast<StallCause>(c)), a_.time.stalls_ns[c], b_.time.stalls_ns[c]);
    }
    compare("last transfers", a_.time.tail_ns, b_.time.tail_ns);
    for (const RepeatedTask& t : b_.repeated) {
      if (!repeats(a_, t.what)) line("again    {} is now computed again, {} times", t.what, t.runs);
    }
    for (const RepeatedTask& t : a_.repeated) {
      if (!repeats(b_, t.what)) line("again    {} is no longer computed again", t.what);
    }
  }

  static bool repeats(const PlanSummary& s, const std::string& what) {
    return std::any_of(s.repeated.begin(), s.repeated.end(),
                       [&](const RepeatedTask& t) { return t.what == what; });
  }

  void memory() {
    for (const Tier tier : tiers_of(std::max(a_.table.devices(), b_.table.devices()))) {
      const std::string_view name = name_of(tier);
      const TierReport *before = &a_.tiers[tier], *after = &b_.tiers[tier];
      if (before->cap_bytes != after->cap_bytes) {
        line("{:<9}cap {}, then {}", name, format_bytes(before->cap_bytes), format_bytes(after->cap_bytes));
      }
      if (before->arena_bytes != after->arena_bytes) {
        line("{:<9}arena {}, then {}: {}", name, format_bytes(before->arena_bytes),
             format_bytes(after->arena_bytes), change(before->arena_bytes, after->arena_bytes));
      }
      if (before->peak_bytes != after->peak_bytes) {
        line("{:<9}peak in use {}, then {}: {}", name, format_bytes(before->peak_bytes),
             format_bytes(after->peak_bytes), change(before->peak_bytes, after->peak_bytes));
      }
      for (size_t k = 0; k < kReportKinds; ++k) {
        const int64_t was = before->homes[k], is = after->homes[k];
        if (!alike(was, is, std::max(before->arena_bytes, after->arena_bytes))) {
          line("{:<9}between steps it holds {} of {}, then {}", name, format_bytes(was), report_kind(k),
               format_bytes(is));
        }
      }
    }
  }

  static std::string how(const RoleReport& r) {
    std::string out;
    for (size_t i = 0; i < kSavings; ++i) {
      if (r.saved_bytes[i] == 0) continue;
      out += fmt::format("{}{:.0f} % {}", out.empty() ? "" : ", ",
                         100 * double(r.saved_bytes[i]) / double(std::max<int64_t>(1, r.bytes)),
                         name_of(static_cast<Saving>(i)));
    }
    return out.empty() ? "nothing" : out;
  }

  void saved() {
    for (const RoleReport& before : a_.saved) {
      const auto after = std::find_if(b_.saved.begin(), b_.saved.end(),
                                      [&](const RoleReport& r) { return r.role == before.role; });
      if (after == b_.saved.end()) {
        line("saved    {}: not in the other plan's program", before.role);
      } else if (how(before) != how(*after)) {
        line("saved    {}: {}; now {}", before.role, how(before), how(*after));
      }
    }
  }

  // Nothing, where the plan has no such lane.
  static LaneReport lane_of(const PlanSummary& s, const LaneEnds& ends) {
    const auto lane = s.table.find(ends.from, ends.to);
    return lane ? s.lanes[*lane] : LaneReport{};
  }

  void moved() {
    std::vector<LaneEnds> all = a_.table.ends();
    for (const LaneEnds& ends : b_.table.ends()) {
      if (!a_.table.find(ends)) all.push_back(ends);
    }
    for (const LaneEnds& ends : all) {
      if (ends.computes()) continue;
      const std::string name = name_of(ends);
      const LaneReport before = lane_of(a_, ends), after = lane_of(b_, ends);
      for (size_t k = 0; k < kReportKinds; ++k) {
        const int64_t was = before.bytes[k], is = after.bytes[k];
        if (!alike(was, is, std::max(sum(before.bytes), sum(after.bytes)))) {
          line("{:<9}{} of {} per step, then {}: {}", fmt::format("{}s", name), format_bytes(was),
               report_kind(k), format_bytes(is), change(was, is));
        }
      }
      const double was = before.busy_ns / std::max(a_.step_ns, 1.0),
                   is = after.busy_ns / std::max(b_.step_ns, 1.0);
      if (std::abs(was - is) > 0.005)
        line("{:<9}lane busy {:.0f} %, then {:.0f} %", fmt::format("{}s", name), 100 * was, 100 * is);
    }
  }

  const PlanSummary &a_, &b_;
  std::string out_;
};

}  // namespace

std::string describe_difference(const PlanSummary& before, const PlanSummary& after) {
  return Diff(before, after).str();
}

}  // namespace sluice::core
