// SPDX-License-Identifier: Apache-2.0
#include "run/plan_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/hash.h"
#include "io/file.h"
#include "plan/store.h"
#include "run/fields.h"

namespace sluice::core {
namespace {

// A planner that was changed makes other plans. 0: unknown, then nothing is kept.
uint64_t hash_of_this_program() {
  static const uint64_t hash = [] {
    const auto bytes = read_file("/proc/self/exe");
    return bytes.ok() ? Hash().add(*bytes).value() : 0;
  }();
  return hash;
}

class Key {
 public:
  Key() { hash_.add(hash_of_this_program()); }

  template <class... T>
  Key& add(const T&... values) {
    (one(values), ...);
    return *this;
  }
  std::string text() const { return fmt::format("{:016x}", hash_.value()); }

 private:
  void one(double value) { hash_.add(std::bit_cast<uint64_t>(value)); }
  void one(float value) { one(double{value}); }
  void one(const std::string& value) { hash_.add(value); }
  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void one(T value) { hash_.add(value); }

  Hash hash_;
};

void add_bytes(Key& key, const BytesByTier& bytes) {
  for (const Tier tier : kTiers) key.add(bytes[tier]);
}

void add_profile(Key& key, const Profile& profile) {
  visit_fields(profile, [&](const char*, const auto& value) { key.add(value); });
}

std::string name_of(const StageRequest& r, const Profile& profile, const Stages& stages) {
  Key key;
  add_profile(key, profile);
  add_bytes(key, r.caps);
  key.add(r.quick);
  for_each_stage(stages, [&](const Stage& s) {
    const TaskCosts costs = cost_of(s.model.program, profile);
    key.add(s.model.program.hash());
    for (const double ns : costs.ns) key.add(ns);
    for (const int64_t bytes : costs.workspace_bytes) key.add(bytes);
  });
  return "plans-" + key.text();
}

std::string name_of(const ShapeSubject& subject, const ShapeRequest& r, const Profile& profile) {
  Key key;
  add_profile(key, profile);
  for (const auto& [op, ns] : std::map(profile.measured_ns.begin(), profile.measured_ns.end()))
    key.add(op, ns);
  // Workspaces depend on how the backend was asked to work: those of one sequence in one piece tell.
  const StepShape whole{r.seq_len, r.seq_len, 1, 1, r.seq_len, r.packed};
  const Program program = subject.program(whole, false);
  for (const Op& op : distinct_ops(program)) key.add(profile.cost(op).workspace_bytes);
  key.add(program.hash(), subject.may_be_late);
  key.add(r.seq_len, r.tokens_per_step, r.packed, r.chunk_tokens, r.rounds, r.first_round_chunks,
          r.head_tokens, r.least);
  add_bytes(key, r.caps);
  return "shape-" + key.text() + ".json";
}

}  // namespace

void PlanCache::write(const std::filesystem::path& name, std::string_view content) const {
  if (hash_of_this_program() == 0 || !make_directories(folder_).ok() ||
      !write_file(folder_ / name, content).ok())
    return;
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    files.emplace_back(entry.last_write_time(ignored), entry.path());
  }
  if (files.size() <= most_) return;
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i < files.size() - most_; ++i) std::filesystem::remove(files[i].second, ignored);
}

bool PlanCache::find(const StageRequest& request, const Profile& profile, Stages& stages) const {
  const auto bytes = read_file(folder_ / name_of(request, profile, stages));
  if (!bytes.ok()) return false;
  // Each plan with its length before it.
  std::vector<Plan> plans;
  std::string_view rest = *bytes;
  bool good = true;
  for_each_stage(stages, [&](const Stage& s) {
    uint64_t size = 0;
    if (!good || rest.size() < sizeof(size)) return void(good = false);
    std::memcpy(&size, rest.data(), sizeof(size));
    rest.remove_prefix(sizeof(size));
    auto plan = plan_from_bytes(rest.substr(0, size));
    good = size <= rest.size() && plan.ok() && plan->program_hash == s.model.program.hash() &&
           verify(s.model.program, *plan, cost_of(s.model.program, profile).workspace_bytes).ok();
    if (!good) return;
    rest.remove_prefix(size);
    plans.push_back(std::move(*plan));
  });
  if (!good || !rest.empty()) return false;
  size_t i = 0;
  for_each_stage(stages, [&](Stage& s) { s.plan = std::move(plans[i++]); });
  return true;
}

void PlanCache::keep(const StageRequest& request, const Profile& profile, const Stages& stages) const {
  std::string all;
  for_each_stage(stages, [&](const Stage& s) {
    const std::string bytes = to_bytes(s.plan);
    const uint64_t size = bytes.size();
    all.append(reinterpret_cast<const char*>(&size), sizeof(size));
    all += bytes;
  });
  write(name_of(request, profile, stages), all);
}

std::optional<ShapeChoice> PlanCache::find(const ShapeSubject& subject, const ShapeRequest& request,
                                           const Profile& profile) const {
  const auto text = read_file(folder_ / name_of(subject, request, profile));
  if (!text.ok()) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(*text);
    ShapeChoice choice;
    visit_fields(choice.shape, [&](const char* name, auto& value) { json.at(name).get_to(value); });
    choice.late_moments = json.at("late_moments");
    choice.why = json.at("why");
    if (!validate(choice.shape).ok()) return std::nullopt;
    return choice;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void PlanCache::keep(const ShapeSubject& subject, const ShapeRequest& request, const Profile& profile,
                     const ShapeChoice& choice) const {
  nlohmann::json json = {{"late_moments", choice.late_moments}, {"why", choice.why}};
  visit_fields(choice.shape, [&](const char* name, const auto& value) { json[name] = value; });
  write(name_of(subject, request, profile), json.dump(1) + "\n");
}

}  // namespace sluice::core
