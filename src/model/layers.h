// SPDX-License-Identifier: Apache-2.0
// The forward pass of a decoder, as tasks. Only this: backward passes are derived (program/gradient).
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/batch.h"
#include "base/numerics.h"
#include "model/weights.h"
#include "ops/attention.h"
#include "ops/conv.h"
#include "ops/experts.h"
#include "ops/loss.h"
#include "program/gradient/gradients.h"
#include "program/program.h"

namespace sluice::core {

// How tokens are cut into chunks: whole sequences, or one of `per_sequence` pieces of a sequence.
struct Chunking {
  std::vector<std::vector<int64_t>> tokens;  // [round][chunk]
  int64_t row_tokens = 0;                    // of a sequence, or of a piece of one
  int64_t per_sequence = 1;
  bool packed = false;  // documents may begin inside a sequence
};

// The sums that routers add to in training (LoadLayout): one per layer, none without experts, and one per
// round if a loss uses it.
struct RouterSums {
  std::vector<ObjectId> layers, rounds;
  std::vector<RouterLosses> losses;  // [round]; none: there are no such losses
};

// Inputs and constants of the model's tasks.
struct ModelInputs {
  ObjectId args;                             // StepArgs, or DropoutArgs
  ObjectId inv_freq;                         // f32[head_dim / 2]; none where no layer is rotated
  ObjectId window_inv_freq;                  // the same of layers with a window, where they have their own
  std::vector<std::vector<ObjectId>> batch;  // [round][chunk]
  BatchLayout layout;                        // of each
  RouterSums router;
  // Passes that generate text: caches of keys and values by layer, for so many tokens of each row, and spans
  // (ops/generation.h). They also have the tokens' rows of what is_looked_up(), of one weight after another,
  // which the host looks up. Without caches attention covers the round alone.
  struct {
    std::vector<ObjectId> layers, states;  // states: of gated delta rules, f32
    ObjectId spans, embedded;
    int64_t capacity = 0;
    ObjectId slots, copies;  // see GenerationShape; invalid: it has none
    int64_t rows = 0;        // of the caches
  } cache;
};

class Forward {
 public:
  // `weights` are the objects of weights_of(spec), in its order. `gradients`: records what is done; null: no
  // backward pass will be derived. Borrows all of them.
  Forward(const ModelSpec& spec, const std::vector<Weight>& table, const std::vector<ObjectId>& weights,
          const Chunking& chunking, const Numerics& numerics, const ModelInputs& inputs, Program& program,
          Gradients* gradients);

  // All layers over the chunks of a round, layer by layer. Returns the stream after the last one, by chunk.
  std::vector<ObjectId> layers(int round);

  // The last norm of one chunk.
  ObjectId last_norm(ObjectId x, int round, int chunk);
  // And the sum of its losses, `sub_tokens` rows of logits at a time, into the f64 `loss`, with gradients, of
  // `grad` for the head; and where `log_probs` is valid, those of each token into it. The tokens' weights are
  // the batch's, or where they are in `all`, what gather_weights() made of the round, its chunk's there.
  // REQUIRES: gradients are recorded.
  void head_loss(ObjectId h, ObjectId loss, ObjectId log_probs, ObjectId all, int64_t sub_tokens, DType grad,
                 int round, int chunk);
  // Before that: log p of each token into `log_probs`, and with the batch's weights into its chunk's part of
  // `all`, GatherWeights' for the round. No gradients pass through it.
  void gather_weights(ObjectId h, ObjectId log_probs, ObjectId all, int64_t sub_tokens, DType grad, int round,
                      int chunk);
  // Or those of each token alone: `losses` is what HeadLoss makes without gradients. REQUIRES: none are
  // recorded.
  void token_losses(ObjectId h, ObjectId losses, int64_t sub_tokens, DType grad, int round, int chunk);
  // Or the logits of each row's last new token, f32[rows, vocab]. REQUIRES: there are caches.
  void last_logits(ObjectId h, ObjectId logits, int round, int chunk);
  // And so many tokens of them, see DrawTokens.
  void draw_tokens(ObjectId logits, ObjectId draws, ObjectId drawn, int64_t count, int round, int chunk);

 private:
  struct Place {
    int layer, round, chunk;
  };
  int64_t tokens(const Place& at) const { return chunking_.tokens[size_t(at.round)][size_t(at.chunk)]; }
  // In the round, before the place's chunk.
  int64_t tokens_before(const Place& at) const;
  int64_t tokens_of_round(const Place& at) const;
  int64_t rows(const Place& at) const { return tokens(at) / chunking_.row_tokens; }

