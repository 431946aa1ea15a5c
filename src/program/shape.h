// SPDX-License-Identifier: Apache-2.0
// How the tokens of a step are cut.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace sluice::core {

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
  int64_t last_tokens = 0;   // of the last chunk, which may have fewer sequences; 0: chunk_tokens
  // How often all that comes, each time on other rows, with gradients of its own: those are summed in the end
  // by a tree (ops/exchange.h). Rounds are counted through.
  int64_t replicas = 1;
  // Processes of a job that each do that; the rest describes one of them.
  int64_t processes = 1;

  // Chunks a sequence is cut into; 1 when a chunk holds whole sequences.
  int64_t chunks_per_sequence() const { return chunk_tokens >= seq_len ? 1 : seq_len / chunk_tokens; }
  int64_t all_rounds() const { return rounds * replicas; }
  int64_t chunks_in(int64_t round) const {
    round %= rounds;
    if (round == 0 && first_chunks > 0) return first_chunks;
    return chunks_per_round - (round + short_rounds >= rounds ? chunks_per_sequence() : 0);
  }
  // Chunks of a replica.
  int64_t chunks() const {
    return chunks_in(0) + chunks_per_round * (rounds - 1) -
           std::min(short_rounds, rounds - 1) * chunks_per_sequence();
  }
  int64_t tokens_in(int64_t round, int64_t chunk) const {
    const bool last = round % rounds == rounds - 1 && chunk == chunks_in(round) - 1;
    return last && last_tokens > 0 ? last_tokens : chunk_tokens;
  }
  // Tokens of all replicas, as sequences().
  int64_t tokens() const { return replicas * (chunk_tokens * chunks() - lacking()); }
  int64_t sequences() const { return tokens() / seq_len; }
  // Tokens of a step over processes of equal shape.
  int64_t tokens_of_all() const { return processes * tokens(); }
  // Tokens that the last chunk lacks to be as long as the others.
  int64_t lacking() const { return last_tokens > 0 ? chunk_tokens - last_tokens : 0; }

  bool operator==(const StepShape&) const = default;
};
// Cuts the sequences of a step into chunks, of which the last has what the others leave. Spreads these over
// rounds as evenly as whole sequences allow, earlier rounds the longer ones. `first_chunks` are the first
// round's; 0: its even share. REQUIRES: seq_len and chunk_tokens are set; first_chunks are whole sequences;
// there is at least one sequence, and one chunk, per round.
void spread(StepShape& shape, int64_t sequences, int64_t rounds, int64_t first_chunks = 0);
// "8192 x (5 + 4 + 4 + 3)": chunk tokens, and the chunks of each round. "- 1024": that the last chunk lacks.
// "2 processes of 4 replicas of 8192 x 4 x 1": where there are several of either.
std::string to_text(const StepShape& shape);
// Errors name the key and what would divide.
Status validate(const StepShape& shape);

}  // namespace sluice::core
