// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (ops/delta.h) by blocks of 64 tokens, forward. With G the sums of -decay within a
// block, S the state before it, and rows of a block's tokens:
//
//   A[i, j] = beta[i] exp(G[i] - G[j]) k[i].k[j] for j < i,   P[i, j] = exp(G[i] - G[j]) q[i].k[j] for j <= i
//   N = (1 + A)^-1 beta (V - exp(G) K S),   O = exp(G) Q S + P N,
//   S <- exp(G[63]) S + K^T (exp(G[63] - G) N).
//
// Normalised q and k, (1 + A)^-1, by substitution in f32, and P do not depend on S: they are made for all
// blocks at once. Then blocks of threads carry S over the blocks of a document, each some columns of a head,
// which do not meet. Rows behind a block's last token are 0: its beta and decay are, too.
//
// bf16 operands of the next block are copied while this one is worked on: each as soon as its memory is free.
// Those of f32 share memory, so that they fit every GPU, and are copied when they are needed.
#include "backend/cuda/kernels/delta_blocks.cuh"
#include "backend/cuda/kernels/delta_tile.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kTableThreads = 1024, kPrepareThreads = 128;

// Lists the blocks and the documents.
__global__ void __launch_bounds__(kTableThreads)
    table_kernel(const int32_t* pos, int64_t tokens, int32_t* table) {
  using Counts = unsigned long long;  // of blocks, and above them of documents
  __shared__ Counts totals[kMaxWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t each = (tokens + kTableThreads - 1) / kTableThreads;
  const int64_t begin = threadIdx.x * each, end = min(begin + each, tokens);
  const auto starts = [&](int64_t t) -> Counts {
    const int32_t position = pos[t];
    return Counts(t == 0 || position % kDeltaRows == 0) | Counts(t == 0 || position == 0) << 32;
  };
  Counts own = 0;
  for (int64_t t = begin; t < end; ++t) own += starts(t);
  Counts upto = own;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const Counts before = __shfl_up_sync(kFullWarp, upto, offset);
    if (lane >= offset) upto += before;
  }
  if (lane == kWarp - 1) totals[warp] = upto;
  __syncthreads();
  for (int i = 0; i < warp; ++i) upto += totals[i];
  const DeltaTable out(table, tokens);
  Counts at = upto - own;
  for (int64_t t = begin; t < end; ++t) {
    const Counts start = starts(t);
    const auto block = uint32_t(at), document = uint32_t(at >> 32);
    if (uint32_t(start) != 0) out.firsts[block] = int32_t(t);
    if (start >> 32 != 0) out.documents[document] = int32_t(block);
    at += start;
  }
  if (threadIdx.x < kTableThreads - 1) return;
  const auto blocks = uint32_t(upto), documents = uint32_t(upto >> 32);
  out.counts[0] = int32_t(blocks), out.counts[1] = int32_t(documents);
  out.firsts[blocks] = int32_t(tokens), out.documents[documents] = int32_t(blocks);
}

constexpr int kPaddedRow = kDeltaRows + 4;  // of A, in f32

template <class T, int D>
constexpr size_t prepare_shared() {
  const size_t tiles = 2 * kDeltaRows * delta_stride<T>(D) * sizeof(T);
  const size_t matrices = 2 * kDeltaRows * kPaddedRow * sizeof(float);
  return tiles > matrices ? tiles : matrices;
}

