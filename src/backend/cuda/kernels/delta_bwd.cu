// SPDX-License-Identifier: Apache-2.0
// The gated delta rule's way back, with names as in delta.cu. Once the way forward has left S and N of every
// block, blocks of threads carry the state's gradient dS backwards over the blocks of a document:
//
//   dN = exp(G[63] - G) K dS + P^T dO,   dR = (1 + A)^-T dN,   dV = beta dR,
//   dS <- exp(G[63]) dS + K^T dX + Q^T (exp(G) dO),   dX = -beta exp(G) dR.
//
// From these follow, for all blocks at once, with dA = -dR N^T beta gamma and dP = dO N^T gamma,
//
//   dQ = exp(G) dO S^T + dP K,   dK = dX S^T + exp(G[63] - G) N dS^T + (dA + dA^T) K + dP^T Q.
//
// A gate is in a row of these products: its gradient is what rows of q and k have in common with theirs.
// That of beta is dR N / beta, as N is beta times what does not depend on it.
#include "backend/cuda/kernels/delta_blocks.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace sluice::core::cuda {
namespace {

template <class T, int D>
struct BackwardPieces {
  static constexpr bool kAhead = sizeof(T) == 2;
  static constexpr int kKeys = kDeltaRows * delta_stride<T>(D), kSquare = kDeltaRows * delta_stride<T>(64),
                       kValues = kDeltaRows * delta_stride<T>(kDeltaSlice),
                       kState = D * delta_stride<T>(kDeltaSlice);
  T *k, *other_k, *q, *solved, *scores, *d_o, *kept_do, *dx, *state;
  T* dn;  // where the state was, once all have read it
  float* gates;

