// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "draw/axis.h"
#include "draw/svg.h"
#include "trace/trace.h"

namespace sluice::core {
namespace {

constexpr double kWidth = 1100, kLeft = 92, kRight = 24, kTop = 66;
constexpr double kPassHeight = 18, kPhaseHeight = 15, kCopyHeight = 22, kGap = 3, kBlock = 12;
constexpr double kDeviceHeight = 150, kHostHeight = 90;
constexpr double kThin = 2;         // pixels; what is narrower is drawn as a share of its columns
constexpr double kHeightSteps = 8;  // heights of shares that are told apart

struct Scale {
  double end_ns;
  double x(double ns) const { return kLeft + std::clamp(ns / end_ns, 0.0, 1.0) * (kWidth - kLeft - kRight); }
};

// One decimal: a tenth of a pixel is not seen.
std::string tenths(double value) {
  return svg_number(std::round(value * 10) / 10);
}

// A row of the picture in which things of a few sorts take turns.
class Row {
 public:
  Row(double y, double height, size_t sorts, const Scale& scale)
      : y_(y), height_(height), scale_(scale), sorts_(sorts) {
    for (Sort& s : sorts_) s.columns.resize(size_t(kWidth) + 2);
  }

  // By start. What follows its like at less than half a pixel is drawn as one with it.
  void add(double start_ns, double end_ns, size_t sort) {
    Sort& s = sorts_[sort];
    s.busy_ns += end_ns - start_ns;
    ++s.count;
    const double from = scale_.x(start_ns), to = scale_.x(end_ns);
    if (sort == last_ && from - to_ < 0.5) {
      to_ = std::max(to_, to);
      return;
    }
    flush();
    last_ = sort, from_ = from, to_ = to;
  }

  // `name` and `ink` of a sort.
  template <class Name, class Colour>
  void draw(Svg& svg, Name name, Colour colour) {
    flush();
    svg.rect(kLeft, y_, kWidth - kLeft - kRight, height_, {.fill = ink("track")});
    draw_shares();
    for (size_t i = 0; i < sorts_.size(); ++i) {
      const Sort& s = sorts_[i];
      if (s.path.empty()) continue;
      svg.path(s.path, colour(i), fmt::format("{}: {} in {}", name(i), time_text(s.busy_ns), s.count));
    }
  }

 private:
  struct Sort {
    std::vector<double> columns;  // the share of each pixel column that is taken by what is thin
    std::string path;
    double busy_ns = 0;
    int64_t count = 0;
  };

  static void put(Sort& s, double x, double y, double width, double height) {
    s.path +=
        fmt::format("M{} {}h{}v{}h-{}z", tenths(x), tenths(y), tenths(width), tenths(height), tenths(width));
  }
  void flush() {
    if (last_ == kNone) return;
    Sort& s = sorts_[last_];
    if (to_ - from_ >= kThin) {
      put(s, from_, y_, to_ - from_, height_);
    } else {
      for (double p = std::floor(from_); p < to_; ++p) {
        s.columns[size_t(p)] += std::min(to_, p + 1) - std::max(from_, p);
      }
    }
    last_ = kNone;
  }
  // Shares stand on one another from the bottom; neighbouring columns that look alike are one rectangle.
  void draw_shares() {
    std::vector<double> level(size_t(kWidth) + 2);
    for (Sort& s : sorts_) {
      const auto step = [&](size_t p) {
        if (s.columns[p] <= 0) return 0.0;
        const double room = kHeightSteps - level[p];
        return std::min(room, std::max(1.0, std::round(s.columns[p] * kHeightSteps)));
      };
      for (size_t p = 0, end = 0; p < s.columns.size(); p = end) {
        const double height = step(p), at = level[p];
        for (end = p; end < s.columns.size() && step(end) == height && level[end] == at;) {
          level[end++] += height;
        }
        if (height <= 0) continue;
        const double unit = height_ / kHeightSteps;
        put(s, double(p), y_ + height_ - (at + height) * unit, double(end - p), height * unit);
      }
    }
  }

