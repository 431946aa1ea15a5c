// SPDX-License-Identifier: Apache-2.0
#include "run/session/step_queue.h"

#include <algorithm>
#include <cmath>

namespace sluice::core {
namespace {

// The part of a batch's targets in the loss; empty: it says nothing. Seeds are weights with the sign turned.
std::span<const float> loss_column(const sluice::Batch& b) {
  return b.seeds.empty() ? b.weights : b.seeds;
}

}  // namespace

// A caller's batch of whole sequences, checked, into rows of a layout, which need not have every column.
Status take(const sluice::Batch& b, const Prepared& p, RowsView rows) {
  const size_t n = b.tokens.size(), seq = size_t(p.shape.seq_len);
  if (b.targets.size() != n || (!b.positions.empty() && b.positions.size() != n)) {
    return error("batch: {} tokens, {} targets, {} positions; they must be as many", n, b.targets.size(),
                 b.positions.size());
  }
  if (!b.weights.empty() && !b.seeds.empty()) return error("batch: it has weights and seeds; one is allowed");
  const char* const name = b.seeds.empty() ? "weights" : "seeds";
  const std::span<const float> factors = loss_column(b);
  if (!factors.empty() && factors.size() != n)
    return error("batch: {} tokens, {} {}; they must be as many", n, factors.size(), name);
  if (!factors.empty() && !p.stages.main.model.layout.has(BatchColumn::Weights))
    return error("batch: it has {}; plan with the option weighted", name);
  const int64_t vocab = p.model.vocab;
  const BatchLayout& planned = p.stages.main.model.layout;
  const auto top = size_t(planned.has(BatchColumn::TopTokens) ? planned.width(BatchColumn::TopTokens) : 0);
  if (!b.top_tokens.empty() && b.top_tokens.size() != n * top)
    return error("batch: {} tokens, {} top_tokens; the plan has {} for each (the option top_tokens)", n,
                 b.top_tokens.size(), top);
  for (size_t i = 0; i < b.top_tokens.size(); ++i) {
    if (b.top_tokens[i] < -1 || b.top_tokens[i] >= vocab)
      return error("batch: top_tokens[{}] is {}; allowed are -1 to {}", i, b.top_tokens[i], vocab - 1);
  }
  for (size_t i = 0; i < n; ++i) {
    if (b.tokens[i] < 0 || b.tokens[i] >= vocab)
      return error("batch: tokens[{}] is {}; allowed are 0 to {}", i, b.tokens[i], vocab - 1);
    if (b.targets[i] < -1 || b.targets[i] >= vocab)
      return error("batch: targets[{}] is {}; allowed are -1 to {}", i, b.targets[i], vocab - 1);
    if (!factors.empty() && !std::isfinite(factors[i]))
      return error("batch: {}[{}] is {}; allowed are finite numbers", name, i, factors[i]);
  }
  if (rows.layout().has(BatchColumn::Weights)) {
    const std::span<float> weights = rows.column<float>(BatchColumn::Weights);
    if (factors.empty()) {
      rows.fill_padding(BatchColumn::Weights);
    } else if (b.seeds.empty()) {
      std::ranges::copy(factors, weights.begin());
    } else {
      std::ranges::transform(factors, weights.begin(), [](float seed) { return -seed; });
    }
  }
  if (rows.layout().has(BatchColumn::TopTokens)) {
    rows.fill_padding(BatchColumn::TopTokens);
    rows.fill_padding(BatchColumn::TopWeights);
    std::ranges::copy(b.top_tokens, rows.column(BatchColumn::TopTokens).begin());
  }
  std::ranges::copy(b.tokens, rows.column(BatchColumn::Tokens).begin());
  std::ranges::copy(b.targets, rows.column(BatchColumn::Targets).begin());
  const auto positions = rows.column(BatchColumn::Positions);
  for (size_t i = 0; i < n; ++i) {
    const auto plain = int32_t(i % seq);
    positions[i] = b.positions.empty() ? plain : b.positions[i];
    const int32_t before = plain == 0 ? -1 : positions[i - 1];
    if (positions[i] != before + 1 && positions[i] != 0)
      return error("batch: positions[{}] is {}; allowed are {} and, where a document begins, 0", i,
                   positions[i], before + 1);
    if (positions[i] != plain && !p.shape.packed)
      return error("batch: a document begins at {}, inside a sequence; plan with the option packed", i);
  }
  return {};
}

Status check_sequences(const sluice::Batch& b, const Prepared& p) {
  const int64_t seq = p.shape.seq_len;
  const int64_t n = int64_t(b.tokens.size());
  if (n > 0 && n % seq == 0) return {};
  return error("batch: {} tokens; allowed are whole sequences of {}", n, seq);
}

// From token `begin` on, sequences without targets.
void fill_missing(Rows& rows, int64_t begin, int64_t seq) {
  for (int64_t row = begin; row < rows.tokens(); row += seq) rows.part(row, seq).fill_padding();
}

void StepQueue::drop(const std::string& why) {
  for (const auto& weak : waiting_) {
    if (const auto one = weak.lock()) one->state = QueuedRows::State::Gone, one->gone = why;
  }
  waiting_.clear();
  asked_.clear();
  tokens_ = 0;
  engine_->call_off_update();
}

void StepQueue::resolve() {
  const std::span<const float> all = engine_->log_probs();
  for (const auto& weak : waiting_) {
    const auto one = weak.lock();
    if (!one) continue;
    one->state = QueuedRows::State::Ran;
    if (all.empty()) continue;
    const auto own = all.subspan(size_t(one->first), size_t(one->count));
    one->log_probs.assign(own.begin(), own.end());
  }
  waiting_.clear();
  asked_.clear();
}

StepLoss StepQueue::loss() const {
  StepLoss out{seeded_ ? LossScale::One : LossScale::PerTarget};
  if (asked_.empty()) return out;
  out.ask = [this](int64_t first, std::span<const float> log_probs, std::span<float> weights) -> Status {
    for (const Asked& one : asked_) SLUICE_TRY(ask(one, first, log_probs, weights));
    return {};
  };
  return out;
}

Status StepQueue::ask(const Asked& one, int64_t first, std::span<const float> log_probs,
                      std::span<float> weights) const {
  const BatchLayout& layout = step_.layout();
  const int64_t top = layout.has(BatchColumn::TopTokens) ? layout.width(BatchColumn::TopTokens) : 0,
                tokens = int64_t(weights.size()) / (1 + top);
  const int64_t begin = std::max(first, one.first);
  const int64_t end = std::min(first + tokens, one.first + one.count);
  if (begin >= end) return {};
  const auto at = size_t(begin - first), count = size_t(end - begin);
  const auto targets = step_.column(BatchColumn::Targets).subspan(size_t(begin), count);
  if (std::ranges::none_of(targets, [](int32_t t) { return t >= 0; })) return {};
  // Those of the others lie behind those of the round's targets.
  const size_t at_top = size_t(tokens) + at * size_t(top), count_top = count * size_t(top);
  std::span<const int32_t> others;
  if (top > 0) others = step_.column(BatchColumn::TopTokens).subspan(size_t(begin * top), count_top);
  std::vector<float> seeds(count + count_top);
  SLUICE_TRY(one.loss({begin - one.first, targets, log_probs.subspan(at, count), others,
                       log_probs.subspan(at_top, count_top)},
                      seeds));
  for (size_t i = 0; i < count_top; ++i) {
    const bool counts = targets[i / size_t(top)] >= 0 && others[i] >= 0;
    const float seed = seeds[count + i];
    if (counts && !std::isfinite(seed))
      return error(
          "loss: the derivative with respect to the log-probability of top_tokens[{}] is {}; allowed are "
          "finite numbers",
          (begin - one.first) * top + int64_t(i), seed);
    weights[at_top + i] = counts ? -seed : 0;
  }
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(seeds[i]) && targets[i] >= 0) {
      return error(
          "loss: the derivative with respect to log-probability {} is {}; allowed are finite numbers",
          begin - one.first + int64_t(i), seeds[i]);
    }
    weights[at + i] = targets[i] >= 0 ? -seeds[i] : 0;
  }
  return {};
}

