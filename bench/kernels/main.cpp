// SPDX-License-Identifier: Apache-2.0
// How fast the CUDA backend's ops are, at the shapes of Llama-3 8B and others, all in one run: GB/s against
// the device's own copies, and products and attention against the library's best: the same product without
// what is fused to it or added up, by the fastest of the library's algorithms, those included that vary from
// run to run. Random data, sustained load, times from CUDA events.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "../routing.h"
#include "backend/cuda/cuda_backend.h"
#include "base/bytes.h"
#include "ops/op.h"

namespace {

using namespace sluice::core;
using sluice::Result;
using sluice::Status;

constexpr int64_t kDim = 4096, kFfn = 14336, kVocab = 128256, kQHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr int64_t kKvDim = kKvHeads * kHeadDim;
constexpr int64_t kLayerParams = 2 * kDim * kDim + 2 * kDim * kKvDim + 3 * kDim * kFfn + 2 * kDim;
constexpr int64_t kPatternBytes = 256 * kMiB;
constexpr int64_t kDocument = 700;  // tokens per document where sequences are packed
// And where documents differ: 8,192 in all.
const std::vector<int64_t> kUneven{200, 4000, 700, 1300, 1992};
constexpr int64_t kColdBytes = 512 * kMiB;  // operands rotate over so much memory, to miss the L2 cache
constexpr double kTargetNs = 60e6;          // of timed work per op
constexpr auto kBf16 = DType::BF16;
constexpr auto kF32 = DType::F32;

constexpr Mixture kMixture{16384, 64, 8};
constexpr ExpertGroup kGroup{0, 64};
Linear router() {
  Linear op{kMixture.tokens, 2048, kMixture.experts, kBf16};
  op.f32_result = true;
  return op;
}

// What an op is to a layer of experts. InPlace: the product before it, of rows that lie side by side, which
// no layer has: the difference is what gathering costs.
enum class Part { Product, InPlace, Activation, Around };

struct Entry {
  std::string name;
  SharedOp op;
  std::vector<int64_t> documents = {kDocument};  // their tokens, in turn, within a sequence; none: it is one
  bool even = false;                             // all experts have equally many rows
  Part part = Part::Product;
};

// Products of published mixtures, which bench/baselines/torch_grouped.py times by the same names.
std::vector<Entry> products_of_experts() {
  struct Shape {
    const char* name;
    int64_t experts, rows, in, out;  // rows of each expert
  };
  std::vector<Entry> out;
  for (const Shape& s :
       {Shape{"OLMoE", 64, 2048, 2048, 1024}, Shape{"OLMoE, brief", 64, 256, 2048, 1024},
        Shape{"Qwen3-30B-A3B", 128, 1024, 2048, 768}, Shape{"gpt-oss", 32, 2048, 2880, 2880},
        Shape{"Qwen3.5-35B-A3B", 256, 512, 2048, 512}, Shape{"Gemma 4", 128, 1024, 2816, 704}}) {
    const Mixture mixture{s.experts * s.rows / 4, s.experts, 4};
    const ExpertGroup group{0, s.experts};
    for (const bool even : {true, false}) {
      const auto add = [&](const char* what, const Op& op) {
        const char* const loads = even ? "" : ", uneven";
        out.push_back({fmt::format("experts of {}{}: {}", s.name, loads, what), op, {}, even});
      };
      add("forward", GroupedLinear{mixture, group, s.in, s.out, kBf16, false, false});
      add("forward, gathering", GroupedLinear{mixture, group, s.in, s.out, kBf16, true, false});
      add("dgrad", GroupedDgrad{mixture, group, s.in, s.out, kBf16, false, false});
      add("wgrad", GroupedWgrad{mixture, group, s.in, s.out, kBf16, kBf16, false, false, false});
      add("wgrad, gathering", GroupedWgrad{mixture, group, s.in, s.out, kBf16, kBf16, false, true, false});
      if (even)
        add("wgrad, adding in f32",
            GroupedWgrad{mixture, group, s.in, s.out, kBf16, kF32, false, false, true});
      const GroupedAdapters adapters{mixture, group, {16, 1, s.out, 0, s.out}, kBf16};
      add("adapter B", GroupedLowRank{adapters});
      add("adapter dgrad", GroupedLowRankDgrad{adapters});
      add("adapter wgrad", GroupedLowRankWgrad{adapters, kBf16});
    }
  }
  return out;
}

// Whole layers of experts, forward and backward, as steps of training run them (program/gradient/rules.cpp):
// choices by chance, all experts one group, gradients of weights that are not added to others.
std::vector<Entry> layers_of_experts() {
  struct Shape {
    const char* name;
    Mixture mixture;
    int64_t dim, ffn;
  };
  std::vector<Entry> out;
  for (const Shape& s :
       {Shape{"Qwen3-30B-A3B", {32768, 128, 8}, 2048, 768}, Shape{"OLMoE", {16384, 64, 8}, 2048, 1024}}) {
    const Mixture& m = s.mixture;
    const ExpertGroup all{0, m.experts};
    const auto add = [&](const char* what, const Op& op, Part part) {
      out.push_back({fmt::format("layer of {}: {}", s.name, what), op, {}, false, part});
    };
    const auto add_gathering = [&](const char* what, const auto& op, auto gathers) {
      auto in_place = op;
      in_place.*gathers = false;
      add(what, op, Part::Product);
      add("  the same in place", in_place, Part::InPlace);
    };
    Linear router{m.tokens, s.dim, m.experts, kBf16};
    router.f32_result = true;
    add("router", router, Part::Around);
    add("route", Route{m, RouterScore::Softmax}, Part::Around);
    add("router load", RouterLoad{m, true, true, true}, Part::Around);
    add("sort", SortByExpert{m}, Part::Around);
    add_gathering("gate and up", GroupedLinear{m, all, s.dim, 2 * s.ffn, kBf16, true, false},
                  &GroupedLinear::gathers);
    add("swiglu", Swiglu{m.rows(), s.ffn, kBf16}, Part::Activation);
    add("down", GroupedLinear{m, all, s.ffn, s.dim, kBf16, false, false}, Part::Product);
    add("combine", CombineExperts{m, s.dim, kBf16, true, true}, Part::Around);
    add_gathering("dgrad down", GroupedDgrad{m, all, s.ffn, s.dim, kBf16, true, false},
                  &GroupedDgrad::gathers);
    add("glu bwd", ExpertGluBwd{m, s.ffn, kBf16}, Part::Activation);
    add_gathering("wgrad down", GroupedWgrad{m, all, s.ffn, s.dim, kBf16, kBf16, true, false, false},
                  &GroupedWgrad::gathers_dy);
    add("dgrad gate and up", GroupedDgrad{m, all, s.dim, 2 * s.ffn, kBf16, false, false}, Part::Product);
    add("combine bwd", CombineExperts{m, s.dim, kBf16, false, false}, Part::Around);
    add_gathering("wgrad gate and up",
                  GroupedWgrad{m, all, s.dim, 2 * s.ffn, kBf16, kBf16, false, true, false},
                  &GroupedWgrad::gathers_x);
    add("route bwd", RouteBwd{m, kBf16, RouterScore::Softmax}, Part::Around);
    add("router dgrad, adding", LinearDgrad{m.tokens, s.dim, m.experts, kBf16, true}, Part::Around);
    add("router wgrad", LinearWgrad{m.tokens, s.dim, m.experts, kBf16, kBf16, false}, Part::Around);
  }
  return out;
}

// Causal attention as wide in all, in heads of three sizes, of which four share keys.
void add_heads(int64_t rows, int64_t length, std::vector<Entry>& out) {
  for (const int64_t head_dim : {128, 256, 512}) {
    const int64_t heads = 2048 / head_dim;
    for (const bool packed : {false, true}) {
      const AttnShape shape{rows, length, length, heads, heads / 4, head_dim, 0, packed, kBf16};
      const auto add = [&](const char* what, const Op& op) {
        out.push_back(
            {fmt::format("heads as wide as {}: {}{}", head_dim, what, packed ? ", packed" : ""), op, {}});
      };
      add("forward", AttnFwd{shape, kBf16, false});
      add("backward", AttnBwd{shape, kBf16, false, false});
    }
  }
}

// Layers of Qwen3.5 with gated delta rules, which bench/baselines/torch_delta.py times by the same names.
void add_deltas(int64_t tokens, std::vector<Entry>& out) {
  for (const auto& [model, heads] : {std::pair("9B", 32), {"27B", 48}}) {
    const DeltaSizes sizes{16, heads, 128, 128};
    const auto add = [&](const char* what, const Op& op) {
      out.push_back({fmt::format("{}: {}", model, what), op, {}});
      out.push_back({fmt::format("{}: {}, packed", model, what), op, kUneven});
    };
    add("delta rule", DeltaRule{tokens, sizes, kBf16});
    add("delta rule bwd", DeltaRuleBwd{tokens, sizes, kBf16});
    add("convolution", ShortConv{tokens, sizes.columns(), 4, kBf16, false, false, true});
    add("convolution bwd", ShortConvBwd{tokens, sizes.columns(), 4, kBf16, kBf16, false, false, false, true});
    out.push_back({fmt::format("{}: gates", model), DeltaGates{tokens, heads}});
    out.push_back(
        {fmt::format("{}: gates bwd", model), DeltaGatesBwd{tokens, heads, kBf16, kBf16, true, true}});
    out.push_back({fmt::format("{}: gated norm", model), HeadGate{tokens, heads, 128, kBf16, true, 1e-6f}});
    out.push_back({fmt::format("{}: gated norm bwd", model),
                   HeadGateBwd{tokens, heads, 128, kBf16, kBf16, true, true, 1e-6f}});
  }
}

AttnShape attention(int64_t rows, int64_t length, int64_t distance = 0, bool packed = false) {
  return {rows, length, length, kQHeads, kKvHeads, kHeadDim, distance, packed, kBf16};
}

// Products of dense layers in 8 bits, and what makes their operands; bare() is the same product in bf16.
void add_narrow(int64_t t, std::vector<Entry>& out) {
  const auto quantize = [&](const char* name, int64_t cols, bool by_column) {
    out.push_back({name, Quantize{t, cols, kBf16, kFloat8, true, by_column}});
  };
  quantize("fp8: quantize x", kDim, false);
  quantize("fp8: quantize x, turned too", kDim, true);
  quantize("fp8: quantize gate and up, turned too", 2 * kFfn, true);
  const auto forward = [&](const char* name, int64_t in, int64_t columns, bool residual) {
    Linear op{t, in, columns, kBf16, residual};
    op.x_format = op.weight_format = kFloat8.over(in);
    out.push_back({name, op});
  };
  forward("fp8: q", kDim, kDim, false);
  forward("fp8: kv", kDim, 2 * kKvDim, false);
  forward("fp8: gate, up", kDim, 2 * kFfn, false);
  forward("fp8: down + residual", kFfn, kDim, true);
  const auto dgrad = [&](const char* name, int64_t in, int64_t columns, bool accumulate) {
    LinearDgrad op{t, in, columns, kBf16, accumulate};
    op.dy_format = op.weight_format = kFloat8.over(columns);
    out.push_back({name, op});
  };
  dgrad("fp8: dgrad q", kDim, kDim, false);
  dgrad("fp8: dgrad kv, adding", kDim, 2 * kKvDim, true);
  dgrad("fp8: dgrad gate, up", kDim, 2 * kFfn, false);
  dgrad("fp8: dgrad down", kFfn, kDim, false);
  const auto wgrad = [&](const char* name, int64_t in, int64_t columns, DType grad) {
    LinearWgrad op{t, in, columns, kBf16, grad, true};
    op.dy_format = op.x_format = kFloat8.over(t);
    out.push_back({name, op});
  };
  wgrad("fp8: wgrad q", kDim, kDim, kBf16);
  wgrad("fp8: wgrad gate, up", kDim, 2 * kFfn, kBf16);
  wgrad("fp8: wgrad gate, up f32", kDim, 2 * kFfn, kF32);
  wgrad("fp8: wgrad down", kFfn, kDim, kBf16);
}

std::vector<Entry> entries(int64_t tokens, int64_t sequence) {
  const int64_t t = tokens, rows = tokens / sequence;
  const int64_t brief_length = std::min<int64_t>(1024, tokens);
  AttnShape window = attention(rows, sequence), cut = attention(1, sequence / 2, sequence / 2);
  window.window = sequence / 8, cut.window = sequence / 2;
  const AttnShape full = attention(rows, sequence), brief = attention(tokens / brief_length, brief_length),
                  earlier = attention(1, sequence, sequence), packed = attention(rows, sequence, 0, true);
  AttnShape capped = full, wide = full;
  capped.softcap = wide.softcap = 50;
  wide.q_heads /= 2, wide.kv_heads /= 2, wide.head_dim *= 2;
  AttnShape of_256 = wide;
  of_256.softcap = 0;
  AttnShape window_256 = of_256;
  window_256.window = sequence / 8;
  std::vector<Entry> out{
      {"cast bf16 to bf16", Cast{t * kDim * 4, kBf16, kBf16}},
      {"embed", Embed{t, kVocab, kDim, kBf16}},
      {"embed bwd", EmbedBwd{t, kVocab, kDim, kBf16, kBf16, true}},
      {"rms norm", RmsNorm{t, kDim, 1e-5f, kBf16}},
      {"rms norm bwd + residual", RmsNormBwd{t, kDim, 1e-5f, kBf16, kBf16, true, true}},
      {"rms norm of 1 + w + residual", RmsNorm{t, kDim, 1e-5f, kBf16, 1, 1, true}},
      {"layer norm", LayerNorm{t, kDim, 1e-5f, kBf16, true, true}},
      {"layer norm bwd + residual", LayerNormBwd{t, kDim, 1e-5f, kBf16, kBf16, true, true, true, true, true}},
      {"norm of q + rope", HeadNormRope{{t, kQHeads, kHeadDim, 0, 1e-6f, 1, 0, true}, kBf16}},
      {"norm of q + rope bwd",
       HeadNormRopeBwd{{t, kQHeads, kHeadDim, 0, 1e-6f, 1, 0, true}, kBf16, kBf16, kBf16, true}},
      {"rope, q", Rope{t, kQHeads, kHeadDim, 0, kBf16}},
      {"rope, kv", Rope{t, kKvHeads, kHeadDim, kKvHeads * kHeadDim, kBf16}},
      {"rope bwd bf16", RopeBwd{t, kQHeads, kKvHeads, kHeadDim, kBf16, kBf16}},
      {"rope bwd f32", RopeBwd{t, kQHeads, kKvHeads, kHeadDim, kF32, kBf16}},
      {"head norm + rope, q", HeadNormRope{{t, kQHeads, kHeadDim, 0, 1e-6f}, kBf16}},
      {"head norm + rope, kv", HeadNormRope{{t, kKvHeads, kHeadDim, kKvHeads * kHeadDim, 1e-6f}, kBf16}},
      {"head norm + rope bwd bf16, q",
       HeadNormRopeBwd{{t, kQHeads, kHeadDim, 0, 1e-6f}, kBf16, kBf16, kBf16, true}},
      {"head norm + rope bwd f32, kv",
       HeadNormRopeBwd{{t, kKvHeads, kHeadDim, kKvHeads * kHeadDim, 1e-6f}, kF32, kBf16, kBf16, true}},
      {"bias gradient", BiasGrad{t, kDim, kBf16, kBf16, true}},
      {"swiglu", Swiglu{t, kFfn, kBf16}},
      {"swiglu bwd", SwigluBwd{t, kFfn, kBf16}},
      {"cast f32 to bf16", Cast{t * kDim, kF32, kBf16}},
      {"add gradients, layer", AddGradients{kLayerParams, kBf16, kBf16, kF32}},
      {"add gradients to a sum, layer", AddGradients{kLayerParams, kF32, kF32, kBf16}},
      {"sum of squares, layer", SumSq{kLayerParams, 0, 64, kBf16, false}},
      {"adamw bf16 stochastic",
       AdamW{kLayerParams, 0, 1, 0.9f, 0.95f, 1e-8f, 0.1f, kBf16, kBf16, kBf16, MasterWeights::Off, true}},
      {"adamw bf16 stochastic, weights only", AdamW{kLayerParams, 0, 1, 0.9f, 0.95f, 1e-8f, 0.1f, kBf16,
                                                    kBf16, kBf16, MasterWeights::Off, true, false}},
      {"adamw bf16 stochastic, moments only",
       AdamWMoments{kLayerParams, 0, 1, 0.9f, 0.95f, kBf16, kBf16, true}},
      {"sgd with momentum bf16 stochastic",
       SgdMomentum{kLayerParams, 0, 1, 0.9f, 0.1f, false, kBf16, kBf16, kBf16, MasterWeights::Off, true}},
      {"lion bf16 stochastic",
       Lion{kLayerParams, 0, 1, 0.9f, 0.99f, 0.1f, kBf16, kBf16, kBf16, MasterWeights::Off, true}},
      {"muon bf16 stochastic, a matrix of the MLP",
       Muon{kFfn, kDim, 0, 1, 0.95f, 1, 0.1f, true, kBf16, kBf16, kBf16, MasterWeights::Off, true}},
      {"adafactor bf16 stochastic", Adafactor{kFfn, kDim, 0, 1, -0.8, 1e-30f, 1e-3f, 1, 0.1f, false, false,
                                              false, kBf16, kBf16, MasterWeights::Off, true}},
      {"adamw f32 state, master",
       AdamW{kLayerParams, 0, 1, 0.9f, 0.95f, 1e-8f, 0.1f, kBf16, kF32, kF32, MasterWeights::F32, false}},
      {"adamw i8 state, masters of 24 bits", AdamW{kLayerParams, 0, 1, 0.9f, 0.95f, 1e-8f, 0.1f, kBf16, kBf16,
                                                   DType::I8, MasterWeights::I8, false}},
      {"q + rope", Linear{t, kDim, kDim, kBf16, false, kQHeads, kHeadDim}},
      {"kv + rope", Linear{t, kDim, 2 * kKvDim, kBf16, false, kKvHeads, kHeadDim}},
      {"o + residual", Linear{t, kDim, kDim, kBf16, true}},
      {"gate, up", Linear{t, kDim, 2 * kFfn, kBf16}},
      {"down + residual", Linear{t, kFfn, kDim, kBf16, true}},
      {"dgrad q", LinearDgrad{t, kDim, kDim, kBf16, false}},
      {"dgrad kv, adding", LinearDgrad{t, kDim, 2 * kKvDim, kBf16, true}},
      {"dgrad gate, up", LinearDgrad{t, kDim, 2 * kFfn, kBf16, false}},
      {"dgrad down", LinearDgrad{t, kFfn, kDim, kBf16, false}},
      {"wgrad q", LinearWgrad{t, kDim, kDim, kBf16, kBf16, true}},
      {"wgrad kv", LinearWgrad{t, kDim, 2 * kKvDim, kBf16, kBf16, true}},
      {"wgrad gate, up", LinearWgrad{t, kDim, 2 * kFfn, kBf16, kBf16, true}},
      {"wgrad gate, up f32", LinearWgrad{t, kDim, 2 * kFfn, kBf16, kF32, true}},
      {"wgrad down", LinearWgrad{t, kFfn, kDim, kBf16, kBf16, true}},
      {"adapter A of gate, up", Linear{t, kDim, 32, kBf16}},
      {"adapter dropout", Dropout{t, kDim, kBf16, 0.05f, 0, sequence, 1}},
      {"adapter B of gate, up", LowRank{{t, 16, 2, kFfn, 0, 2 * kFfn}, kBf16, 2}},
      {"adapter dgrad of gate, up", LowRankDgrad{{t, 16, 2, kFfn, 0, 2 * kFfn}, kBf16, 2}},
      {"adapter wgrad of gate, up", LowRankWgrad{{t, 16, 2, kFfn, 0, 2 * kFfn}, kBf16, kBf16, 2}},
      {"norms of gate, up", RowNorms{{t, 16, 2, kFfn, 0, 2 * kFfn}, kDim, kBf16, 2}},
      {"magnitude of gate, up", Magnitude{t, 2 * kFfn, 0, 2 * kFfn, kBf16}},
      {"magnitude bwd of gate, up", MagnitudeBwd{t, 2 * kFfn, 0, 2 * kFfn, kBf16, kBf16}},
      {"attention", AttnFwd{full, kBf16, false}},
      {"attention, capped", AttnFwd{capped, kBf16, false}},
      {"attention bwd, capped", AttnBwd{capped, kBf16, false, false}},
      {"attention, sinks", AttnFwd{full, kBf16, false, true}},
      {"sink grad", SinkGrad{rows, sequence, kQHeads, kHeadDim, kBf16, kBf16, false}},
      {"attention of heads of 256", AttnFwd{of_256, kBf16, false}},
      {"attention bwd of heads of 256", AttnBwd{of_256, kBf16, false, false}},
      {"attention of heads of 256, window", AttnFwd{window_256, kBf16, false}},
      {"attention bwd of heads of 256, window", AttnBwd{window_256, kBf16, false, false}},
      {"attention of heads of 256, capped", AttnFwd{wide, kBf16, false}},
      {"attention bwd of heads of 256, capped", AttnBwd{wide, kBf16, false, false}},
      {"attention bwd", AttnBwd{full, kBf16, false, false}},
      {"attention 1k rows", AttnFwd{brief, kBf16, false}},
      {"attention bwd 1k rows", AttnBwd{brief, kBf16, false, false}},
      {"attention block, merged", AttnFwd{earlier, kF32, true}},
      {"attention bwd block, adding", AttnBwd{earlier, kF32, true, true}},
      {"attention packed (dense flops)", AttnFwd{packed, kBf16, false}},
      {"attention bwd packed (dense flops)", AttnBwd{packed, kBf16, false, false}},
      {"attention, window of an eighth", AttnFwd{window, kBf16, false}},
      {"attention bwd, window of an eighth", AttnBwd{window, kBf16, false, false}},
      {"attention block at a window's edge", AttnFwd{cut, kF32, true}},
      {"attention bwd block at a window's edge", AttnBwd{cut, kF32, true, true}},
      {"head and loss", HeadLoss{t, kDim, kVocab, 1024, kBf16, kBf16, true, true, false}},
      {"head and loss, no gradients", HeadLoss{t, kDim, kVocab, 1024, kBf16, kBf16, true, false, true}},
      {"one token: q", Linear{1, kDim, kDim, kBf16, false, kQHeads, kHeadDim}},
      {"one token: kv", Linear{1, kDim, 2 * kKvDim, kBf16, false, kKvHeads, kHeadDim}},
      {"one token: gate and up", Linear{1, kDim, 2 * kFfn, kBf16}},
      {"one token: down + residual", Linear{1, kFfn, kDim, kBf16, true}},
      {"eight tokens: gate and up", Linear{8, kDim, 2 * kFfn, kBf16}},
      {"one token: attention, cache of 4k", CachedAttention{1, 1, 4096, kQHeads, kKvHeads, kHeadDim, kBf16}},
      {"64 tokens: attention, cache of 4k", CachedAttention{1, 64, 4096, kQHeads, kKvHeads, kHeadDim, kBf16}},
      {"one token: head", LastLogits{1, 1, kDim, kVocab, kBf16}},
      // Experts of OLMoE's sizes, 2,048 rows each: gates and up projections are twice as wide as the down
      // projection's input.
      {"experts: grouped product", GroupedLinear{kMixture, kGroup, 2048, 1024, kBf16, false, false}},
      {"experts: grouped dgrad", GroupedDgrad{kMixture, kGroup, 2048, 1024, kBf16, false, false}},
      {"experts: grouped wgrad",
       GroupedWgrad{kMixture, kGroup, 2048, 1024, kBf16, kBf16, false, false, false}},
      {"experts: gate and up, gathering", GroupedLinear{kMixture, kGroup, 2048, 2048, kBf16, true, false}},
      {"experts: down", GroupedLinear{kMixture, kGroup, 1024, 2048, kBf16, false, false}},
      {"experts: dgrad down, gathering", GroupedDgrad{kMixture, kGroup, 1024, 2048, kBf16, true, false}},
      {"experts: wgrad down, gathering",
       GroupedWgrad{kMixture, kGroup, 1024, 2048, kBf16, kBf16, true, false, true}},
      {"experts: wgrad gate and up, gathering",
       GroupedWgrad{kMixture, kGroup, 2048, 2048, kBf16, kBf16, false, true, true}},
      {"experts: glu bwd", ExpertGluBwd{kMixture, 1024, kBf16}},
      {"experts: combine + residual", CombineExperts{kMixture, 2048, kBf16, true, true}},
      {"experts: router", router()},
      {"experts: route", Route{kMixture, RouterScore::Softmax}},
      {"experts: route bwd", RouteBwd{kMixture, kBf16, RouterScore::Softmax}},
      {"experts: router load", RouterLoad{kMixture, true, true, true}},
      {"experts: sort", SortByExpert{kMixture}},
  };
  add_heads(rows, sequence, out);
  add_deltas(t, out);
  add_narrow(t, out);
  return out;
}

// What the library does of an op: the bare product or attention with a bf16 result.
std::optional<Op> bare(const Op& op) {
  if (const auto* o = std::get_if<Linear>(&op)) return Linear{o->tokens, o->in, o->out, kBf16};
  if (const auto* o = std::get_if<LinearDgrad>(&op))
    return LinearDgrad{o->tokens, o->in, o->out, kBf16, false};
  if (const auto* o = std::get_if<LinearWgrad>(&op))
    return LinearWgrad{o->tokens, o->in, o->out, kBf16, kBf16, false};
  // The dense product of as many rows.
  const auto rows = [](const auto* o) { return o->mixture.rows() * o->group.count / o->mixture.experts; };
  if (const auto* o = std::get_if<GroupedLinear>(&op)) return Linear{rows(o), o->in, o->out, kBf16};
  if (const auto* o = std::get_if<GroupedDgrad>(&op))
    return LinearDgrad{rows(o), o->in, o->out, kBf16, false};
  if (const auto* o = std::get_if<GroupedWgrad>(&op))
    return LinearWgrad{rows(o), o->in, o->out, kBf16, kBf16, false};
  if (const auto* o = std::get_if<AttnFwd>(&op)) return AttnFwd{o->shape, kBf16, false};
  if (const auto* o = std::get_if<AttnBwd>(&op)) return AttnBwd{o->shape, kBf16, false, false};
  return std::nullopt;
}

// Bell-shaped bf16 numbers; seen as f32 they look alike.
std::vector<uint16_t> make_pattern() {
  std::vector<uint16_t> pattern(size_t(kPatternBytes / 2));
  std::minstd_rand random(1);
  std::normal_distribution<float> normal(0.0f, 0.5f);
  std::vector<uint16_t> numbers(1 << 16);
  for (uint16_t& x : numbers) x = Bf16(normal(random)).bits;
  for (uint16_t& x : pattern) x = numbers[random() % numbers.size()];
  return pattern;
}

// An op's operands and workspace in the arena, several times over.
struct Placed {
  std::vector<std::vector<Buffer>> sets;
  Buffer workspace;
};

class Bench {
 public:
  Bench(Backend& backend, std::byte* arena, int64_t bytes, double skew)
      : backend_(backend), arena_(arena), bytes_(bytes), skew_(skew) {}

