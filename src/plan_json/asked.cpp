// SPDX-License-Identifier: Apache-2.0
#include "plan_json/asked.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "describe/describe.h"
#include "model/families/families.h"
#include "search/builder.h"
#include "setup/decide.h"

namespace sluice::core {
namespace {

using nlohmann::json;

// Says how far the search is.
class Asked final : public PlanHost {
 public:
  Asked(int threads, Observer& observer) : observer_(observer), by_(threads) {}

  Result<ShapeChoice> shape(const ShapeSubject& subject, const Question& question,
                            const Profile& profile) override {
    ShapeSubject heard = subject;
    heard.program = [&](const StepShape& shape, bool late_moments) {
      Program program = subject.program(shape, late_moments);
      // Other threads of the search are not the caller's.
      if (by_ == 1) observer_.progress({"looking at shapes", ++seen_});
      return program;
    };
    return PlanHost::shape(heard, question, profile);
  }
  void planning() override { observer_.progress({"planning"}); }

 private:
  Observer& observer_;
  const int by_;
  int64_t seen_ = 0;
};

// One device, or the rings of several that take the least.
std::vector<std::optional<Placement>> placements(const Program& program, const Profile& profile) {
  if (profile.devices() == 1) return {std::nullopt};
  const Pieces pieces = pieces_of(program);
  const TaskCosts costs = cost_of(program, profile);
  const std::vector<double> even(profile.devices(), 1 / double(profile.devices()));
  std::vector<std::optional<Placement>> out;
  for (const RingLayout& layout : ring_layouts(program, pieces, profile.devices())) {
    if (layout.by_rounds) continue;
    out.emplace_back(ring(program, pieces, costs, even, layout))->rule = RingRule::AsOne;
  }
  return out;
}

double ns_of(const Program& program, const Profile& profile) {
  const std::vector<double> ns = cost_of(program, profile).ns;
  return std::accumulate(ns.begin(), ns.end(), 0.0);
}

Result<Formula> count(const Question& question, const Profile& profile) {
  const ShapeSubject subject = subject_of(question, profile);
  const Cut& asked = question.cut;
  const int64_t replicas = question.replicas.here;
  const auto cut = [&](int64_t chunk, int64_t rounds) {
    const int64_t head = asked.head_tokens > 0 ? std::min(chunk, asked.head_tokens) : chunk;
    StepShape s{asked.seq_len, chunk, 1, rounds, head, asked.packed};
    s.chunks_per_round = s.chunks_per_sequence();
    s.replicas = replicas;
    return s;
  };
  const int64_t given = asked.chunk_tokens, chunk = given > 0 ? given : asked.seq_len,
                units = asked.tokens_per_step / std::max(chunk, asked.seq_len);
  if (units == 0) return error("shape.chunk_tokens = {}: a step has {} tokens", given, asked.tokens_per_step);
  SLUICE_TRY(validate(cut(chunk, 1)));
  const StepShape two = cut(chunk, units > 1 ? 2 : 1);
  const Program rounds = subject.program(two, false);

  Formula out;
  out.tokens = asked.tokens_per_step * replicas;
  const double devices = double(profile.devices());
  if (given > 0 && units > 1) {
    // Rounds are alike, but for what is made once.
    const double once_ns = ns_of(subject.program(cut(chunk, 1), false), profile);
    out.compute_ns = (once_ns + double(units - 1) * (ns_of(rounds, profile) - once_ns)) / devices;
  } else {
    // Larger chunks take less time for a token.
    const Program whole = subject.program(cut(given > 0 ? given : asked.tokens_per_step, 1), false);
    out.compute_ns = ns_of(whole, profile) / devices;
  }
  const double beyond = double(persistent_bytes(rounds)) - devices * double(question.caps[kDevice]);
  if (beyond > 0) out.loading_ns = profile.load_ns(int64_t(beyond / devices));
  out.least_ns = std::max(out.compute_ns, out.loading_ns);
  PlanRequest limits;
  limits.caps = question.caps;
  if (subject.room_between_steps) limits.boundary_bytes = subject.room_between_steps(two);
  out.device_bytes = out.all_bytes = kUnlimited;
  for (std::optional<Placement>& placement : placements(rounds, profile)) {
    limits.placement = std::move(placement);
    const PlanBuilder plans(rounds, profile, limits);
    out.device_bytes = std::min(out.device_bytes, plans.cap_for(kDevice, plans.least_on_device()));
    out.all_bytes = std::min(out.all_bytes, plans.cap_for(kHost, plans.least_in_all_tiers()) +
                                                int64_t(devices) * plans.cap_for(kDevice, 0));
  }
  return out;
}

Status check_no_files(const RunConfig& c) {
  const std::pair<const char*, bool> named[] = {{"model.path", !c.model.path.empty()},
                                                {"model.config", !c.model.config.empty()},
                                                {"model.weights", !c.model.weights.empty()},
                                                {"data.paths", !c.data.paths.empty()},
                                                {"data.heldout_paths", !c.data.heldout_paths.empty()},
                                                {"run.resume", !c.run.resume.empty()}};
  for (const auto& [key, given] : named) {
    if (given) return error("{}: no file is opened here", key);
  }
  return {};
}

Result<Machine> machine_of(const AskedPlan& asked, const RunConfig& config) {
  SLUICE_ASSIGN(Card card, asked.machine_file.empty()
                               ? find_card(asked.machine)
                               : parse_card(asked.machine_file, asked.machine_file_name));
  SLUICE_ASSIGN(card, changed(std::move(card), config.machine));
  return simulated_machine(config, std::move(card));
}

Error no_such(std::string_view key, std::string_view wanted) {
  return error("{}: must be {}", key, wanted);
}

Result<Prepared> undecided_of(const AskedPlan& asked) {
  SLUICE_ASSIGN(RunConfig config, typed_config(asked.settings));
  SLUICE_TRY(check_no_files(config));
  SLUICE_ASSIGN(Machine machine, machine_of(asked, config));
  SLUICE_ASSIGN(ModelSpec model, asked.model_config.empty() ? model_preset(config.model.preset)
                                                            : parse_model_config(asked.model_config));
  StepSpec step = step_without_data(config, std::move(model));
  return undecided(std::move(config), std::move(machine), std::move(step));
}

}  // namespace

Result<AskedPlan> parse_asked(std::string_view text) {
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) return error("what is asked for must be a JSON object");
  AskedPlan asked;
  for (const auto& [key, value] : root.items()) {
    if (std::string* const field = key == "machine"             ? &asked.machine
                                   : key == "machine_file"      ? &asked.machine_file
                                   : key == "machine_file_name" ? &asked.machine_file_name
                                                                : nullptr) {
      if (!value.is_string()) return no_such(key, "text");
      *field = value.get<std::string>();
    } else if (key == "model") {
      if (!value.is_string() && !value.is_object())
        return no_such(key, "a config.json, as text or as an object");
      asked.model_config = value.is_string() ? value.get<std::string>() : value.dump();
    } else if (key == "settings") {
      if (!value.is_array()) return no_such(key, "a list of \"key=value\"");
      for (const json& setting : value) {
        if (!setting.is_string()) return no_such(key, "a list of \"key=value\"");
        asked.settings.push_back(setting.get<std::string>());
      }
    } else if (key == "threads") {
      constexpr int64_t kMost = 1024;
      if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > kMost)
        return no_such(key, fmt::format("a number from 1 to {}", kMost));
      asked.threads = value.get<int>();
    } else if (key == "quick") {
      if (!value.is_boolean()) return no_such(key, "true or false");
      asked.quick = value.get<bool>();
    } else {
      return error(
          "unknown key '{}'; known are machine, machine_file, machine_file_name, model, settings, threads, "
          "quick",
          key);
    }
  }
  return asked;
}

Result<Prepared> plan_asked(const AskedPlan& asked, Observer& observer, const std::stop_token& stop) {
  Asked here(asked.threads, observer);
  SLUICE_ASSIGN(Prepared p, undecided_of(asked));
  // As plans that are kept, one that was searched for says what more memory is worth.
  SLUICE_TRY(decide(
      p, {.threads = asked.threads, .quick = asked.quick, .weigh_memory = !asked.quick, .stop = stop}, here));
  return p;
}

Result<Formula> by_formula(const AskedPlan& asked) {
  SLUICE_ASSIGN(Prepared p, undecided_of(asked));
  SLUICE_ASSIGN(const Question question, question_of(p));
  return count(question, p.machine.profile);
}

std::string printed_of(const Prepared& p) {
  return fmt::format("{}\n{}\n", describe_run(p), to_page_of_text(report_of(p).summary));
}

std::string json_of(const Prepared& p) {
  return to_json(report_of(p), p.stages.main.model.program, p.stages.main.plan);
}

}  // namespace sluice::core
