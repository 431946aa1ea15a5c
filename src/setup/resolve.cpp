// SPDX-License-Identifier: Apache-2.0
#include "setup/resolve.h"

#include <algorithm>
#include <charconv>

#include "model/weights.h"
#include "ops/cast.h"
#include "ops/packed.h"

namespace sluice::core {

Result<Numerics> resolve_numerics(const RunConfig& config, const Machine& machine,
                                  std::optional<MasterWeights> auto_master) {
  const std::optional<MasterWeights> master = config.train.master ? config.train.master : auto_master;
  Numerics n;
  n.compute = config.train.compute.value_or(machine.fast_bf16 ? DType::BF16 : DType::F32);
  const bool fp8 = n.compute == DType::F8E4M3;  // of products, see resolve_formats()
  if (fp8) n.compute = DType::BF16;
  const bool bf16 = n.compute == DType::BF16;
  const ComputeCapability capability = machine.card ? machine.card->compute_capability : ComputeCapability();
  if (fp8 && capability.known() && !multiplies_float8(capability))
    return error(
        "train.compute = fp8: {} has compute capability {}, and products in 8 bits need 8.9 or more; set "
        "train.compute = bf16",
        machine.profile.name, capability.to_text());
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

namespace {

constexpr std::string_view kAllLinear = "all-linear";

// "pattern=number" of each.
Result<std::vector<Adapters::Other>> others_of(std::string_view key, const std::vector<std::string>& list) {
  std::vector<Adapters::Other> out;
  for (const std::string& text : list) {
    const size_t equals = std::min(text.rfind('='), text.size());
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [read, code] = std::from_chars(text.data() + std::min(equals + 1, text.size()), end, value);
    if (equals == 0 || code != std::errc() || read != end || !(value > 0))
      return error("{}: '{}'; expected a pattern, = and a positive number, such as down_proj=32", key, text);
    out.push_back({text.substr(0, equals), value});
  }
  return out;
}

Result<std::vector<int64_t>> tokens_of(std::string_view key, const std::vector<std::string>& list) {
  std::vector<int64_t> out;
  for (const std::string& text : list) {
    const char* const end = text.data() + text.size();
    const auto [read, code] = std::from_chars(text.data(), end, out.emplace_back());
    if (code != std::errc() || read != end)
      return error("{}: '{}' is no id of a token, nor the text of one that tokenizer.json of the model adds",
                   key, text);
  }
  return out;
}

}  // namespace

Status resolve_adapters(const RunConfig& config, ModelSpec& model) {
  const auto& a = config.adapter;
  model.adapters = {};
  if (a.rank == 0) {
    const std::pair<const char*, bool> of_adapters[] = {{"alpha", a.alpha.has_value()},
                                                        {"rslora", a.rslora},
                                                        {"dora", a.dora},
                                                        {"targets", !a.targets.empty()},
                                                        {"exclude", !a.exclude.empty()},
                                                        {"rank_pattern", !a.rank_pattern.empty()},
                                                        {"alpha_pattern", !a.alpha_pattern.empty()},
                                                        {"modules_to_save", !a.modules_to_save.empty()},
                                                        {"tokens", !a.tokens.empty()},
                                                        {"head_tokens", !a.head_tokens.empty()},
                                                        {"decay", a.decay},
                                                        {"dropout", a.dropout > 0}};
    for (const auto& [key, set] : of_adapters) {
      if (set) return error("adapter.{}: there is no adapter, as adapter.rank = 0; 16 is usual", key);
    }
    return {};
  }
  if (!config.train.freeze.empty())
    return error(
        "train.freeze: adapters are trained (adapter.rank = {}), and all else is frozen anyway; "
        "adapter.modules_to_save names what is not, adapter.exclude what has no adapter",
        a.rank);
  Adapters out{.rank = a.rank,
               .alpha = a.alpha.value_or(2 * double(a.rank)),
               .rslora = a.rslora,
               .targets = a.targets,
               .exclude = a.exclude,
               .whole = a.modules_to_save,
               .decay = a.decay,
               .dropout = a.dropout,
               .dora = a.dora};
  if (const auto all = std::find(a.targets.begin(), a.targets.end(), kAllLinear); all != a.targets.end()) {
    if (a.targets.size() > 1)
      return error("adapter.targets: {} stands alone; adapter.exclude takes some away", kAllLinear);
    out.targets.clear();
  }
  SLUICE_ASSIGN(out.ranks, others_of("adapter.rank_pattern", a.rank_pattern));
  SLUICE_ASSIGN(out.alphas, others_of("adapter.alpha_pattern", a.alpha_pattern));
  SLUICE_ASSIGN(out.tokens, tokens_of("adapter.tokens", a.tokens));
  SLUICE_ASSIGN(out.head_tokens, tokens_of("adapter.head_tokens", a.head_tokens));
  return adapt(model, std::move(out), "adapter");
}

void resolve_formats(const RunConfig& config, ModelSpec& model) {
  struct Named {
    std::string_view name;
    NumberFormat format;
  };
  constexpr Named kNamed[] = {{"bf16", DType::BF16},
                              {"fp8", {DType::F8E4M3, NumberFormat::kRow, DType::F32}},
                              {"mxfp4", kMxfp4},
                              {"nf4", kNf4}};
  const auto named = std::ranges::find(kNamed, config.model.base_format, &Named::name);
  model.base.reset();
  if (named != std::end(kNamed)) model.base = named->format;
  // Checkpoints have what train.freeze names, as numbers: the folder's codes would not come back.
  const std::optional<NumberFormat>& there = model.folder_format;
  if (there && config.train.freeze.empty() && (!model.base || model.base->type == there->type))
    model.base = there;
  model.products = {};
  if (config.train.compute == DType::F8E4M3)
    model.products = {kFloat8, kFloat8, config.train.fp8_gradients == "e5m2" ? kWideFloat8 : kFloat8};
  model.narrow_head = config.train.compute == DType::F8E4M3 && config.train.fp8_head;
}

Status resolve_training(const RunConfig& config, ModelSpec& model) {
  SLUICE_TRY(resolve_adapters(config, model));
  const double z = config.train.router_z_loss;
  if (z != 0 && !model.has_experts())
    return error("train.router_z_loss = {}: this {} model has no routers", z, model.family);
  model.router_z = z;
  SLUICE_TRY(freeze(model, config.train.freeze, "train.freeze"));
  resolve_formats(config, model);
  const bool fp8 = model.products.w.has_value();
  if (fp8 && model.base)
    return error(
        "train.compute = fp8: model.base_format = {} keeps the base in codes, with other scales than "
        "products "
        "of 8 bits read; set one of the two to bf16",
        config.model.base_format);
  if (fp8 && !std::ranges::any_of(weights_of(model), may_be_narrow))
    return error(
        "train.compute = fp8: no dense product of this model has rows and columns of a multiple of 16; set "
        "train.compute = bf16");
  if (model.narrow_head && !(is_narrow(model.vocab) && is_narrow(model.dim)))
    return error("train.fp8_head = true: the head has {} rows of {}, and both have to be multiples of 16",
                 model.vocab, model.dim);
  const bool packed = model.base && std::ranges::any_of(weights_of(model), is_packed);
  const bool asked = config.model.base_format != "auto" && config.model.base_format != "bf16";
  if (asked && !packed)
    return error(
        "model.base_format = {}: no matrix of a layer stays as it is and takes it; adapters (adapter.rank) "
        "or train.freeze leave some, and rows of a multiple of {} elements take it",
        config.model.base_format, model.base->block == NumberFormat::kRow ? 8 : model.base->padded(1));
  if (asked && !config.train.freeze.empty() && model.base->type == DType::NF4)
    return error(
        "model.base_format = {}: checkpoints have what train.freeze names, in bf16, which has not all of its "
        "values; fp8 and mxfp4 come back, and adapters (adapter.rank) leave the base where it is",
        config.model.base_format);
  return {};
}

namespace {

// Says what of this model a GPU's kernels for exact results lack; empty: nothing.
std::string lacking_on_gpu(const ModelSpec& model, const Numerics& numerics) {
  if (numerics.compute != DType::BF16)
    return fmt::format("train.compute = {}: a GPU samples in bf16", name_of(numerics.compute));
  if (model.adapters.any()) return "adapter.rank > 0: products with adapters are the library's on a GPU";
  const auto sinks = [](const LayerSpec& l) { return l.attention() != nullptr && l.attention()->sinks; };
  if (std::ranges::any_of(model.layers, sinks))
    return fmt::format("this {} model has sinks of attention, which training on a GPU adds to rounded sums",
                       model.family);
  if (model.vocab % 8 != 0)
    return fmt::format("a vocabulary of {} is not a multiple of 8, as a GPU's product with the head needs it",
                       model.vocab);
  return {};
}

}  // namespace

Status check_exact(const RunConfig& config, const Machine& machine, const ModelSpec& model,
                   const Numerics& numerics) {
  if (!config.run.exact) return {};
  constexpr std::string_view kKey = "run.exact = true";
  if (model.products.w)
    return error("{}: train.compute = fp8 scales rows in training, and texts are sampled in bf16", kKey);
  if (std::ranges::any_of(model.layers, [](const LayerSpec& l) { return l.delta() != nullptr; }))
    return error(
        "{}: this {} model has gated delta rules, which training computes by blocks of tokens, and sampling "
        "by tokens",
        kKey, model.family);
  if (model.adapters.dropout > 0)
    return error("{}: adapter.dropout = {} leaves values out in training alone; set it to 0", kKey,
                 model.adapters.dropout);
  const int64_t chunk = config.shape.chunk_tokens;
  if (chunk > 0 && chunk < config.train.seq_len)
    return error(
        "{}: shape.chunk_tokens = {} cuts sequences of {} into pieces, whose attention is merged in another "
        "order; allowed are multiples of the sequence",
        kKey, chunk, config.train.seq_len);
  if (machine.traits().shares_cores) return {};
  const std::string lacking = lacking_on_gpu(model, numerics);
  return lacking.empty() ? Status() : error("{}: {}", kKey, lacking);
}

OptimizerConfig resolve_optimizer(const RunConfig& config, const Machine& machine) {
  OptimizerConfig o;
  o.optimizer = &config.optimizer();
  o.values = config.optimizer_values();
  o.clip_norm = float(config.train.clip_norm);
  // Where texts are sampled before every step, an update can wait for none: its gradients would lie where
  // weights and caches can be.
  const bool samples = config.samples_answers() && config.rollout.num_iterations == 1;
  o.deferred = config.train.deferred_update.value_or(!machine.traits().shares_cores && !samples);
  o.bucket_bytes = machine.bucket_bytes;
  if (config.run.shard_state) o.sharded = {machine.processes, machine.process};
  return o;
}

}  // namespace sluice::core