  Status upload_pattern(const std::vector<uint16_t>& pattern) {
    return backend_.upload({kDevice, 0}, reinterpret_cast<const std::byte*>(pattern.data()), kPatternBytes);
  }

  // Bytes read and written per nanosecond by the device's own copies, each of 256 MiB: the median.
  Result<double> copy_rate() {
    constexpr int kCopies = 100;
    std::vector<Command> copies;
    for (int i = 0; i < kCopies; ++i) {
      const int64_t to = (1 + i % 4) * kPatternBytes;
      copies.push_back(
          {uint32_t(i), backend_.lanes().compute(), {}, Copy{{kDevice, 0}, {kDevice, to}, kPatternBytes}, 0});
    }
    SLUICE_ASSIGN(std::vector<Interval> timeline, run_commands(backend_, copies));
    std::ranges::nth_element(timeline, timeline.begin() + kCopies / 2, {},
                             [](const Interval& t) { return t.end_ns - t.start_ns; });
    const Interval& middle = timeline[kCopies / 2];
    return 2 * double(kPatternBytes) / (middle.end_ns - middle.start_ns);
  }

  // Median nanoseconds of one run.
  Result<double> time(const Entry& entry, int64_t sequence) {
    const Op& op = entry.op;
    even_ = entry.even;
    SLUICE_ASSIGN(const Placed placed, place(op, positions(sequence, entry.documents)));
    SLUICE_ASSIGN(const std::vector<double> trial, run(op, placed, 3));
    const int count = std::clamp(int(kTargetNs / std::max(trial.back(), 1e3)), 5, 400);
    SLUICE_ASSIGN(std::vector<double> times, run(op, placed, count));
    std::ranges::nth_element(times, times.begin() + count / 2);
    return times[size_t(count / 2)];
  }

