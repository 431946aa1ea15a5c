// SPDX-License-Identifier: Apache-2.0
#include "run/loaded/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice::core {
namespace {

// The error of (sum of x) / (sum of targets), where every row has its x and its targets.
std::optional<double> error_of_ratio(std::span<const double> x, std::span<const double> targets) {
  const double rows = double(x.size()), all = std::accumulate(targets.begin(), targets.end(), 0.0);
  if (x.size() < 2 || all <= 0) return std::nullopt;
  const double ratio = std::accumulate(x.begin(), x.end(), 0.0) / all;
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double rest = x[i] - ratio * targets[i];
    squares += rest * rest;
  }
  return std::sqrt(squares * rows / (rows - 1)) / all;
}

}  // namespace

Status read_token_losses(const BuiltProgram& model, const Executor& executor, TokenLosses& out) {
  out.loss.clear();
  out.is_top.clear();
  std::vector<double> chunk;
  for (const ObjectId id : model.losses) {
    chunk.resize(size_t(model.program.object(id).bytes) / sizeof(double));
    SLUICE_TRY(executor.read(id, std::as_writable_bytes(std::span(chunk))));
    const auto middle = chunk.begin() + long(chunk.size() / 2);
    out.loss.insert(out.loss.end(), chunk.begin(), middle);
    out.is_top.insert(out.is_top.end(), middle, chunk.end());
  }
  return {};
}

RowLoss Evaluation::total() const {
  RowLoss sum;
  for (const RowLoss& row : rows) sum.add(row);
  return sum;
}

std::optional<double> Evaluation::standard_error() const {
  std::vector<double> losses, targets;
  for (const RowLoss& row : rows) {
    losses.push_back(row.loss);
    targets.push_back(double(row.targets));
  }
  return error_of_ratio(losses, targets);
}

std::optional<double> standard_error(std::span<const RowLoss> a, std::span<const RowLoss> b) {
  if (a.size() != b.size()) return std::nullopt;
  std::vector<double> differences, targets;
  for (size_t i = 0; i < a.size(); ++i) {
    differences.push_back(a[i].loss - b[i].loss);
    targets.push_back(double(a[i].targets));
  }
  return error_of_ratio(differences, targets);
}

Status evaluate_each(const BatchSource& source, int64_t first, int64_t count,
                     const std::function<int64_t(int64_t)>& sequences, const EvaluationPass& pass,
                     const std::function<bool()>& stop, const TakeRow& take) {
  SLUICE_CHECK(first + count <= source.epoch_rows(), "{} rows of {}", first + count, source.epoch_rows());
  const int64_t sequence = source.sequence(), end = first + count;
  BatchLayout layout = kPlainBatch;
  layout.add(BatchColumn::Paths);
  Rows rows;
  for (int64_t here = 0; first < end; first += here) {
    if (stop && stop()) return error(ErrorKind::Cancelled, "evaluation: somebody asked to stop");
    const int64_t all = sequences(end - first);
    if (rows.tokens() != all * sequence) rows = Rows(layout, all * sequence);
    here = std::min(all, end - first);
    fill_rows(source, 0, first, rows.part(0, here * sequence));
    for (int64_t r = here; r < all; ++r) rows.part(r * sequence, sequence).fill_padding();
    SLUICE_ASSIGN(const TokenLosses* const losses, pass(rows));
    for (int64_t r = 0; r < here; ++r) take(first + r, rows, r * sequence, *losses);
  }
  return {};
}

Result<Evaluation> evaluate_rows(const BatchSource& source, int64_t rows,
                                 const std::function<int64_t(int64_t)>& sequences, const EvaluationPass& pass,
                                 const std::function<bool()>& stop) {
  Evaluation out;
  const auto take = [&](int64_t, const Rows& all, int64_t begin, const TokenLosses& losses) {
    const auto targets = all.column(BatchColumn::Targets), paths = all.column(BatchColumn::Paths);
    RowLoss row;
    for (int64_t t = begin; t < begin + source.sequence(); ++t) {
      const auto at = size_t(t);
      if (targets[at] < 0) continue;
      const RowLoss one{losses.loss[at], 1, losses.is_top[at] > 0 ? 1 : 0};
      row.add(one);
      const auto path = size_t(paths[at]);
      if (path >= out.paths.size()) out.paths.resize(path + 1);
      out.paths[path].add(one);
    }
    out.rows.push_back(row);
  };
  SLUICE_TRY(evaluate_each(source, 0, rows, sequences, pass, stop, take));
  if (out.total().targets == 0)
    return error("evaluation: nothing of these rows is learnt, so that there is no loss");
  if (out.paths.size() == 1) out.paths.clear();
  return out;
}

Judgement judge(const Evaluation& evaluation, int64_t step, HeldoutRecord& record) {
  // More rows than this are not kept: a rise is then never told.
  constexpr size_t kMostRows = size_t{1} << 16;
  const double loss = evaluation.loss();
  record.last_step = step;
  if (std::isfinite(loss) && (record.best_step < 0 || loss < record.best_loss)) {
    record.best_step = step;
    record.best_loss = loss;
    record.since = 0;
    record.best_rows = evaluation.rows;
    if (record.best_rows.size() > kMostRows) record.best_rows.clear();
    return {.is_lowest = true, .rise = 0, .rise_error = std::nullopt};
  }
  ++record.since;
  if (record.best_step < 0) return {};
  return {false, loss - record.best_loss, standard_error(evaluation.rows, record.best_rows)};
}

RowsCount count_rows(const BatchSource& source, int64_t rows) {
  RowsCount count{std::min(rows, source.epoch_rows()), 0};
  Rows one({BatchColumn::Targets}, source.sequence());
  for (int64_t row = 0; row < count.rows; ++row) {
    fill_rows(source, 0, row, one.part(0, one.tokens()));
    count.targets +=
        std::ranges::count_if(one.column(BatchColumn::Targets), [](int32_t t) { return t >= 0; });
  }
  return count;
}

EvaluationInterval choose_interval(int64_t steps, double step_s, double evaluation_s) {
  if (steps <= 0) return {1, 1, 1};
  const double run_s = double(steps) * step_s;
  // The two at the ends count, too.
  const double allowed = evaluation_s > 0 ? kEvaluationShare * run_s / evaluation_s - 2 : double(steps);
  const auto between = int64_t(std::clamp(allowed, 0.0, double(steps)));
  EvaluationInterval out;
  out.every = (steps + between) / (between + 1);
  out.every = std::max<int64_t>(1, std::min(out.every, steps / (kFewestEvaluations + 1)));
  out.count = 2 + (steps - 1) / out.every;
  const double spent_s = double(out.count) * evaluation_s;
  out.share = spent_s > 0 ? spent_s / (run_s + spent_s) : 0;
  return out;
}

}  // namespace sluice::core
