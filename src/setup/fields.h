// SPDX-License-Identifier: Apache-2.0
// The fields of what decides a run, by name: for keys of caches and manifests of checkpoints. A struct that
// gets another field does not compile here until that has its place, too: what a key forgets is a stale hit.
#pragma once

#include <concepts>
#include <type_traits>

#include "base/numerics.h"
#include "cost/profile.h"
#include "program/shape.h"

namespace sluice::core {

template <class T, class Plain>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Plain>;

template <MaybeConst<StepShape> Shape, class F>
void visit_fields(Shape& shape, F&& field) {
  auto& [seq_len, chunk_tokens, chunks_per_round, rounds, head_tokens, packed, first_chunks, short_rounds,
         last_tokens, replicas, processes] = shape;
  field("seq_len", seq_len);
  field("chunk_tokens", chunk_tokens);
  field("chunks_per_round", chunks_per_round);
  field("rounds", rounds);
  field("head_tokens", head_tokens);
  field("packed", packed);
  field("first_chunks", first_chunks);
  field("short_rounds", short_rounds);
  field("last_tokens", last_tokens);
  field("replicas", replicas);
  field("processes", processes);
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

// Measured op times and workspaces are left to the caller.
template <class F>
void visit_fields(const Profile& profile, F&& field) {
  const auto& [name, rates, links, network, transfer_latency_ns, copy_slowdown, peak_flops, narrow_peak_flops,
               alignment, overhead_bytes, host_growth, host_bytes_per_table_byte, most_host_bytes,
               measured_ns, workspace_bytes] = profile;
  const auto& [product_flops, attention_forward_flops, attention_backward_flops, memory_bytes, launch_ns,
               idle_part, grouped_share, narrow_share, wide_forward_share, wide_backward_share] = rates;
  field("name", name);
  field("product_flops", product_flops);
  field("attention_forward_flops", attention_forward_flops);
  field("attention_backward_flops", attention_backward_flops);
  field("memory_bytes", memory_bytes);
  field("launch_ns", launch_ns);
  field("idle_part", idle_part);
  field("grouped_share", grouped_share);
  field("narrow_share", narrow_share);
  field("wide_forward_share", wide_forward_share);
  field("wide_backward_share", wide_backward_share);
  for (const Link& link : links) {
    const auto& [from, to, bytes_per_s] = link;
    field("link.from", from.index());
    field("link.to", to.index());
    field("link.bytes_per_s", bytes_per_s);
  }
  field("network.bytes_per_s", network.bytes_per_s);
  field("network.latency_ns", network.latency_ns);
  field("network.core_ns_per_byte", network.core_ns_per_byte);
  field("transfer_latency_ns", transfer_latency_ns);
  field("copy_slowdown", copy_slowdown);
  field("peak_flops", peak_flops);
  field("narrow_peak_flops", narrow_peak_flops);
  field("alignment", alignment);
  for (const Tier tier : tiers_of(profile.devices())) field("overhead_bytes", overhead_bytes[tier]);
  const auto& [per_arena_gib, per_action] = host_growth;
  field("host_growth.per_arena_gib", per_arena_gib);
  field("host_growth.per_action", per_action);
  if (host_bytes_per_table_byte > 0) field("table_bytes", profile.table_bytes(most_host_bytes));
}

}  // namespace sluice::core
