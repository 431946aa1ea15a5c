// SPDX-License-Identifier: Apache-2.0
// Steps of many rounds, searched by a few of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/plan.h"

namespace sluice::core {

struct TaskCosts;

// The program that one with fewer rounds stands for: `left_out` more rounds, each of which takes what those
// after `first` take, up to `last`.
struct LeftOut {
  int64_t rounds = 0;
  int64_t tasks = 0;
  double ns = 0;  // of their tasks, each once
  int32_t first = 0, last = 0;

  // How many of the whole step's rounds one of the program's stands for.
  double times(int32_t round) const {
    return round > first && round <= last ? 1 + double(rounds) / double(last - first) : 1;
  }
};

// A plan's time, and how often its tasks run, if no round were left out. REQUIRES: its times are predicted.
double whole_step_ns(const Program& program, const Plan& plan, const LeftOut& left_out);
int64_t runs_in_whole_step(const Program& program, const Plan& plan, const LeftOut& left_out);

struct FewRounds {
  Program program;
  LeftOut left_out;
  std::vector<TaskId> tasks;  // of the whole program that this one has, in its order
};

// The program without most of the rounds that are alike: that have the same tasks, in the same order, of the
// same costs, over objects of the same sizes. Settings that are fastest for it are as a rule fastest for the
// whole. Empty where there are not many such rounds. Of several devices as many rounds stay as fill a ring.
std::optional<FewRounds> few_rounds(const Program& program, const TaskCosts& costs, size_t devices = 1);

}  // namespace sluice::core
