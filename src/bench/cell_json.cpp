// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "bench/cell.h"

namespace sluice::core {
namespace {

// Calls f(key, field) for every field of a result that is a number or text.
template <class AnyResult, class F>
void visit(AnyResult& r, F&& f) {
  f("model", r.model), f("compute", r.compute), f("inputs", r.inputs);
  f("seq_len", r.seq_len), f("batch", r.batch);
  f("status", r.status), f("message", r.message);
  f("params", r.params), f("shape", r.shape), f("steps", r.steps);
  const auto measured = [&](const std::string& key, auto& m) {
    f(key + "_s", m.mean), f(key + "_s_deviation", m.deviation);
  };
  for (size_t p = 0; p < kPhases; ++p) measured(std::string(name_of(Phase(p))), r.phases[p]);
  measured("others", r.others), measured("step", r.step);
  f("predicted_s", r.predicted_s);
  f("tokens_per_s", r.tokens_per_s), f("model_flops", r.model_flops), f("peak_flops", r.peak_flops);
  for (size_t p = 0; p < kPhases; ++p) f(std::string(name_of(Phase(p))) + "_peak_bytes", r.peak_bytes[p]);
  f("predicted_device_bytes", r.predicted_device_bytes), f("device_bytes", r.device_bytes);
  f("predicted_host_bytes", r.predicted_host_bytes), f("host_bytes", r.host_bytes);
  f("forward_only_bytes", r.forward_only_bytes), f("copies_s", r.copies_s);
  f("machine", r.machine), f("sluice", r.sluice), f("notes", r.notes);
}

template <class AnyTime, class F>
void visit_time(AnyTime& t, F&& f) {
  f("name", t.name), f("count", t.count), f("s", t.s), f("forward_s", t.forward_s);
}

template <class AnySample, class F>
void visit_sample(AnySample& m, F&& f) {
  f("at_s", m.at_s), f("params", m.params), f("grads", m.grads), f("state", m.state);
  f("activations", m.activations), f("others", m.others);
}

}  // namespace

nlohmann::ordered_json to_json(const CellResult& r) {
  nlohmann::ordered_json out;
  visit(r, [&](const std::string& key, const auto& value) { out[key] = value; });
  const auto times = [](const auto& list) {
    auto rows = nlohmann::ordered_json::array();
    for (const OpTime& t : list) {
      nlohmann::ordered_json row;
      visit_time(t, [&](const std::string& key, const auto& value) { row[key] = value; });
      rows.push_back(std::move(row));
    }
    return rows;
  };
  out["classes"] = times(r.classes);
  out["top"] = times(r.top);
  out["memory"] = nlohmann::ordered_json::array();
  for (const MemorySample& m : r.memory) {
    nlohmann::ordered_json row;
    visit_sample(m, [&](const std::string& key, const auto& value) { row[key] = value; });
    out["memory"].push_back(std::move(row));
  }
  return out;
}

std::optional<CellResult> cell_of(const nlohmann::json& json) {
  CellResult r;
  try {
    const auto read_from = [](const nlohmann::json& from) {
      return [&from](const std::string& key, auto& value) { from.at(key).get_to(value); };
    };
    visit(r, read_from(json));
    const nlohmann::json& classes = json.at("classes");
    if (classes.size() != r.classes.size()) return std::nullopt;
    for (size_t c = 0; c < r.classes.size(); ++c) visit_time(r.classes[c], read_from(classes[c]));
    for (const nlohmann::json& row : json.at("top")) visit_time(r.top.emplace_back(), read_from(row));
    for (const nlohmann::json& row : json.at("memory")) visit_sample(r.memory.emplace_back(), read_from(row));
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  return r;
}

}  // namespace sluice::core
