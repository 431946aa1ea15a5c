#include "ops/attention.h"

namespace sluice {
using enum Access;
using enum DType;

Operands AttnFwd::operands() const {
  const AttnShape& s = shape;
  return {{"q", Read, s.dtype, s.tokens() * s.q_heads * s.head_dim},
          {"kv", Read, s.dtype, s.rows * s.kv_len * 2 * s.kv_heads * s.head_dim},
          {"pos", Read, I32, s.tokens()},
          {"o", write_or(merge), out_dtype, s.tokens() * s.q_heads * s.head_dim},
          {"lse", write_or(merge), F32, s.tokens() * s.q_heads}};
}

Operands AttnBwd::operands() const {
  const AttnShape& s = shape;
  const int64_t q = s.tokens() * s.q_heads * s.head_dim;
  const int64_t kv = s.rows * s.kv_len * 2 * s.kv_heads * s.head_dim;
  return {{"q", Read, s.dtype, q},
          {"kv", Read, s.dtype, kv},
          {"pos", Read, I32, s.tokens()},
          {"o", Read, s.dtype, q},
          {"lse", Read, F32, s.tokens() * s.q_heads},
          {"do", Read, s.dtype, q},
          {"dq", write_or(accumulate_dq), grad_dtype, q},
          {"dkv", write_or(accumulate_dkv), grad_dtype, kv}};
}

Operands RopeBwd::operands() const {
  const int64_t q = tokens * q_heads * head_dim, kv = tokens * 2 * kv_heads * head_dim;
  return {{"dq_rotated", Read, in_dtype, q}, {"dkv_rotated", Read, in_dtype, kv},
          {"pos", Read, I32, tokens},        {"inv_freq", Read, F32, head_dim / 2},
          {"dq", Write, dtype, q},           {"dkv", Write, dtype, kv}};
}

}  // namespace sluice
