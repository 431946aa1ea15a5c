#include "model/build.h"

namespace sluice {

Status validate(const StepShape& s) {
  const std::pair<const char*, int64_t> positive[] = {{"seq_len", s.seq_len},
                                                      {"chunk_tokens", s.chunk_tokens},
                                                      {"chunks_per_round", s.chunks_per_round},
                                                      {"rounds", s.rounds},
                                                      {"head_tokens", s.head_tokens}};
  for (const auto& [key, value] : positive) {
    if (value <= 0) return error("shape: {} is {}; it must be positive", key, value);
  }
  if (s.chunk_tokens % s.seq_len != 0 && s.seq_len % s.chunk_tokens != 0) {
    return error("shape: chunk_tokens {} neither divides seq_len {} nor is a multiple of it", s.chunk_tokens, s.seq_len);
  }
  if (s.chunks_per_round % s.chunks_per_sequence() != 0) {
    return error("shape: chunks_per_round {} is not a multiple of the {} chunks of a sequence", s.chunks_per_round,
                 s.chunks_per_sequence());
  }
  return {};
}

Status validate(const Numerics& n) {
  for (const auto& [key, dtype] : {std::pair{"compute", n.compute}, {"grad", n.grad}, {"state", n.state}}) {
    if (dtype != DType::F32 && dtype != DType::BF16) {
      return error("numerics: {} is {}; allowed are f32, bf16", key, name_of(dtype));
    }
  }
  if (n.compute == DType::F32 && (n.grad != DType::F32 || n.state != DType::F32 || n.master || n.stochastic)) {
    return error("numerics: with compute f32, grad and state are f32, and master and stochastic are off");
  }
  if (n.master && n.state != DType::F32) return error("numerics: master weights need state f32");
  return {};
}

}  // namespace sluice