  static constexpr size_t bytes() {
    const int more = kAhead ? 2 * kKeys + kSquare : 0;
    return (kKeys + kSquare + 3 * kValues + kState + more) * sizeof(T) + 2 * DeltaGateRows::kFloats * 4;
  }
  __device__ BackwardPieces() {
    SharedPieces pieces;
    k = pieces.take<T>(kKeys);
    other_k = kAhead ? pieces.take<T>(kKeys) : k;
    q = kAhead ? pieces.take<T>(kKeys) : k;
    solved = pieces.take<T>(kSquare);
    scores = kAhead ? pieces.take<T>(kSquare) : solved;
    d_o = pieces.take<T>(kValues), kept_do = pieces.take<T>(kValues), dx = pieces.take<T>(kValues);
    state = pieces.take<T>(kState);
    dn = state;
    gates = pieces.take<float>(2 * DeltaGateRows::kFloats);
  }
};

template <class T, int D>
__global__ void __launch_bounds__(kDeltaThreads, 2) backward_kernel(DeltaBlocks<T> b) {
  using Pieces = BackwardPieces<T, D>;
  constexpr bool kAhead = Pieces::kAhead;
  constexpr int kStride = delta_stride<T>(D), kSquare = delta_stride<T>(64),
                kSlice = delta_stride<T>(kDeltaSlice), kTiles = D / 64;
  constexpr Lies kAcross = Lies::Across, kAlong = Lies::Along;
  Pieces s;
  const DeltaShare share(b);
  const DeltaTable table(b.table, b.tokens);
  const int warp = threadIdx.x / kWarp, row = warp % 4 * 16, column = warp / 4 * 16, state_row = kTiles * row;
  const T* const d_o = b.d_o + int64_t{share.head} * b.value_dim;
  for (int document = share.lane; document < table.counts[1]; document += share.lanes) {
    const int begin = table.documents[document], end = table.documents[document + 1];
    float state[kTiles][2][4];
    __syncthreads();
    const float* behind = document + 1 == table.counts[1] ? b.d_after : nullptr;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      for_each_pair(state[m], state_row + 16 * m, column, [&](int, int r, int c, float* x) {
        share.load_state(behind, r, c, x);
        store_pair(s.state + r * kSlice + c, x[0], x[1]);
      });
    }
    DeltaPlace here = table.place(end - 1);
    DeltaGateRows(b, here, share.head).store(s.gates);
    if (kAhead) {
      share.load_keys<D>(b, here, 1, s.k);
      share.load_square(b, here, b.scores, s.scores);
      share.load_values(b, here, d_o, b.values(), s.d_o);
      share.load_square(b, here, b.solved, s.solved);
      close_copies();
    }
    for (int block = end - 1; block >= begin; --block) {
      const DeltaPlace next = table.place(max(block - 1, begin));
      const bool more = block > begin, odd = (end - 1 - block) % 2 != 0;
      T *const k = odd ? s.other_k : s.k, *const next_k = odd ? s.k : s.other_k;
      const float* const gates = s.gates + odd * DeltaGateRows::kFloats;
      if (kAhead) {
        await_copies<0>();
        __syncthreads();
        share.load_keys<D>(b, here, 0, s.q);
        close_copies();
        if (more) share.load_keys<D>(b, next, 1, next_k);
        close_copies();
      } else {
        __syncthreads();
        share.load_keys<D>(b, here, 1, k);
        share.load_square(b, here, b.scores, s.scores);
        share.load_values(b, here, d_o, b.values(), s.d_o);
        wait_for_copies();
      }
      const DeltaGateRows next_gates(b, next, share.head);
      const DeltaGatePair gate(gates, row);
      const float keep = kept_of_state(gates);
      if (has_state_behind(b, table, block, here))
        write_rows<kDeltaSlice, D, kDeltaThreads>(
            s.state,
            kept_state(b, b.d_states, block + 1 == table.counts[0], here.first + here.rows, share.head,
                       share.slice, D),
            kDeltaSlice, D);

      float x[2][4];
      clear(x);
      multiply_tiles<16, kAcross, kAlong>(x, k + row * kStride, kStride, s.state + column, kSlice, 0, D);
      for_each_pair(x, row, column, [&](int own, int r, int c, float* dn) {
        dn[0] *= gate.left[own], dn[1] *= gate.left[own];
        const float2 given = load_pair(s.d_o + r * kSlice + c);
        store_pair(s.kept_do + r * kSlice + c, gate.kept[own] * given.x, gate.kept[own] * given.y);
      });
      multiply_tiles<16, kAlong, kAlong>(x, s.scores + row, kSquare, s.d_o + column, kSlice, 0, kDeltaRows);
      __syncthreads();
      for_each_pair(x, row, column,
                    [&](int, int r, int c, float* dn) { store_pair(s.dn + r * kSlice + c, dn[0], dn[1]); });
      if (kAhead) {
        if (more) {
          share.load_square(b, next, b.scores, s.scores);
          share.load_values(b, next, d_o, b.values(), s.d_o);
        }
        close_copies();
        __syncthreads();
      } else {
        share.load_square(b, here, b.solved, s.solved);
        wait_for_copies();
      }
      solve_tile<true>(x, s.solved, s.dn, row, column);
      T* const to = b.d_changes + here.first * b.values() + share.value_column(b);
      T* const dv =
          b.dqkv + (b.values_of(share.head) - b.qkv) + here.first * b.columns() + share.slice * kDeltaSlice;
      for_each_pair(x, row, column, [&](int own, int r, int c, float* dr) {
        const float beta = gate.beta[own], factor = -beta * gate.kept[own];
        store_pair(s.dx + r * kSlice + c, factor * dr[0], factor * dr[1]);
        if (r >= here.rows || c >= share.columns) return;
        store_pair(to + r * b.values() + c, dr[0], dr[1]);
        store_pair(dv + r * b.columns() + c, beta * dr[0], beta * dr[1]);
      });
      if (kAhead) await_copies<2>();
      __syncthreads();
      if (kAhead) {
        if (more) share.load_square(b, next, b.solved, s.solved);
        close_copies();
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        for_each_pair(state[m], 0, 0,
                      [&](int, int, int, float* value) { value[0] *= keep, value[1] *= keep; });
        multiply_tiles<16, kAlong, kAlong>(state[m], k + state_row + 16 * m, kStride, s.dx + column, kSlice,
                                           0, kDeltaRows);
      }
      if (!kAhead) {
        __syncthreads();
        share.load_keys<D>(b, here, 0, s.q);
        wait_for_copies();
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        multiply_tiles<16, kAlong, kAlong>(state[m], s.q + state_row + 16 * m, kStride, s.kept_do + column,
                                           kSlice, 0, kDeltaRows);
        for_each_pair(state[m], state_row + 16 * m, column, [&](int, int r, int c, float* value) {
          store_pair(s.state + r * kSlice + c, value[0], value[1]);
        });
      }
      next_gates.store(s.gates + !odd * DeltaGateRows::kFloats);
      here = next;
    }
    if (kAhead) await_copies<0>();
    if (document > 0 || b.d_before == nullptr) continue;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      for_each_pair(state[m], state_row + 16 * m, column, [&](int, int r, int c, float* x) {
        if (!b.goes_on()) x[0] = x[1] = 0;  // the document begins here
        share.store_state(b.d_before, r, c, x);
      });
    }
  }
}

