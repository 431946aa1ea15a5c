// SPDX-License-Identifier: Apache-2.0
// Sessions of a model of two layers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"
#include "run/session/session.h"
#include "support/temp_dir.h"

namespace sluice::core {

using rig::must;

// Settings of a run of a few milliseconds; everything it writes goes to `dir`.
inline std::vector<std::string> small_run(const TempDir& dir, std::vector<std::string> more = {}) {
  const std::string model = (std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny" / "config.json").string();
  std::vector<std::string> settings{"model.config=" + model,
                                    "train.seq_len=16",
                                    "train.tokens_per_step=64",
                                    "train.steps=6",
                                    "train.warmup_steps=2",
                                    "train.learning_rate=1e-2",
                                    "shape.chunk_tokens=8",
                                    "run.backend=cpu",
                                    "run.threads=1",
                                    "run.trace=false",
                                    "run.dir=" + (dir / "run").string(),
                                    "data.cache=" + (dir / "cache").string()};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

// The same model in a folder with a tokenizer, whose tokens are the characters from ' ' to '~': a setting.
inline std::string model_with_tokenizer(const TempDir& dir) {
  std::string vocab;
  for (char c = ' '; c <= '~'; ++c) {
    const std::string spelt = c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    vocab += fmt::format("{}\"{}\": {}", vocab.empty() ? "" : ", ", spelt, c - ' ');
  }
  dir.add("model/tokenizer.json", R"({"model": {"type": "BPE", "vocab": {)" + vocab + R"(}, "merges": []}})");
  std::filesystem::copy_file(std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny" / "config.json",
                             dir / "model/config.json");
  return "model.config=" + (dir / "model").string();
}

inline Result<Prepared> prepare_small(const TempDir& dir, std::vector<std::string> more = {}) {
  return prepare(must(load_config("", small_run(dir, std::move(more)))), "", false);
}

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// Settings of a run that is computed in the shape of another one. Plans of other formats may choose other
// shapes, which have other bits.
inline std::vector<std::string> in_shape_of(const Prepared& p, std::vector<std::string> more = {}) {
  for (const auto& [key, value] : {std::pair{"chunk_tokens", p.shape.chunk_tokens},
                                   {"rounds", p.shape.rounds},
                                   {"head_tokens", p.shape.head_tokens}})
    more.push_back(fmt::format("shape.{}={}", key, value));
  return more;
}

// Settings of a run on a file beside a model in `dir`, in f32, by plain gradients: what steps of other
// programs are compared with.
inline std::vector<std::string> plain_gradients(const TempDir& dir, const char* file, const char* objective) {
  return {"model.config=" + (dir / "model").string(),
          "model.weights=" + (dir / "model").string(),
          "data.paths=[\"" + (dir / file).string() + "\"]",
          "sample.tokens=0",
          fmt::format("train.objective={}", objective),
          "train.compute=f32",
          "train.optimizer=sgd",
          "train.momentum=0",
          "train.weight_decay=0",
          "train.clip_norm=0",
          "train.schedule=constant",
          "train.warmup_steps=0",
          "train.seq_len=40"};
}

// What a step says by a name.
inline double value_of(const StepResult& result, const std::string& name) {
  for (const sluice::NamedValue& v : result.values) {
    if (v.name == name) return v.value;
  }
  ADD_FAILURE() << "there is no " << name;
  return std::nan("");
}

// Steps until `steps` are done, then saves to `checkpoint`; returns the losses.
inline std::vector<double> run_session(const Prepared& prepared, int64_t steps,
                                       const std::filesystem::path& checkpoint) {
  const auto session = must(Session::open(prepared));
  std::vector<double> losses;
  while (session->steps_done() < steps) losses.push_back(must(session->step()).loss);
  must(session->save(checkpoint));
  return losses;
}

}  // namespace sluice::core