 private:
  Location place_of(const Buffer& buffer) const { return {kDevice, buffer.data - arena_}; }

  // Of tokens in their documents, for as long as a sequence is.
  static std::vector<int32_t> positions(int64_t sequence, const std::vector<int64_t>& documents) {
    std::vector<int32_t> out;
    for (size_t i = 0; int64_t(out.size()) < sequence; ++i) {
      const int64_t rest = sequence - int64_t(out.size());
      const int64_t length = documents.empty() ? rest : std::min(rest, documents[i % documents.size()]);
      for (int64_t t = 0; t < length; ++t) out.push_back(int32_t(t));
    }
    return out;
  }

  Result<Placed> place(const Op& op, const std::vector<int32_t>& positions) {
    Placed placed;
    int64_t offset = kPatternBytes;
    const auto put = [&](int64_t bytes) {
      const Buffer buffer{arena_ + offset, bytes};
      offset += align_up(bytes, backend_.alignment());
      return buffer;
    };
    placed.workspace = put(backend_.workspace_bytes(op));
    const Operands schema = operands(op);
    int64_t set_bytes = 0;
    for (const Operand& operand : schema) set_bytes += operand.bytes();
    const int64_t sets = std::clamp<int64_t>(kColdBytes / set_bytes + 1, 1, 8);
    for (int64_t i = 0; i < sets; ++i) {
      auto& set = placed.sets.emplace_back();
      for (const Operand& operand : schema) set.push_back(put(operand.bytes()));
    }
    if (offset > bytes_)
      return error("{} does not fit the arena of {}", format_bytes(offset), format_bytes(bytes_));
    for (const auto& set : placed.sets) {
      for (size_t i = 0; i < schema.size(); ++i) SLUICE_TRY(fill(schema[i], set[i], positions));
    }
    return placed;
  }

