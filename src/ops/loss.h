// SPDX-License-Identifier: Apache-2.0
// What follows the last layer: cross-entropy with its gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"
#include "base/format.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// Cross-entropy of x w^T against targets (-1: does not count), sub_tokens rows of logits at a time. loss[0]
// (+)= the sum of -log p(target), f64, and loss[1] (+)= the number of targets that no logit is larger than,
// with gradients of args.loss_scale * loss[0]: dx and, unless frozen, dw (over the sub-chunks in grad_dtype,
// as in LinearDgrad). forward_only: both of each row, without gradients: loss[t] and loss[tokens + t].
//
// softcap: logits are softcap tanh(x w^T / softcap), if it is not 0.
//
// weighted: every -log p(target) is taken times the row's weight, an f32 of any sign; what is counted is as
// ever. log_probs: log p(target) of each row, f32, too; 0 where none counts.
//
// top: each row that counts has so many other tokens beside its target (-1: none), with weights and
// log-probabilities like the target's. Their losses are part of the gradients, and not of loss[0].
//
// x_format: x and w are copies in 8 bits by row. For dx and dw their turned copies are read (Quantize in
// ops/cast.h), and two copies of the logits' gradients: by row, and turned by sub-chunk. These are f8e5m2
// always: most are probabilities, and f8e4m3 would lose what is below 2^-18 of its row's largest.
//
// Any loss L of log-probabilities goes through weights: those of -dL/dlog p(target), its seeds with the sign
// turned round, under a scale of 1 make the gradients of L. Turning a sign round is exact.
struct HeadLoss {
  static constexpr std::string_view kName = "head_loss";
  static constexpr int64_t kMostTop = 1024;
  // Then the turned copies of w and x, weights, log_probs, top_tokens, top_weights and top_log_probs, where
  // they are.
  enum { kX, kW, kTargets, kArgs, kLoss, kDx, kDw };
  int64_t tokens, dim, vocab, sub_tokens;
  DType dtype, grad_dtype;
  bool accumulate_loss, accumulate_dw, forward_only;
  bool frozen = false;  // no gradient of w: kDw is absent
  bool weighted = false, log_probs = false;
  float softcap = 0;
  int64_t top = 0;
  std::optional<NumberFormat> x_format = {};

  bool reads_turned() const { return x_format && !forward_only; }
  Operands operands() const;
  // Where the operands are that not every form has.
  int turned_w_operand() const { return frozen ? kDw : kDw + 1; }
  int turned_x_operand() const { return turned_w_operand() + 1; }  // where w is trained
  int weights_operand() const {
    if (forward_only) return kDx;
    return turned_w_operand() + (!x_format ? 0 : frozen ? 1 : 2);
  }
  int log_probs_operand() const { return weights_operand() + (weighted ? 1 : 0); }
  int top_tokens_operand() const { return log_probs_operand() + (log_probs ? 1 : 0); }
  int top_weights_operand() const { return top_tokens_operand() + 1; }
  int top_log_probs_operand() const { return top_weights_operand() + (weighted ? 1 : 0); }
  Work work() const {
    // Between its products logits are written, then read and turned into gradients in place. These are read
    // twice in bf16 and written twice in 8 bits, where products read so.
    const double passes = forward_only ? 2 : x_format ? 4.5 : 3;
    return {.unit = x_format ? Unit::NarrowProduct : Unit::Product,
            .flops = (forward_only ? 2.0
                      : frozen     ? 4.0
                                   : 6.0) *
                     double(tokens) * double(dim) * double(vocab),
            .pass_bytes = passes * 4 * double(tokens) * double(vocab)};
  }
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("vocab", vocab), f("sub", sub_tokens), f("dtype", dtype),
        f("grad", grad_dtype), f("acc_loss", accumulate_loss), f("acc_dw", accumulate_dw),
        f("fwd", forward_only), f("frozen", frozen);
    if (weighted || log_probs) f("weighted", weighted), f("log_probs", log_probs);
    if (softcap > 0) f("softcap", softcap, kNoCost);
    if (top > 0) f("top", top);
    if (x_format) f("x", *x_format);
  }
};

// The weights of a round's targets, chunk by chunk: all[first + t] = weights[t], and all[round + first + t] =
// log_probs[t], f32[2, round]. The round's first chunk (first = 0) writes zeros for the others. When the last
// one has run, a caller's own loss of the round's log-probabilities may put other weights in their place
// (Executor::step()); HeadLoss then takes its chunk's. Where targets have others beside them (HeadLoss::top),
// a round's numbers are those of its targets and behind them those of the others.
struct GatherWeights {
  static constexpr std::string_view kName = "gather_weights";
  enum { kWeights, kLogProbs, kAll };
  int64_t tokens, first, round;  // of the chunk, before it, of all chunks

  Operands operands() const;
  double traffic() const;
  constexpr void fields(auto&& f) const { f("tokens", tokens), f("first", first), f("round", round); }
};

}  // namespace sluice::core