constexpr int kGradientThreads = 512, kGradientGroups = 4;  // warps that share 16 rows
// Columns of values at a time.
template <class T>
constexpr int kColumnsAtOnce = sizeof(T) == 2 ? 32 : 16;

template <class T, int D>
struct GradientPieces {
  static constexpr int kStages = sizeof(T) == 2 ? 2 : 1, kChunk = kColumnsAtOnce<T>;
  static constexpr int kKeys = kDeltaRows * delta_stride<T>(D), kSquare = kDeltaRows * delta_stride<T>(64),
                       kRows = kDeltaRows * delta_stride<T>(kChunk), kState = D * delta_stride<T>(kChunk),
                       kStage = 3 * kRows + 2 * kState, kLater = kSquare + kKeys,
                       kArea = kStages * kStage > kLater ? kStages *kStage : kLater;
  T *k, *area, *square, *q;

  static constexpr size_t bytes() { return (kKeys + kArea) * sizeof(T); }
  __device__ GradientPieces() {
    SharedPieces pieces;
    k = pieces.take<T>(kKeys), area = pieces.take<T>(kArea);
    square = area, q = area + kSquare;
  }
};

// Products of rows of c, a warp's, with those of a tile, for each of the four groups of columns.
template <int N, class T>
__device__ void row_products(float (&c)[N][4], const T* tile, int stride, int row, int column, int group,
                             float (*out)[kDeltaRows]) {
  float sums[2] = {};
  for_each_pair(c, row, column, [&](int own, int r, int at, float* x) {
    const float2 pair = load_pair(tile + r * stride + at);
    sums[own] += x[0] * pair.x + x[1] * pair.y;
  });
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sums[r] += __shfl_xor_sync(kFullWarp, sums[r], 1);
    sums[r] += __shfl_xor_sync(kFullWarp, sums[r], 2);
    const int lane = threadIdx.x % kWarp;
    if (lane % 4 == 0) out[group][row + lane / 4 + 8 * r] = sums[r];
  }
}

