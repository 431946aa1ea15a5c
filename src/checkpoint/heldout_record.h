// SPDX-License-Identifier: Apache-2.0
// What a run's evaluations found so far. Checkpoints keep it, so that a run that goes on decides as one that
// was never stopped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::core {

// Sums over the targets of a row, or of several.
struct RowLoss {
  double loss = 0;
  int64_t targets = 0, hits = 0;  // hits: targets that no other token was likelier than

  // NaN without targets.
  double mean() const { return loss / double(targets); }
  void add(const RowLoss& other) {
    loss += other.loss;
    targets += other.targets;
    hits += other.hits;
  }
  friend bool operator==(const RowLoss&, const RowLoss&) = default;
};

struct HeldoutRecord {
  std::string of;  // which rows: losses of others are not compared
  int64_t every = 0,
          of_steps = 0;    // steps between evaluations, as chosen for a run of so many; 0: not chosen
  int64_t last_step = -1;  // of the last evaluation; -1: none
  int64_t best_step = -1;  // of the lowest loss
  double best_loss = 0;
  int64_t since = 0;               // evaluations after that one
  std::vector<RowLoss> best_rows;  // its rows

  friend bool operator==(const HeldoutRecord&, const HeldoutRecord&) = default;
};

}  // namespace sluice::core