// Writes what solve_tile() takes. A thread has a column of (1 + A)^-1 in its registers, row by row.
template <class T>
__device__ void solve_column(const float* a, int column, T* to, int64_t stride, int rows) {
  constexpr bool kWhole = sizeof(T) == 2;
  float x[kDeltaRows];
#pragma unroll
  for (int i = 0; i < kDeltaRows; ++i) {
    float sum[4] = {i == column ? 1.0f : 0.0f, 0, 0, 0};
#pragma unroll
    for (int j = kWhole ? 0 : i / 16 * 16; j < i; j += 4) {
      const float4 row = *reinterpret_cast<const float4*>(a + i * kPaddedRow + j);
      sum[0] -= row.x * x[j];
      if (j + 1 < i) sum[1] -= row.y * x[j + 1];
      if (j + 2 < i) sum[2] -= row.z * x[j + 2];
      if (j + 3 < i) sum[3] -= row.w * x[j + 3];
    }
    x[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    if (i < rows)
      store_float(to + i * stride + column,
                  kWhole || column >= i / 16 * 16 ? x[i] : a[i * kPaddedRow + column]);
  }
}

// Makes all that does not depend on states, of a block and a key head with the value heads that share it, two
// at a time.
template <class T, int D>
__global__ void __launch_bounds__(kPrepareThreads, 3) prepare_kernel(DeltaBlocks<T> b) {
  constexpr int kStride = delta_stride<T>(D), kLanes = D / kVec, kRowsAtOnce = kPrepareThreads / kLanes;
  __shared__ float sums[2][kDeltaRows], betas[2][kDeltaRows];
  auto* const tiles = reinterpret_cast<T*>(dynamic_shared());
  auto* const matrices = reinterpret_cast<float*>(dynamic_shared());
  const int key_head = blockIdx.y, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int half = threadIdx.x / kDeltaRows, shared = b.shared();
  const DeltaTable table(b.table, b.tokens);
  for (int block = blockIdx.x; block < table.counts[0]; block += gridDim.x) {
    const DeltaPlace here = table.place(block);
    __syncthreads();
    for (int which = 0; which < 2; ++which) {
      constexpr int kSteps = kDeltaRows / kRowsAtOnce;
      const float factor = which == 0 ? rsqrtf(float(b.key_dim)) : 1.0f;
      const int first = threadIdx.x / kLanes, column = threadIdx.x % kLanes * kVec;
      const T* const from = b.qkv + here.first * b.columns() + (which * b.key_heads + key_head) * b.key_dim;
      Vec8<T> raw[kSteps];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int i = first + step * kRowsAtOnce;
        if (i < here.rows && column < b.key_dim) raw[step] = Vec8<T>::load(from + i * b.columns() + column);
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int i = first + step * kRowsAtOnce;
        float x[kVec] = {}, squares = 0;
        if (i < here.rows && column < b.key_dim) raw[step].unpack(x);
#pragma unroll
        for (int c = 0; c < kVec; ++c) squares += x[c] * x[c];
#pragma unroll
        for (int offset = kLanes / 2; offset > 0; offset /= 2)
          squares += __shfl_xor_sync(kFullWarp, squares, offset);
        const float scale = 1.0f / sqrtf(squares + b.eps);
#pragma unroll
        for (int c = 0; c < kVec; ++c) x[c] *= scale * factor;
        T* const to = tiles + (which * kDeltaRows + i) * kStride + column;
#pragma unroll
        for (int c = 0; c < kVec; c += 2) store_pair(to + c, x[c], x[c + 1]);
        if (i >= here.rows) continue;
        store8(b.key_rows(here.first + i, which, key_head, D) + column, x);
        if (column == 0) b.scales[b.key_row(here.first + i, which, key_head)] = scale;
      }
    }
    __syncthreads();
    float kk[8][4], qk[8][4];
    clear(kk), clear(qk);
    const T *q = tiles, *k = tiles + kDeltaRows * kStride;
    multiply_tiles<64, Lies::Across, Lies::Across>(kk, k + 16 * warp * kStride, kStride, k, kStride, 0, D);
    multiply_tiles<64, Lies::Across, Lies::Across>(qk, q + 16 * warp * kStride, kStride, k, kStride, 0, D);
    for (int pair = 0; pair < shared; pair += 2) {
      __syncthreads();
      const int head = key_head * shared + pair + half, token = threadIdx.x % kDeltaRows;
      const bool exists = pair + half < shared && token < here.rows;
      const float* const gates = b.gates + (here.first + token) * 2 * b.value_heads + head;
      betas[half][token] = exists ? gates[0] : 0.0f;
      sums[half][token] = exists ? gates[b.value_heads] : 0.0f;
      __syncthreads();
      // One after the other, so that what lies between two tokens has the error of what lies there.
      if (token == 0) {
        float sum = 0, decays[kDeltaRows];
#pragma unroll
        for (int i = 0; i < kDeltaRows; ++i) decays[i] = sums[half][i];
#pragma unroll
        for (int i = 0; i < kDeltaRows; ++i) sums[half][i] = sum -= decays[i];
      }
      __syncthreads();
      if (exists) b.sums[(here.first + token) * b.value_heads + head] = sums[half][token];
      for (int u = 0; u < 2 && pair + u < shared; ++u) {
        float* const a = matrices + u * kDeltaRows * kPaddedRow;
        T* const scores = b.scores + (here.first * b.value_heads + key_head * shared + pair + u) * kDeltaRows;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int i = 16 * warp + lane / 4 + 8 * r, j = n * 8 + lane % 4 * 2;
            float gamma[2], p[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              gamma[c] = j + c <= i ? __expf(sums[u][i] - sums[u][j + c]) : 0.0f;
              a[i * kPaddedRow + j + c] = j + c < i ? betas[u][i] * gamma[c] * kk[n][2 * r + c] : 0.0f;
              p[c] = gamma[c] * qk[n][2 * r + c];
            }
            if (i < here.rows) store_pair(scores + i * b.value_heads * kDeltaRows + j, p[0], p[1]);
          }
        }
      }
      __syncthreads();
      if (pair + half < shared)
        solve_column(matrices + half * kDeltaRows * kPaddedRow, threadIdx.x % kDeltaRows,
                     b.solved + (here.first * b.value_heads + head) * kDeltaRows, b.value_heads * kDeltaRows,
                     here.rows);
    }
  }
}

