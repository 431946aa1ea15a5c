// SPDX-License-Identifier: Apache-2.0
#include "setup/kept_plans.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "plan/store.h"
#include "search/coarse_search.h"
#include "setup/fields.h"
#include "setup/machine.h"

namespace sluice::core {
namespace {

// Whether what was made for a process that holds `made_for_bytes` on the host beside its arenas is good for
// this one, which holds no more, and hardly less. Where it is not, another search is nothing to speak of:
// NotFound.
Status good_for(int64_t made_for_bytes, const BytesByTier& held_bytes, const Profile& profile) {
  if (made_for_bytes >= held_bytes[kHost] && made_for_bytes <= profile.overhead_bytes[kHost] + kOverheadGrain)
    return {};
  return error(ErrorKind::NotFound, "it is for a process of {} bytes", made_for_bytes);
}

// Words of a plan reach terminals and pages.
bool plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Whether the plan fits the caps beside a step's plan of so many actions, as far as that is not proved by
// verify().
Status check(const Plan& plan, int64_t actions, const BytesByTier& caps, const Profile& profile) {
  if (plan.machine != profile.name || plan.alignment != profile.alignment || !(plan.lanes == profile.lanes()))
    return error("it is for another machine, {}", plain(plan.machine) ? plan.machine : "without a name");
  SLUICE_TRY(within_caps(plan, profile, caps, actions));
  if (!plain(plan.policy)) return error("its words are none");
  return {};
}

// The settings that a search varies, with the most that it may ask of each.
template <class AnyPolicy, class F>
void visit_settings(AnyPolicy& p, F&& field) {
  field("reserve", p.reserve, 1.0);
  field("again_weight", p.again_weight, 1e3);
  field("lag", p.lag, 1e3);
  field("under_way", p.under_way, 1e3);
  field("device_share", p.device_share, 1.0);
  field("host_share", p.host_share, 1.0);
}

nlohmann::json as_json(const KnownSettings& settings) {
  nlohmann::json found = nlohmann::json::array();
  for (const FoundSettings& f : settings.found) {
    nlohmann::json one = {{"step_ns", f.step_ns},
                          {"pinned_bytes", f.policy.pinned_bytes},
                          {"overlap", f.policy.overlap},
                          {"rule", int(f.policy.rule)}};
    visit_settings(f.policy, [&](const char* name, double value, double) { one[name] = value; });
    found.push_back(std::move(one));
  }
  return {{"subject", settings.subject}, {"brief", settings.brief}, {"found", std::move(found)}};
}

// A plan made by them is proved like any other, whatever they say.
Result<std::shared_ptr<const KnownSettings>> settings_in(const nlohmann::json& json) {
  constexpr int64_t kMostPinned = int64_t{1} << 50;
  const auto has = [](const nlohmann::json& object, const char* name, auto is) {
    return object.is_object() && object.contains(name) && (object[name].*is)();
  };
  using Json = nlohmann::json;
  const auto strange = [] { return error("its settings are none"); };
  if (!has(json, "subject", &Json::is_number_unsigned) || !has(json, "brief", &Json::is_boolean) ||
      !has(json, "found", &Json::is_array))
    return strange();
  auto out = std::make_shared<KnownSettings>(KnownSettings{json["subject"], json["brief"], {}});
  for (const Json& one : json["found"]) {
    FoundSettings f{};
    Policy& p = f.policy;
    bool good = has(one, "overlap", &Json::is_boolean) && has(one, "rule", &Json::is_number_unsigned) &&
                has(one, "step_ns", &Json::is_number) && has(one, "pinned_bytes", &Json::is_number_unsigned);
    if (!good || one["pinned_bytes"].get<int64_t>() > kMostPinned ||
        one["rule"].get<uint64_t>() > uint64_t(SaveRule::Prices))
      return strange();
    p.overlap = one["overlap"];
    p.rule = SaveRule(one["rule"].get<uint8_t>());
    f.step_ns = one["step_ns"];
    p.pinned_bytes = one["pinned_bytes"];
    visit_settings(p, [&](const char* name, double& value, double most) {
      good = good && has(one, name, &Json::is_number);
      if (good) value = one[name];
      good = good && value >= 0 && value <= most;
    });
    if (!good || !(f.step_ns > 0) || !std::isfinite(f.step_ns)) return strange();
    out->found.push_back(f);
  }
  return std::shared_ptr<const KnownSettings>(std::move(out));
}

std::string bytes_of(int64_t number) {
  std::string bytes(sizeof(number), 0);
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

Result<int64_t> take_number(std::string_view& rest) {
  int64_t number = 0;
  if (rest.size() < sizeof(number)) return error("it is cut short");
  std::memcpy(&number, rest.data(), sizeof(number));
  rest.remove_prefix(sizeof(number));
  return number;
}

}  // namespace

// The host memory of the process when these were made, and every plan with its length before it.
std::string plans_as_bytes(const Stages& stages, const Profile& profile) {
  std::string all = bytes_of(profile.overhead_bytes[kHost]);
  for_each_stage(stages, [&](const Stage& s) {
    const std::string bytes = to_bytes(s.plan);
    all.reserve(all.size() + sizeof(int64_t) + bytes.size());
    all += bytes_of(int64_t(bytes.size()));
    all += bytes;
  });
  return all;
}

Result<std::vector<Plan>> plans_in(std::string_view bytes, const Stages& stages, const Question& q,
                                   const Profile& profile) {
  SLUICE_ASSIGN(const int64_t host_overhead_bytes, take_number(bytes));
  SLUICE_TRY(good_for(host_overhead_bytes, q.held_bytes, profile));
  Profile made_for = profile;
  made_for.overhead_bytes[kHost] = host_overhead_bytes;
  std::vector<Plan> plans;
  Status status;
  const auto take = [&](const Stage& s) -> Status {
    if (s.optional && bytes.empty()) return {};
    SLUICE_ASSIGN(const int64_t size, take_number(bytes));
    if (size < 0 || uint64_t(size) > bytes.size()) return error("it is cut short");
    SLUICE_ASSIGN(Plan plan, plan_from_bytes(bytes.substr(0, size_t(size))));
    bytes.remove_prefix(size_t(size));
    SLUICE_TRY(check(plan, int64_t((plans.empty() ? plan : plans.front()).actions.size()), q.caps, made_for));
    SLUICE_TRY(verify(s.model.program, plan, cost_of(s.model.program, profile).workspace_bytes));
    plans.push_back(std::move(plan));
    const auto plan_of = [&](const Stage& other) -> const Plan& {
      return plans[&other == &stages.main ? 0 : size_t(&other - stages.beside.data()) + 1];
    };
    return &s == &stages.main ? Status() : verify_beside(stages, s, plan_of);
  };
  for_each_stage(stages, [&](const Stage& s) {
    if (status.ok()) status = take(s);
  });
  SLUICE_TRY(status);
  if (!bytes.empty()) return error("{} bytes of it are too many", bytes.size());
  return plans;
}

Result<ShapeChoice> shape_in(std::string_view text, const Question& q, const Profile& profile) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return error("it is no JSON object");
  ShapeChoice choice;
  Status read;
  const auto take = [&](const char* name, auto& value) {
    using Field = std::remove_reference_t<decltype(value)>;
    const auto it = json.find(name);
    bool fits = it != json.end();
    if constexpr (std::same_as<Field, bool>) fits = fits && it->is_boolean();
    if constexpr (std::same_as<Field, int64_t>) {
      fits = fits && it->is_number_integer() &&
             !(it->is_number_unsigned() && it->template get<uint64_t>() > INT64_MAX);
    }
    if constexpr (std::same_as<Field, double>) fits = fits && it->is_number();
    if constexpr (std::same_as<Field, std::string>) fits = fits && it->is_string();
    if (fits) {
      it->get_to(value);
    } else if (read.ok()) {
      read = error("{} is missing or of another type", name);
    }
  };
  int64_t host_overhead_bytes = 0;
  take("host_overhead_bytes", host_overhead_bytes);
  visit_fields(choice.shape, take);
  take("late_moments", choice.late_moments);
  take("least_bound", choice.least_bound);
  take("why", choice.why);
  SLUICE_TRY(read);
  if (!(choice.least_bound > 0 && choice.least_bound <= 1)) return error("its bound is none");
  SLUICE_TRY(good_for(host_overhead_bytes, q.held_bytes, profile));
  const StepShape& s = choice.shape;
  const Cut& r = q.cut;
  SLUICE_TRY(validate(s));
  if (s.seq_len != r.seq_len || s.tokens() != r.tokens_per_step || s.packed != r.packed) {
    return error("it is a step of {} tokens in sequences of {}", s.tokens(), s.seq_len);
  }
  const std::pair<int64_t, int64_t> given[] = {{r.chunk_tokens, s.chunk_tokens},
                                               {r.rounds, s.rounds},
                                               {r.first_round_chunks, s.chunks_in(0)},
                                               {std::min(r.head_tokens, s.chunk_tokens), s.head_tokens}};
  for (const auto& [asked, is] : given) {
    if (asked != 0 && asked != is) return error("it is not what was asked for: {}", core::to_text(s));
  }
  if (!plain(choice.why)) return error("its words are none");
  // The search for its plan begins with what was tried for it, or the plan would depend on what was kept.
  if (json.contains("settings")) {
    SLUICE_ASSIGN(choice.settings, settings_in(json["settings"]));
  }
  return choice;
}

std::string shape_as_text(const ShapeChoice& choice, const Profile& profile) {
  nlohmann::json json = {{"host_overhead_bytes", profile.overhead_bytes[kHost]},
                         {"late_moments", choice.late_moments},
                         {"least_bound", choice.least_bound},
                         {"why", choice.why}};
  visit_fields(choice.shape, [&](const char* name, const auto& value) { json[name] = value; });
  if (choice.settings != nullptr) json["settings"] = as_json(*choice.settings);
  return json.dump(1) + "\n";
}

}  // namespace sluice::core