  bool decodes() const { return !inputs_.cache.layers.empty(); }
  ObjectId embed(int round, int chunk);
  // The embedding plus each token's position; the embedding itself without such a table.
  ObjectId add_positions(ObjectId embedded, int round, int chunk);
  ObjectId layer(ObjectId x, const Place& at);
  struct Projection {
    std::string_view task, weight, bias;  // names; no bias: empty
    int64_t in, out;
    int64_t rope_heads = 0;        // that it rotates itself, in programs that decode
    Temperature temperature = {};  // of these
  };
  // The result of a layer's first half, and the product that adds it to the stream.
  ObjectId mix(const Attention& a, ObjectId x, const Place& at);
  ObjectId mix(const Convolution& c, ObjectId x, const Place& at);
  ObjectId mix(const GatedDelta& d, ObjectId x, const Place& at);
  Projection out_of(const Attention& a) const;
  Projection out_of(const Convolution& c) const;
  Projection out_of(const GatedDelta& d) const;
  // The second half. Returns the stream with it.
  ObjectId feed_forward(const Mlp& mlp, ObjectId x, ObjectId stream, const Place& at);
  ObjectId feed_forward(const Experts& e, ObjectId x, ObjectId stream, const Place& at);
  struct Projected {
    ObjectId q, kv, gate;  // no gate: invalid
  };
  // A short convolution of x, `dim` columns of which come out.
  ObjectId convolve(std::string_view result, ObjectId x, int64_t dim, int64_t width, bool silu,
                    const Place& at);
  // A gate of what a mixer makes, and of its norm by heads where there is one; its weight has that name.
  ObjectId gate_heads(std::string_view what, ObjectId x, ObjectId z, int64_t heads, int64_t head_dim,
                      std::string_view norm, const Place& at);
  bool has_before(const Place& at) const { return at.chunk % chunking_.per_sequence > 0; }
  bool has_after(const Place& at) const {
    return at.chunk % chunking_.per_sequence + 1 < chunking_.per_sequence;
  }
  Projected project_rotated(ObjectId x, const Place& at);
  // REQUIRES: the layer has it.
  const Attention& attention(const Place& at) const { return *spec_.layers[size_t(at.layer)].attention(); }
  // The scale of rotated queries and of rotated keys: the embedding's, and the correction of attention's own.
  float rope_scale(const Place& at) const {
    const Attention& a = attention(at);
    return float(spec_.rope_of(a).attention_factor * a.rotation_scale());
  }
  // And of what no angle turns, where some of a head's rows are: attention's alone.
  float still_scale(const Place& at) const {
    const Attention& a = attention(at);
    const bool same = spec_.rope_of(a).attention_factor == 1 || spec_.rotated_rows(a) == a.head_dim;
    return same ? 0 : float(a.rotation_scale());
  }
  // The temperature of queries.
  Temperature temperature(const Place& at) const {
    const RopeScaling& rope = spec_.rope_of(attention(at));
    return rope.temperature == 0 ? Temperature()
                                 : Temperature{float(rope.temperature), rope.original_context};
  }
  ObjectId inv_freq(const Place& at) const {
    const Attention& a = attention(at);
    return spec_.rotates_as_window(a) ? inputs_.window_inv_freq : inputs_.inv_freq;
  }
  // Rotates the first heads of every row of x, [tokens, heads * head_dim + rest]. Not recorded.
  TaskId rotate(std::string_view what, ObjectId x, int64_t heads, int64_t rest, const Place& at);
  ObjectId norm_heads(std::string_view what, ObjectId x, std::string_view y, int64_t heads, int64_t rest,
                      const Place& at);
  ObjectId attend(const Projected& p, const Place& at);
  // The input of an MLP's down projection: activation(gate(x)) * up(x). Its names begin with `prefix`.
  ObjectId gated(const Mlp& mlp, std::string_view prefix, ObjectId x, const Place& at);
  // The stream behind a part of a layer, of which the last makes that of the next layer.
  enum class Part : uint8_t { Halves, Input, Scaled };
  ObjectId stream_after(const Place& at, Part part = Part::Halves) {
    const LayerSpec& layer = spec_.layers[size_t(at.layer)];
    const Part last = layer.scaled ? Part::Scaled : layer.input > 0 ? Part::Input : Part::Halves;
    if (part == last) return activation("x", spec_.dim, {at.layer + 1, at.round, at.chunk}, Stream::Between);
    return activation(part == Part::Halves ? "x_halves" : "x_input", spec_.dim, at, Stream::Within);
  }
  ObjectId add_input(ObjectId x, const Place& at);
  struct Routed {
    ObjectId gates, routing;
  };
  Routed route(ObjectId x, const Mixture& mixture, const Place& at);
  void load(const Mixture& mixture, ObjectId logits, ObjectId chosen, const Place& at);
  // Sums experts' results by token, with the residual.
  void run_experts(ObjectId x, const Mixture& mixture, const Routed& routed, std::optional<ObjectId> residual,
                   ObjectId sum, const Place& at);
  // Adds what every token has of the shared expert, times its gate.
  void share_expert(ObjectId x, ObjectId residual, ObjectId sum, const Place& at);
  ObjectId attend_to_cache(const Projected& p, const Place& at);
  // Rows of a cache for the op's attribute, 0 where texts have them in order.
  int64_t slotted_rows() const { return inputs_.cache.slots.valid() ? inputs_.cache.rows : 0; }
  // An op on a cache of the layer, and the copies of its rows behind it.
  void add_cached(std::string_view what, SharedOp op, std::vector<Bound> uses, ObjectId cache,
                  const Place& at);
  // y = x w^T (+ bias) (+ adapter) (+ residual, or rotated). With magnitudes the product and the adapter are
  // scaled by these. The last task is not recorded, others are.
  TaskId project(const Projection& p, ObjectId x, ObjectId y, std::optional<ObjectId> residual,
                 const Place& at);
  // The product alone.
  TaskId multiply(const Projection& p, ObjectId x, ObjectId y, std::optional<ObjectId> addend,
                  const Place& at);
  // Scales the result z of a product and its adapter.
  TaskId magnify(const Projection& p, const Weight::Adds& adds, ObjectId b, ObjectId z, ObjectId y,
                 std::optional<ObjectId> residual, const Place& at);
  // Products of one input: those that nothing scales are differentiated together.
  void record_products(std::span<const TaskId> products);
  // The addend of a product: the residual, and the adapter's part of x.
  std::optional<ObjectId> adapt(const Projection& p, ObjectId x, std::optional<ObjectId> residual,
                                const Place& at);
  // Drops values of x for an adapter's A in training, and records it.
  ObjectId drop(std::string_view name, ObjectId x, int64_t width, uint64_t target, const Place& at);
  // A norm of the stream.
  ObjectId norm(std::string_view what, ObjectId x, std::string_view y, const Place& at, float scale = 1);
  // A norm of a half's output before it is added to the stream.
  void norm_after(std::string_view what, ObjectId half, ObjectId stream, ObjectId sum, const Place& at);
  // Adds a half of a layer to the stream: a product whose sum with it is `sum`, normalised before if the
  // layer has norms after its halves, and then `half` names it meanwhile.
  void add_half(const Projection& p, std::string_view half, std::string_view norm, ObjectId x,
                ObjectId stream, ObjectId sum, const Place& at);

