#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "draw/plot.h"
#include "draw/svg.h"
#include "trace/trace.h"

namespace sluice {
namespace {

constexpr double kWidth = 1100, kLeft = 80, kRight = 20, kTop = 56, kLaneHeight = 34, kLaneGap = 8,
                 kMemoryHeight = 150;

std::string_view colour_of(const Program& program, const Action& a) {
  if (a.loads()) return "#54aeff";
  if (a.stores()) return "#d4a72c";
  if (a.recompute) return "#cf222e";
  switch (program.task(a.task).phase) {
    case Phase::Forward:
      return "#2da44e";
    case Phase::Backward:
      return "#1f6f8b";
    case Phase::Update:
      return "#8250df";
  }
  return "#57606a";
}

constexpr std::array<std::string_view, kObjectKinds + 1> kKindColours{
    "#0969da", "#bf3989", "#8250df", "#2da44e", "#1f6f8b", "#9a6700", "#6e7781", "#57606a", "#afb8c1"};

struct Axis {
  double from_ns, to_ns, left, right;
  double x(double ns) const { return left + (ns - from_ns) / (to_ns - from_ns) * (right - left); }
};

void draw_legend(Svg& svg) {
  double x = kLeft;
  for (const auto& [name, colour] : {std::pair{"forward", "#2da44e"},
                                     {"backward", "#1f6f8b"},
                                     {"recomputation", "#cf222e"},
                                     {"update", "#8250df"},
                                     {"load", "#54aeff"},
                                     {"store", "#d4a72c"}}) {
    svg.rect(x, 36, 10, 10, {colour});
    svg.text({x + 14, 45}, name, {11});
    x += 24 + 7.0 * double(std::string_view(name).size());
  }
}

void draw_lanes(Svg& svg, const Program& program, const Plan& plan, std::span<const Interval> timeline,
                const Axis& axis) {
  for (const Lane lane : plan.lanes) {
    const double y = kTop + double(lane.index()) * (kLaneHeight + kLaneGap);
    svg.rect(axis.left, y, axis.right - axis.left, kLaneHeight, {"#f6f8fa"});
    svg.text({kLeft - 8, y + kLaneHeight / 2 + 4}, name_of(plan.lanes[lane]), {12, Svg::Anchor::End});
  }
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    const double x = axis.x(timeline[id].start_ns), width = axis.x(timeline[id].end_ns) - x;
    const double y = kTop + double(a.lane.index()) * (kLaneHeight + kLaneGap);
    const std::string tip =
        fmt::format("{}: {:.3f} ms", label(program, a), (timeline[id].end_ns - timeline[id].start_ns) / 1e6);
    svg.rect(x, y, std::max(width, 0.3), kLaneHeight, {colour_of(program, a)}, tip);
  }
}

void draw_memory(Svg& svg, const std::vector<MemoryPoint>& history, int64_t cap_bytes, double top,
                 const Axis& axis) {
  const auto y = [&](int64_t bytes) { return top + kMemoryHeight * (1 - double(bytes) / double(cap_bytes)); };
  svg.rect(axis.left, top, axis.right - axis.left, kMemoryHeight, {"#f6f8fa"});
  svg.text({kLeft - 8, top + 10}, format_bytes(cap_bytes), {11, Svg::Anchor::End});
  svg.text({kLeft - 8, top + kMemoryHeight}, "device", {12, Svg::Anchor::End});
  // At most one column per pixel.
  double drawn_to = axis.left;
  for (size_t i = 0; i + 1 < history.size(); ++i) {
    const double right = axis.x(history[i + 1].ns);
    if (right - drawn_to < 1 && i + 2 < history.size()) continue;
    int64_t below = 0;
    for (size_t k = 0; k < kKindColours.size(); ++k) {
      const int64_t bytes = history[i].bytes[k];
      if (bytes <= 0) continue;
      svg.rect(drawn_to, y(below + bytes), right - drawn_to, y(below) - y(below + bytes), {kKindColours[k]});
      below += bytes;
    }
    drawn_to = right;
  }
  double x = axis.left;
  for (size_t k = 0; k < kKindColours.size(); ++k) {
    const std::string_view name = k < kObjectKinds ? name_of(static_cast<ObjectKind>(k)) : "workspace";
    svg.rect(x, top + kMemoryHeight + 24, 10, 10, {kKindColours[k]});
    svg.text({x + 14, top + kMemoryHeight + 33}, name, {11});
    x += 24 + 7.0 * double(name.size());
  }
}

}  // namespace

std::string timeline_svg(const Program& program, const Plan& plan, std::span<const Interval> timeline) {
  double end_ns = 1;
  for (const Interval& t : timeline) end_ns = std::max(end_ns, t.end_ns);
  const Axis axis{0, end_ns, kLeft, kWidth - kRight};
  const double memory_top = kTop + double(plan.lanes.size()) * (kLaneHeight + kLaneGap) + 8;
  Svg svg(kWidth, memory_top + kMemoryHeight + 48);
  svg.text({kLeft, 22},
           fmt::format("One step in {} of device memory and {} of host memory: {:.1f} ms",
                       format_bytes(plan.arenas[kDevice].bytes), format_bytes(plan.arenas[kHost].bytes),
                       end_ns / 1e6),
           {14, Svg::Anchor::Start, "#24292f", 0, true});
  draw_legend(svg);
  draw_lanes(svg, program, plan, timeline, axis);
  draw_memory(svg, memory_history(program, plan, timeline)[kDevice], plan.arenas[kDevice].bytes, memory_top,
              axis);
  for (const double ms : ticks(0, end_ns / 1e6, 10)) {
    svg.text({axis.x(ms * 1e6), memory_top + kMemoryHeight + 14}, fmt::format("{:g} ms", ms),
             {10, Svg::Anchor::Middle});
  }
  return svg.str();
}

}  // namespace sluice
