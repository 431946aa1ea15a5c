// SPDX-License-Identifier: Apache-2.0
#include "conformance/cases.h"

#include <cctype>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "base/check.h"
#include "conformance/case_list.h"

namespace sluice::core::conformance {
namespace {

void add_embedding(List& list) {
  for (const DType dtype : kDTypes) {
    list.add(Embed{1, 50, 24, dtype});
    list.add(Embed{129, 50, 66, dtype});
  }
  for (const auto [dtype, grad] : kGradDTypes) {
    for (const bool accumulate : {false, true}) {
      list.add(EmbedBwd{1, 9, 24, dtype, grad, accumulate});
      list.add(EmbedBwd{129, 50, 66, dtype, grad, accumulate});
      list.add(EmbedBwd{33, 3, 8, dtype, grad, accumulate}, "all_tokens_alike");
    }
  }
}

void add_norms(List& list) {
  struct Shape {
    int64_t tokens, dim;
  };
  for (const auto [tokens, dim] : {Shape{1, 8}, {7, 66}, {33, 200}, {129, 1024}}) {
    for (const DType dtype : kDTypes) list.add(RmsNorm{tokens, dim, kEps, dtype});
    for (const auto [dtype, grad] : kGradDTypes) {
      for (const bool accumulate : {false, true}) {
        for (const bool residual : {false, true}) {
          list.add(RmsNormBwd{tokens, dim, kEps, dtype, grad, accumulate, residual});
        }
      }
    }
  }
  for (const DType dtype : kDTypes) {
    list.add(RmsNorm{7, 24, kEps, dtype}, "large", {.spread = 100});
    list.add(RmsNorm{7, 24, kEps, dtype}, "near_eps", {.spread = 3e-3});
    list.add(RmsNormBwd{7, 24, kEps, dtype, dtype, false, true}, "near_eps", {.spread = 3e-3});
  }
}

void add_products(List& list) {
  struct Shape {
    int64_t tokens, in, out;
  };
  for (const auto [tokens, in, out] :
       {Shape{1, 8, 16}, {7, 24, 40}, {5, 13, 11}, {33, 80, 96}, {129, 130, 66}, {64, 256, 192}}) {
    for (const DType dtype : kDTypes) {
      for (const bool residual : {false, true}) {
        for (const bool bias : {false, true}) list.add(Linear{tokens, in, out, dtype, residual, 0, 0, bias});
      }
      for (const bool accumulate : {false, true}) {
        list.add(LinearDgrad{tokens, in, out, dtype, accumulate});
      }
    }
    for (const auto [dtype, grad] : kGradDTypes) {
      for (const bool accumulate : {false, true}) {
        list.add(LinearWgrad{tokens, in, out, dtype, grad, accumulate});
        list.add(BiasGrad{tokens, out, dtype, grad, accumulate});
      }
    }
  }
  for (const auto [dtype, grad] : kGradDTypes) list.add(BiasGrad{1100, 24, dtype, grad, true});
}

// Ranks of no whole vector, parts that fill a row of y or leave columns on either side.
void add_low_rank(List& list) {
  for (const LowRankSizes s : {LowRankSizes{1, 8, 1, 8, 0, 8},
                               {7, 3, 1, 11, 0, 11},
                               {33, 8, 2, 24, 0, 48},
                               {5, 1, 2, 7, 3, 20},
                               {70, 16, 1, 40, 40, 80},
                               {130, 24, 2, 72, 8, 160},
                               {129, 64, 1, 264, 0, 272}}) {
    for (const DType dtype : kDTypes) {
      for (const bool residual : {false, true}) list.add(LowRank{s, dtype, 2, residual});
      list.add(LowRankDgrad{s, dtype, 0.3f});
      for (const int64_t in : {s.columns + 5, s.columns + 328}) list.add(RowNorms{s, in, dtype, 0.7f});
      for (const bool bias : {false, true})
        list.add(Magnitude{s.tokens, s.columns, s.first, s.adapted(), dtype, bias, !bias || s.parts > 1});
    }
    for (const auto [dtype, grad] : kGradDTypes)
      list.add(MagnitudeBwd{s.tokens, s.columns, s.first, s.adapted(), dtype, grad, s.rank % 16 == 0});
    for (const auto [dtype, grad] : kGradDTypes) {
      for (const bool accumulate : {false, true}) list.add(LowRankWgrad{s, dtype, grad, 0.3f, accumulate});
    }
  }
}

// Widths of no whole draw or vector; rows of which the first are another process's.
void add_dropout(List& list) {
  for (const auto& [tokens, width] : {std::pair<int64_t, int64_t>{1, 3}, {7, 40}, {33, 136}}) {
    for (const DType dtype : kDTypes) {
      for (const bool accumulate : {false, true})
        list.add(Dropout{tokens, width, dtype, 0.3f, 5, 8, 77, accumulate});
    }
  }
}

void add_rotary(List& list) {
  struct Heads {
    int64_t tokens, heads, head_dim;
  };
  for (const auto [tokens, heads, head_dim] : {Heads{1, 1, 8},
                                               {7, 2, 16},
                                               {33, 4, 32},
                                               {129, 2, 64},
                                               {7, 3, 80},
                                               {33, 2, 128},
                                               {5, 1, 200},
                                               {9, 2, 256}}) {
    for (const DType dtype : kDTypes) {
      // All columns, and the first half only, as in a joint product for K and V.
      list.add(Linear{tokens, 40, heads * head_dim, dtype, false, heads, head_dim});
      list.add(Linear{tokens, 24, 2 * heads * head_dim, dtype, false, heads, head_dim});
      list.add(Linear{tokens, 24, 2 * heads * head_dim, dtype, false, heads, head_dim, true});
      list.add(Rope{tokens, heads, head_dim, 0, dtype});
      list.add(Rope{tokens, heads, head_dim, heads * head_dim, dtype});
    }
    for (const auto [dtype, in] : kGradDTypes) {
      for (const int64_t ratio : {1, 2, 4}) {
        list.add(RopeBwd{tokens, heads * ratio, heads, head_dim, in, dtype});
      }
    }
  }
}

void add_head_norms(List& list) {
  struct Heads {
    int64_t tokens, heads, head_dim, rest;
  };
  const auto add_backward = [&](const Heads& h, DType in, DType dtype, DType grad, std::string note = "",
                                Data data = {}) {
    for (const bool accumulate : {false, true}) {
      list.add(HeadNormRopeBwd{{h.tokens, h.heads, h.head_dim, h.rest, kEps}, in, dtype, grad, accumulate},
               note, data);
    }
  };
  for (const Heads& h : {Heads{1, 1, 8, 0},
                         {7, 2, 16, 32},
                         {5, 1, 6, 3},
                         {33, 4, 32, 128},
                         {129, 2, 64, 0},
                         {7, 3, 80, 240},
                         {19, 1, 96, 8},
                         {33, 20, 128, 256},
                         {7, 1, 200, 8},
                         {9, 3, 256, 8}}) {
    for (const DType dtype : kDTypes) {
      list.add(HeadNormRope{{h.tokens, h.heads, h.head_dim, h.rest, kEps}, dtype});
    }
    for (const auto [dtype, grad] : kGradDTypes) {
      add_backward(h, kF32, dtype, grad);
      if (dtype != kF32) add_backward(h, dtype, dtype, grad);
    }
  }
  // More rows than are summed up at once.
  add_backward({1100, 1, 8, 0}, kBf16, kBf16, kF32);
  for (const DType dtype : kDTypes) {
    list.add(HeadNormRope{{7, 2, 16, 8, kEps}, dtype}, "near_eps", {.spread = 3e-3});
    add_backward({7, 2, 16, 8}, dtype, dtype, dtype, "near_eps", {.spread = 3e-3});
  }
}

// Codes with scales of blocks, of which a thread of a GPU has some alone and shares others.
void add_packed(List& list) {
  for (const DType out : kDTypes) {
    for (const uint32_t block : {64, 4096})
      list.add(Cast{5 * 8192, NumberFormat(DType::NF4, block, kF32), out});
    for (const int64_t elements : {32, 96, 40960})
      list.add(Cast{elements, NumberFormat(DType::F4E2M1, 32, DType::F8E8M0), out});
    list.add(Cast{3 * 32768, NumberFormat(DType::F8E4M3, 128, kF32), out});
    // Parts of what is cast.
    for (const int64_t first : {0, 8, 64}) {
      list.add(Cast{96, NumberFormat(DType::NF4, 32, kF32), out, first, 200});
      list.add(Cast{77, kBf16, out, first, 141});
    }
  }
}

void add_elementwise(List& list) {
  for (const DType in : kDTypes) {
    for (const DType out : kDTypes) {
      for (const int64_t n : {1, 77, 4099}) list.add(Cast{n, in, out});
    }
  }
  for (const DType out : kDTypes) {
    list.add(Cast{4099, DType::F8E4M3, out});
    for (const uint32_t block : {8, 32, 4104})
      list.add(Cast{4 * 4104, NumberFormat(DType::F8E4M3, block, kF32), out});
    // Blocks that several threads share, and threads with several.
    list.add(Cast{3 * 32776, NumberFormat(DType::F8E4M3, 32776, kF32), out});
  }
  list.add(Cast{33, kF32, kBf16}, "nan", {.special = kNan});
  list.add(Cast{33, kF32, kBf16}, "inf", {.special = -INFINITY});
  list.add(Cast{33, kF32, kBf16}, "overflow", {.special = double{std::numeric_limits<float>::max()}});
  list.add(Cast{33, kF32, kBf16}, "tie_down", {.special = 1 + 1.0 / 256});
  list.add(Cast{33, kF32, kBf16}, "tie_up", {.special = 1 + 3.0 / 256});

  for (const DType dtype : kDTypes) {
    struct Shape {
      int64_t tokens, dim;
    };
    for (const auto [tokens, dim] : {Shape{1, 8}, {7, 66}, {33, 200}, {129, 24}}) {
      list.add(Swiglu{tokens, dim, dtype});
      list.add(SwigluBwd{tokens, dim, dtype});
    }
    for (const auto activation : {GateActivation::Silu, GateActivation::GeluTanh}) {
      list.add(Swiglu{33, 24, dtype, activation}, "saturated", {.spread = 40});
      list.add(SwigluBwd{33, 24, dtype, activation}, "saturated", {.spread = 40});
    }
    list.add(Swiglu{33, 200, dtype, GateActivation::GeluTanh});
    list.add(SwigluBwd{33, 200, dtype, GateActivation::GeluTanh});
  }
}

// What families other than Llama's ask of norms, embeddings and products; apart, so that the other cases keep
// their numbers.
void add_families(List& list) {
  for (const DType dtype : kDTypes) {
    list.add(Embed{129, 50, 72, dtype, 8.5f});
    for (const int64_t dim : {8, 200}) {
      list.add(RmsNorm{33, dim, kEps, dtype, 1});
      list.add(RmsNorm{33, dim, kEps, dtype, 0, 0.125f, true});
      list.add(RmsNorm{33, dim, kEps, dtype, 1, 3, true});
    }
    list.add(RmsNorm{129, 4104, kEps, dtype, 1, 1, true});
    list.add(LinearDgrad{33, 80, 96, dtype, false, {}, true});
    list.add(LinearDgrad{7, 24, 40, dtype, false, {}, true});
  }
  for (const auto [dtype, grad] : kGradDTypes) {
    list.add(EmbedBwd{129, 50, 72, dtype, grad, true, 8.5f});
    list.add(EmbedBwd{33, 3, 8, dtype, grad, false, 0.25f}, "all_tokens_alike");
    list.add(RmsNormBwd{33, 200, kEps, dtype, grad, true, true, 1, 0.125f});
    list.add(RmsNormBwd{7, 24, kEps, dtype, grad, false, false, 1, 3});
    list.add(RmsNormBwd{5, 4104, kEps, dtype, grad, false, true, 1});
  }
  struct Heads {
    int64_t tokens, heads, head_dim, rest;
  };
  for (const Heads& h : {Heads{1, 1, 8, 0},
                         {7, 2, 16, 32},
                         {33, 3, 24, 8},
                         {9, 40, 128, 0},
                         {33, 2, 128, 256},
                         {7, 5, 80, 8},
                         {5, 2, 200, 8},
                         {9, 3, 256, 0}}) {
    for (const bool whole : {false, true}) {
      for (const DType dtype : kDTypes)
        list.add(HeadNormRope{{h.tokens, h.heads, h.head_dim, h.rest, kEps, 1.5f, 1, whole}, dtype});
      for (const auto [dtype, grad] : kGradDTypes) {
        list.add(HeadNormRopeBwd{
            {h.tokens, h.heads, h.head_dim, h.rest, kEps, 1.5f, 1, whole}, kF32, dtype, grad, true});
        if (whole)
          list.add(HeadNormRopeBwd{
              {h.tokens, h.heads, h.head_dim, h.rest, kEps, 1, 0, whole}, dtype, dtype, grad, false});
      }
    }
  }
  struct Parts {
    bool weight, bias;
  };
  for (const auto [weight, bias] : {Parts{false, false}, {true, false}, {true, true}}) {
    for (const int64_t dim : {8, 200, 4104}) {
      for (const DType dtype : kDTypes) list.add(LayerNorm{9, dim, kEps, dtype, weight, bias, 0.5f});
      for (const auto [dtype, grad] : kGradDTypes) {
        list.add(LayerNormBwd{9, dim, kEps, dtype, grad, weight, bias, true, false, true, 0.5f});
        list.add(LayerNormBwd{9, dim, kEps, dtype, grad, weight, bias, false, true, false});
      }
    }
    for (const DType dtype : kDTypes) {
      list.add(LayerNorm{7, 66, kEps, dtype, weight, bias});
      list.add(LayerNorm{7, 24, kEps, dtype, weight, bias}, "large", {.spread = 100});
      list.add(LayerNormBwd{1100, 24, kEps, dtype, dtype, weight, bias, false, false, true});
      list.add(LayerNormBwd{7, 66, kEps, dtype, dtype, weight, bias, false, false, true});
    }
  }
  for (const DType dtype : kDTypes) {
    for (const auto activation : {GateActivation::Silu, GateActivation::GeluTanh, GateActivation::Gelu}) {
      list.add(Swiglu{33, 200, dtype, activation, true});
      list.add(SwigluBwd{33, 200, dtype, activation, true});
    }
    list.add(Swiglu{33, 200, dtype, GateActivation::Gelu});
    list.add(SwigluBwd{33, 200, dtype, GateActivation::Gelu});
    list.add(Swiglu{33, 24, dtype, GateActivation::Gelu}, "saturated", {.spread = 40});
    list.add(SwigluBwd{33, 24, dtype, GateActivation::Gelu}, "saturated", {.spread = 40});
  }
  // More rows than are summed up at once.
  list.add(HeadNormRopeBwd{{1100, 2, 8, 8, kEps, 1, 0, true}, kBf16, kBf16, kF32, false});
}

// Frequencies of 0, queries that grow with their position, and a table that is added.
void add_later_parts(List& list) {
  const Temperature warm{0.3f, 3};
  for (const DType dtype : kDTypes) {
    list.add(Linear{7, 24, 2 * 2 * 16, dtype, false, 2, 16, true, 1.25f, {}, 0.5f, warm}, "tempered");
    list.add(Rope{7, 2, 16, 32, dtype, 1.25f, 0.5f, warm}, "tempered");
    list.add(Rope{7, 2, 24, 0, dtype, 1, 2}, "still");
    list.add(RopeBwd{7, 4, 2, 16, kF32, dtype, 1.25f, 0.5f, warm}, "tempered");
    list.add(RopeBwd{7, 4, 2, 24, dtype, dtype, 1, 2}, "still");
    list.add(Embed{129, 50, 72, dtype, 0.5f, true});
    list.add(Embed{7, 50, 66, dtype, 1, true});
  }
}

void add_convolutions(List& list) {
  struct Shape {
    int64_t tokens, dim, width;
  };
  for (const auto [tokens, dim, width] :
       {Shape{1, 8, 2}, {7, 24, 3}, {129, 72, 3}, {33, 200, 4}, {70, 16, 8}, {300, 8, 3}, {9, 66, 3}}) {
    for (const bool before : {false, true}) {
      for (const bool tail : {false, true}) {
        if (tail && tokens < width) continue;
        for (const DType dtype : kDTypes) list.add(ShortConv{tokens, dim, width, dtype, before, tail});
        for (const auto [dtype, grad] : kGradDTypes)
          list.add(ShortConvBwd{tokens, dim, width, dtype, grad, before, before, tail});
      }
    }
  }
  // The first document began so long ago that all rows of `before` count, not the last alone.
  const Data old{.documents = {9}};
  for (const auto [tokens, dim, width] : {Shape{2, 8, 3}, {33, 72, 3}, {7, 24, 8}, {70, 16, 4}}) {
    for (const DType dtype : kDTypes) {
      list.add(ShortConv{tokens, dim, width, dtype, true, false}, "old_rows", old);
      if (tokens >= width) list.add(ShortConv{tokens, dim, width, dtype, true, true}, "old_rows", old);
    }
    for (const auto [dtype, grad] : kGradDTypes)
      list.add(ShortConvBwd{tokens, dim, width, dtype, grad, false, true, tokens >= width}, "old_rows", old);
  }
  for (const DType dtype : kDTypes) {
    list.add(CachedConv{1, 1, 3, 8, 3, dtype});
    list.add(CachedConv{5, 1, 90, 72, 3, dtype});
    list.add(CachedConv{4, 7, 40, 24, 4, dtype});
    list.add(CachedConv{3, 33, 300, 200, 2, dtype});
  }
}

// Gated delta rules, with the convolution before and the gates around them: of documents that are shorter and
// longer than a block, of one that goes on from the piece before, at a token that is no block's first.
void add_deltas(List& list) {
  for (const auto [tokens, dim, width] : {std::array<int64_t, 3>{1, 8, 2}, {33, 200, 4}, {70, 18, 8}}) {
    for (const bool before : {false, true}) {
      const bool tail = before && tokens >= width;
      for (const DType dtype : kDTypes) list.add(ShortConv{tokens, dim, width, dtype, before, tail, true});
      for (const auto [dtype, grad] : kGradDTypes)
        list.add(ShortConvBwd{tokens, dim, width, dtype, grad, before, before, tail, true});
    }
  }
  const DeltaSizes one{1, 1, 16, 16}, odd{2, 4, 24, 8}, wide{1, 3, 128, 128};
  for (const auto& [tokens, sizes, first] : {std::tuple{int64_t{1}, one, int64_t{0}},
                                             {70, one, 0},
                                             {40, odd, 0},
                                             {130, one, 1000},
                                             {150, odd, 67},
                                             {70, wide, 1000}}) {
    const Data data = first == 0 ? Data{} : Data{.documents = {first}};
    for (const DType dtype : kDTypes) {
      for (const bool before : {false, true}) {
        for (const bool after : {false, true}) {
          list.add(DeltaRule{tokens, sizes, dtype, before, after}, "", data);
          list.add(DeltaRuleBwd{tokens, sizes, dtype, before, after}, "", data);
        }
      }
    }
  }
  for (const DType dtype : kDTypes) {
    list.add(CachedConv{4, 7, 40, 24, 4, dtype, true});
    list.add(CachedDelta{1, 1, 3, one, dtype});
    list.add(CachedDelta{4, 1, 90, wide, dtype});
    list.add(CachedDelta{5, 70, 300, odd, dtype});
    for (const int64_t heads : {1, 3}) {
      list.add(HeadGate{33, heads, 24, dtype});
      list.add(HeadGate{33, heads, 24, dtype, true, kEps});
    }
  }
  for (const auto [dtype, grad] : kGradDTypes) {
    list.add(HeadGateBwd{7, 2, 24, dtype, grad});
    list.add(HeadGateBwd{7, 2, 24, dtype, grad, true, true, kEps});
    list.add(HeadGateBwd{1100, 1, 18, dtype, grad, true, false, kEps});
    list.add(DeltaGatesBwd{1, 1, dtype, grad, false, false});
    list.add(DeltaGatesBwd{130, 20, dtype, grad, true, false});
  }
  list.add(DeltaGates{1, 1});
  list.add(DeltaGates{130, 20});
}

// Gates that are limited, most of them and few.
void add_limits(List& list) {
  for (const DType dtype : kDTypes) {
    for (const float limit : {0.5f, 7.0f}) {
      for (const GateActivation activation : {GateActivation::QuickGelu, GateActivation::Silu}) {
        list.add(Swiglu{33, 200, dtype, activation, false, limit}, "limited");
        list.add(SwigluBwd{33, 200, dtype, activation, false, limit}, "limited");
        list.add(Swiglu{9, 24, dtype, activation, false, limit}, "limited", {.spread = 40});
        list.add(SwigluBwd{9, 24, dtype, activation, false, limit}, "limited", {.spread = 40});
        // In a gate, and in what is multiplied with one.
        for (const int64_t tokens : {8, 9}) {
          list.add(Swiglu{tokens, 24, dtype, activation, false, limit}, "limited_nan", {.special = kNan});
          list.add(SwigluBwd{tokens, 24, dtype, activation, false, limit}, "limited_nan", {.special = kNan});
        }
      }
    }
    for (const bool plain : {false, true}) {
      list.add(Swiglu{33, 200, dtype, GateActivation::QuickGelu, plain});
      list.add(SwigluBwd{33, 200, dtype, GateActivation::QuickGelu, plain});
    }
  }
}

// Values that are normalised behind keys, or are these; what is multiplied by one number; gates apart from
// what they are multiplied with; learnt factors of gates. Heads are as wide as 512.
void add_norms_of_values(List& list) {
  struct Heads {
    int64_t tokens, heads, head_dim;
  };
  for (const Heads& h : {Heads{1, 1, 8}, {7, 2, 16}, {33, 3, 24}, {9, 1, 80}, {5, 2, 256}, {3, 2, 512}}) {
    for (const BehindHeads behind : {BehindHeads::Normed, BehindHeads::Again}) {
      HeadNormRope op{{h.tokens, h.heads, h.head_dim, h.heads * h.head_dim, kEps, 1.5f}, kF32};
      op.behind = behind;
      for (const DType dtype : kDTypes) {
        op.dtype = dtype;
        list.add(op);
      }
      for (const auto [dtype, grad] : kGradDTypes) {
        HeadNormRopeBwd bwd{{h.tokens, h.heads, h.head_dim, op.rest, kEps, 1.5f}, kF32, dtype, grad, true};
        bwd.behind = behind;
        list.add(bwd);
        bwd.in_dtype = dtype, bwd.accumulate = false;
        if (dtype != kF32) list.add(bwd);
      }
    }
  }
  for (const DType dtype : kDTypes) {
    for (const int64_t n : {1, 77, 40000}) list.add(ScaleBy{n, dtype});
    for (const auto activation : {GateActivation::Silu, GateActivation::GeluTanh}) {
      list.add(Swiglu{33, 24, dtype, activation, false, 0, true});
      list.add(SwigluBwd{9, 66, dtype, activation, false, 0, true});
    }
    list.add(ScaleGates{{37, 12, 3}, dtype});
  }
  for (const auto [dtype, grad] : kGradDTypes) {
    list.add(ScaleGatesBwd{{37, 12, 3}, dtype, grad, false});
    list.add(ScaleGatesBwd{{200, 64, 8}, dtype, grad, true});
  }
}

// What rope_scale adds to the ops that rotate; apart like the windows.
void add_scaled_rotations(List& list) {
  constexpr float kScale = 1.1386294f;  // YaRN's for a context four times as long
  for (const DType dtype : kDTypes) {
    list.add(Linear{7, 24, 2 * 2 * 16, dtype, false, 2, 16, true, kScale}, "scaled");
    list.add(Rope{7, 2, 16, 32, dtype, kScale}, "scaled");
    list.add(RopeBwd{7, 4, 2, 16, kF32, dtype, kScale}, "scaled");
    list.add(HeadNormRope{{7, 2, 16, 32, kEps, kScale}, dtype}, "scaled");
    list.add(HeadNormRopeBwd{{7, 2, 16, 32, kEps, kScale}, kF32, dtype, dtype, false}, "scaled");
  }
}

void add_generation(List& list) {
  struct Shape {
    int64_t rows, q_len, capacity, q_heads, kv_heads, head_dim, window = 0;
  };
  for (const auto [rows, q_len, capacity, q_heads, kv_heads, head_dim, window] :
       {Shape{1, 1, 3, 1, 1, 8},
        {1, 1, 700, 4, 1, 64},
        {5, 1, 90, 4, 2, 128},
        {4, 7, 40, 2, 2, 16},
        {3, 33, 300, 3, 1, 80},
        {2, 20, 77, 8, 2, 32},
        {1, 64, 64, 2, 1, 40},
        {4, 1, 700, 2, 1, 32, 200},
        {2, 5, 400, 4, 2, 16, 1},
        {3, 70, 300, 2, 1, 64, 40},
        {1, 9, 90, 2, 2, 128, 64},
        {2, 9, 90, 2, 1, 256},
        {1, 1, 700, 2, 1, 256},
        {3, 5, 70, 2, 2, 200, 20}}) {
    for (const DType dtype : kDTypes) {
      list.add(CachedAttention{rows, q_len, capacity, q_heads, kv_heads, head_dim, dtype, window});
    }
  }
  for (const DType dtype : kDTypes) {
    list.add(CachedAttention{2, 3, 500, 2, 1, 32, dtype}, "sharp", {.spread = 3});
    list.add(LastLogits{1, 1, 8, 16, dtype});
    list.add(LastLogits{5, 7, 66, 50, dtype});
    list.add(LastLogits{11, 3, 200, 304, dtype});
  }
}

void add_loss(List& list) {
  struct Shape {
    int64_t tokens, dim, vocab, sub;
  };
  for (const auto [tokens, dim, vocab, sub] :
       {Shape{1, 16, 32, 1}, {7, 66, 50, 3}, {33, 64, 200, 16}, {129, 48, 320, 50}}) {
    for (const auto [dtype, grad] : kGradDTypes) {
      for (const bool accumulate : {false, true}) {
        list.add(HeadLoss{tokens, dim, vocab, sub, dtype, grad, accumulate, accumulate, false}, "",
                 {.ignored = 0.3});
      }
    }
    for (const DType dtype : kDTypes) {
      list.add(HeadLoss{tokens, dim, vocab, sub, dtype, dtype, false, false, true}, "", {.ignored = 0.3});
    }
  }
  for (const DType dtype : kDTypes) {
    list.add(HeadLoss{9, 24, 40, 4, dtype, dtype, true, true, false}, "no_target_counts", {.ignored = 1});
    list.add(HeadLoss{9, 24, 40, 4, dtype, dtype, false, false, false}, "no_target_counts", {.ignored = 1});
    list.add(HeadLoss{9, 24, 40, 64, dtype, dtype, true, false, false}, "one_sub_chunk");
    list.add(HeadLoss{9, 24, 40, 4, dtype, dtype, true, false, false, true}, "frozen");
    list.add(HeadLoss{9, 24, 40, 4, dtype, dtype, false, true, false}, "sharp", {.spread = 4});
    list.add(HeadLoss{9, 24, 40, 4, dtype, dtype, false, false, true}, "sharp", {.spread = 4});
    for (const bool forward_only : {false, true}) {
      HeadLoss op{40, 24, 3, 16, dtype, dtype, !forward_only, false, forward_only};
      list.add(op, "often_likeliest", {.ignored = 0.1});
      op.weighted = true;
      list.add(op, "", {.ignored = 0.3});
      op.log_probs = true;
      list.add(op, "", {.ignored = 0.3});
      op.weighted = false;
      op.frozen = !forward_only;
      list.add(op, "", {.ignored = 0.3});
    }
    const HeadLoss every{129, 48, 320, 50, dtype, dtype, true, true, false, false, true, true};
    list.add(every, "", {.ignored = 0.3});
    list.add(every, "seeds", {.ignored = 0.3, .seeds = true});
    HeadLoss others = every;
    for (const int64_t top : {1, 7}) {
      others.top = top;
      list.add(others, "", {.ignored = 0.3});
    }
    others.softcap = 3, others.log_probs = false, others.frozen = true;
    list.add(others, "seeds", {.ignored = 0.3, .seeds = true});
    HeadLoss scores{33, 24, 40, 16, dtype, dtype, false, false, true, false, false, true};
    scores.top = 3;
    list.add(scores, "", {.ignored = 0.3});
  }
  list.add(GatherWeights{1, 0, 1});
  list.add(GatherWeights{77, 0, 77});
  list.add(GatherWeights{50, 0, 131});
  list.add(GatherWeights{50, 50, 131});
  list.add(GatherWeights{31, 100, 131});
}

// Sums so long that operands of fewer bits than f32 has show in them, as TF32's 11 do.
void add_long_products(List& list) {
  constexpr int64_t kLong = 2048;
  for (const DType dtype : kDTypes) {
    list.add(Linear{33, kLong, 96, dtype, true});
    list.add(LinearDgrad{33, 96, kLong, dtype, false});
    list.add(LinearWgrad{kLong, 96, 64, dtype, kF32, false});
    list.add(HeadLoss{33, 1024, 200, 16, dtype, kF32, false, false, false});
  }
}

void add_narrow_products(List& list) {
  struct Shape {
    int64_t tokens, in, out;
  };
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{16, 16}, {48, 80}, {144, 208}, {1, 64}, {7, 24}, {3, 2064}}) {
    for (const bool by_column : {false, true}) {
      if (by_column && !is_narrow(rows)) continue;
      for (const NumberFormat& to : kFloat8Kinds) {
        list.add(Quantize{rows, cols, kBf16, to, true, by_column});
        if (by_column) list.add(Quantize{rows, cols, kBf16, to, false, true});
      }
    }
  }
  for (const auto& [tokens, dim] : {std::pair<int64_t, int64_t>{16, 24}, {144, 208}}) {
    RmsNorm norm{tokens, dim, kEps, kBf16};
    norm.narrow = true;
    list.add(norm);
    for (const bool plain : {false, true}) {
      Swiglu glu{tokens, dim, kBf16, GateActivation::Silu, plain};
      SwigluBwd back{tokens, dim, kBf16, GateActivation::Silu, plain};
      glu.narrow = back.narrow = true;
      list.add(glu);
      list.add(back);
    }
  }
  for (const NumberFormat& to : kFloat8Kinds) {
    list.add(Quantize{32, 48, kBf16, to, true, true}, "large", {.spread = 1e30});
    list.add(Quantize{32, 48, kBf16, to, true, true}, "zero", {.spread = 0});
  }
  for (const auto [tokens, in, out] : {Shape{16, 32, 16}, {48, 80, 112}, {33, 64, 48}, {144, 208, 80}}) {
    const NumberFormat x = kFloat8.over(in), dy = kFloat8.over(out), t = kFloat8.over(tokens);
    for (const bool flag : {false, true}) {
      Linear linear{tokens, in, out, kBf16, flag, 0, 0, flag};
      linear.weight_format = linear.x_format = x;
      list.add(linear);
      LinearDgrad dgrad{tokens, in, out, kBf16, flag};
      dgrad.weight_format = dgrad.dy_format = dy;
      list.add(dgrad);
      if (!is_narrow(tokens)) continue;
      for (const DType grad : kDTypes) {
        LinearWgrad wgrad{tokens, in, out, kBf16, grad, flag};
        wgrad.dy_format = wgrad.x_format = t;
        list.add(wgrad);
      }
    }
    for (const NumberFormat& kind : kFloat8Kinds) {
      LinearDgrad dgrad{tokens, in, out, kBf16, false, dy, true};
      dgrad.dy_format = kind.over(out);
      list.add(dgrad);
    }
    if (!is_narrow(tokens)) continue;
    LinearWgrad wgrad{tokens, in, out, kBf16, kBf16, true};
    wgrad.dy_format = kWideFloat8.over(tokens);
    wgrad.x_format = t;
    list.add(wgrad);
  }
  struct Head {
    int64_t tokens, dim, vocab, sub;
  };
  for (const auto [tokens, dim, vocab, sub] : {Head{16, 32, 48, 16}, {48, 80, 112, 32}, {144, 64, 208, 48}}) {
    for (const DType grad : kDTypes) {
      for (const bool accumulate : {false, true}) {
        HeadLoss op{tokens, dim, vocab, sub, kBf16, grad, accumulate, accumulate, false};
        op.x_format = kFloat8.over(dim);
        list.add(op, "", {.ignored = 0.3});
      }
    }
    HeadLoss op{tokens, dim, vocab, sub, kBf16, kBf16, true, false, false, true, true, true};
    op.x_format = kFloat8.over(dim);
    list.add(op, "frozen", {.ignored = 0.3});
    op.frozen = false, op.top = 3, op.softcap = 3;
    list.add(op, "", {.ignored = 0.3});
    op.forward_only = true, op.accumulate_loss = false;
    list.add(op, "", {.ignored = 0.3});
  }
  HeadLoss any_rows{40, 32, 48, 16, kBf16, kBf16, false, false, true};
  any_rows.x_format = kFloat8.over(any_rows.dim);
  list.add(any_rows);
  any_rows.tokens = 33, any_rows.sub_tokens = 64;
  list.add(any_rows);
}