  Status fill(const Operand& operand, const Buffer& buffer, const std::vector<int32_t>& positions) {
    const auto upload = [&](const auto& values) {
      return backend_.upload(place_of(buffer), reinterpret_cast<const std::byte*>(values.data()),
                             int64_t(values.size() * sizeof values[0]));
    };
    if (operand.name == "args") {
      return upload(std::vector{StepArgs{3, 17, 1e-4f, 1e-4f, 1, 3}});
    }
    if (operand.name == "clip") return upload(std::vector{1.0f, 0.5f});
    if (operand.name == "inv_freq") {
      std::vector<float> values(size_t(operand.elements));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::pow(500000.0f, -float(i) / float(values.size()));
      }
      return upload(values);
    }
    // Between 0 and 1, as beta is; decays are such, too.
    if (operand.name == "gates" && operand.values == Values::Squares) {
      std::vector<float> values(size_t(operand.elements));
      std::minstd_rand random(3);
      std::uniform_real_distribution<float> share(0.02f, 0.98f);
      for (float& x : values) x = share(random);
      return upload(values);
    }
    // A cache that is full but for the new tokens, all of which count.
    if (operand.name == "spans") {
      return upload(std::vector{int32_t(operand.limit), std::numeric_limits<int32_t>::max()});
    }
    if (operand.values == Values::Routing) {
      std::vector<int32_t> routing(size_t(operand.elements));
      if (even_) {
        choose_evenly(operand.limit, routing);
      } else {
        choose_by_chance(operand.limit, skew_, routing);
      }
      return upload(routing);
    }
    if (operand.format.type == DType::I32) {
      std::vector<int32_t> values(size_t(operand.elements));
      std::minstd_rand random(2);
      for (size_t i = 0; i < values.size(); ++i) {
        const int64_t most = operand.values == Values::Ids ? operand.limit : kVocab;
        values[i] =
            operand.name == "pos" ? positions[i % positions.size()] : int32_t(int64_t(random()) % most);
      }
      return upload(values);
    }
    return copy_pattern(buffer);
  }

