// SPDX-License-Identifier: Apache-2.0
// What low-rank adapters add to a product with a weight: scale * B (A x), as LoRA has it. A x is a Linear's.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// The sizes of adapters of weights that are stacked by rows, such as keys and values: `parts` of them, each
// with `part` rows, whose results are columns [first, first + parts * part) of rows of `columns`. Each has
// `rank` columns of its own of A x, [tokens, parts * rank], and B is [parts * part, rank].
struct LowRankSizes {
  int64_t tokens, rank;
  int64_t parts, part;
  int64_t first, columns;

  int64_t inner() const { return parts * rank; }    // columns of A x
  int64_t adapted() const { return parts * part; }  // columns that there are adapters for
  Work work() const { return Work::product(2.0 * double(tokens) * double(adapted()) * double(rank)); }
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("rank", rank), f("parts", parts), f("part", part), f("first", first),
        f("columns", columns);
  }
};

// y[t, first + p part + o] = scale * sum over j of u[t, p rank + j] b[p part + o, j] (+ residual), summed in
// f32 and rounded once. Other columns are the residual's, or 0.
struct LowRank {
  static constexpr std::string_view kName = "low_rank";
  enum { kU, kB, kY, kResidual };
  LowRankSizes sizes;
  DType dtype;
  float scale = 1;
  bool has_residual = false;  // kResidual is there

  Operands operands() const;
  Work work() const { return sizes.work(); }
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    sizes.fields(f);
    f("dtype", dtype), f("scale", scale, kNoCost), f("res", has_residual);
  }
};

// du[t, p rank + j] = scale * sum over o of dy[t, first + p part + o] b[p part + o, j]
struct LowRankDgrad {
  static constexpr std::string_view kName = "low_rank_dgrad";
  enum { kDy, kB, kDu };
  LowRankSizes sizes;
  DType dtype;
  float scale = 1;

  Operands operands() const;
  Work work() const { return sizes.work(); }
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    sizes.fields(f);
    f("dtype", dtype), f("scale", scale, kNoCost);
  }
};

// db[p part + o, j] (+)= scale * sum over t of dy[t, first + p part + o] u[t, p rank + j], accumulated as in
// LinearDgrad.
struct LowRankWgrad {
  static constexpr std::string_view kName = "low_rank_wgrad";
  enum { kDy, kU, kDb };
  LowRankSizes sizes;
  DType dtype, grad_dtype;
  float scale = 1;
  bool accumulate = false;

  Operands operands() const;
  Work work() const { return sizes.work(); }
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    sizes.fields(f);
    f("dtype", dtype), f("grad", grad_dtype), f("scale", scale, kNoCost), f("acc", accumulate);
  }
};

// norms[o] = sqrt(sum_i (w[first + o, i] + scale * sum_j b[o, j] a[p rank + j, i])^2), with p = o / part.
// These are the norms of the rows of W + scale * B A that have an adapter, in f32. There are no tokens.
struct RowNorms {
  static constexpr std::string_view kName = "row_norms";
  enum { kW, kA, kB, kNorms };
  LowRankSizes sizes;
  int64_t in;
  DType dtype;
  float scale = 1;

  Operands operands() const;
  Work work() const { return Work::product(2.0 * double(sizes.adapted()) * double(sizes.rank) * double(in)); }
  constexpr void fields(auto&& f) const {
    sizes.fields(f);
    f("in", in), f("dtype", dtype), f("scale", scale, kNoCost);
  }
};

// y[t, c] = z[t, c] * m[c - first] / norms[c - first] (+ bias[c]) (+ residual[t, c]), in f32 and rounded
// once. Columns without an adapter, which are not among the `adapted` from `first` on, are not scaled. m and
// norms are f32. So DoRA has it (https://arxiv.org/abs/2402.09353).
struct Magnitude {
  static constexpr std::string_view kName = "magnitude";
  enum { kZ, kM, kNorms, kY };
  int64_t tokens, columns, first, adapted;
  DType dtype;
  bool has_bias = false, has_residual = false;  // these come behind the others, in this order

  size_t bias_operand() const { return kY + 1; }
  size_t residual_operand() const { return bias_operand() + (has_bias ? 1 : 0); }
  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("columns", columns), f("first", first), f("adapted", adapted), f("dtype", dtype),
        f("bias", has_bias), f("res", has_residual);
  }
};

// dz = dy * m / norms, or dy where columns are not scaled; dm (+)= sum over the rows of dy * z / norms. Norms
// are constants, as in PEFT.
struct MagnitudeBwd {
  static constexpr std::string_view kName = "magnitude_bwd";
  enum { kDy, kZ, kM, kNorms, kDz, kDm };
  int64_t tokens, columns, first, adapted;
  DType dtype, grad_dtype;
  bool accumulate = false;  // dm

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("columns", columns), f("first", first), f("adapted", adapted), f("dtype", dtype),
        f("grad", grad_dtype), f("acc", accumulate);
  }
};

}  // namespace sluice::core