// With kOutput O and the state after all; otherwise states before blocks and N, for the way back.
template <class T, int D, bool kOutput>
struct ForwardPieces {
  static constexpr bool kAhead = sizeof(T) == 2;
  static constexpr int kKeys = kDeltaRows * delta_stride<T>(D), kSquare = kDeltaRows * delta_stride<T>(64),
                       kValues = kDeltaRows * delta_stride<T>(kDeltaSlice),
                       kState = D * delta_stride<T>(kDeltaSlice);
  T *k, *other_k, *q, *solved, *scores, *v, *state, *n, *left_n;
  float* gates;

  static constexpr size_t bytes() {
    const int more = kAhead ? kKeys + (kOutput ? kKeys + kSquare : 0) : 0;
    return (kKeys + kSquare + 3 * kValues + kState + more) * sizeof(T) + 2 * DeltaGateRows::kFloats * 4;
  }
  __device__ ForwardPieces() {
    SharedPieces pieces;
    k = pieces.take<T>(kKeys);
    other_k = kAhead ? pieces.take<T>(kKeys) : k;
    q = kAhead && kOutput ? pieces.take<T>(kKeys) : k;
    solved = pieces.take<T>(kSquare);
    scores = kAhead && kOutput ? pieces.take<T>(kSquare) : solved;
    v = pieces.take<T>(kValues), n = pieces.take<T>(kValues), left_n = pieces.take<T>(kValues);
    state = pieces.take<T>(kState);
    gates = pieces.take<float>(2 * DeltaGateRows::kFloats);
  }
};

