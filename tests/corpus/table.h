// SPDX-License-Identifier: Apache-2.0
// The committed table of the corpus: one row per cell.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "cells.h"

namespace sluice::core::corpus {

// How well the planner does in one cell.
struct Row {
  double makespan_ns = 0;  // 0: no plan fits
  double lower_bound_ns = 0;
  int64_t least_device_bytes =
      0;  // when none fits: the smallest arena that would do; 0: none, as the host is too small
};

Row plan_cell(const Program& program, const Profile& profile, const Caps& caps);

using Table = std::map<std::string, Row>;  // by the cell's name
std::string name_of(const Group& group, const Caps& caps);

Result<Table> parse_table(std::string_view csv);
// In the order of the groups.
std::string to_csv(const std::vector<Group>& groups, const Table& table);

enum class Verdict { Same, Better, Worse };
struct Comparison {
  Verdict verdict = Verdict::Same;
  std::string words;  // cell, committed, now, percent
};
// A difference of up to half a percent is none.
Comparison compare(const std::string& cell, const Row& committed, const Row& now);

}  // namespace sluice::core::corpus
