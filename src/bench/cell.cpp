// SPDX-License-Identifier: Apache-2.0
#include "bench/cell.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/hash.h"
#include "config/files/load_config.h"
#include "estimate/subject.h"
#include "model/families/families.h"
#include "setup/resolve.h"

namespace sluice::core {

Result<ModelSpec> bench_model(std::string_view name) {
  SLUICE_ASSIGN(Subject subject, parse_subject(name));
  if (!subject.spec)
    return error("model '{}': no steps are made of it; it needs layers with attention", name);
  return std::move(*subject.spec);
}

Result<BenchCell> make_cell(const std::string& model, int64_t seq_len, int64_t batch,
                            const std::string& compute, const std::vector<std::string>& settings) {
  BenchCell cell{.model = model, .seq_len = seq_len, .batch = batch, .compute = compute};
  SLUICE_ASSIGN(cell.spec, bench_model(model));
  // The update stands at the end, where it can be told from the passes.
  std::vector<std::string> all{"train.compute=" + compute, fmt::format("train.seq_len={}", seq_len),
                               fmt::format("train.tokens_per_step={}", seq_len * batch),
                               "train.deferred_update=false", "sample.tokens=0"};
  all.insert(all.end(), settings.begin(), settings.end());
  SLUICE_ASSIGN(cell.config, load_config("", all));
  SLUICE_TRY(resolve_training(cell.config, cell.spec));
  return cell;
}

Machine machine_for(const BenchCell& cell, Machine machine) {
  if (machine.takes_f32 || cell.config.train.compute != DType::F32) return machine;
  machine.takes_f32 = true;
  const Card* card = card_called(machine.profile.name);
  machine.profile.peak_flops = card != nullptr ? card->peak.f32 : 0;
  if (card == nullptr || card->peak.bf16 == 0) return machine;
  Rates& rates = machine.profile.rates;
  for (double* rate : {&rates.product_flops, &rates.attention_forward_flops, &rates.attention_backward_flops})
    *rate *= card->peak.f32 / card->peak.bf16;
  return machine;
}

Measured measured_of(const std::vector<double>& values) {
  const double n = double(values.size()), mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, n > 1 ? std::sqrt(squares / (n - 1)) : 0};
}

std::string_view name_of(OpClass c) {
  switch (c) {
    case OpClass::Products:
      return "products";
    case OpClass::Attention:
      return "attention";
    case OpClass::Norms:
      return "norms";
    case OpClass::Elementwise:
      return "elementwise";
    case OpClass::Loss:
      return "head and loss";
    case OpClass::Optimizer:
      return "optimizer";
  }
  return "";
}

OpClass class_of(const Task& task) {
  const std::string_view name = name_of(task.op);
  if (task.phase == Phase::Update || name == "sum_sq" || name == "clip_scale") return OpClass::Optimizer;
  if (name.find("norm") != name.npos) return OpClass::Norms;
  if (name == "head_loss") return OpClass::Loss;
  switch (work(task.op).unit) {
    case Unit::Product:
    case Unit::NarrowProduct:
    case Unit::GroupedProduct:
      return OpClass::Products;
    case Unit::StateProduct:
    case Unit::AttentionForward:
    case Unit::AttentionBackward:
      return OpClass::Attention;
    case Unit::Memory:
      break;
  }
  return OpClass::Elementwise;
}

std::string inputs_of(const BenchCell& cell, const Machine& machine, const BenchOptions& options) {
  RunConfig config = cell.config;
  config.run = {};
  Hash hash;
  hash.add(inputs_text(config)).add(to_json(cell.spec)).add(cell.model).add(machine.profile.name);
  hash.add(machine.backend->name).add(options.steps).add(options.warm_up);
  return fmt::format("{:016x}", hash.value());
}

}  // namespace sluice::core
