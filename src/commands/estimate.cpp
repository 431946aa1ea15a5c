// SPDX-License-Identifier: Apache-2.0
#include "estimate/estimate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "checkpoint/offered.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "commands/working.h"
#include "config/files/load_config.h"
#include "cost/card.h"
#include "io/file.h"
#include "io/model_folder.h"
#include "io/safetensors.h"
#include "run/prepare/checks.h"
#include "run/training/trial.h"
#include "setup/card_cap.h"
#include "setup/resolve.h"
#include "what_if/grid.h"
#include "what_if/planned.h"

namespace sluice::core {
namespace {

Result<Device> device_of(const EstimateRequest& request, const AskedCaps& caps) {
  SLUICE_ASSIGN(const RunConfig config, load_config("", request.settings));
  SLUICE_ASSIGN(const Card card, card_for(config, request.machine));
  const auto [format, peak] = card.peak.bf16 > 0  ? std::pair("bf16", card.peak.bf16)
                              : card.peak.f16 > 0 ? std::pair("f16", card.peak.f16)
                                                  : std::pair("f32", card.peak.f32);
  Device device{.name = card.name,
                .memory_bytes = double(card.memory_bytes),
                .peak_flops = peak,
                .peak_format = format,
                .memory_rate = card.memory_rate,
                .multiprocessors = card.multiprocessors,
                .overhead_bytes = double(card.held_bytes[kDevice])};
  if (!(peak > 0 && card.memory_rate > 0)) {
    return error("--machine {}: arithmetic needs peak_flops and memory.bytes_per_s", request.machine);
  }
  if (!caps.device.empty()) device.memory_bytes = double(caps.device.front());
  return device;
}

Result<EstimateInput> input_of(const EstimateRequest& request, const AskedCaps& caps) {
  EstimateInput in;
  SLUICE_ASSIGN(in.subject, parse_subject(request.model));
  for (const std::string& setting : request.settings) {
    if (request.machine.empty()) return error("--set {}: needs --machine", setting);
    if (!request.plan && !setting.starts_with("machine."))
      return error("--set {}: without --plan machine.KEY=VALUE is allowed", setting);
  }
  if (!request.machine.empty()) {
    SLUICE_ASSIGN(in.device, device_of(request, caps));
  } else if (!request.device_mem.empty()) {
    return error("--device-mem {}: needs --machine", request.device_mem);
  }
  if (!request.tokens.empty() && request.machine.empty())
    return error("--tokens {}: needs --machine, whose speed makes hours of them", request.tokens);
  if (request.price > 0 && (request.machine.empty() || (request.tokens.empty() && !request.plan)))
    return error("--price {}: needs --machine and --tokens, whose hours are paid for", request.price);
  if (!request.host_mem.empty() && !request.plan)
    return error("--host-mem {}: needs --plan", request.host_mem);
  if (!request.optimizer.empty()) {
    in.recipe = find_recipe(request.optimizer);
    if (in.recipe == nullptr) {
      return error("--optimizer {}: allowed are {}", request.optimizer, fmt::join(names().recipes, ", "));
    }
  }
  in.batch = {request.seq_len, request.batch};
  in.accumulate = request.accumulate;
  in.devices = request.devices, in.tp = request.tp, in.pp = request.pp;
  if (!request.tokens.empty()) {
    SLUICE_ASSIGN(in.tokens, parse_amount("--tokens", request.tokens));
  }
  in.price = request.price;
  in.mfu = request.mfu;
  in.tokens_per_s = request.tokens_per_s;
  in.step_s = request.step_s;
  if (!request.mesh.empty()) {
    SLUICE_ASSIGN(in.mesh, parse_mesh(request.mesh));
  }
  return in;
}

// Settings of a run by a recipe.
Result<std::vector<std::string>> settings_of(const Recipe& recipe) {
  if (!recipe.runs()) {
    std::vector<std::string_view> runs;
    for (const Recipe& r : recipes()) {
      if (r.runs()) runs.push_back(r.name);
    }
    return error("--optimizer {}: --plan needs one that Sluice runs: {}", recipe.name, fmt::join(runs, ", "));
  }
  const Numerics& n = recipe.numerics;
  return std::vector{fmt::format("train.optimizer={}", recipe.optimizer),
                     "train.compute=" + print(n.compute),
                     "train.grad=" + print(n.grad),
                     "train.state=" + print(n.state),
                     "train.master=" + print(n.master),
                     "train.stochastic=" + print(n.stochastic)};
}

struct Planning {
  PlannedModel asked;
  Machine machine;
  std::vector<int64_t> host_caps;
};

// Steps as they are asked for; of one sequence, which nobody would train with, those that compare takes.
Result<RunConfig> config_of(const EstimateRequest& r, const EstimateInput& in, const AskedCaps& caps) {
  const std::string model = "llama3-1b";
  const int64_t sequences = r.batch * r.accumulate * std::max<int64_t>(1, r.devices / (r.tp * r.pp));
  RunConfig config =
      on_devices(demo_config(model, r.seq_len, sequences > 1 ? sequences * r.seq_len : 0), int(in.devices));
  if (!caps.device.empty()) config.caps[kDevice] = caps.device.front();
  std::vector<std::string> settings{model_setting(model)}, recipe;
  if (!r.optimizer.empty()) {
    SLUICE_ASSIGN(recipe, settings_of(*in.recipe));
  }
  // Settings of an optimizer are those of the recipe's.
  for (const auto& more : std::vector{recipe, r.settings, recipe})
    settings.insert(settings.end(), more.begin(), more.end());
  return load_config("", settings, std::move(config));
}

Result<Planning> planning_of(const EstimateRequest& r, const EstimateInput& in, const AskedCaps& caps) {
  if (r.machine.empty()) return error("--plan: needs --machine");
  if (!in.subject.spec) return error("--plan: '{}' is no model that steps can be made of", r.model);
  if (in.tp * in.pp > 1) {
    return error(
        "--plan: --tp {} --pp {}: plans share the layers among devices by themselves; give --devices", in.tp,
        in.pp);
  }
  Planning p;
  SLUICE_ASSIGN(RunConfig config, config_of(r, in, caps));
  SLUICE_ASSIGN(p.machine, resolve_machine(config, r.machine));
  SLUICE_TRY(check_early(config, p.machine, *in.subject.spec));
  SLUICE_ASSIGN(const CapsOnMachine on_machine, caps_on(config, p.machine));
  p.host_caps = {least_host_cap(p.machine)};
  for (const int64_t cap : caps.host) {
    if (cap == kUnlimited) return error("--host-mem {}: --plan needs sizes", r.host_mem);
    if (cap > p.host_caps.front()) p.host_caps.push_back(cap);
  }
  p.asked = {*in.subject.spec, under(std::move(config), on_machine.caps), in.tokens, in.price};
  p.asked.model.freeze = p.asked.config.train.freeze;
  SLUICE_TRY(resolve_adapters(p.asked.config, p.asked.model));
  resolve_formats(p.asked.config, p.asked.model);
  return p;
}

Result<Section> planned(const Planning& p) {
  Working working("planning");
  // Nobody stops it: nothing is lost when the process is ended.
  const StudyWatch watch{
      .say = [&](const std::string& doing, int64_t done, int64_t total) { working.say(doing, done, total); }};
  SLUICE_ASSIGN(const std::vector<PlannedCase> cases, plan_cases(p.asked, p.machine, p.host_caps, watch));
  return planned_section(p.asked, p.machine, cases);
}

// The numbers that people look for first, from the sections that explain them.
Section summary_of(const Page& page) {
  struct First {
    std::string_view section, key;
    const char* what;  // empty: as there
  };
  constexpr First kFirst[] = {{"parameters", "all", "parameters"},
                              {"inference", "kv_per_token", "keys and values of a token"},
                              {"flops", "training", "FLOPs of a token in training"},
                              {"memory", "static", ""},
                              {"memory", "left", ""},
                              {"activations", "everything", "activations of a token, all kept"},
                              {"time", "training", "time of a token in training"},
                              {"roofline", "smallest_training_batch", ""}};
  Section out{"summary", "In short"};
  for (const auto& [section, key, what] : kFirst) {
    for (const Section& s : page.sections) {
      const auto fact = std::ranges::find(s.facts, key, &Fact::key);
      if (s.key != section || fact == s.facts.end()) continue;
      out.facts.push_back({fact->key, *what == 0 ? fact->what : what, fact->value, fact->form, s.title});
    }
  }
  for (const Section& s : page.sections) {
    const auto cost = std::ranges::find(s.tables, "cost", &Table::key);
    if (cost != s.tables.end()) out.tables.push_back(*cost);
  }
  for (Table& table : out.tables) table.formulas.clear();
  return out;
}

// Leaves those that are asked for.
Status keep_sections(const std::string& asked, Page& page) {
  SLUICE_ASSIGN(const std::vector<std::string> words, parse_words("--section", asked));
  std::vector<std::string> keys;
  for (const Section& s : page.sections) keys.push_back(s.key);
  for (const std::string& word : words) {
    if (std::ranges::find(keys, word) == keys.end())
      return error("--section {}: '{}' is no section of this page; it has {}", asked, word,
                   fmt::join(keys, ", "));
  }
  std::erase_if(page.sections,
                [&](const Section& s) { return std::ranges::find(words, s.key) == words.end(); });
  return {};
}

// A folder's weights are counted by its config.json: what else lies there is said.
Status check_weights_of(const std::string& named, ModelSpec& spec) {
  const std::filesystem::path folder = model_folder(named);
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return {};
  const auto files = TensorFiles::open(folder);
  if (!files.ok()) return {};
  const Status offered = check_offered(spec, *files, Unread::Drop, spec.notices);
  if (offered.ok()) return {};
  return error("{}; {} alone is estimated without them", offered.message(),
               (folder / "config.json").string());
}

Status run(const EstimateRequest& request) {
  SLUICE_ASSIGN(const AskedCaps caps, parse_caps(request.device_mem, request.host_mem, true));
  SLUICE_ASSIGN(EstimateInput in, input_of(request, caps));
  if (in.subject.spec) SLUICE_TRY(check_weights_of(request.model, *in.subject.spec));
  if (in.subject.spec) {
    for (const std::string& notice : in.subject.spec->notices) say(stderr, "warning: {}\n", notice);
  }
  SLUICE_ASSIGN(Page page, estimate(in));
  if (!request.section.empty()) {
    SLUICE_TRY(keep_sections(request.section, page));
  } else if (!request.json) {
    page.sections.insert(page.sections.begin(), summary_of(page));
  }
  const std::string formulas = to_text(page);
  if (request.plan) {
    SLUICE_ASSIGN(const Planning planning, planning_of(request, in, caps));
    // Plans take longer.
    if (!request.json) show_text(formulas);
    std::fflush(stdout);
    SLUICE_ASSIGN(Section section, planned(planning));
    page.sections.push_back(std::move(section));
    if (!request.json) show_text(to_text(page).substr(formulas.size()));
  } else if (!request.json) {
    show_text(formulas);
  }
  if (!request.html.empty()) SLUICE_TRY(write_file(request.html, to_html(page)));
  if (request.json) say("{}", to_json(page));
  if (!request.html.empty() && !request.json) say("\nsaved: {}\n", request.html);
  return {};
}

}  // namespace

Outcome estimate(const EstimateRequest& request) {
  return outcome(run(request));
}

}  // namespace sluice::core