// A block of tokens and a key head: all of its value heads, one after the other.
template <class T, int D>
__global__ void __launch_bounds__(kGradientThreads, 1) gradient_kernel(DeltaBlocks<T> b) {
  using Pieces = GradientPieces<T, D>;
  constexpr int kStages = Pieces::kStages, kChunk = Pieces::kChunk, kStride = delta_stride<T>(D),
                kSquare = delta_stride<T>(64), kRow = delta_stride<T>(kChunk), kOwn = D / kGradientGroups;
  constexpr Lies kAcross = Lies::Across, kAlong = Lies::Along;
  enum { kGiven, kOfA, kOfKeys, kOfQueries, kProducts };
  __shared__ float products[kProducts][kGradientGroups][kDeltaRows];
  __shared__ float gates[DeltaGateRows::kFloats], sums[kDeltaRows], d_beta[kDeltaRows], along[2][kDeltaRows];
  __shared__ float scratch[kMaxWarps];
  const Pieces s;
  const DeltaTable table(b.table, b.tokens);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int row = warp % 4 * 16, group = warp / 4, column = group * kOwn;
  const int key_head = blockIdx.y, shared = b.shared();
  const int chunks = (b.value_dim + kChunk - 1) / kChunk;
  for (int block = blockIdx.x; block < table.counts[0]; block += gridDim.x) {
    const DeltaPlace here = table.place(block);
    const bool has_state = has_state_before(b, block, here);
    const bool has_behind = has_state_behind(b, table, block, here);
    float dq[kOwn / 8][4], dk[kOwn / 8][4];
    clear(dq), clear(dk);
    for (int u = 0; u < shared; ++u) {
      const int head = key_head * shared + u;
      __syncthreads();
      if (u == 0 && threadIdx.x < 2 * kDeltaRows)
        along[threadIdx.x / kDeltaRows][threadIdx.x % kDeltaRows] = 0;
      const DeltaGateRows own(b, here, head);
      own.store(gates);
      if (threadIdx.x < kDeltaRows) sums[threadIdx.x] = own.sum();
      copy_rows<D, kDeltaRows, kGradientThreads>(s.k, (const T*)b.key_rows(here.first, 1, key_head, D),
                                                 int64_t{2} * b.key_heads * D, here.rows);
      // A chunk's tiles: dR, dO, N, and the states before and behind.
      const auto load = [&](int chunk) {
        T* to = s.area + chunk % kStages * Pieces::kStage;
        const int first = chunk * kChunk, slice = first / kDeltaSlice, in_slice = first % kDeltaSlice;
        const int64_t at = here.first * b.values() + int64_t{head} * b.value_dim + first;
        const T* const rows[] = {b.d_changes, b.d_o, b.changes};
#pragma unroll
        for (int i = 0; i < 3; ++i) {
          copy_rows<kChunk, kDeltaRows, kGradientThreads>(to, rows[i] + at, b.values(), here.rows,
                                                          b.value_dim - first);
          to += Pieces::kRows;
        }
        if (has_state)
          copy_rows<kChunk, D, kGradientThreads>(
              to, (const T*)kept_state(b, b.states, block == 0, here.first, head, slice, D) + in_slice,
              kDeltaSlice, D);
        if (has_behind)
          copy_rows<kChunk, D, kGradientThreads>(
              to + Pieces::kState,
              (const T*)kept_state(b, b.d_states, block + 1 == table.counts[0], here.first + here.rows, head,
                                   slice, D) +
                  in_slice,
              kDeltaSlice, D);
      };
      for (int chunk = 0; chunk < kStages - 1; ++chunk) {
        if (chunk < chunks) load(chunk);
        close_copies();
      }
      float da[2][4], dp[2][4], of_a[kOwn / 8][4], of_keys[kOwn / 8][4], of_queries[kOwn / 8][4];
      clear(da), clear(dp), clear(of_a), clear(of_keys), clear(of_queries);
      float both = 0;  // of the state and its gradient behind the block, in common
      for (int chunk = 0; chunk < chunks; ++chunk) {
        if (kStages > 1) {
          await_copies<kStages - 2>();
          __syncthreads();
          if (chunk + kStages - 1 < chunks) load(chunk + kStages - 1);
          close_copies();
        } else {
          __syncthreads();
          load(chunk);
          wait_for_copies();
        }
        const T* const dr = s.area + chunk % kStages * Pieces::kStage;
        const T *const d_o = dr + Pieces::kRows, *const n = d_o + Pieces::kRows;
        const T *const state = n + Pieces::kRows, *const d_state = state + Pieces::kState;
        multiply_tiles<16, kAcross, kAcross, true>(da, dr + row * kRow, kRow, n + 16 * group * kRow, kRow, 0,
                                                   kChunk, dp, d_o + row * kRow);
        if (has_state)
          multiply_tiles<kOwn, kAcross, kAcross, true>(of_a, dr + row * kRow, kRow, state + column * kRow,
                                                       kRow, 0, kChunk, of_queries, d_o + row * kRow);
        if (has_behind)
          multiply_tiles<kOwn, kAcross, kAcross>(of_keys, n + row * kRow, kRow, d_state + column * kRow, kRow,
                                                 0, kChunk);
        if (!has_state || !has_behind) continue;
        for_each_item<D * kChunk / 2, kGradientThreads>([&](int i) {
          const int at = i / (kChunk / 2) * kRow + i % (kChunk / 2) * 2;
          const float2 x = load_pair(state + at), y = load_pair(d_state + at);
          both += x.x * y.x + x.y * y.y;
        });
      }
      __syncthreads();
      copy_rows<D, kDeltaRows, kGradientThreads>(s.q, (const T*)b.key_rows(here.first, 0, key_head, D),
                                                 int64_t{2} * b.key_heads * D, here.rows);
      const DeltaGatePair gate(gates, row);
      const auto put_square = [&](float(&c)[2][4], bool is_a) {
        for_each_pair(c, row, 16 * group, [&](int own, int i, int j, float* x) {
          const float beta = gate.beta[own];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float gamma = j + e <= i ? __expf(sums[i] - sums[j + e]) : 0.0f;
            if (is_a && j + e == i) d_beta[i] = beta > 0 ? x[e] / beta : 0.0f;
            x[e] = is_a ? (j + e < i ? -beta * gamma * x[e] : 0.0f) : gamma * x[e];
          }
          store_pair(s.square + i * kSquare + j, x[0], x[1]);
        });
      };
      put_square(da, true);
#pragma unroll
      for (int n = 0; n < kOwn / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          of_a[n][i] *= -gate.beta[i / 2] * gate.kept[i / 2];
          of_keys[n][i] *= gate.left[i / 2], of_queries[n][i] *= gate.kept[i / 2];
        }
      }
      both = warp_sum(both);
      if (lane == 0) scratch[warp] = both;
      wait_for_copies();
      row_products(of_keys, s.k, kStride, row, column, group, products[kGiven]);
      multiply_tiles<kOwn, kAcross, kAlong>(of_a, s.square + row * kSquare, kSquare, s.k + column, kStride, 0,
                                            kDeltaRows);
      multiply_tiles<kOwn, kAlong, kAlong>(of_keys, s.square + row, kSquare, s.k + column, kStride, 0,
                                           kDeltaRows);
      __syncthreads();
      put_square(dp, false);
      __syncthreads();
      multiply_tiles<kOwn, kAlong, kAlong>(of_keys, s.square + row, kSquare, s.q + column, kStride, 0,
                                           kDeltaRows);
      multiply_tiles<kOwn, kAcross, kAlong>(of_queries, s.square + row * kSquare, kSquare, s.k + column,
                                            kStride, 0, kDeltaRows);
      row_products(of_a, s.k, kStride, row, column, group, products[kOfA]);
      row_products(of_keys, s.k, kStride, row, column, group, products[kOfKeys]);
      row_products(of_queries, s.q, kStride, row, column, group, products[kOfQueries]);
#pragma unroll
      for (int n = 0; n < kOwn / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) dk[n][i] += of_a[n][i] + of_keys[n][i], dq[n][i] += of_queries[n][i];
      }
      __syncthreads();
      if (warp > 0) continue;
      // Gradients of the sums of decays, of two tokens a lane, and from them those of decays: what is behind.
      float of_sum[2], given = 0;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = 2 * lane + e;
        float total[kProducts];
