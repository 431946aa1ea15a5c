#include "planner/shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

// Larger chunks than this gain nothing on any machine: every kernel is long past its overheads.
constexpr int64_t kLargestChunk = 32768;
constexpr int64_t kSmallestChunk = 1024;

int64_t head_tokens(const LlamaConfig& model, const ShapeRequest& r, int64_t chunk) {
  if (r.head_tokens > 0) return std::min(r.head_tokens, chunk);
  // Logits of a large vocabulary are the largest thing on the device; a thousand rows keep their product efficient.
  const int64_t rows = model.vocab > 16384 ? 1024 : 4096;
  return std::min(rows, chunk);
}

// Shapes that divide the step, chunks ascending.
std::vector<StepShape> candidates(const LlamaConfig& model, const ShapeRequest& r) {
  std::vector<int64_t> chunks;
  if (r.chunk_tokens > 0) {
    chunks.push_back(r.chunk_tokens);
  } else {
    for (int64_t c = r.seq_len; c > kSmallestChunk && c > kLargestChunk / 4 && c % 2 == 0; c /= 2) {
      if (c / 2 <= kLargestChunk / 2) chunks.push_back(c / 2);
    }
    for (int64_t c = r.seq_len; c <= std::max(r.seq_len, std::min(kLargestChunk, r.tokens_per_step)); c *= 2) {
      if (c >= kSmallestChunk || c == r.tokens_per_step || 2 * c > r.tokens_per_step) chunks.push_back(c);
    }
  }
  std::sort(chunks.begin(), chunks.end());
  std::vector<StepShape> out;
  for (const int64_t c : chunks) {
    if (c > r.tokens_per_step || r.tokens_per_step % c != 0) continue;
    StepShape s{r.seq_len, c, 1, 1, head_tokens(model, r, c), r.packed};
    const int64_t whole = s.chunks_per_sequence();
    for (const int64_t sequences : {1, 2, 4}) {
      s.chunks_per_round = r.chunks_per_round > 0 ? r.chunks_per_round : whole * sequences;
      if ((r.tokens_per_step / c) % s.chunks_per_round != 0) continue;
      s.rounds = r.tokens_per_step / c / s.chunks_per_round;
      out.push_back(s);
      if (r.chunks_per_round > 0) break;
    }
  }
  return out;
}

constexpr std::string_view kOnly = "the only one that fits what was given";

bool loads_moments(const Program& program, const Plan& plan) {
  return std::any_of(plan.actions.begin(), plan.actions.end(), [&](const Action& a) {
    return a.kind == ActionKind::Load && program.object(a.object).kind == ObjectKind::OptState;
  });
}

std::string text(const StepShape& s) {
  return fmt::format("{} x {} x {}", s.chunk_tokens, s.chunks_per_round, s.rounds);
}

}  // namespace

Result<ShapeChoice> choose_shape(const LlamaConfig& model, const Numerics& numerics, const OptimizerConfig& optimizer,
                                 const ShapeRequest& r, const Profile& profile) {
  std::vector<StepShape> shapes = candidates(model, r);
  if (shapes.empty()) {
    const StepShape given{r.seq_len, std::max<int64_t>(r.chunk_tokens, 1), std::max<int64_t>(r.chunks_per_round, 1), 1, 1};
    SLUICE_TRY(validate(given));
    return error("shape: {} tokens per step cannot be cut into chunks of {} and rounds of {} chunks", r.tokens_per_step,
                 r.chunk_tokens, r.chunks_per_round);
  }
  const bool only = shapes.size() == 1;
  if (only && !optimizer.deferred) {
    SLUICE_TRY(validate(shapes.front()));
    return ShapeChoice{shapes.front(), false, std::string(kOnly)};
  }
  PlanRequest plan_request;
  plan_request.device_cap_bytes = r.device_cap_bytes;
  plan_request.host_cap_bytes = r.host_cap_bytes;
  plan_request.quick = true;
  ShapeChoice best;
  double best_ns = 0;
  std::string others;
  std::optional<Error> refused;
  for (const StepShape& shape : shapes) {
    if (const Status valid = validate(shape); !valid.ok()) {
      refused = valid.error();
      continue;
    }
    double shape_ns = 0;
    for (const bool late : {false, true}) {
      OptimizerConfig update = optimizer;
      update.late_moments = late;
      const Program program = build_training(model, shape, numerics, update).program;
      const auto plan = make_plan(program, profile, plan_request);
      if (!plan.ok()) {
        refused = plan.error();
        continue;
      }
      if (shape_ns == 0 || plan->makespan_ns < shape_ns) shape_ns = plan->makespan_ns;
      // The smaller chunk wins a tie.
      if (best_ns == 0 || plan->makespan_ns < best_ns * 0.999) {
        best_ns = plan->makespan_ns;
        best.shape = shape;
        best.late_moments = late;
      }
      // Moments that stay on the device have no traffic to spread.
      if (!optimizer.deferred || !loads_moments(program, *plan)) break;
    }
    if (shape_ns == 0) continue;
    others += fmt::format("{}{}: {:.0f}", others.empty() ? "" : ", ", text(shape),
                          double(shape.tokens()) / shape_ns * 1e9);
  }
  if (best_ns == 0) return *refused;
  best.why = only ? std::string(kOnly) : fmt::format("fastest of the estimates, tok/s: {}", others);
  return best;
}

}  // namespace sluice