  Status copy_pattern(const Buffer& buffer) {
    const int64_t pieces = (buffer.bytes + kPatternBytes - 1) / kPatternBytes;
    std::vector<Command> copies;
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t at = i * kPatternBytes;
      const Copy copy{
          {kDevice, 0}, {kDevice, place_of(buffer).offset + at}, std::min(kPatternBytes, buffer.bytes - at)};
      copies.push_back({uint32_t(i), backend_.lanes().compute(), {}, copy, 0});
    }
    SLUICE_TRY(run_commands(backend_, copies));
    return {};
  }

  Result<std::vector<double>> run(const Op& op, const Placed& placed, int count) {
    std::vector<Command> launches;
    for (int i = 0; i < count; ++i) {
      const auto& set = placed.sets[size_t(i) % placed.sets.size()];
      launches.push_back(
          {uint32_t(i), backend_.lanes().compute(), {}, Launch{&op, set, placed.workspace}, 0});
    }
    SLUICE_ASSIGN(const std::vector<Interval> timeline, run_commands(backend_, launches));
    std::vector<double> times;
    for (const Interval& interval : timeline) times.push_back(interval.end_ns - interval.start_ns);
    return times;
  }

  Backend& backend_;
  std::byte* arena_;
  int64_t bytes_;
  double skew_;
  bool even_ = false;
};

