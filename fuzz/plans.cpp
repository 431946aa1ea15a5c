// SPDX-License-Identifier: Apache-2.0
// Plans that anybody may have written: what the proof takes is used in every way that a plan is.
#include <array>
#include <cstring>

#include "fuzz.h"
#include "measure/calibrate.h"
#include "plan/store.h"
#include "report/report.h"
#include "setup/kept_plans.h"
#include "trace/trace.h"

namespace sluice::core::fuzz {
namespace {

// A small model, its training and the flush of its updates, on one device or on two that share a step.
struct Subject {
  Question request;
  Profile profile;
  Stages stages;
  std::vector<int64_t> workspaces;

  explicit Subject(size_t devices) {
    profile.name = "test";
    profile.set_bytes_per_s(2e9);
    if (devices > 1) profile.set_lanes(LaneTable::of_devices(devices, true), 2e9);
    profile.workspace_bytes = [](const Op&) { return 128; };
    profile.overhead_bytes[kHost] = 1 << 20;
    request.model = model_of({16, int64_t(devices), 2, 1, 8, 24, 31});
    request.shape = {8, 8, 1, 1, 8};
    request.optimizer.deferred = true;
    request.caps = {{kDevice, 64 << 10}, {kHost, 4 << 20}};
    for (size_t d = 1; d < devices; ++d) request.caps[Tier::device(d)] = request.caps[kDevice];
    request.quick = true;
    auto made = make_stages(request, profile);
    if (!made.ok()) std::fprintf(stderr, "%s\n", made.message().c_str());
    require(made.ok(), "the small model cannot be planned");
    stages = std::move(*made);
    workspaces = cost_of(program(), profile).workspace_bytes;
  }
  const Program& program() const { return stages.main.model.program; }
  const Plan& plan() const { return stages.main.plan; }
};
const Subject& subject(size_t devices = 1) {
  static const Subject one(1), two(2);
  return devices == 1 ? one : two;
}

// Whoever gets a plan shows it in all of these ways, at every start. One for an input: together they take
// most of a target's time.
void use(const Subject& s, const Plan& plan, uint8_t way) {
  const Program& program = s.program();
  const std::vector<Interval> timeline = predicted_timeline(plan);
  const auto report_of = [&](const Plan& p, const std::vector<Interval>& times) {
    ReportContext context;
    context.caps = s.request.caps;
    context.overhead_bytes = s.profile.overhead_bytes;
    return make_report(program, p, times, context);
  };
  switch (way % 8) {
    case 0:
      (void)to_text(program, plan);
      return;
    case 1:
      (void)describe(program, plan);
      return;
    case 2:
      (void)stalls_of(plan, timeline);
      return;
    case 3:
      (void)timeline_svg(program, plan, timeline);
      return;
    case 4:
      (void)chrome_trace(program, plan, timeline);
      return;
    case 5: {
      Plan timed = plan;
      predict(program, timed, {});
      return;
    }
    case 6:
      (void)to_page_of_text(report_of(plan, timeline).summary);
      (void)to_html(to_json(report_of(plan, timeline), program, plan));
      return;
    default: {
      const auto summary = parse_summary(to_json(report_of(plan, timeline), program, plan));
      require(summary.ok(), "the report of a plan cannot be read back");
      const PlanSummary whole = report_of(s.plan(), predicted_timeline(s.plan())).summary;
      (void)describe_difference(whole, *summary);
      (void)describe_difference(*summary, whole);
    }
  }
}

// Bytes that are left read as zeros.
class Choices {
 public:
  explicit Choices(Bytes input) : rest_(input) {}
  bool any() const { return !rest_.empty(); }
  template <class T>
  T take() {
    T value{};
    const size_t n = std::min(sizeof(T), rest_.size());
    std::memcpy(&value, rest_.data(), n);
    rest_ = rest_.subspan(n);
    return value;
  }
  size_t below(size_t count) { return count == 0 ? 0 : take<uint32_t>() % count; }
  // Near the ends of types, of the plan's own numbers, or anything.
  int64_t number() {
    constexpr std::array<int64_t, 10> kEnds{-1,         0,         1,         64,      INT32_MAX,
                                            UINT32_MAX, INT64_MAX, INT64_MIN, 1 << 20, 7};
    const auto kind = take<uint8_t>();
    if (kind >= 200) return take<int64_t>();
    // Unsigned: the ends of the type wrap around.
    return static_cast<int64_t>(static_cast<uint64_t>(kEnds[kind % kEnds.size()]) +
                                static_cast<uint64_t>(take<int8_t>()));
  }
  double time() {
    constexpr std::array<double, 8> kTimes{0, 1, 1e6, 1e17, 1e18, 1e300, -1, 1e-300};
    const auto kind = take<uint8_t>();
    return kind < 200 ? kTimes[kind % kTimes.size()] : take<double>();
  }