// Texts that have rows of a larger cache, copies of rows, and draws.
void add_sampling(List& list) {
  const DeltaSizes odd{2, 4, 24, 8};
  for (const DType dtype : kDTypes) {
    list.add(CachedAttention{5, 3, 90, 4, 2, 64, dtype, 0, 0, false, 11}, "slots");
    list.add(CachedAttention{3, 33, 300, 3, 1, 80, dtype, 20, 0, true, 7}, "slots");
    list.add(CachedConv{4, 7, 40, 24, 4, dtype, true, 9}, "slots");
    list.add(CachedConv{3, 1, 40, 24, 3, dtype, false, 6}, "slots");
    list.add(CachedDelta{3, 5, 90, odd, dtype, 8}, "slots");
    list.add(CopyRows{7, 40, dtype});
    list.add(CopyRows{3, 33000, dtype});
    list.add(LastLogits{19, 1, 72, 304, dtype});
  }
  list.add(DrawTokens{1, 1, 16});
  list.add(DrawTokens{9, 4, 1030});
  list.add(DrawTokens{6, 2, 5003});
}

}  // namespace

std::string Case::name() const {
  std::string name = to_text(op) + (note.empty() ? "" : " " + note);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

std::vector<Case> all_cases() {
  List list;
  add_embedding(list);
  add_norms(list);
  add_products(list);
  add_low_rank(list);
  add_dropout(list);
  add_rotary(list);
  add_head_norms(list);
  add_elementwise(list);
  add_attention(list);
  add_generation(list);
  add_loss(list);
  add_updates(list);
  add_windows(list);
  add_scaled_rotations(list);
  add_families(list);
  add_later_parts(list);
  add_softcaps(list);
  add_convolutions(list);
  add_deltas(list);
  add_sinks(list);
  add_limits(list);
  add_experts(list);
  add_long_products(list);
  add_long_attention(list);
  add_wide_heads(list);
  add_norms_of_values(list);
  add_narrow_products(list);
  add_packed(list);
  add_sampling(list);
  return std::move(list.cases);
}

}  // namespace sluice::core::conformance