struct Settings {
  CudaOptions options;
  std::vector<int64_t> tokens{8192};
  int64_t sequence = 8192;
  int64_t arena_bytes = 24 * kGiB;
  std::string only;
  double skew = 0;
};

using Rows = std::vector<std::vector<Entry>>;  // by chunk size

// Nanoseconds of what the library does of the ops, by cost key.
Result<std::map<std::string, double>> time_library(const Settings& settings, const Rows& all,
                                                   const std::vector<uint16_t>& pattern) {
  CudaOptions options = settings.options;
  options.deterministic = false;
  options.tune = true;
  SLUICE_ASSIGN(const auto backend, make_cuda_backend(options));
  SLUICE_ASSIGN(const Arenas arenas, backend->reserve({{kDevice, settings.arena_bytes}}));
  std::map<std::string, std::pair<SharedOp, double>> ops;
  for (const auto& rows : all) {
    for (const Entry& entry : rows) {
      if (const auto op = bare(entry.op)) ops.try_emplace(cost_key(*op), *op, 0.0);
    }
  }
  for (const auto& [key, op] : ops) SLUICE_TRY(backend->prepare({&op.first, 1}));
  Bench bench(*backend, arenas[kDevice], settings.arena_bytes, settings.skew);
  SLUICE_TRY(bench.upload_pattern(pattern));
  std::map<std::string, double> out;
  for (const auto& [key, op] : ops) {
    SLUICE_ASSIGN(out[key], bench.time(Entry{.name = {}, .op = op.first}, settings.sequence));
  }
  return out;
}