 private:
  Bytes rest_;
};

// One field of a plan is another number.
void damage(Plan& p, Choices& c) {
  Action& a = p.actions[c.below(p.actions.size())];
  const Action& other = p.actions[c.below(p.actions.size())];
  switch (c.take<uint8_t>() % 24) {
    case 0:
      a.recompute = !a.recompute;
      break;
    case 1:
      a.task.value = uint32_t(c.number());
      break;
    case 2:
      a.object.value = uint32_t(c.number());
      break;
    case 3:
      a.first_address = uint32_t(c.number());
      break;
    case 4:
      a.address_count = uint32_t(c.number());
      break;
    case 5:
      a.from.offset = c.number();
      break;
    case 6:
      a.to.offset = c.number();
      break;
    case 7:
      a.workspace_offset = c.number();
      break;
    case 8:
      a.bytes = c.number();
      break;
    case 9:
      a.first_wait = uint32_t(c.number());
      break;
    case 10:
      a.wait_count = uint32_t(c.number());
      break;
    case 11:
      a.cost_ns = c.time();
      break;
    case 12:
      a.start_ns = c.time();
      break;
    case 13:
      a.end_ns = c.time();
      break;
    case 14:
      p.makespan_ns = c.time();
      break;
    case 15:
      p.lower_bound_ns = c.time();
      break;
    case 16:
      p.addresses[c.below(p.addresses.size())] = c.number();
      break;
    case 17:
      p.waits[c.below(p.waits.size())] = uint32_t(c.number());
      break;
    case 18:
      p.homes[c.below(p.homes.size())].set(Tier::of_index(c.below(4)), c.number());
      break;
    case 19:
      p.arenas[Tier::of_index(c.below(4))].bytes = c.number();
      break;
    case 20:
      p.arenas[Tier::of_index(c.below(4))].boundary_offset = c.number();
      break;
    case 21:
      p.alignment = c.number();
      break;
    case 22:
      a = other;
      break;
    default: {
      std::string& text = c.take<uint8_t>() % 2 == 0 ? p.policy : p.machine;
      text += char(c.take<uint8_t>());
    }
  }
}

}  // namespace

void plan(Bytes input) {
  const Subject& s = subject();
  const auto plan = plan_from_bytes(text_in(input));
  if (!plan.ok() || !verify(s.program(), *plan, s.workspaces).ok()) return;
  use(s, *plan, input.back());
  require(to_bytes(*plan) == text_in(input), "two plans have the same bytes");
}
std::string seed_plan() {
  return to_bytes(subject().plan());
}

void plan_fields(Bytes input) {
  Choices choices(input);
  const auto first = choices.take<uint8_t>();
  const Subject& s = subject(1 + first % 2);
  Plan plan = s.plan();
  while (choices.any()) damage(plan, choices);
  if (verify(s.program(), plan, s.workspaces).ok()) use(s, plan, first / 2);
}
// Of two devices, as text: the cost of an action is 1 ns.
std::string seed_plan_fields() {
  const char bytes[] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 11, 1};
  return std::string(bytes, sizeof(bytes));
}

void kept_plans(Bytes input) {
  const Subject& s = subject();
  const auto plans = plans_in(text_in(input), s.stages, s.request, s.profile);
  if (!plans.ok()) return;
  for (const Plan& plan : *plans) {
    for (const Tier tier : {kDevice, kHost})
      require(plan.arenas[tier].bytes <= s.request.caps[tier], "an arena beyond its cap");
  }
  use(s, plans->front(), input.back());
}
std::string seed_kept_plans() {
  return plans_as_bytes(subject().stages, subject().profile);
}

}  // namespace sluice::core::fuzz
