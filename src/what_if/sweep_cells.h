// SPDX-License-Identifier: Apache-2.0
// A grid of cells, planned or measured: model x sequence length x host cap x device cap.
#pragma once

#include <filesystem>

#include "what_if/outlook.h"
#include "what_if/sweep_table.h"

namespace sluice::core {

struct SweepCell {
  SweepRow row;  // what the cell is
  RunConfig config;
};

// Cells of one model and sequence length. `host_caps` and `device_caps` are ascending; the device cap varies
// fastest.
struct SweepGroup {
  std::vector<int64_t> host_caps, device_caps;
  std::vector<SweepCell> cells;

  const SweepRow& at(size_t host, size_t device) const {
    return cells[host * device_caps.size() + device].row;
  }
};

// Takes what came out into a row that fits.
void fill(SweepRow& row, const Outlook& found);

// Fills what came out of a cell by planning it. Everything that goes wrong is in the row.
void plan_cell(SweepCell& cell, const Machine& machine);

// Fills the needs of the rows that do not fit, by planning between the caps of the grid.
Status find_needs(SweepGroup& group, const Machine& machine, const std::atomic<bool>& interrupted);

// Heatmaps of tok/s, model TFLOP/s, MFU and HFU as SVG; returns the paths. None for a single cell.
Result<std::vector<std::filesystem::path>> write_heatmaps(const SweepGroup& group,
                                                          const std::filesystem::path& dir);

}  // namespace sluice::core