Result<std::shared_ptr<QueuedRows>> StepQueue::add(const sluice::Batch& given, sluice::RoundLoss loss) {
  const Prepared& p = engine_->prepared();
  const bool has_seeds = loss || !given.seeds.empty();
  if (!given.top_tokens.empty() && !loss)
    return error("batch: it has top_tokens, which a loss of rounds reads, and there is none");
  SLUICE_TRY(check_sequences(given, p));
  const auto n = int64_t(given.tokens.size());
  if (engine_->has_passed()) {
    return error(
        "forward_backward(): the gradients of {} tokens were made; optim_step() or discard() comes first",
        tokens_);
  }
  if (tokens_ + n > p.shape.tokens()) {
    const std::string rest = tokens_ > 0 ? fmt::format(", with {} that wait for optim_step()", tokens_) : "";
    return error("batch: {} tokens{}; the plan's step has {}", n, rest, p.shape.tokens());
  }
  if (tokens_ > 0 && has_seeds != seeded_) {
    return error("batch: it has {}seeds, and what waits for optim_step() has {}; all of a step, or none",
                 has_seeds ? "" : "no ", has_seeds ? "none" : "some");
  }
  if (step_.tokens() == 0) step_ = Rows(p.stages.main.model.layout, p.shape.tokens());
  SLUICE_TRY(take(given, p, step_.part(tokens_, n)));
  auto one = std::make_shared<QueuedRows>(QueuedRows{tokens_, n});
  if (loss) asked_.push_back({tokens_, n, std::move(loss)});
  tokens_ += n;
  seeded_ = has_seeds;
  waiting_.push_back(one);
  return one;
}

const Rows& StepQueue::rows() {
  fill_missing(step_, tokens_, engine_->prepared().shape.seq_len);
  return step_;
}

Status StepQueue::make_gradients(std::string_view call) {
  if (tokens_ == 0) return error("{}: no rows wait; forward_backward() brings them", call);
  if (engine_->has_passed()) return {};
  if (!engine_->prepared().optimizer.deferred) {
    return error(
        "{}: the plan updates weights while it makes their gradients; plan with "
        "the option deferred_updates = true",
        call);
  }
  if (const Status made = engine_->make_passes(rows(), loss()); !made.ok()) {
    drop("their passes failed: " + made.message());
    return made;
  }
  resolve();
  return {};
}

Result<StepResult> StepQueue::step(double learning_rate, const UpdateValues& values) {
  auto stepped = engine_->has_passed() ? engine_->decide_update(learning_rate, values)
                                       : engine_->step(rows(), learning_rate, nullptr, loss(), &values);
  if (!stepped.ok()) {
    drop("its step failed: " + stepped.message());
    return stepped;
  }
  resolve();
  tokens_ = 0;
  return stepped;
}
}  // namespace sluice::core
