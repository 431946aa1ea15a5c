// SPDX-License-Identifier: Apache-2.0
#include "config/aliases.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>

#include "base/nearest.h"
#include "config/config.h"

namespace sluice::core {
namespace {

constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"lr", "train.learning_rate"},
    {"max_lr", "train.learning_rate"},
    {"peak_lr", "train.learning_rate"},
    {"min_lr", "train.min_learning_rate"},
    {"batch_size", "train.tokens_per_step"},
    {"train_batch_size", "train.tokens_per_step"},
    {"global_batch_size", "train.tokens_per_step"},
    {"micro_batch_size", "shape.chunk_tokens"},
    {"per_device_train_batch_size", "shape.chunk_tokens"},
    {"gradient_accumulation_steps", "shape.rounds"},
    {"grad_accum", "shape.rounds"},
    {"max_steps", "train.steps"},
    {"num_steps", "train.steps"},
    {"train_steps", "train.steps"},
    {"iters", "train.steps"},
    {"iterations", "train.steps"},
    {"max_iters", "train.steps"},
    {"num_train_epochs", "train.epochs"},
    {"lr_scheduler_type", "train.schedule"},
    {"lr_scheduler", "train.schedule"},
    {"context", "train.seq_len"},
    {"context_length", "train.seq_len"},
    {"block_size", "train.seq_len"},
    {"max_length", "train.seq_len"},
    {"max_seq_len", "train.seq_len"},
    {"max_seq_length", "train.seq_len"},
    {"sequence_len", "train.seq_len"},
    {"sequence_length", "train.seq_len"},
    {"n_ctx", "train.seq_len"},
    {"warmup", "train.warmup_steps"},
    {"warmup_ratio", "train.warmup_steps"},
    {"bf16", "train.compute"},
    {"fp16", "train.compute"},
    {"fp32", "train.compute"},
    {"tf32", "train.compute"},
    {"dtype", "train.compute"},
    {"torch_dtype", "train.compute"},
    {"precision", "train.compute"},
    {"mixed_precision", "train.compute"},
    {"grad_dtype", "train.grad"},
    {"state_dtype", "train.state"},
    {"master_weights", "train.master"},
    {"stochastic_rounding", "train.stochastic"},
    {"clip", "train.clip_norm"},
    {"grad_clip", "train.clip_norm"},
    {"gradient_clip", "train.clip_norm"},
    {"gradient_clipping", "train.clip_norm"},
    {"max_grad_norm", "train.clip_norm"},
    {"lora", "adapter.rank"},
    {"peft", "adapter.rank"},
    {"adapter", "adapter.rank"},
    {"r", "adapter.rank"},
    {"lora_r", "adapter.rank"},
    {"lora_rank", "adapter.rank"},
    {"lora_alpha", "adapter.alpha"},
    {"use_rslora", "adapter.rslora"},
    {"use_dora", "adapter.dora"},
    {"target_modules", "adapter.targets"},
    {"lora_target", "adapter.targets"},
    {"lora_target_modules", "adapter.targets"},
    {"exclude_modules", "adapter.exclude"},
    {"lora_modules_to_save", "adapter.modules_to_save"},
    {"lora_dropout", "adapter.dropout"},
    {"trainable_token_indices", "adapter.tokens"},
    {"adapter_name_or_path", "adapter.path"},
    {"lora_model_dir", "adapter.path"},
    {"frozen_parameters", "train.freeze"},
    {"unfrozen_parameters", "train.freeze"},
    {"optim", "train.optimizer"},
    {"wd", "train.weight_decay"},
    {"betas", "train.beta1"},
    {"adam_beta1", "train.beta1"},
    {"adam_beta2", "train.beta2"},
    {"adam_epsilon", "train.eps"},
    {"model_name", "model.path"},
    {"model_name_or_path", "model.path"},
    {"base_model", "model.path"},
    {"pretrained", "model.path"},
    {"checkpoint", "model.weights"},
    {"config_name", "model.config"},
    {"model_config", "model.config"},
    {"size", "model.preset"},
    {"model_size", "model.preset"},
    {"dataset", "data.paths"},
    {"datasets", "data.paths"},
    {"dataset_path", "data.paths"},
    {"train_file", "data.paths"},
    {"files", "data.paths"},
    {"val_split", "data.heldout"},
    {"validation_split", "data.heldout"},
    {"test_size", "data.heldout"},
    {"eval_file", "data.heldout_paths"},
    {"validation_file", "data.heldout_paths"},
    {"train_on_inputs", "data.learn"},
    {"assistant_only_loss", "data.learn"},
    {"completion_only_loss", "data.learn"},
    {"truncation", "data.long_documents"},
    {"packing", "data.mode"},
    {"sample_packing", "data.mode"},
    {"cache_dir", "data.cache"},
    {"eval_steps", "eval.every"},
    {"eval_interval", "eval.every"},
    {"eval_every", "eval.every"},
    {"save_steps", "run.checkpoint_every"},
    {"save_every", "run.checkpoint_every"},
    {"save_interval", "run.checkpoint_every"},
    {"checkpoint_interval", "run.checkpoint_every"},
    {"out_dir", "run.dir"},
    {"output", "run.dir"},
    {"output_dir", "run.dir"},
    {"run_dir", "run.dir"},
    {"save_dir", "run.dir"},
    {"resume_from", "run.resume"},
    {"resume_from_checkpoint", "run.resume"},
    {"gpu", "run.device"},
    {"gpu_id", "run.device"},
    {"device_id", "run.device"},
    {"num_threads", "run.threads"},
    {"num_workers", "run.threads"},
    {"vram", "memory.device"},
    {"gpu_memory", "memory.device"},
    {"gpu_mem", "memory.device"},
    {"device_mem", "memory.device"},
    {"device_memory", "memory.device"},
    {"ram", "memory.host"},
    {"cpu_memory", "memory.host"},
    {"cpu_mem", "memory.host"},
    {"host_mem", "memory.host"},
    {"host_memory", "memory.host"},
};

// The parts before and after the last dot.
std::pair<std::string, std::string> section_and_key(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return {"", std::string(name)};
  return {std::string(name.substr(0, dot)), std::string(name.substr(dot + 1))};
}

// As the keys are written.
std::string as_keys_are(std::string_view name) {
  std::string out(name);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](uint8_t c) { return c == '-' ? '_' : char(std::tolower(c)); });
  return out;
}

}  // namespace

std::span<const std::pair<std::string_view, std::string_view>> key_aliases() {
  return kAliases;
}

std::string key_meant_by(std::string_view typed) {
  const std::string name = as_keys_are(typed);
  const auto [section, last] = section_and_key(name);
  const auto* alias = std::find_if(std::begin(kAliases), std::end(kAliases),
                                   [&last = last](const auto& a) { return a.first == last; });
  if (alias != std::end(kAliases)) return std::string(alias->second);
  constexpr size_t kOtherSection = 2;  // letters that another section's key must be nearer
  std::string best;
  size_t least = SIZE_MAX;
  for (const KeyHelp& key : config_keys()) {
    const auto [key_section, key_last] = section_and_key(key.name);
    const size_t apart = edit_distance(last, key_last) + (key_section == section ? 0 : kOtherSection);
    const size_t distance = std::min(apart, edit_distance(name, key.name));
    if (distance < least) least = distance, best = key.name;
  }
  return similar(last, section_and_key(best).second) ? best : "";
}

}  // namespace sluice::core
