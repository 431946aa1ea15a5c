// SPDX-License-Identifier: Apache-2.0
#include "run/manifest.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "model/families/families.h"
#include "run/checks.h"
#include "run/fields.h"
#include "state/checkpoint.h"

namespace sluice::core {
namespace {

std::string print(DType value) {
  return std::string(name_of(value));
}
template <class T>
requires std::is_arithmetic_v<T> std::string print(T value) {
  return fmt::format("{}", value);
}

bool read(const std::string& text, bool& value) {
  value = text == "true";
  return value || text == "false";
}
bool read(const std::string& text, int64_t& value) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  return ec == std::errc() && end == text.data() + text.size();
}

}  // namespace

Manifest manifest_of(const Prepared& p, const std::string& content) {
  Manifest out;
  const auto add = [&](std::string_view group) {
    return [&out, group](std::string_view name, const auto& value) {
      out.emplace_back(fmt::format("{}.{}", group, name), print(value));
    };
  };
  const auto model = nlohmann::json::parse(to_json(p.model));
  for (const auto& [name, value] : model.items()) out.emplace_back("model." + name, value.dump());
  visit_fields(p.shape, add("shape"));
  visit_fields(p.numerics, add("train"));
  const auto train = add("train");
  train("seed", p.config.train.seed);
  const Optimizer& optimizer = *p.optimizer.optimizer;
  out.emplace_back("train.optimizer", optimizer.name);
  for (size_t i = 0; i < optimizer.hyperparameters.size(); ++i)
    train(optimizer.hyperparameters[i].name, p.optimizer.values[i]);
  train("clip_norm", p.optimizer.clip_norm);
  out.emplace_back("data.mode", p.config.data.mode);
  add("data")("respect_documents", p.config.data.respect_documents);
  out.emplace_back("data.content", content);
  return out;
}

Status keep_shape(RunConfig& c) {
  if (c.run.resume.empty()) return {};
  SLUICE_TRY(check_input(c, "run.resume", c.run.resume));
  SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(c.run.resume));
  StepShape shape;
  bool whole = true;
  visit_fields(shape, [&](const char* name, auto& value) {
    whole = read(value_of(info.manifest, fmt::format("shape.{}", name)), value) && whole;
  });
  // Another step has no use for it; the session says what differs.
  if (!whole || !validate(shape).ok() || shape.seq_len != c.train.seq_len ||
      shape.tokens() != c.train.tokens_per_step)
    return {};
  const auto keep = [](int64_t& key, int64_t value) { key = key == 0 ? value : key; };
  keep(c.shape.chunk_tokens, shape.chunk_tokens);
  keep(c.shape.rounds, shape.rounds);
  keep(c.shape.first_round_chunks, shape.chunks_in(0));
  keep(c.shape.head_tokens, shape.head_tokens);
  return {};
}

}  // namespace sluice::core
