// SPDX-License-Identifier: Apache-2.0
#include "program/shape.h"

#include <fmt/format.h>

namespace sluice::core {

Status validate(const StepShape& s) {
  const std::pair<const char*, int64_t> positive[] = {
      {"seq_len", s.seq_len},    {"chunk_tokens", s.chunk_tokens}, {"chunks_per_round", s.chunks_per_round},
      {"rounds", s.rounds},      {"head_tokens", s.head_tokens},   {"replicas", s.replicas},
      {"processes", s.processes}};
  for (const auto& [key, value] : positive) {
    if (value <= 0) return error("shape: {} is {}; it must be positive", key, value);
  }
  // All arithmetic with a shape stays far from the bounds of its numbers.
  constexpr double kMostTokens = 1e15;
  const double chunks = double(s.first_chunks) + double(s.chunks_per_round) * double(s.rounds);
  if (double(s.seq_len) > kMostTokens || double(s.head_tokens) > kMostTokens ||
      double(s.chunk_tokens) * chunks * double(s.replicas) > kMostTokens) {
    return error("shape: {} tokens x {:g} chunks are more than can be", s.chunk_tokens, chunks);
  }
  if (s.chunk_tokens % s.seq_len != 0 && s.seq_len % s.chunk_tokens != 0) {
    return error("shape: chunk_tokens {} neither divides seq_len {} nor is a multiple of it", s.chunk_tokens,
                 s.seq_len);
  }
  const int64_t whole = s.chunks_per_sequence();
  for (const auto& [key, value] :
       {std::pair{"chunks_per_round", s.chunks_per_round}, {"first_chunks", s.first_chunks}}) {
    if (value < 0 || value % whole != 0) {
      return error("shape: {} is {}; it must be a multiple of the {} chunks of a sequence", key, value,
                   whole);
    }
  }
  if (s.short_rounds < 0 || s.short_rounds >= s.rounds ||
      (s.short_rounds > 0 && s.chunks_per_round == whole)) {
    return error("shape: {} of {} rounds cannot be shorter than {} chunks by a sequence", s.short_rounds,
                 s.rounds, s.chunks_per_round);
  }
  if (s.last_tokens < 0 || s.last_tokens >= s.chunk_tokens || s.last_tokens % s.seq_len != 0) {
    return error(
        "shape: last_tokens is {}; it must be whole sequences of {}, and less than the {} of a chunk",
        s.last_tokens, s.seq_len, s.chunk_tokens);
  }
  return {};
}

void spread(StepShape& s, int64_t sequences, int64_t rounds, int64_t first_chunks) {
  const int64_t whole = s.chunks_per_sequence(), in_chunk = std::max<int64_t>(s.chunk_tokens / s.seq_len, 1);
  const int64_t all = (sequences + in_chunk - 1) / in_chunk;  // chunks, or sequences in several of them
  const int64_t first = first_chunks > 0 ? first_chunks / whole : (all + rounds - 1) / rounds;
  const int64_t others = std::max<int64_t>(rounds - 1, 1), left = rounds > 1 ? all - first : first;
  const int64_t longest = (left + others - 1) / others;
  s.rounds = rounds;
  s.chunks_per_round = longest * whole;
  s.first_chunks = first == longest ? 0 : first * whole;
  s.short_rounds = longest * others - left;
  s.last_tokens = sequences % in_chunk * s.seq_len;
}

std::string to_text(const StepShape& s) {
  if (s.processes > 1 || s.replicas > 1) {
    StepShape one = s;
    (s.processes > 1 ? one.processes : one.replicas) = 1;
    return s.processes > 1 ? fmt::format("{} processes of {}", s.processes, to_text(one))
                           : fmt::format("{} replicas of {}", s.replicas, to_text(one));
  }
  const std::string lacking = s.lacking() > 0 ? fmt::format(" - {}", s.lacking()) : "";
  if (s.first_chunks == 0 && s.short_rounds == 0) {
    return fmt::format("{} x {} x {}{}", s.chunk_tokens, s.chunks_per_round, s.rounds, lacking);
  }
  std::string rounds;
  for (int64_t r = 0; r < s.rounds; ++r) rounds += fmt::format("{}{}", r == 0 ? "" : " + ", s.chunks_in(r));
  return fmt::format("{} x ({}){}", s.chunk_tokens, rounds, lacking);
}

}  // namespace sluice::core