  AttnShape attention_shape(const Place& at, int block) const;
  ObjectId weight(std::string_view role, int layer) const;
  // x, of rows of `cols`, by row in the format; `turned`: the backward pass reads that copy.
  ObjectId quantized(ObjectId x, const NumberFormat& format, int64_t cols, bool turned, const Place& at);
  // The same as products take it: where it is stored in another format, cast once in each round.
  ObjectId multiplied(std::string_view role, const Place& at);
  Bound batch(const Place& at, BatchColumn column) const;
  ObjectId object(std::string_view role, DType dtype, int64_t width, const Place& at,
                  Stream stream = Stream::No) {
    return sized(role, dtype, tokens(at) * width, at, stream);
  }
  ObjectId sized(std::string_view role, DType dtype, int64_t elements, const Place& at,
                 Stream stream = Stream::No);
  ObjectId activation(std::string_view role, int64_t width, const Place& at, Stream stream = Stream::No) {
    return object(role, activations_, width, at, stream);
  }
  Task made(std::string_view what, SharedOp op, std::span<const Bound> uses, const Place& at) const;
  // The loss without gradients, with what it reads and `out`: weighted where batches have weights.
  struct Head {
    HeadLoss op;
    std::vector<Bound> uses;
  };
  Head head(ObjectId h, ObjectId out, int64_t sub_tokens, DType grad, const Place& at);
  int64_t top() const;  // HeadLoss::top
  TaskId task(std::string_view what, SharedOp op, std::initializer_list<Bound> uses, const Place& at) {
    return program_.add(made(what, std::move(op), std::span(uses.begin(), uses.size()), at));
  }
  void record(uint32_t count = 1) {
    if (gradients_ != nullptr) gradients_->record(count);
  }

  const ModelSpec& spec_;
  const Chunking chunking_;
  const DType activations_;  // and their gradients
  const ModelInputs& inputs_;
  Program& program_;
  Gradients* const gradients_;
  std::vector<std::unordered_map<std::string_view, ObjectId>> weights_;       // by layer + 1, by role
  std::vector<std::unordered_map<std::string_view, Weight::Adds>> adapters_;  // the same of adapters' B
  std::unordered_map<uint32_t, ProductFormats> products_;                     // by the object of the weight
  std::unordered_map<uint32_t, ObjectId> casts_;  // of the round, by the object that is cast
  struct Copies {
    ObjectId by_row, turned;
  };
  std::unordered_map<uint32_t, Copies> copies_;        // in 8 bits, by the object; of weights, of the step
  std::vector<std::vector<ObjectId>> kv_;              // [layer][chunk] of the round
  std::vector<ObjectId> embedded_;                     // [chunk]
  std::vector<std::vector<ObjectId>> tails_, states_;  // likewise, of convolutions and of delta rules
  std::unordered_map<uint32_t, ObjectId> norms_;       // of the step, by the weight of whose rows they are
  // The newest product with an adapter's A, which rows of one tensor share.
  struct {
    ObjectId a, x, u;
  } low_rank_;
  ObjectId loss_written_;                       // the newest
  std::unordered_set<uint32_t> loads_written_;  // objects
};

}  // namespace sluice::core