#pragma unroll
        for (int p = 0; p < kProducts; ++p)
          total[p] = (products[p][0][i] + products[p][1][i]) + (products[p][2][i] + products[p][3][i]);
        along[0][i] += total[kOfQueries], along[1][i] += total[kOfA] + total[kOfKeys];
        of_sum[e] = total[kOfQueries] + total[kOfA] - total[kOfKeys];
        given += total[kGiven];
      }
      given = warp_sum(given);
      const float common = warp_sum(lane < kGradientThreads / kWarp ? scratch[lane] : 0.0f);
      if (lane == kWarp - 1) of_sum[1] += given + common * kept_of_state(gates);
      float behind = of_sum[0] + of_sum[1];
#pragma unroll
      for (int offset = 1; offset < kWarp; offset *= 2) {
        const float more = __shfl_down_sync(kFullWarp, behind, offset);
        if (lane + offset < kWarp) behind += more;
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = 2 * lane + e;
        if (i >= here.rows) continue;
        float* const to = b.dgates + (here.first + i) * 2 * b.value_heads + head;
        to[0] = d_beta[i], to[b.value_heads] = -(e == 0 ? behind : behind - of_sum[0]);
      }
    }
    __syncthreads();
    // From gradients of y = factor x / |x| to those of x.
    for (int which = 0; which < 2; ++which) {
      const float factor = which == 0 ? rsqrtf(float(b.key_dim)) : 1.0f;
      for_each_pair(which == 0 ? dq : dk, row, column, [&](int, int i, int c, float* x) {
        if (i >= here.rows || c >= b.key_dim) return;
        const int64_t token = here.first + i;
        const float2 y = load_pair(b.key_rows(token, which, key_head, D) + c);
        const float scale = b.scales[b.key_row(token, which, key_head)], common = along[which][i] / factor;
        store_pair(b.dqkv + token * b.columns() + (which * b.key_heads + key_head) * b.key_dim + c,
                   scale * (factor * x[0] - common * y.x), scale * (factor * x[1] - common * y.y));
      });
    }
  }
}

}  // namespace

template <class T>
cudaError_t delta_rule_bwd(const DeltaBlocks<T>& b, cudaStream_t stream) {
  const auto forward = delta_states(b, stream);
  if (forward != cudaSuccess) return forward;
  return with_delta_columns(b, [&](auto columns) {
    constexpr int D = decltype(columns)::value;
    const auto carried = launch(backward_kernel<T, D>, dim3(b.share_grid()), kDeltaThreads,
                                BackwardPieces<T, D>::bytes(), stream, b);
    if (carried != cudaSuccess) return carried;
    return launch(gradient_kernel<T, D>, dim3(b.block_grid(), unsigned(b.key_heads)), kGradientThreads,
                  GradientPieces<T, D>::bytes(), stream, b);
  });
}

template cudaError_t delta_rule_bwd(const DeltaBlocks<bf16>&, cudaStream_t);
template cudaError_t delta_rule_bwd(const DeltaBlocks<float>&, cudaStream_t);

}  // namespace sluice::core::cuda
