// SPDX-License-Identifier: Apache-2.0
// The table of a sweep: one row per cell, kept as CSV.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/tier.h"

namespace sluice::core {

struct SweepRow {
  // The cell. `inputs` is a hash of everything that decides its result; rows with the same one are the same
  // cell.
  std::string model, machine, mode;  // mode: simulate or measure
  int64_t seq_len = 0, tokens_per_step = 0;
  BytesByTier caps = BytesByTier(kUnlimited);
  std::string inputs;

  // The result. Status: "ok", "infeasible" (the caps are too small), "error" (anything else, see message).
  std::string status;
  double tokens_per_s = 0, model_tflops = 0, mfu = 0, hfu = 0, step_ms = 0, lower_bound_ms = 0;
  // Infeasible: the smallest cap of a tier that works beside this one of the other; 0: none does.
  BytesByTier needs;
  std::string shape;  // chunk tokens x chunks per round x rounds
  double planning_s = 0;
  std::string slower_than;  // a cell with less memory that is faster; empty: none, as it should be
  std::string message;

  bool ok() const { return status == "ok"; }
};

std::string sweep_header();
std::string sweep_line(const SweepRow& row);

// The rows of a file; none when it does not exist. A last line that a killed process left unfinished is
// dropped, and the file mended. Any other line that is no row is an error naming it.
Result<std::vector<SweepRow>> load_sweep(const std::filesystem::path& path);

// Sorts by model, machine, mode, sequence length, tokens per step and caps: the order of the finished file.
void sort_sweep(std::vector<SweepRow>& rows);

// A plan for less memory works with more, too. Simulated rows that one with less memory beats, or that do not
// fit although it does, take its result, and their message says whose plan it is. Returns how many rows have
// such a plan, taken now or before.
int64_t take_faster_plans(std::span<SweepRow> rows);

// More memory is never slower, in either cap. Fills slower_than of every row that breaks it; returns how many
// do. A row that does not fit although one with less memory does breaks it, too.
int64_t mark_slower(std::span<SweepRow> rows);

}  // namespace sluice::core