void print_row(const Entry& entry, double ns, double copy_rate,
               const std::map<std::string, double>& library) {
  const double rate = traffic(entry.op) / ns, tera = flops(entry.op) / ns / 1e3;
  const auto alone = bare(entry.op);
  fmt::print("{:<36}{:>10.1f}{:>10}{:>9.0f}{:>7.0f}%{:>10}\n", entry.name, ns / 1e3,
             tera > 0 ? fmt::format("{:.1f}", tera) : "", rate, 100 * rate / copy_rate,
             alone ? fmt::format("{:.0f}%", 100 * library.at(cost_key(*alone)) / ns) : "");
  std::fflush(stdout);
}

constexpr std::string_view kOfLayers = "layer of";

std::string layer_of(const Entry& entry) {
  return entry.name.substr(0, entry.name.find(':'));
}

// A layer's kernels, one after the other, beside what an H200 under load could do: the products at the rate
// of dense ones, all else at that of memory.
class LayerTime {
 public:
  void add(const Entry& entry, double ns) {
    const double bound_ns = std::max(flops(entry.op) / kDenseFlopsPerNs, traffic(entry.op) / kBytesPerNs);
    kernels_.push_back({entry.name, entry.part, ns, bound_ns, flops(entry.op)});
  }

  void print(const std::string& name) const {
    double all = 0, bound = 0, gathering = 0, of_products = 0;
    std::map<Part, double> parts;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const Kernel& k = kernels_[i];
      parts[k.part] += k.ns;
      if (k.part == Part::InPlace) {
        gathering += kernels_[i - 1].ns - k.ns;
      } else {
        all += k.ns, bound += k.bound_ns;
      }
      if (k.part == Part::Product) of_products += k.flops;
    }
    fmt::print("\n{:<46}{:>10}{:>10}{:>8}{:>8}\n", name, "us", "bound", "ratio", "share");
    for (const Kernel& k : kernels_) {
      if (k.part != Part::InPlace) print_line(k.name, k.ns, k.bound_ns, all);
    }
    print_line(name + ": all", all, bound, all);
    const auto percent = [&](double ns) { return 100 * ns / all; };
    fmt::print(
        "{}: {:.1f} TFLOP/s; activation {:.1f} %, router, sort and combine {:.1f} %, gathering {:.1f} %\n",
        name, of_products / all / 1e3, percent(parts[Part::Activation]), percent(parts[Part::Around]),
        percent(gathering));
  }

 private:
  struct Kernel {
    std::string name;
    Part part;
    double ns, bound_ns, flops;
  };
  static constexpr double kDenseFlopsPerNs = 790e3, kBytesPerNs = 4300;

  static void print_line(const std::string& name, double ns, double bound_ns, double all) {
    fmt::print("{:<46}{:>10.1f}{:>10.1f}{:>8.2f}{:>7.1f}%\n", name, ns / 1e3, bound_ns / 1e3, ns / bound_ns,
               100 * ns / all);
  }

  std::vector<Kernel> kernels_;
};

