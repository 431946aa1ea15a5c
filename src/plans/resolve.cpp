// SPDX-License-Identifier: Apache-2.0
#include "plans/resolve.h"

#include "model/weights.h"

namespace sluice::core {

Result<Numerics> resolve_numerics(const RunConfig& config, const Machine& machine,
                                  std::optional<MasterWeights> auto_master) {
  const std::optional<MasterWeights> master = config.train.master ? config.train.master : auto_master;
  Numerics n;
  n.compute = config.train.compute.value_or(machine.fast_bf16 ? DType::BF16 : DType::F32);
  const bool bf16 = n.compute == DType::BF16;
  if (!bf16 && !machine.takes_f32) {
    return error(
        "train.compute = {}: runs on {} compute in bf16 with fp32 sums. In f32 their products would leave "
        "the tensor cores and be some ten times as slow, and there are neither kernels for all ops nor "
        "rates to plan by; for f32 weights beside those in bf16 set train.master = on. sluice bench model "
        "--compute f32 measures steps in f32 on the GPU at hand",
        name_of(n.compute), machine.profile.name);
  }
  const bool compact = bf16 && machine.traits().compact_state;
  n.grad = config.train.grad.value_or(compact ? DType::BF16 : DType::F32);
  const MasterWeights asked = master.value_or(MasterWeights::Off);
  const DType beside = asked == MasterWeights::I8               ? DType::I8
                       : compact && asked == MasterWeights::Off ? DType::BF16
                                                                : DType::F32;
  n.state = config.train.state.value_or(beside);
  // Master weights go with state of as many bits; other state goes with stochastic rounding.
  n.master = master.value_or(bf16 && n.state == DType::F32 ? MasterWeights::F32 : MasterWeights::Off);
  n.stochastic = config.train.stochastic.value_or(bf16 && n.master == MasterWeights::Off);
  if (n.master != MasterWeights::Off && !bf16)
    return error("train.master = {}: it stands beside bf16 weights, and train.compute is f32{}",
                 name_of(n.master),
                 config.train.compute ? "" : ", which is fast here; set train.compute = bf16");
  if (n.master != MasterWeights::Off && n.state == DType::BF16)
    return error("train.master = {}: it goes with train.state = f32 or i8, not bf16", name_of(n.master));
  if (n.master == MasterWeights::I8 && n.stochastic)
    return error("train.stochastic = on: with train.master = i8 nothing is rounded by random numbers");
  SLUICE_TRY(validate(n));
  return n;
}

Status resolve_training(const RunConfig& config, ModelSpec& model) {
  const double z = config.train.router_z_loss;
  if (z != 0 && !model.has_experts())
    return error("train.router_z_loss = {}: this {} model has no routers", z, model.family);
  model.router_z = z;
  return freeze(model, config.train.freeze, "train.freeze");
}

OptimizerConfig resolve_optimizer(const RunConfig& config, const Machine& machine) {
  OptimizerConfig o;
  o.optimizer = &config.optimizer();
  o.values = config.optimizer_values();
  o.clip_norm = float(config.train.clip_norm);
  o.deferred = config.train.deferred_update.value_or(!machine.traits().shares_cores);
  o.bucket_bytes = machine.bucket_bytes;
  if (config.run.shard_state) o.sharded = {machine.processes, machine.process};
  return o;
}

}  // namespace sluice::core
