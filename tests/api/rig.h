// SPDX-License-Identifier: Apache-2.0
// A tiny model in a session on this machine, rows for it, and what it told.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "sluice/sluice.h"
#include "support/temp_dir.h"

namespace sluice::api_rig {

using core::TempDir;

inline constexpr const char* kTiny = R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48})";

inline Model tiny() {
  return *Model::from_config(kTiny);
}

// Costs are measured once for all tests.
inline Result<Machine> machine_of(const char* backend, int threads = 1, bool exact = false) {
  static const TempDir cache;
  MachineOptions options;
  options.cache = cache / "costs";
  options.backend = backend;
  options.threads = threads;
  options.exact = exact;
  options.deterministic = true;  // runs are compared that were taught apart
  return Machine::here(options);
}
inline Machine here() {
  return *machine_of("cpu");
}

inline StepOptions small_step() {
  StepOptions options;
  options.seq_len = 16;
  options.tokens_per_step = 64;
  return options;
}

struct Rows {
  std::vector<int32_t> tokens, targets, positions;
  std::vector<float> weights;

  explicit Rows(int64_t count, int32_t salt = 0) {
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(int32_t((i * 37 + salt * 11) % 256));
      targets.push_back(int32_t((i * 37 + salt * 11 + 5) % 256));
    }
  }
  Batch batch() const { return {tokens, targets, positions, weights}; }
};

struct Recorder : Observer {
  std::vector<double> losses, evaluations;
  std::vector<std::filesystem::path> saves;
  std::function<void()> after_step = [] {};

  void stepped(const StepEvent& e) override {
    losses.push_back(e.loss);
    after_step();
  }
  void evaluated(const EvaluationEvent& e) override { evaluations.push_back(e.loss); }
  void saved(const SaveEvent& e) override { saves.push_back(e.directory); }
};

inline void expect_error(const Error& error, ErrorKind kind, std::string_view part) {
  EXPECT_EQ(error.kind, kind) << error.message;
  EXPECT_NE(error.message.find(part), std::string::npos) << error.message << "\nlacks: " << part;
}

// A session on this machine, and what it told.
struct Running {
  Recorder recorder;
  Plan plan;
  Session session;

  explicit Running(const StepOptions& options = small_step(), const Caps& caps = {},
                   const Machine& machine = here())
      : plan(*sluice::plan(tiny(), options, caps, machine)), session(*Session::open(plan, recorder)) {}
};

}  // namespace sluice::api_rig
