// The fields of what decides a run, by name: for keys of caches and manifests of checkpoints. A struct that
// gets another field does not compile here until that has its place, too: what a key forgets is a stale hit.
#pragma once

#include <concepts>
#include <type_traits>

#include "base/numerics.h"
#include "program/shape.h"

namespace sluice {

template <class T, class Plain>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Plain>;

template <MaybeConst<StepShape> Shape, class F>
void visit_fields(Shape& shape, F&& field) {
  auto& [seq_len, chunk_tokens, chunks_per_round, rounds, head_tokens, packed, first_chunks, short_rounds] =
      shape;
  field("seq_len", seq_len);
  field("chunk_tokens", chunk_tokens);
  field("chunks_per_round", chunks_per_round);
  field("rounds", rounds);
  field("head_tokens", head_tokens);
  field("packed", packed);
  field("first_chunks", first_chunks);
  field("short_rounds", short_rounds);
}

template <MaybeConst<Numerics> AnyNumerics, class F>
void visit_fields(AnyNumerics& numerics, F&& field) {
  auto& [compute, grad, state, master, stochastic] = numerics;
  field("compute", compute);
  field("grad", grad);
  field("state", state);
  field("master", master);
  field("stochastic", stochastic);
}

}  // namespace sluice
