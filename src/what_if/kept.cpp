// SPDX-License-Identifier: Apache-2.0
#include "what_if/kept.h"

#include <nlohmann/json.hpp>

#include "config/files/load_config.h"
#include "model/families/families.h"
#include "setup/fields.h"

namespace sluice::core {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostKept = 4096;  // files of a kilobyte

SealedRequest in_full(std::string kind, RunConfig config, const Machine& machine, const StepSpec& step) {
  SealedRequest request(std::move(kind));
  request.add("made by", made_by());
  request.add("model", to_text(step.model)).add("names", to_json(step.model));
  request.add("packed", step.cut.packed);
  for (const auto& [name, window, rows] : step.between)
    request.add("between", name).add("window", window).add("rows", rows);
  config.model = {};  // was said
  request.add("config", inputs_text(std::move(config)));
  request.add("backend", machine.backend->name).add("made from", machine.made_from);
  request.add("devices", machine.devices()).add("processes", machine.processes);
  request.add("bucket_bytes", machine.bucket_bytes).add("has card", machine.card.has_value());
  visit_fields(machine.profile, [&](std::string_view name, const auto& value) { request.add(name, value); });
  return request;
}

// Every number of an outlook by its name.
template <class AnyOutlook, class F>
void visit_numbers(AnyOutlook& o, F&& number) {
  number("tokens_per_s", o.speed.tokens_per_s), number("model_tflops", o.speed.model_tflops),
      number("hardware_tflops", o.speed.hardware_tflops), number("mfu", o.speed.mfu),
      number("hfu", o.speed.hfu);
  number("step_ns", o.step_ns), number("lower_bound_ns", o.lower_bound_ns);
}

}  // namespace

std::string to_kept(bool found) {
  return found ? "yes" : "no";
}

std::optional<bool> kept_bool(std::string_view text) {
  return text == "yes" ? std::optional(true) : text == "no" ? std::optional(false) : std::nullopt;
}

std::string to_kept(const Outlook& found) {
  Json json;
  if (found.refusal) {
    json["refusal"] = found.refusal->message;
    if (const auto& shortage = found.refusal->shortage) {
      Json& kept = json["shortage"] = {
          {"tier", shortage->tier},
          {"given", shortage->given_bytes},
          {"both", shortage->in_both_tiers},
          {"more_host", shortage->more_host_helps}};
      if (shortage->need_bytes) kept["need"] = *shortage->need_bytes;
    }
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  visit_numbers(found, [&](const char* name, double value) { json[name] = value; });
  visit_fields(found.shape,
               [&](const char* name, const auto& value) { json["shape"][name] = int64_t(value); });
  for (const Tier tier : found.bytes.tiers()) json["bytes"].push_back(found.bytes[tier]);
  json["binds"] = found.binds;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Outlook> kept_outlook(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  Outlook o;
  if (json.contains("refusal")) {
    if (!json["refusal"].is_string()) return std::nullopt;
    o.refusal = Error{json["refusal"].get<std::string>(), ErrorKind::DoesNotFit};
    if (!json.contains("shortage")) return o;
    const Json& kept = json["shortage"];
    const Json tier = kept.value("tier", Json()), given = kept.value("given", Json()),
               need = kept.value("need", Json()), both = kept.value("both", Json()),
               more_host = kept.value("more_host", Json());
    if (!tier.is_string() || !given.is_number_integer() || !both.is_boolean() || !more_host.is_boolean() ||
        !(need.is_null() || need.is_number_integer()))
      return std::nullopt;
    o.refusal->shortage = {tier.get<std::string>(), given.get<int64_t>(), std::nullopt, both.get<bool>(),
                           more_host.get<bool>()};
    if (!need.is_null()) o.refusal->shortage->need_bytes = need.get<int64_t>();
    return o;
  }
  bool whole = true;
  const auto take = [&](const Json& from, const char* name, auto& value) {
    using Field = std::remove_reference_t<decltype(value)>;
    const auto it = from.is_object() ? from.find(name) : from.end();
    constexpr bool kReal = std::is_floating_point_v<Field>;
    const bool fits =
        from.is_object() && it != from.end() && (kReal ? it->is_number() : it->is_number_integer());
    if (fits) value = static_cast<Field>(it->template get<std::conditional_t<kReal, double, int64_t>>());
    whole = whole && fits;
  };
  visit_numbers(o, [&](const char* name, double& value) { take(json, name, value); });
  const Json shape = json.value("shape", Json()), bytes = json.value("bytes", Json()),
             binds = json.value("binds", Json());
  visit_fields(o.shape, [&](const char* name, auto& value) { take(shape, name, value); });
  if (!whole || !bytes.is_array() || bytes.size() <= Tier::kFar || bytes.size() > Tier::kCount ||
      !binds.is_string() || !validate(o.shape).ok())
    return std::nullopt;
  size_t i = 0;
  for (const Tier tier : tiers_of(bytes.size() - Tier::kFar)) {
    if (!bytes[i].is_number_integer()) return std::nullopt;
    o.bytes[tier] = bytes[i++].get<int64_t>();
  }
  o.binds = binds.get<std::string>();
  return o;
}

template <class Answer>
KeptAnswer<Answer>::KeptAnswer(std::string kind, const RunConfig& config, const Machine& machine,
                               const StepSpec& step, const std::filesystem::path& folder)
    : request_(std::string()) {
  if (folder.empty() || machine.traits().runs_models || !config.checkpoint().empty() || made_by().empty())
    return;
  request_ = in_full(std::move(kind), config, machine, step);
  cache_.emplace(folder, kMostKept);
}

template <class Answer>
std::optional<Answer> KeptAnswer<Answer>::find() const {
  if (!cache_) return std::nullopt;
  const auto text = cache_->find(request_);
  if (!text.ok()) return std::nullopt;
  if constexpr (std::is_same_v<Answer, bool>) {
    return kept_bool(*text);
  } else {
    return kept_outlook(*text);
  }
}

template <class Answer>
void KeptAnswer<Answer>::keep(const Answer& found) const {
  if (cache_) cache_->keep(request_, to_kept(found));
}

template class KeptAnswer<Outlook>;
template class KeptAnswer<bool>;

}  // namespace sluice::core
