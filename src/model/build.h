// From a model and a shape to Programs: training, evaluation, sampling.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "model/llama.h"
#include "program/program.h"

namespace sluice {

// How the tokens of a step are cut. It decides in which order sums are formed, so it may change the last bits
// of a result; it is part of the Program.
struct StepShape {
  int64_t seq_len = 0;
  int64_t chunk_tokens = 0;      // a multiple or a divisor of seq_len
  int64_t chunks_per_round = 1;  // of the second round; whole sequences
  int64_t rounds = 1;
  int64_t head_tokens = 0;   // rows of logits that exist at once
  bool packed = false;       // documents may begin inside a sequence
  int64_t first_chunks = 0;  // of the first round; 0: chunks_per_round
  int64_t short_rounds = 0;  // the last rounds, each shorter than the second by one sequence

  // Chunks a sequence is cut into; 1 when a chunk holds whole sequences.
  int64_t chunks_per_sequence() const { return chunk_tokens >= seq_len ? 1 : seq_len / chunk_tokens; }
  int64_t chunks_in(int64_t round) const {
    if (round == 0 && first_chunks > 0) return first_chunks;
    return chunks_per_round - (round + short_rounds >= rounds ? chunks_per_sequence() : 0);
  }
  int64_t chunks() const {
    return chunks_in(0) + chunks_per_round * (rounds - 1) -
           std::min(short_rounds, rounds - 1) * chunks_per_sequence();
  }
  int64_t tokens() const { return chunk_tokens * chunks(); }
  int64_t sequences() const { return tokens() / seq_len; }
};
// Spreads the chunks of a step over rounds as evenly as whole sequences allow, earlier rounds the longer
// ones. `first_chunks` are the first round's; 0: its even share. REQUIRES: seq_len and chunk_tokens are set;
// all are whole sequences, at least one per round.
void spread(StepShape& shape, int64_t chunks, int64_t rounds, int64_t first_chunks = 0);
// "8192 x (5 + 4 + 4 + 3)": chunk tokens, and the chunks of each round.
std::string text(const StepShape& shape);
// Errors name the key and what would divide.
Status validate(const StepShape& shape);

struct Numerics {
  DType compute = DType::F32;  // parameters, activations and their gradients
  DType grad = DType::F32;     // accumulated parameter gradients
  DType state = DType::F32;    // AdamW moments
  bool master = false;         // f32 master weights beside bf16 parameters
  bool stochastic = false;     // stochastic rounding of bf16 parameters and moments
};
Status validate(const Numerics& numerics);

struct OptimizerConfig {
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0.1f;
  float clip_norm = 1.0f;            // 0: no clipping
  int64_t part_elements = 16 << 20;  // a parameter's state is held in parts of at most this many elements
  // The update of step k runs inside step k+1, each weight's just before its first use, where its traffic
  // hides under the forward pass. Same arithmetic, same results; read weights after a flush.
  bool deferred = false;
  // With deferred: the forward pass makes only the new weights; the moments follow in round 0's backward
  // pass, each before its gradient is overwritten, so that the forward pass has nothing of them to store.
  // Same results.
  bool late_moments = false;
};

// A Program and the handles the trainer needs.
struct Model {
  Program program;
  ObjectId args;      // StepArgs
  ObjectId inv_freq;  // constant
  std::vector<std::vector<ObjectId>>
      batch;        // [round][chunk]: i32 [3][chunk_tokens]: tokens, targets, positions
  ObjectId loss;    // metric, f64[1]: sum over counted targets
  ObjectId clip;    // metric, f32[2]: gradient norm, scale (training)
  ObjectId logits;  // metric, f32[vocab] (sampling)
};

// One optimizer step. REQUIRES: the arguments are valid.
Model build_training(const LlamaConfig& config, const StepShape& shape, const Numerics& numerics,
                     const OptimizerConfig& optimizer);
// The pending update of a deferred step, alone.
Model build_flush(const LlamaConfig& config, const Numerics& numerics, const OptimizerConfig& optimizer);
// Loss of one round, no gradients.
Model build_evaluation(const LlamaConfig& config, const StepShape& shape, const Numerics& numerics);
// Logits of one row of one chunk of `tokens` tokens.
Model build_sampling(const LlamaConfig& config, int64_t tokens, const Numerics& numerics);

}  // namespace sluice