  static constexpr size_t kNone = SIZE_MAX;
  double y_, height_;
  const Scale& scale_;
  std::vector<Sort> sorts_;
  size_t last_ = kNone;
  double from_ = 0, to_ = 0;
};

// Bytes of an arena by kind over time, as areas on one another.
class Areas {
 public:
  Areas(const std::vector<MemoryPoint>& history, double top, double height, double most_bytes,
        const Scale& scale)
      : top_(top), height_(height), most_(most_bytes) {
    // The fullest moment of each pixel column.
    size_t i = 0;
    for (double x = kLeft; x < kWidth - kRight && !history.empty(); ++x) {
      size_t best = i;
      for (; i + 1 < history.size() && scale.x(history[i + 1].ns) < x + 1; ++i) {
        if (history[i + 1].total() > history[best].total()) best = i + 1;
      }
      columns_.push_back(history[best].bytes);
    }
  }

  // The area of kinds 0 to `kind`; painted from the last kind to the first, each shows what is its own.
  std::string path(size_t kind) const {
    std::string out = fmt::format("M{} {}", tenths(kLeft), tenths(top_ + height_));
    double before = top_ + height_, x = kLeft;
    for (const auto& bytes : columns_) {
      double sum = 0;
      for (size_t k = 0; k <= kind; ++k) sum += double(bytes[k]);
      const double y = std::round((top_ + height_ * (1 - sum / most_)) * 2) / 2;
      if (y != before) out += fmt::format("H{}V{}", tenths(x), tenths(y));
      before = y;
      ++x;
    }
    return out + fmt::format("H{}V{}z", tenths(kWidth - kRight), tenths(top_ + height_));
  }
  bool any(size_t kind) const {
    return std::any_of(columns_.begin(), columns_.end(), [&](const auto& bytes) { return bytes[kind] > 0; });
  }

 private:
  double top_, height_, most_;
  std::vector<std::array<int64_t, kObjectKinds + 1>> columns_;
};

std::string kind_name(size_t kind) {
  return std::string(kind < kObjectKinds ? name_of(static_cast<ObjectKind>(kind)) : "workspace");
}

std::string pass_name(const RoundPass& pass) {
  return pass.phase == Phase::Update ? "update" : fmt::format("{} {}", name_of(pass.phase), pass.round);
}

class Picture {
 public:
  Picture(const Program& program, const Plan& plan, std::span<const Interval> timeline)
      : program_(program), plan_(plan), timeline_(timeline) {
    for (const Interval& t : timeline) scale_.end_ns = std::max(scale_.end_ns, t.end_ns);
  }

  std::string draw(std::string_view subtitle) {
    svg_.text({kLeft, 26}, "One training step: " + time_text(scale_.end_ns), {.size = 16, .bold = true});
    svg_.text({kLeft, 45}, subtitle, {.size = 11, .fill = ink("muted")});
    passes();
    for (const Lane lane : plan_.lanes) {
      switch (plan_.lanes[lane].kind()) {
        case LaneKind::Copy:
          copies(lane);
          break;
        case LaneKind::Network:
          network(lane);
          break;
        case LaneKind::Compute:
          compute(lane);
          break;
      }
    }
    legend();
    const MemoryHistory history = memory_history(program_, plan_, timeline_);
    for (const Tier tier : plan_.lanes.tiers()) memory(tier, history[tier]);
    axis();
    svg_.set_height(y_);
    return svg_.str();
  }

 private:
  void label(double y, double height, std::string_view text) {
    svg_.text({kLeft - 8, y + height / 2 + 4}, text, {.size = 11, .anchor = Svg::Anchor::End});
  }

