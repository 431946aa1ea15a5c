// SPDX-License-Identifier: Apache-2.0
#include "run/inputs/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "checkpoint/base_files.h"
#include "checkpoint/found_tensor.h"
#include "io/model_folder.h"
#include "model/families/families.h"
#include "run/inputs/paths.h"
#include "setup/learning_rate.h"
#include "setup/prepared.h"
#include "setup/resolve.h"

namespace sluice::core {

namespace {

// Without adapters.
Result<ModelSpec> resolve_base(const RunConfig& config) {
  if (config.model.config.empty()) return model_preset(config.model.preset);
  const std::string_view key = key_of_part(config, config.model.config, "model.config");
  SLUICE_TRY(check_input(config, key, config.model.config));
  const auto found = read_model_config(config.model.config);
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(config.model.config, ignored);
  if (!found.ok() && folder) return error(found.error().kind, "{} = {}", key, found.message());
  if (!found.ok()) return found.error();
  auto parsed = parse_model_config(found->text);
  if (!parsed.ok()) return error_at(found->path.string(), parsed.error());
  return parsed;
}

}  // namespace

Status expect_read(const std::vector<std::string>& settings, std::string_view command,
                   const std::vector<std::string_view>& read) {
  for (const std::string& text : settings) {
    const std::string_view key = std::string_view(text).substr(0, text.find('='));
    const auto reads = [&](std::string_view name) {
      return key == name || (name.ends_with('.') && key.starts_with(name));
    };
    if (std::none_of(read.begin(), read.end(), reads))
      return error("{}: {} goes by no such key; it does by {}", key, command, fmt::join(read, ", "));
  }
  return {};
}

std::vector<std::string_view> keys_read(std::vector<std::string_view> more) {
  std::vector<std::string_view> out{
      "memory.",           "model.",        "adapter.",    "machine.",  "run.backend",
      "run.device",        "run.devices",   "run.threads", "run.peer",  "run.instruction_set",
      "run.deterministic", "train.compute", "train.seed",  "data.cache"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::vector<std::string_view> keys_of_plans() {
  return {"memory.", "model.", "adapter.", "machine.", "train.",
          "shape.",  "eval.",  "sample.",  "run.",     "data.cache"};
}

Result<ModelSpec> resolve_model(const RunConfig& config) {
  SLUICE_ASSIGN(ModelSpec model, resolve_base(config));
  SLUICE_TRY(resolve_adapters(config, model));
  // Until something is to be trained nothing is.
  resolve_formats(config, model);
  if (model.base && !model.adapters.any()) model.freeze = {"*"};
  // Files that are not there are planned for as the configuration has them.
  std::error_code ignored;
  model.files_have = true;
  if (config.model.weights.empty() || !std::filesystem::exists(config.model.weights, ignored)) return model;
  const auto files = TensorFiles::open(config.model.weights);
  if (!files.ok()) return model;  // who loads them says so
  // Some of the folder's matrices may be numbers, which stay so.
  if (model.base && model.base == model.folder_format) {
    for (std::string& tensor : packed_otherwise(model, *files)) model.stored.push_back({std::move(tensor)});
  }
  model.files_have = !model.adapters.any() || files_have(model, *files);
  return model;
}

WeightsFrom weights_from(const RunConfig& config) {
  return {config.model.weights, config.adapter.path, uint64_t(config.train.seed)};
}

Result<ModelSpec> resolve_trained_model(const RunConfig& config) {
  SLUICE_ASSIGN(ModelSpec model, resolve_model(config));
  SLUICE_TRY(resolve_training(config, model));
  return model;
}

Result<ModelFiles> model_files_of(const RunConfig& config) {
  std::vector<std::filesystem::path> folders;
  if (const auto tokenizer = tokenizer_of(config)) folders.push_back(tokenizer->parent_path());
  for (const std::string* path : {&config.model.weights, &config.model.config, &config.checkpoint()}) {
    if (!path->empty()) folders.push_back(folder_of(*path));
  }
  return ModelFiles::open(folders);
}

sluice::Schedule schedule_of(const RunConfig& c) {
  return {.steps = c.train.steps,
          .learning_rate = c.train.learning_rate.value(),
          .min_learning_rate = c.train.min_learning_rate,
          .warmup_steps = warmup_steps(c),
          .evaluate_every = c.eval.every.value_or(0),
          .evaluate_rows = c.eval.rows,
          .patience = c.eval.patience,
          .checkpoint_every = c.run.checkpoint_every,
          .max_skipped = c.train.max_skipped,
          .decay = c.train.schedule == "linear"     ? sluice::Decay::Linear
                   : c.train.schedule == "constant" ? sluice::Decay::Constant
                   : c.train.schedule == "wsd"      ? sluice::Decay::Wsd
                                                    : sluice::Decay::Cosine,
          .decay_steps = c.train.decay_steps};
}

Error no_tokenizer(const RunConfig& c, int64_t vocab, std::string_view key) {
  std::set<std::string> folders;
  for (const std::string& path : {c.model.weights, c.model.config}) {
    if (!path.empty()) folders.insert(folder_of(path).string());
  }
  std::string where = "a preset has none";
  if (!folders.empty()) where = fmt::format("no tokenizer.json is in {}", fmt::join(folders, " and "));
  for (const std::string& folder : folders) {
    for (const char* other : {"tokenizer.model", "tekken.json", "vocab.json"}) {
      std::error_code ignored;
      if (!std::filesystem::exists(std::filesystem::path(folder) / other, ignored)) continue;
      where += fmt::format(
          ", but {}, of which python -c \"from transformers import AutoTokenizer as T; "
          "T.from_pretrained('{}').save_pretrained('{}')\" makes one",
          other, folder, folder);
      break;
    }
  }
  return error(
      "{}: this model has a vocabulary of {} tokens, and its tokenizer, which makes them of text, is not "
      "there: {}. Put its tokenizer.json beside its config.json or weights; a model of bytes has a "
      "vocabulary of {}",
      key, vocab, where, kByteVocab);
}

int64_t tokenizer_bytes(const std::filesystem::path& file) {
  constexpr int64_t kBytesPerByte = 16;  // measured, and rounded up
  std::error_code unknown;
  const auto bytes = int64_t(std::filesystem::file_size(file, unknown));
  return unknown ? 0 : bytes * kBytesPerByte;
}

Status check_tokenizer_room(int64_t cap_bytes, int64_t held, const std::filesystem::path& file) {
  const int64_t need = tokenizer_bytes(file);
  if (need <= cap_bytes - held) return {};
  return error("memory.host = {}: {} are in use, and {} takes some {} more", format_bytes(cap_bytes),
               format_bytes(held), file.string(), format_bytes(need));
}

std::filesystem::path folder_of(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) return path;
  return std::filesystem::path(path).parent_path();
}

std::optional<std::filesystem::path> tokenizer_of(const RunConfig& c) {
  for (const std::string& path : {c.model.weights, c.model.config, c.checkpoint()}) {
    std::error_code ignored;
    const std::filesystem::path file = folder_of(path) / "tokenizer.json";
    if (!path.empty() && std::filesystem::exists(file, ignored)) return file;
  }
  return std::nullopt;
}

}  // namespace sluice::core
