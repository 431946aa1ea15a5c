// SPDX-License-Identifier: Apache-2.0
// Speed, hours and money.
#include "estimate/sections.h"
#include "model/flops.h"

namespace sluice::core {
namespace {

// FLOPs of a token that a measured speed is multiplied by.
struct Arithmetic {
  const char *key, *what, *share_key, *share;
  double flops;
  const char* formula;
  double rule_flops;
  const char* rule;
};

void add_measured(const Basis& b, Section& s) {
  const EstimateInput& in = b.in;
  if (in.tokens_per_s == 0 && in.step_s == 0) return;
  const double speed = in.step_s > 0 ? b.step_tokens() / in.step_s : in.tokens_per_s;
  const double each = speed / double(in.devices), n = b.active;
  s.facts.push_back({"tokens_per_s", "tokens/s, measured", speed, Form::Number,
                     in.step_s > 0 ? "T x accumulation x replicas / seconds of a step" : "as given"});
  Arithmetic kinds[] = {{"model_flops", "of the model, each device", "mfu", "MFU", 6 * n,
                         "3 x 2 P x tokens/s / devices", 6 * n, "6 N x tokens/s / devices"},
                        {"hardware_flops", "of the hardware, layers recomputed", "hfu", "HFU", 8 * n,
                         "4 x 2 P x tokens/s / devices", 8 * n, "8 N x tokens/s / devices"}};
  if (b.spec != nullptr) {
    kinds[0].flops = model_flops_per_token(*b.spec, in.batch.seq_len);
    kinds[0].formula = "FLOPs of a token, as MFU counts, x tokens/s / devices";
    kinds[1].flops = b.training_flops() + b.again_flops() + b.training.again_flops / b.tokens();
    kinds[1].formula = "with what is computed again, attention's scores too";
  }
  for (const Arithmetic& a : kinds) {
    const auto add = [&](const char* key, const char* what, Form form, double unit, const char* formula) {
      Fact fact{key, what, each * a.flops / unit, form, formula};
      if (b.spec != nullptr) fact.rule = Rule{each * a.rule_flops / unit, a.rule};
      s.facts.push_back(std::move(fact));
    };
    add(a.key, a.what, Form::FlopsPerSecond, 1, a.formula);
    if (in.device) add(a.share_key, a.share, Form::Share, in.device->peak_flops, "the same / C");
  }
}

void add_cost(const Basis& b, Section& s) {
  const EstimateInput& in = b.in;
  if (in.tokens == 0 || !in.device) return;
  Table table{"cost",
              fmt::format("{} tokens on {} x {} at MFU {}", to_text(in.tokens, Form::Count), in.devices,
                          in.device->name, to_text(in.mfu, Form::Share)),
              "what",
              {{"gpu_hours", "device hours", Form::Hours},
               {"hours", "hours", Form::Hours},
               {"usd", "cost", Form::Usd},
               {"rule_gpu_hours", "by the rule", Form::Hours},
               {"rule_usd", "cost", Form::Usd}}};
  const auto price = [&](double hours) {
    return in.price > 0 ? std::optional(hours * in.price) : std::nullopt;
  };
  const auto hours_of = [&](double per_token) {
    return per_token * in.tokens / (in.device->peak_flops * in.mfu) / 3600;
  };
  const auto add = [&](const char* name, double per_token, double rule_per_token, const char* rule) {
    const double hours = hours_of(per_token), by_rule = hours_of(rule_per_token);
    table.rows.push_back(
        {name, {hours, hours / double(in.devices), price(hours), by_rule, price(by_rule)}, rule});
  };
  const double n = b.active;
  const bool exact = b.spec != nullptr;
  add("evaluate", exact ? b.forward.flops / b.tokens() : 2 * n, 2 * n, "2 N");
  add("train", exact ? b.training_flops() : 6 * n, 6 * n, "6 N");
  add("train, layers recomputed", exact ? b.training_flops() + b.again_flops() : 8 * n, 8 * n, "8 N");
  const double speed = in.step_s > 0 ? b.step_tokens() / in.step_s : in.tokens_per_s;
  if (speed > 0) {
    const double hours = in.tokens / speed / 3600;
    table.rows.push_back(
        {"at the measured speed", {hours * double(in.devices), hours, price(hours * double(in.devices))}});
  }
  table.formulas = {"FLOPs of a token x tokens / (C x MFU); MFU is given by --mfu, and full unless it is."};
  s.tables.push_back(std::move(table));
}

}  // namespace

std::optional<Section> time_section(const Basis& b) {
  Section s{"time", "Time and cost"};
  if (b.in.device) {
    const double c = b.in.device->peak_flops, n = b.active;
    const auto add = [&](const char* key, const char* what, double per_token, double rule,
                         const char* formula) {
      Fact fact{key, what, per_token / c, Form::Seconds, "FLOPs of a token / C"};
      if (b.spec != nullptr) fact.rule = Rule{rule * n / c, formula};
      s.facts.push_back(std::move(fact));
    };
    const bool exact = b.spec != nullptr;
    add("inference", "a token, inference, full MFU", exact ? b.forward.flops / b.tokens() : 2 * n, 2,
        "2 N / C");
    add("training", "training", exact ? b.training_flops() : 6 * n, 6, "6 N / C");
    add("training_recomputed", "training, layers recomputed",
        exact ? b.training_flops() + b.again_flops() : 8 * n, 8, "8 N / C");
  }
  add_measured(b, s);
  add_cost(b, s);
  if (s.facts.empty() && s.tables.empty()) return std::nullopt;
  return s;
}

}  // namespace sluice::core
