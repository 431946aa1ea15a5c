// SPDX-License-Identifier: Apache-2.0
// Attention of one head, as steps compute it, against one that materialises its scores.
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "bench/cell.h"
#include "machine/machine.h"
#include "pages/page.h"

namespace sluice::core {

// Causal, `rows` sequences of `length` tokens and one head of `head_dim` columns; the ops of steps in
// `dtype`, the naive one in f32.
struct AttentionCell {
  int64_t rows = 8, length = 0, head_dim = 0;
  DType dtype = DType::F32;
};

struct AttentionTimes {
  std::string status, message;  // "ok", "does not fit", "not here"; else what is in the way
  Measured forward, backward;   // wall clock
  int64_t kept_bytes = 0;       // inputs, outputs and what the forward pass leaves for the backward pass
  int64_t peak_bytes = 0;       // with gradients and what lives within a pass
  // The naive attention: mean seconds of both passes in matrix products and between them.
  double products_s = 0, softmax_s = 0;

  bool ok() const { return status == "ok"; }
};

struct AttentionResult {
  AttentionCell cell;
  std::string inputs;           // a hash of all that decides it, the machine's name among it
  std::string machine, sluice;  // where and with what
  AttentionTimes fused, naive;
  // The largest difference of outputs and gradients between the two, and their largest value: they compute
  // the same. NaN where one of them did not run.
  double difference = 0, largest = 0;

  // Whether there is nothing left to measure: a naive one that this machine does not have is not.
  bool ok() const { return fused.ok() && (naive.ok() || naive.status == "not here"); }
};
nlohmann::ordered_json to_json(const AttentionResult& result);
// Reads the JSON of to_json(); nothing for any other.
std::optional<AttentionResult> attention_of(const nlohmann::json& json);

// A cell in words: "8 x 256, D 16, f32".
std::string name_of(const AttentionCell& cell);
// The hash of a cell on a machine.
std::string inputs_of(const AttentionCell& cell, const Machine& machine, const BenchOptions& options);

// Runs both. Each gets its own arenas. What goes wrong with one is its status; the error of an interruption
// is Cancelled.
Result<AttentionResult> run_attention(const AttentionCell& cell, const Machine& machine,
                                      const BenchOptions& options, const std::atomic<bool>& interrupted,
                                      const std::function<void(const std::string& doing)>& say);

Page attention_page(std::span<const AttentionResult> results);

}  // namespace sluice::core