template <class T, int D, bool kOutput>
__global__ void __launch_bounds__(kDeltaThreads, 2) forward_kernel(DeltaBlocks<T> b) {
  using Pieces = ForwardPieces<T, D, kOutput>;
  constexpr bool kAhead = Pieces::kAhead;
  constexpr int kStride = delta_stride<T>(D), kSquare = delta_stride<T>(64),
                kSlice = delta_stride<T>(kDeltaSlice), kTiles = D / 64;
  constexpr Lies kAcross = Lies::Across, kAlong = Lies::Along;
  Pieces s;
  const DeltaShare share(b);
  const DeltaTable table(b.table, b.tokens);
  const int warp = threadIdx.x / kWarp, row = warp % 4 * 16, column = warp / 4 * 16, state_row = kTiles * row;
  for (int document = share.lane; document < table.counts[1]; document += share.lanes) {
    const int begin = table.documents[document], end = table.documents[document + 1];
    float state[kTiles][2][4];
    __syncthreads();
    const float* before = document == 0 && b.goes_on() ? b.before : nullptr;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      for_each_pair(state[m], state_row + 16 * m, column, [&](int, int r, int c, float* x) {
        share.load_state(before, r, c, x);
        store_pair(s.state + r * kSlice + c, x[0], x[1]);
      });
    }
    DeltaPlace here = table.place(begin);
    DeltaGateRows(b, here, share.head).store(s.gates);
    if (kAhead) {
      share.load_keys<D>(b, here, 1, s.k);
      if (kOutput) share.load_keys<D>(b, here, 0, s.q);
      share.load_square(b, here, b.solved, s.solved);
      share.load_values(b, here, b.values_of(share.head), b.columns(), s.v);
      close_copies();
    }
    for (int block = begin; block < end; ++block) {
      const DeltaPlace next = table.place(min(block + 1, end - 1));
      const bool more = block + 1 < end, odd = (block - begin) % 2 != 0;
      T *const k = odd ? s.other_k : s.k, *const next_k = odd ? s.k : s.other_k;
      const float* const gates = s.gates + odd * DeltaGateRows::kFloats;
      if (kAhead) {
        await_copies<0>();
        __syncthreads();
        if (kOutput) share.load_square(b, here, b.scores, s.scores);
        close_copies();
        if (more) share.load_keys<D>(b, next, 1, next_k);
        close_copies();
      } else {
        __syncthreads();
        share.load_keys<D>(b, here, 1, k);
        share.load_square(b, here, b.solved, s.solved);
        share.load_values(b, here, b.values_of(share.head), b.columns(), s.v);
        wait_for_copies();
      }
      const DeltaGateRows next_gates(b, next, share.head);
      const DeltaGatePair gate(gates, row);
      const float keep = kept_of_state(gates);
      if (!kOutput && has_state_before(b, block, here))
        write_rows<kDeltaSlice, D, kDeltaThreads>(
            s.state, kept_state(b, b.states, block == 0, here.first, share.head, share.slice, D), kDeltaSlice,
            D);

      float x[2][4], o[2][4];
      clear(x), clear(o);
      if (kOutput && kAhead) {
        multiply_tiles<16, kAcross, kAlong, true>(x, k + row * kStride, kStride, s.state + column, kSlice, 0,
                                                  D, o, s.q + row * kStride);
      } else {
        multiply_tiles<16, kAcross, kAlong>(x, k + row * kStride, kStride, s.state + column, kSlice, 0, D);
      }
      if (kOutput && !kAhead) {
        __syncthreads();
        share.load_keys<D>(b, here, 0, s.q);
        wait_for_copies();
        multiply_tiles<16, kAcross, kAlong>(o, s.q + row * kStride, kStride, s.state + column, kSlice, 0, D);
      }
      for_each_pair(x, row, column, [&](int own, int r, int c, float* read) {
        T* const v = s.v + r * kSlice + c;
        const float2 value = load_pair(v);
        store_pair(v, gate.beta[own] * (value.x - gate.kept[own] * read[0]),
                   gate.beta[own] * (value.y - gate.kept[own] * read[1]));
      });
      __syncthreads();
      if (kAhead) {
        if (kOutput && more) share.load_keys<D>(b, next, 0, s.q);
        close_copies();
      }
      solve_tile<false>(x, s.solved, s.v, row, column);
      for_each_pair(x, row, column, [&](int own, int r, int c, float* n) {
        store_pair(s.n + r * kSlice + c, n[0], n[1]);
        store_pair(s.left_n + r * kSlice + c, gate.left[own] * n[0], gate.left[own] * n[1]);
      });
      if (kAhead) await_copies<2>();
      __syncthreads();
      if (kAhead) {
        if (more) {
          share.load_square(b, next, b.solved, s.solved);
          share.load_values(b, next, b.values_of(share.head), b.columns(), s.v);
        }
        close_copies();
      } else if (kOutput) {
        share.load_square(b, here, b.scores, s.scores);
        share.load_keys<D>(b, here, 1, k);
        wait_for_copies();
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        for_each_pair(state[m], 0, 0,
                      [&](int, int, int, float* value) { value[0] *= keep, value[1] *= keep; });
        multiply_tiles<16, kAlong, kAlong>(state[m], k + state_row + 16 * m, kStride, s.left_n + column,
                                           kSlice, 0, kDeltaRows);
        for_each_pair(state[m], state_row + 16 * m, column, [&](int, int r, int c, float* value) {
          store_pair(s.state + r * kSlice + c, value[0], value[1]);
        });
      }
      if (kOutput) {
        for_each_pair(o, row, column, [&](int own, int, int, float* value) {
          value[0] *= gate.kept[own], value[1] *= gate.kept[own];
        });
        multiply_tiles<16, kAcross, kAlong>(o, s.scores + row * kSquare, kSquare, s.n + column, kSlice, 0,
                                            kDeltaRows);
        T* const to = b.o + here.first * b.values() + share.value_column(b);
        for_each_pair(o, row, column, [&](int, int r, int c, float* value) {
          if (r < here.rows && c < share.columns) store_pair(to + r * b.values() + c, value[0], value[1]);
        });
      } else {
        write_rows<kDeltaSlice, kDeltaRows, kDeltaThreads>(
            s.n, b.changes + here.first * b.values() + share.value_column(b), b.values(), here.rows,
            share.columns);
      }
      next_gates.store(s.gates + !odd * DeltaGateRows::kFloats);
      here = next;
    }
    if (kAhead) await_copies<0>();
    if constexpr (kOutput) {
      if (b.after == nullptr || document + 1 < table.counts[1]) continue;
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
        for_each_pair(state[m], state_row + 16 * m, column,
                      [&](int, int r, int c, float* x) { share.store_state(b.after, r, c, x); });
    }
  }
}