  void passes() {
    const std::vector<RoundPass> passes = round_passes(program_, plan_, timeline_);
    int32_t rows = 0;
    for (const RoundPass& p : passes) {
      const double x = scale_.x(p.start_ns), width = scale_.x(p.end_ns) - x,
                   y = y_ + p.row * (kPassHeight + kGap);
      const Ink colour = ink(name_of(p.phase));
      const std::string name = pass_name(p);
      svg_.rect(x, y, std::max(width - 1, 0.5), kPassHeight, {.fill = colour},
                fmt::format("{}: {} to {}", name, time_text(p.start_ns), time_text(p.end_ns)));
      if (text_width(name, 10) + 8 < width) {
        svg_.text({x + 5, y + kPassHeight - 5}, name,
                  {.size = 10, .fill = {ink(text_on(colour.light)).light, ink(text_on(colour.dark)).dark}});
      }
      rows = std::max(rows, p.row + 1);
    }
    if (rows > 0) label(y_, rows * (kPassHeight + kGap) - kGap, "rounds");
    y_ += rows * (kPassHeight + kGap);
    if (interleaved(passes)) {
      svg_.text({kLeft, y_ + 11},
                "A round's forward pass runs between the backward tasks of the round before it, so that the "
                "transfers of both share the links.",
                {.size = 11, .fill = ink("muted")});
      y_ += 18;
    }
    y_ += kBlock - kGap;
  }

  static constexpr std::array<std::string_view, 4> kPhaseNames{"forward", "backward", "update", "again"};
  size_t sort_of(const Action& run) const {
    return run.recompute ? 3 : static_cast<size_t>(program_.task(run.task).phase);
  }

  // A row per phase, so that those which take turns are seen beside one another.
  void compute(Lane lane) {
    for (size_t sort = 0; sort < kPhaseNames.size(); ++sort) {
      Row row(y_, kPhaseHeight, 1, scale_);
      bool any = false;
      for (size_t id = 0; id < plan_.actions.size(); ++id) {
        const Action& a = plan_.actions[id];
        if (a.lane == lane && sort_of(a) == sort)
          row.add(timeline_[id].start_ns, timeline_[id].end_ns, 0), any = true;
      }
      if (!any) continue;
      row.draw(
          svg_, [&](size_t) { return kPhaseNames[sort]; }, [&](size_t) { return ink(kPhaseNames[sort]); });
      label(y_, kPhaseHeight, kPhaseNames[sort]);
      y_ += kPhaseHeight + kGap;
    }
    waits();
    y_ += kBlock - kGap;
  }

  void waits() {
    constexpr std::array<std::string_view, kStallCauses> kInks{"stall-load", "stall-store", "stall-device",
                                                               "stall-nothing"};
    Row row(y_, kPhaseHeight, kStallCauses, scale_);
    for (const Stall& s : stalls_of(plan_, timeline_)) {
      double at = s.begin_ns;
      for (size_t c = 0; c < kStallCauses; at += s.ns[c++]) {
        if (s.ns[c] > 0) row.add(at, at + s.ns[c], c);
      }
    }
    row.draw(
        svg_, [](size_t c) { return name_of(static_cast<StallCause>(c)); },
        [&](size_t c) { return ink(kInks[c]); });
    label(y_, kPhaseHeight, "waiting");
    y_ += kPhaseHeight + kGap;
  }

  // Exchanges with other processes, in the colours of phases.
  void network(Lane lane) {
    Row row(y_, kCopyHeight, kPhaseNames.size(), scale_);
    for (size_t id = 0; id < plan_.actions.size(); ++id) {
      const Action& a = plan_.actions[id];
      if (a.lane == lane) row.add(timeline_[id].start_ns, timeline_[id].end_ns, sort_of(a));
    }
    row.draw(
        svg_, [](size_t sort) { return kPhaseNames[sort]; },
        [](size_t sort) { return ink(kPhaseNames[sort]); });
    label(y_, kCopyHeight, name_of(plan_.lanes[lane]));
    y_ += kCopyHeight + kGap;
  }