// What a GPU adds of a sum over processes: all parts are read, and one is written.
Status print_additions(const Settings& settings, double copy_rate) {
  constexpr int64_t kBytes = 128 * kMiB;
  constexpr int64_t kCalls = 20;
  fmt::print("\n{:<36}{:>10}{:>10}{:>9}{:>8}\n", "sums over processes, 128 MiB of each", "us", "", "GB/s",
             "of copy");
  for (const DType dtype : {kF32, kBf16}) {
    for (const int ranks : {2, 3, 4, 8}) {
      const std::string name = fmt::format("additions of {}, {}", ranks, name_of(dtype));
      if (name.find(settings.only) == name.npos) continue;
      std::vector<std::byte> parts(size_t(kBytes * ranks));
      double best_s = 1e9;
      for (int i = 0; i < 3; ++i) {
        SLUICE_ASSIGN(const double s,
                      add_parts(settings.options.devices.front(), parts, ranks, 0, dtype, kCalls));
        best_s = std::min(best_s, s);
      }
      const double rate = double(kBytes * (ranks + 1)) / best_s / 1e9;
      fmt::print("{:<36}{:>10.1f}{:>10}{:>9.0f}{:>7.0f}%\n", name, best_s * 1e6, "", rate,
                 100 * rate / copy_rate);
      std::fflush(stdout);
    }
  }
  return {};
}

Status run(Settings settings) {
  settings.options.log = [](std::string_view line) { fmt::print("  {}\n", line); };
  Rows all;
  for (const int64_t tokens : settings.tokens) {
    auto& chosen = all.emplace_back(entries(tokens, std::min(settings.sequence, tokens)));
    if (settings.only.starts_with("experts of")) chosen = products_of_experts();
    if (settings.only.starts_with(kOfLayers)) chosen = layers_of_experts();
    std::erase_if(chosen,
                  [&](const Entry& entry) { return entry.name.find(settings.only) == entry.name.npos; });
  }
  const std::vector<uint16_t> pattern = make_pattern();
  fmt::print("the library alone:\n");
  SLUICE_ASSIGN(const auto library, time_library(settings, all, pattern));

  SLUICE_ASSIGN(const auto backend, make_cuda_backend(settings.options));
  SLUICE_ASSIGN(const Arenas arenas, backend->reserve({{kDevice, settings.arena_bytes}}));
  SLUICE_ASSIGN(const auto devices, cuda_devices());
  fmt::print("as the backend runs it:\n");
  for (const auto& rows : all) {
    for (const Entry& entry : rows) SLUICE_TRY(backend->prepare({&entry.op, 1}));
  }
  Bench bench(*backend, arenas[kDevice], settings.arena_bytes, settings.skew);
  SLUICE_TRY(bench.upload_pattern(pattern));
  SLUICE_ASSIGN(const double copy_rate, bench.copy_rate());
  fmt::print("\n{}, {}; {}; the device copies {:.0f} GB/s\n",
             devices[size_t(settings.options.devices.front())].name, cuda_versions(),
             settings.options.deterministic ? "deterministic" : "not deterministic", copy_rate);
  std::map<std::string, LayerTime> layers;
  for (size_t i = 0; i < all.size(); ++i) {
    fmt::print("\n{} tokens\n{:<36}{:>10}{:>10}{:>9}{:>8}{:>10}\n", settings.tokens[i], "op", "us", "TFLOP/s",
               "GB/s", "of copy", "of lib.");
    for (const Entry& entry : all[i]) {
      SLUICE_ASSIGN(const double ns, bench.time(entry, settings.sequence));
      print_row(entry, ns, copy_rate, library);
      if (settings.only.starts_with(kOfLayers)) layers[layer_of(entry)].add(entry, ns);
    }
  }
  for (const auto& [name, layer] : layers) layer.print(name);
  SLUICE_TRY(print_additions(settings, copy_rate));
  const BytesByTier use = backend->memory();
  fmt::print("\nthis process holds {} on the device, {} beside the arena\n", format_bytes(use[kDevice]),
             format_bytes(use[kDevice] - settings.arena_bytes));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  bool fast = false, untuned = false;
  CLI::App app{"Times the CUDA backend's ops at the shapes of Llama-3 8B."};
  app.add_option("--device", settings.options.devices.front(), "GPU, counted from 0");
  app.add_option("--tokens", settings.tokens, "Chunk sizes to time")->delimiter(',');
  app.add_option("--sequence", settings.sequence, "Sequence length");
  app.add_option("--only", settings.only, "Only ops with this text in their name");
  app.add_option("--skew", settings.skew, "Of choices of experts: 0, all as likely, to 1")
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--nondeterministic", fast, "Attention backward with atomic additions");
  app.add_option("--cache", settings.options.cache,
                 "File that keeps the libraries' choices for the next run");
  app.add_option("--scaled-sums", settings.options.scaled_sums_bytes,
                 "Products in 8 bits make so many bytes of sums at a time, which a pass scales, as on GPUs "
                 "whose library does not")
      ->check(CLI::Range(4096, 28 << 20));
  app.add_flag("--untuned", untuned, "Take cuBLASLt's first guess");
  CLI11_PARSE(app, argc, argv);
  settings.options.deterministic = !fast;
  settings.options.tune = !untuned;
  if (const Status status = run(settings); !status.ok()) {
    fmt::print(stderr, "sluice_bench_kernels: {}\n", status.message());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
