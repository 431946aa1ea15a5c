// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hash.h"
#include "bench/attention.h"

namespace sluice::core {
namespace {

// Calls f(key, field) for every field of one way to attention.
template <class AnyTimes, class F>
void visit_attention(const std::string& prefix, AnyTimes& t, F&& f) {
  f(prefix + "_status", t.status), f(prefix + "_message", t.message);
  f(prefix + "_forward_s", t.forward.mean), f(prefix + "_forward_s_deviation", t.forward.deviation);
  f(prefix + "_backward_s", t.backward.mean), f(prefix + "_backward_s_deviation", t.backward.deviation);
  f(prefix + "_kept_bytes", t.kept_bytes), f(prefix + "_peak_bytes", t.peak_bytes);
  f(prefix + "_products_s", t.products_s), f(prefix + "_softmax_s", t.softmax_s);
}

template <class AnyResult, class F>
void visit_attention(AnyResult& r, F&& f) {
  f("inputs", r.inputs);
  f("batch", r.cell.rows), f("seq_len", r.cell.length), f("head_dim", r.cell.head_dim);
  visit_attention("fused", r.fused, f);
  visit_attention("naive", r.naive, f);
  f("machine", r.machine), f("sluice", r.sluice);
}

constexpr std::pair<const char*, double AttentionResult::*> kCompared[] = {
    {"difference", &AttentionResult::difference}, {"largest", &AttentionResult::largest}};

}  // namespace

nlohmann::ordered_json to_json(const AttentionResult& r) {
  nlohmann::ordered_json out;
  visit_attention(r, [&](const std::string& key, const auto& value) { out[key] = value; });
  out["compute"] = name_of(r.cell.dtype);
  for (const auto& [key, field] : kCompared) out[key] = r.*field;  // NaN becomes null
  return out;
}

std::optional<AttentionResult> attention_of(const nlohmann::json& json) {
  AttentionResult r;
  try {
    visit_attention(r, [&](const std::string& key, auto& value) { json.at(key).get_to(value); });
    const auto dtype = parse_dtype(json.at("compute").get<std::string>());
    if (!dtype.ok()) return std::nullopt;
    r.cell.dtype = *dtype;
    for (const auto& [key, field] : kCompared) {
      const nlohmann::json& value = json.at(key);
      r.*field = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    }
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  return r;
}

std::string name_of(const AttentionCell& c) {
  return fmt::format("{} x {}, D {}, {}", c.rows, c.length, c.head_dim, name_of(c.dtype));
}

std::string inputs_of(const AttentionCell& c, const Machine& machine, const BenchOptions& options) {
  Hash hash;
  hash.add(name_of(c)).add(machine.profile.name).add(machine.backend->name);
  hash.add(options.steps).add(options.warm_up);
  return fmt::format("{:016x}", hash.value());
}

}  // namespace sluice::core
