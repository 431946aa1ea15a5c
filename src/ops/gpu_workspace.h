// SPDX-License-Identifier: Apache-2.0
// What ops need on a GPU beside their operands, where libraries run products and attention. The backend lays
// the parts out by it, and plans for a GPU that is not there count on it.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/compute_capability.h"
#include "ops/gpu_partials.h"

namespace sluice::core {

struct AttnShape;
struct AttnFwd;
struct AttnBwd;
struct HeadLoss;
struct Adafactor;
struct Muon;
struct DeltaRule;
struct DeltaRuleBwd;

// Workspace of every product; cuBLASLt's own advice for Hopper.
constexpr int64_t kProductWorkspaceBytes = 32 * kMiB;

// Versions that decide the needs of attention's library.
struct GpuLibraries {
  // Most that the graphs of deterministic attention backward may use; they work on as many heads at a time as
  // fit.
  int64_t attention_cap_bytes = 1280 * kMiB;
  bool deterministic = false;
  ComputeCapability capability{9, 0};
};

// Row stride of the f32 logits of HeadLoss.
constexpr int64_t logits_stride(int64_t vocab) {
  return align_up(vocab, 64);
}

// Where parts of a workspace begin, in bytes, and what all of it takes.
struct HeadLossParts {
  int64_t product, logits, row_loss;
  int64_t by_row, turned, largest;  // of the gradients in 8 bits
  int64_t bytes;
};
HeadLossParts workspace_parts(const HeadLoss& op);

struct AttnFwdParts {
  int64_t graph, o, lse, bytes;
};
AttnFwdParts workspace_parts(const AttnFwd& op, const GpuLibraries& libraries);

struct AttnBwdParts {
  int64_t graph, row_sum, dq_sum, dq, dkv, bytes;
};
AttnBwdParts workspace_parts(const AttnBwd& op, const GpuLibraries& libraries);

// Factors of rows and columns, sums of rows, partial sums of columns, and what is of the whole tensor.
struct AdafactorParts {
  int64_t row_factors, column_factors, row_sums, weight_sums, column_sums, scalars, bytes;
};
AdafactorParts workspace_parts(const Adafactor& op);

// The direction in f32, whose memory every other x has; the others; squares, and the sum of the direction's
// own.
struct MuonParts {
  int64_t product, direction, x, a, b, norm, partials, bytes;
};
MuonParts workspace_parts(const Muon& op);

// Lists of blocks and documents; q and k normalised, and what by; sums of decays; the matrix that solves a
// block, and its scores. Backward, changes of tokens and their gradient, states before blocks and theirs.
struct DeltaParts {
  int64_t table, keys, scales, sums, solved, scores, changes, d_changes, states, d_states, bytes;
};
DeltaParts workspace_parts(const DeltaRule& op);
DeltaParts workspace_parts(const DeltaRuleBwd& op);

// Whether cuDNN takes the block; own kernels take the rest.
bool suits_cudnn(const AttnShape& shape, bool backward, const GpuLibraries& libraries);

// How backward is cut up: rows and key heads per call of the graph, and how many calls run side by side. One
// fills the multiprocessors that the end of another leaves idle.
struct AttnCalls {
  int64_t rows, kv_heads, lanes;
};
AttnCalls calls_of(const AttnShape& shape, bool backward, const GpuLibraries& libraries);

// Upper bound of what one call of a block's graph takes.
int64_t graph_bytes(const AttnShape& shape, bool backward, const GpuLibraries& libraries);

}  // namespace sluice::core
