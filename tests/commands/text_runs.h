// SPDX-License-Identifier: Apache-2.0
// Runs of a small model on a small text, as commands start them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "commands/commands.h"
#include "support/temp_dir.h"

namespace sluice::core {

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// Four steps of a model of bytes of a few layers on a small text, of which a part is held out.
class TextRuns {
 public:
  TextRuns() {
    auto model = nlohmann::json::parse(
        file_bytes(std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny" / "config.json"));
    model["vocab_size"] = 256;
    dir_.add("model/config.json", model.dump());
    for (const char* name : {"a.txt", "b.txt", "c.txt"}) {
      std::string text;
      for (int i = 0; i < 150; ++i) text += fmt::format("{} {} * {} = {}\n", name[0], i, i, i * i);
      dir_.add(fmt::format("text/{}", name), text);
    }
  }

  RunRequest request(const std::string& run, const std::vector<std::string>& more = {}) const {
    RunRequest r;
    r.settings = {"model.config=" + (dir_ / "model/config.json").string(),
                  "data.paths=[\"" + (dir_ / "text").string() + "\"]",
                  "train.seq_len=16",
                  "train.tokens_per_step=32",
                  "train.steps=4",
                  "train.learning_rate=1e-2",
                  "train.warmup_steps=2",
                  "eval.every=2",
                  "eval.rows=4",
                  "sample.tokens=4",
                  "run.checkpoint_every=1",
                  "run.keep_last=100",
                  "run.backend=cpu",
                  "run.threads=1",
                  "run.trace=false",
                  "data.cache=" + (dir_ / "cache").string(),
                  "run.dir=" + (dir_ / run).string()};
    r.settings.insert(r.settings.end(), more.begin(), more.end());
    return r;
  }

  static Outcome start(const RunRequest& r) {
    Requests asked;
    return train(r, asked);
  }
  Outcome start(const std::string& run, const std::vector<std::string>& more = {}) const {
    return start(request(run, more));
  }

  // What is left of the run when a process was killed after that step.
  void cut_to(const std::string& run, int step, int logged) const {
    const std::filesystem::path checkpoints = dir_ / (run + "/checkpoints");
    for (int s = step + 1; s <= 4; ++s) std::filesystem::remove_all(checkpoints / fmt::format("step-{}", s));
    std::filesystem::remove(checkpoints / "latest");
    std::ifstream in(dir_ / (run + "/metrics.jsonl"));
    std::string kept, line;
    for (int i = 0; i < logged && std::getline(in, line); ++i) kept += line + "\n";
    if (std::getline(in, line)) kept += line.substr(0, line.size() / 2);
    dir_.add(run + "/metrics.jsonl", kept);
  }

  std::string weights(const std::string& run) const {
    return file_bytes(dir_ / (run + "/checkpoints/latest/model.safetensors"));
  }

  const TempDir dir_;
};

}  // namespace sluice::core
