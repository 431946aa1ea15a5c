// SPDX-License-Identifier: Apache-2.0
// Steps of one model at one length, batch and number format, measured on the machine at hand: by phase, by
// class of ops, and in bytes. What every benchmark of whole steps is a view of.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "machine/machine.h"
#include "model/spec.h"
#include "program/program.h"

namespace sluice::core {

struct BenchCell {
  std::string model;  // as it was asked for
  ModelSpec spec;
  int64_t seq_len = 0, batch = 0;
  std::string compute;  // "f32", "bf16"
  RunConfig config;     // of the same step
};

// A model as parse_subject() of estimate/subject.h takes it, if steps can be made of it.
Result<ModelSpec> bench_model(std::string_view name);

// A cell whose step is `batch` sequences, without caps unless `settings` has them.
Result<BenchCell> make_cell(const std::string& model, int64_t seq_len, int64_t batch,
                            const std::string& compute, const std::vector<std::string>& settings);

// The machine that a cell is measured on. One that refuses runs in f32 (Machine::takes_f32) takes the cell's
// steps, whose ops say for themselves what they need. Rates of bf16 become those of f32 by the data sheet of
// its card, until ops are measured.
Machine machine_for(const BenchCell& cell, Machine machine);

struct Measured {
  double mean = 0, deviation = 0;  // seconds; of one value the deviation is 0
};
// REQUIRES: not empty.
Measured measured_of(const std::vector<double>& values);

// Classes of ops, for shares of a step.
enum class OpClass : uint8_t { Products, Attention, Norms, Elementwise, Loss, Optimizer };
constexpr size_t kOpClasses = 6;
std::string_view name_of(OpClass c);
OpClass class_of(const Task& task);

struct OpTime {
  std::string name;             // of the op, on a GPU of the kernel
  int64_t count = 0;            // in a step
  double s = 0, forward_s = 0;  // in a step; of that, in its forward pass
};

struct MemorySample {
  double at_s = 0;
  int64_t params = 0, grads = 0, state = 0, activations = 0, others = 0;

  int64_t all() const { return params + grads + state + activations + others; }
};

constexpr size_t kPhases = 3;  // as Phase

struct CellResult {
  // The cell; `inputs` is a hash of all that decides it, the machine's name among it.
  std::string model, compute, inputs;
  int64_t seq_len = 0, batch = 0;
  // "ok", "does not fit", or "error": then the message says why.
  std::string status, message;

  int64_t params = 0;
  std::string shape;                     // as to_text(StepShape)
  int64_t steps = 0;                     // that were timed
  std::array<Measured, kPhases> phases;  // compute at work; recomputation is part of the backward phase
  Measured others;         // of the step: waiting, copies that nothing hides, and the host's work
  Measured step;           // wall clock
  double predicted_s = 0;  // the plan's, before it ran
  double tokens_per_s = 0, model_flops = 0, peak_flops = 0;  // FLOPs of a step, and per second
  std::array<int64_t, kPhases> peak_bytes{};  // of the device's arena that hold something while a phase runs
  int64_t predicted_device_bytes = 0,
          device_bytes = 0;  // of the process: by the plan, and the most that was seen
  int64_t predicted_host_bytes = 0, host_bytes = 0;
  // The planned arena of a program that only runs forward, on weights alone.
  int64_t forward_only_bytes = 0;
  double copies_s = 0;  // of the lanes that copy, in a step
  std::array<OpTime, kOpClasses> classes;
  std::vector<OpTime> top;             // the ops that take longest, at most ten
  std::vector<MemorySample> memory;    // of the device's arena over a step, at most some hundred
  std::string machine, sluice, notes;  // where and with what; what could not be had

  bool ok() const { return status == "ok"; }
  double mfu() const { return peak_flops > 0 ? model_flops / step.mean / peak_flops : 0; }
};
nlohmann::ordered_json to_json(const CellResult& result);
// Reads the JSON of to_json(); nothing for any other.
std::optional<CellResult> cell_of(const nlohmann::json& json);

struct BenchOptions {
  int64_t steps = 5, warm_up = 1;
};

// The hash of a cell on a machine.
std::string inputs_of(const BenchCell& cell, const Machine& machine, const BenchOptions& options);

// Runs it. What goes wrong with this cell is in the result; the error of an interruption is Cancelled.
// `say` is called with what it is at, and after each step with how many are done.
Result<CellResult> run_cell(const BenchCell& cell, const Machine& machine, const BenchOptions& options,
                            const std::atomic<bool>& interrupted,
                            const std::function<void(const std::string& doing)>& say);

}  // namespace sluice::core
