// SPDX-License-Identifier: Apache-2.0
// The loss of a model on rows that it does not learn: what it is, how sure it is, and how often it is worth
// asking.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "checkpoint/heldout_record.h"
#include "dataset/batches.h"
#include "run/loaded/rows.h"
#include "sluice/observer.h"

namespace sluice::core {

// Losses of every token of some rows, whether it counts or not.
struct TokenLosses {
  std::vector<double> loss, is_top;  // is_top: 1 where no token is likelier than the target, else 0
};
// Reads the losses that an evaluation program left by chunk into those of its rows.
Status read_token_losses(const BuiltProgram& model, const Executor& executor, TokenLosses& out);

struct Evaluation {
  std::vector<RowLoss> rows;
  std::vector<RowLoss> paths;              // by entry of what people named; empty: there is but one
  std::vector<sluice::NamedValue> values;  // of answers that are compared, what else there is to say

  // Over all rows, in their order.
  RowLoss total() const;
  // Mean over the targets, nats; NaN without any.
  double loss() const { return total().mean(); }
  // The standard error of the loss, taking the rows for a random choice. Nothing with a single row.
  std::optional<double> standard_error() const;
};

// The standard error of the loss of `a` minus that of `b` on the same rows, without their common part.
// Nothing with a single row, or unequal numbers.
std::optional<double> standard_error(std::span<const RowLoss> a, std::span<const RowLoss> b);

using EvaluationPass = std::function<Result<const TokenLosses*>(const Rows&)>;

// Told of a row: its number, and where it begins in a pass and in the losses of that.
using TakeRow =
    std::function<void(int64_t row, const Rows& pass, int64_t first_token, const TokenLosses& losses)>;

// Rows [first, first + count) of the source's step 0, each once, in passes of as many sequences as
// `sequences` says of the rows that are left. The rest of the last pass counts nowhere. `stop` is asked
// before each pass; then the error is Cancelled. REQUIRES: first + count <= source.epoch_rows().
Status evaluate_each(const BatchSource& source, int64_t first, int64_t count,
                     const std::function<int64_t(int64_t)>& sequences, const EvaluationPass& pass,
                     const std::function<bool()>& stop, const TakeRow& take);

// Rows [0, rows). A row's loss is summed token by token and the whole row by row, so that neither depends on
// how many are in a pass.
Result<Evaluation> evaluate_rows(const BatchSource& source, int64_t rows,
                                 const std::function<int64_t(int64_t)>& sequences, const EvaluationPass& pass,
                                 const std::function<bool()>& stop = {});

// Takes an evaluation into the record.
struct Judgement {
  bool is_lowest = false;
  double rise = 0;  // above the lowest
  std::optional<double> rise_error;
};
Judgement judge(const Evaluation& evaluation, int64_t step, HeldoutRecord& record);

// The part of a source in the first rows of step 0.
struct RowsCount {
  int64_t rows = 0, targets = 0;
};
RowsCount count_rows(const BatchSource& source, int64_t rows);

// How often a run of `steps` steps evaluates that leaves it to us: before the first step, after the last, and
// between them. There it evaluates as often as kEvaluationShare of its time allows, but at least
// kFewestEvaluations times or after every step.
constexpr double kEvaluationShare = 0.03;
constexpr int64_t kFewestEvaluations = 10;
struct EvaluationInterval {
  int64_t every = 1;  // steps
  int64_t count = 0;  // all of them
  double share = 0;   // of the run's time that they take
};
EvaluationInterval choose_interval(int64_t steps, double step_s, double evaluation_s);

}  // namespace sluice::core