  void copies(Lane lane) {
    Row row(y_, kCopyHeight, kObjectKinds, scale_);
    for (size_t id = 0; id < plan_.actions.size(); ++id) {
      const Action& a = plan_.actions[id];
      if (a.lane != lane) continue;
      const auto kind = static_cast<size_t>(program_.object(a.object).kind);
      row.add(timeline_[id].start_ns, timeline_[id].end_ns, kind);
      seen_[kind] = true;
    }
    row.draw(svg_, kind_name, [](size_t kind) { return ink(kind_name(kind)); });
    label(y_, kCopyHeight, name_of(plan_.lanes[lane]));
    y_ += kCopyHeight + kGap;
  }

  // The kinds that the memory and the copies have in common; room is left here and filled when all are known.
  void legend() {
    legend_y_ = y_ + 8;
    y_ += 26;
  }
  void fill_legend() {
    double x = kLeft;
    for (size_t kind = 0; kind < seen_.size(); ++kind) {
      if (!seen_[kind]) continue;
      std::string name = kind_name(kind);
      const Ink colour = ink(name);
      // Kinds of one colour are named together.
      while (kind + 1 < seen_.size() && ink(kind_name(kind + 1)) == colour) {
        if (seen_[++kind]) name += ", " + kind_name(kind);
      }
      svg_.rect(x, legend_y_, 10, 10, {.fill = colour});
      svg_.text({x + 14, legend_y_ + 9}, name, {.size = 11});
      x += 30 + text_width(name, 11);
    }
  }

  void memory(Tier tier, const std::vector<MemoryPoint>& history) {
    int64_t peak = 0;
    for (const MemoryPoint& p : history) peak = std::max(peak, p.total());
    const int64_t arena = plan_.arenas[tier].bytes;
    const double most = double(std::max({arena, peak, int64_t{1}}));
    svg_.text({kLeft, y_ + 12},
              fmt::format("{} memory: at most {} in use, of {} reserved", name_of(tier), format_bytes(peak),
                          format_bytes(arena)),
              {.size = 11, .fill = ink("muted")});
    const double top = y_ + 18, height = tier.is_device() ? kDeviceHeight : kHostHeight;
    svg_.rect(kLeft, top, kWidth - kLeft - kRight, height, {.fill = ink("track")});
    const Areas areas(history, top, height, most, scale_);
    for (size_t kind = kObjectKinds + 1; kind-- > 0;) {
      if (!areas.any(kind)) continue;
      seen_[kind] = true;
      svg_.path(areas.path(kind), ink(kind_name(kind)));
    }
    for (const Tick& t : byte_ticks(most, tier.is_device() ? 5 : 3)) {
      const double y = top + height * (1 - t.at / most);
      svg_.line({kLeft, y}, {kWidth - kRight, y},
                {.stroke = ink("card"), .stroke_width = 0.7, .opacity = 0.6});
      svg_.text({kLeft - 8, y + 4}, t.label, {.size = 11, .anchor = Svg::Anchor::End});
    }
    y_ = top + height + kBlock;
  }

  void axis() {
    fill_legend();
    y_ -= kBlock;
    for (const Tick& t : time_ticks(scale_.end_ns, 10)) {
      const double x = scale_.x(t.at), half = text_width(t.label, 11) / 2;
      svg_.line({x, y_}, {x, y_ + 4}, {.stroke = ink("muted")});
      svg_.text({std::min(x, kWidth - 4 - half), y_ + 18}, t.label,
                {.size = 11, .anchor = Svg::Anchor::Middle});
    }
    y_ += 30;
  }

  const Program& program_;
  const Plan& plan_;
  std::span<const Interval> timeline_;
  Scale scale_{1};
  Svg svg_{kWidth, 0, "One training step: lanes and memory over time"};
  double y_ = kTop, legend_y_ = 0;
  std::array<bool, kObjectKinds + 1> seen_{};  // kinds of memory
};

}  // namespace

std::string timeline_svg(const Program& program, const Plan& plan, std::span<const Interval> timeline,
                         std::string_view subtitle) {
  return Picture(program, plan, timeline).draw(subtitle);
}

}  // namespace sluice::core
