// SPDX-License-Identifier: Apache-2.0
#include "plan/store.h"

#include <cstring>

namespace sluice::core {
namespace {

constexpr std::string_view kFormat = "sluice plan 6";

// A plan's fields, in one order for both directions.
template <class Archive, class AnyLocation>
void location_fields(Archive& a, AnyLocation& x) {
  a(x.tier), a(x.offset);
}

template <class Archive, class AnyAction>
void action_fields(Archive& a, AnyAction& x) {
  a(x.kind), a(x.lane), a(x.recompute), a(x.task.value), a(x.object.value), a(x.first_address),
      a(x.address_count);
  location_fields(a, x.from), location_fields(a, x.to);
  a(x.workspace_offset), a(x.bytes), a(x.first_wait), a(x.wait_count);
  a(x.cost_ns), a(x.start_ns), a(x.end_ns);
}

template <class Archive, class AnyPlan>
void fields(Archive& a, AnyPlan& p) {
  a(p.program_hash), a(p.machine), a(p.lanes), a(p.alignment);
  a(p.arenas, [&](auto& arena) { a(arena.bytes), a(arena.boundary_offset); });
  a.sequence(p.actions, [&](auto& action) { action_fields(a, action); });
  a.sequence(p.addresses, a), a.sequence(p.waits, a);
  a.sequence(p.homes, [&](auto& home) { a(home); });
  a(p.speedup_with_more, a);
  a(p.makespan_ns), a(p.lower_bound_ns), a(p.policy);
}

class Writer {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const T& value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out.append(raw, sizeof(T));
  }
  void operator()(const std::string& text) {
    (*this)(text.size());
    out += text;
  }
  void operator()(Tier tier) { (*this)(tier.index()); }
  void operator()(Lane lane) { (*this)(lane.index()); }
  void operator()(const LaneTable& lanes) {
    sequence(lanes.ends(), [&](const LaneEnds& e) { (*this)(e.from), (*this)(e.to), (*this)(e.network); });
  }
  void operator()(const Home& home) {
    sequence(home.places(), [&](const Location& place) { location_fields(*this, place); });
  }
  template <class T, class F>
  void operator()(const ByTier<T>& values, F&& each) {
    (*this)(values.tiers().size());
    for (const Tier tier : values.tiers()) each(values[tier]);
  }
  template <class T, class F>
  void sequence(const std::vector<T>& values, F&& each) {
    (*this)(values.size());
    for (const T& value : values) each(value);
  }

  std::string out;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  void operator()(bool& value) {
    uint8_t raw = 0;
    (*this)(raw);
    if (raw > 1) fail();
    value = raw == 1;
  }
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(T& value) {
    const std::string_view raw = take(sizeof(T));
    if (!raw.empty()) std::memcpy(&value, raw.data(), sizeof(T));
  }
  void operator()(std::string& text) {
    size_t n = 0;
    (*this)(n);
    text = take(n);
  }
  void operator()(Tier& tier) { tier = Tier::of_index(index_below(Tier::kCount)); }
  void operator()(Lane& lane) { lane = Lane(index_below(LaneTable::kMost)); }
  void operator()(LaneTable& lanes) {
    std::vector<LaneEnds> ends;
    sequence(ends, [&](LaneEnds& e) { (*this)(e.from), (*this)(e.to), (*this)(e.network); });
    auto table = LaneTable::of(std::move(ends));
    if (!table.ok()) return fail();
    lanes = std::move(*table);
  }
  void operator()(Home& home) {
    std::vector<Location> places;
    sequence(places, [&](Location& place) { location_fields(*this, place); });
    for (const Location& place : places) home.set(place.tier, place.offset);
    // As it is written: every tier once, near ones first, and each somewhere.
    if (home.places() != places) fail();
  }
  template <class T, class F>
  void operator()(ByTier<T>& values, F&& each) {
    size_t n = 0;
    (*this)(n);
    if (n < Tier::kFar || n > Tier::kCount) return fail();
    for (const Tier tier : tiers_of(n - Tier::kFar)) each(values[tier]);
  }
  template <class T, class F>
  void sequence(std::vector<T>& values, F&& each) {
    size_t n = 0;
    (*this)(n);
    if (n > rest_.size()) fail();  // an element takes a byte or more
    for (size_t i = 0; i < n && !failed_; ++i) each(values.emplace_back());
  }

  bool complete() const { return !failed_ && rest_.empty(); }

 private:
  size_t index_below(size_t count) {
    size_t index = 0;
    (*this)(index);
    if (index < count) return index;
    fail();
    return 0;
  }
  std::string_view take(size_t n) {
    if (n > rest_.size()) fail();
    const std::string_view out = rest_.substr(0, failed_ ? 0 : n);
    rest_.remove_prefix(out.size());
    return out;
  }
  void fail() {
    failed_ = true;
    rest_ = {};
  }

  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace

std::string to_bytes(const Plan& plan) {
  Writer writer;
  constexpr size_t kOfAction = 136;  // about
  writer.out.reserve(kOfAction * plan.actions.size() + 8 * plan.addresses.size() + 4 * plan.waits.size() +
                     sizeof(Home) * plan.homes.size());
  writer.out = kFormat;
  fields(writer, plan);
  return std::move(writer.out);
}

Result<Plan> plan_from_bytes(std::string_view bytes) {
  if (!bytes.starts_with(kFormat)) return error("not a plan of this format (\"{}\")", kFormat);
  Plan plan;
  Reader reader(bytes.substr(kFormat.size()));
  fields(reader, plan);
  if (!reader.complete()) return error("the plan's bytes are cut short or too many");
  return plan;
}

}  // namespace sluice::core
