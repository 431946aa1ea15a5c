// SPDX-License-Identifier: Apache-2.0
#include "ops/gpu_workspace.h"

#include <algorithm>

#include "ops/attention.h"
#include "ops/delta.h"
#include "ops/loss.h"
#include "ops/tensor_update.h"

namespace sluice::core {
namespace {

constexpr int64_t kAlignment = 256;
// cuDNN's tiles; other lengths take slower or less tested paths there.
constexpr int64_t kCudnnLength = 128;
// Backward passes of heads above kMostCudnnHeadDimBack it has on Hopper alone.
constexpr int64_t kLeastCudnnHeadDim = 32, kMostCudnnHeadDim = 256, kMostCudnnHeadDimBack = 128;
// In how many times cuDNN's time own kernels compute a score of a backward pass, as measured on an H100
// and an H200.
constexpr double times_of_cudnn(int64_t head_dim) {
  return head_dim <= 128 ? 3 : 1.5;
}
// Bookkeeping of a graph beside what the formulas count.
constexpr int64_t kGraphSlack = 64 * kKiB;

// Lays out parts of a workspace one after the other.
class Parts {
 public:
  int64_t add(int64_t bytes) {
    const int64_t offset = bytes_;
    bytes_ += align_up(bytes, kAlignment);
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// The largest divisor of n that is at most `most`, at least 1.
int64_t divisor_below(int64_t n, int64_t most) {
  int64_t d = std::min(n, most);
  while (d > 1 && n % d != 0) --d;
  return std::max<int64_t>(d, 1);
}

// The backward's scratch as measured on Hopper: bf16 dK and dV per query head where these share key heads,
// and bf16 dS when deterministic. On other architectures also an f32 dQ. Plans that want more are not used.
int64_t backward_graph_bytes(const AttnShape& s, int64_t rows, int64_t kv_heads,
                             const GpuLibraries& libraries) {
  const int64_t group = s.q_heads / s.kv_heads;
  int64_t per_query_head = 0;
  if (group > 1) per_query_head += 2 * s.kv_len * s.head_dim * 2;
  if (libraries.deterministic) per_query_head += s.q_len * s.kv_len * 2;
  if (libraries.capability.major != 9) per_query_head += s.q_len * s.head_dim * 4;
  return kGraphSlack + rows * kv_heads * group * per_query_head;
}

int64_t all_graph_bytes(const AttnShape& s, bool backward, const GpuLibraries& libraries) {
  return calls_of(s, backward, libraries).lanes * graph_bytes(s, backward, libraries);
}

DeltaParts delta_parts(const auto& op, bool backward) {
  const DeltaSizes& s = op.sizes;
  const int64_t columns = delta_columns(s.key_dim, s.value_dim), element = size_of(op.dtype);
  const int64_t squares = op.tokens * s.value_heads * kDeltaBlock * element;
  const int64_t changes = backward ? op.tokens * s.values() * element : 0;
  const int64_t slices = delta_slices(s.value_dim) * kDeltaSlice;
  const int64_t states =
      backward ? delta_kept_states(op.tokens) * s.value_heads * columns * slices * element : 0;
  Parts parts;
  DeltaParts at{};
  at.table = parts.add((2 * op.tokens + 4) * 4);
  at.keys = parts.add(op.tokens * 2 * s.key_heads * columns * element);
  at.scales = parts.add(op.tokens * 2 * s.key_heads * 4);
  at.sums = parts.add(op.tokens * s.value_heads * 4);
  at.solved = parts.add(squares);
  at.scores = parts.add(squares);
  at.changes = parts.add(changes);
  at.d_changes = parts.add(changes);
  at.states = parts.add(states);
  at.d_states = parts.add(states);
  at.bytes = parts.bytes();
  return at;
}

}  // namespace

DeltaParts workspace_parts(const DeltaRule& op) {
  return delta_parts(op, false);
}
DeltaParts workspace_parts(const DeltaRuleBwd& op) {
  return delta_parts(op, true);
}

HeadLossParts workspace_parts(const HeadLoss& op) {
  Parts parts;
  HeadLossParts at{};
  at.product = parts.add(kProductWorkspaceBytes);
  at.logits = parts.add(std::min(op.sub_tokens, op.tokens) * logits_stride(op.vocab) * 4);
  at.row_loss = parts.add(op.tokens * 4);
  if (op.reads_turned()) {
    const int64_t rows = std::min(op.sub_tokens, op.tokens), all = rows * op.vocab;
    at.by_row = parts.add(kWideFloat8.over(op.vocab).bytes(all));
    at.turned = parts.add(kWideFloat8.over(rows).bytes(all));
    at.largest = parts.add((rows + op.vocab) * 4);
  }
  at.bytes = parts.bytes();
  return at;
}

AttnFwdParts workspace_parts(const AttnFwd& op, const GpuLibraries& libraries) {
  Parts parts;
  AttnFwdParts at{};
  at.graph =
      parts.add(suits_cudnn(op.shape, false, libraries) ? all_graph_bytes(op.shape, false, libraries) : 0);
  const bool as_it_is = op.out_dtype == op.shape.dtype && !op.merge;
  at.o = parts.add(as_it_is ? 0 : op.shape.q_elements() * size_of(op.shape.dtype));
  at.lse = parts.add(op.merge ? op.shape.lse_elements() * 4 : 0);
  at.bytes = parts.bytes();
  return at;
}

AttnBwdParts workspace_parts(const AttnBwd& op, const GpuLibraries& libraries) {
  const AttnShape& s = op.shape;
  const bool cudnn = suits_cudnn(s, true, libraries), wide = op.grad_dtype != s.dtype;
  Parts parts;
  AttnBwdParts at{};
  at.graph = parts.add(cudnn ? all_graph_bytes(s, true, libraries) : 0);
  at.row_sum = parts.add(s.lse_elements() * 4);
  at.dq_sum = parts.add(cudnn && !libraries.deterministic ? s.q_elements() * 4 : 0);
  at.dq = parts.add(wide || op.accumulate_dq ? s.q_elements() * size_of(s.dtype) : 0);
  at.dkv = parts.add(wide || op.accumulate_dkv ? s.kv_elements() * size_of(s.dtype) : 0);
  at.bytes = parts.bytes();
  return at;
}

AdafactorParts workspace_parts(const Adafactor& op) {
  Parts parts;
  AdafactorParts at{};
  at.row_factors = parts.add(op.rows * 4);
  at.column_factors = parts.add(op.cols * 4);
  at.row_sums = parts.add(op.rows * 4);
  at.weight_sums = parts.add(op.rows * 4);
  at.column_sums = parts.add(column_partials(op.rows) * op.cols * 4);
  at.scalars = parts.add(2 * 4);
  at.bytes = parts.bytes();
  return at;
}

MuonParts workspace_parts(const Muon& op) {
  Parts parts;
  MuonParts at{};
  at.product = parts.add(kProductWorkspaceBytes);
  at.direction = parts.add(op.elements() * 4);
  at.x = parts.add(op.elements() * 2);
  at.a = parts.add(op.side() * op.side() * 2);
  at.b = parts.add(op.side() * op.side() * 2);
  at.norm = parts.add(8);
  at.partials = parts.add(int64_t{kSumSqPartials} * 8);
  at.bytes = parts.bytes();
  return at;
}

bool suits_cudnn(const AttnShape& s, bool backward, const GpuLibraries& libraries) {
  if (s.dtype != DType::BF16) return false;
  if (s.packed || s.q_len % kCudnnLength != 0 || s.kv_len % kCudnnLength != 0) return false;
  // Measured on Hopper alone. A window is a pattern that it knows beside the causal mask.
  if (s.softcap > 0 && libraries.capability.major != 9) return false;
  if (s.window > 0 && (s.distance != 0 || libraries.capability.major != 9)) return false;
  // Deterministic backward passes compute what the window hides, too, which own kernels leave out.
  if (s.window > 0 && backward && libraries.deterministic) {
    AttnShape all = s;
    all.window = 0;
    if (s.pairs() * times_of_cudnn(s.head_dim) < all.pairs()) return false;
  }
  if (s.head_dim % 8 != 0 || s.head_dim > kMostCudnnHeadDim || s.head_dim < kLeastCudnnHeadDim) return false;
  if (backward && s.head_dim > kMostCudnnHeadDimBack && libraries.capability.major != 9) return false;
  if (!backward || !libraries.deterministic) return true;
  return all_graph_bytes(s, true, libraries) <= libraries.attention_cap_bytes;
}

// Only deterministic backward is cut up, when all at once is more than its cap: into some key heads of one
// row, or some rows. Two calls run side by side where they fit. The keys of a causal block have unequal work,
// and one call alone would leave a fifth of the device idle at its end.
AttnCalls calls_of(const AttnShape& s, bool backward, const GpuLibraries& libraries) {
  const AttnCalls whole{s.rows, s.kv_heads, 1};
  if (!backward || !libraries.deterministic) return whole;
  if (backward_graph_bytes(s, s.rows, s.kv_heads, libraries) <= libraries.attention_cap_bytes) return whole;
  const int64_t per_head = backward_graph_bytes(s, 1, 1, libraries) - kGraphSlack;
  for (const int64_t lanes : {2, 1}) {
    const int64_t fit = (libraries.attention_cap_bytes / lanes - kGraphSlack) / per_head;
    if (fit < 1) continue;
    const int64_t heads = divisor_below(s.kv_heads, fit);
    return {heads == s.kv_heads ? divisor_below(s.rows, fit / heads) : 1, heads, lanes};
  }
  return {1, 1, 1};  // more than the cap
}

int64_t graph_bytes(const AttnShape& s, bool backward, const GpuLibraries& libraries) {
  if (!backward) return kGraphSlack;
  const AttnCalls call = calls_of(s, true, libraries);
  return backward_graph_bytes(s, call.rows, call.kv_heads, libraries);
}

}  // namespace sluice::core