template <class T, int D>
cudaError_t prepare(const DeltaBlocks<T>& b, cudaStream_t stream) {
  const auto listed = launch(table_kernel, 1, kTableThreads, 0, stream, b.pos, b.tokens, b.table);
  if (listed != cudaSuccess) return listed;
  return launch(prepare_kernel<T, D>, dim3(b.block_grid(), unsigned(b.key_heads)), kPrepareThreads,
                prepare_shared<T, D>(), stream, b);
}

}  // namespace

template <class T>
cudaError_t delta_rule(const DeltaBlocks<T>& b, cudaStream_t stream) {
  return with_delta_columns(b, [&](auto columns) {
    constexpr int D = decltype(columns)::value;
    const auto prepared = prepare<T, D>(b, stream);
    if (prepared != cudaSuccess) return prepared;
    return launch(forward_kernel<T, D, true>, dim3(b.share_grid()), kDeltaThreads,
                  ForwardPieces<T, D, true>::bytes(), stream, b);
  });
}

template <class T>
cudaError_t delta_states(const DeltaBlocks<T>& b, cudaStream_t stream) {
  return with_delta_columns(b, [&](auto columns) {
    constexpr int D = decltype(columns)::value;
    const auto prepared = prepare<T, D>(b, stream);
    if (prepared != cudaSuccess) return prepared;
    return launch(forward_kernel<T, D, false>, dim3(b.share_grid()), kDeltaThreads,
                  ForwardPieces<T, D, false>::bytes(), stream, b);
  });
}

template cudaError_t delta_rule(const DeltaBlocks<bf16>&, cudaStream_t);
template cudaError_t delta_rule(const DeltaBlocks<float>&, cudaStream_t);
template cudaError_t delta_states(const DeltaBlocks<bf16>&, cudaStream_t);
template cudaError_t delta_states(const DeltaBlocks<float>&, cudaStream_t);

}  // namespace sluice::core::cuda
