// SPDX-License-Identifier: Apache-2.0
// Time of every op of a training step on the CPU backend, at the shapes of a small and a larger model.
//
//   sluice_bench_cpu_ops [--threads N] [--dtype f32|bf16] [--filter TEXT] [--skew S] [--isa NAME]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "../routing.h"
#include "backend/cpu/cpu_backend.h"
#include "base/bytes.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

struct Model {
  int64_t tokens, sequence, dim, heads, kv_heads, head_dim, ffn, vocab;
};

// Those of a mixture of experts, behind products of the same FLOPs over the rows of all.
std::vector<SharedOp> mixture_ops(const Model& m, DType t, int64_t experts) {
  const Mixture mixture{m.tokens, experts, 2};
  const int64_t rows = mixture.rows(), ffn = m.dim / 2;
  const ExpertGroup all{0, experts};
  const auto f32 = DType::F32;
  return {Linear{rows, m.dim, 2 * ffn, t},
          GroupedLinear{mixture, all, m.dim, 2 * ffn, t, true, false},
          Linear{rows, ffn, m.dim, t},
          GroupedLinear{mixture, all, ffn, m.dim, t, false, false},
          LinearDgrad{rows, m.dim, 2 * ffn, t, false},
          GroupedDgrad{mixture, all, m.dim, 2 * ffn, t, false, false},
          LinearDgrad{rows, ffn, m.dim, t, false},
          GroupedDgrad{mixture, all, ffn, m.dim, t, true, false},
          LinearWgrad{rows, m.dim, 2 * ffn, t, f32, true},
          GroupedWgrad{mixture, all, m.dim, 2 * ffn, t, f32, false, true, true},
          LinearWgrad{rows, ffn, m.dim, t, f32, true},
          GroupedWgrad{mixture, all, ffn, m.dim, t, f32, true, false, true},
          GroupedBiasGrad{mixture, 2 * ffn, t, f32, false, true},
          Route{mixture, RouterScore::Softmax},
          RouteBwd{mixture, t, RouterScore::Softmax},
          RouterLoad{mixture, true, true},
          SortByExpert{mixture},
          CombineExperts{mixture, m.dim, t, true, true},
          ExpertGluBwd{mixture, ffn, t},
          GatedAdd{m.tokens, m.dim, t, true},
          GatedAddBwd{m.tokens, m.dim, t}};
}

// The ops of a gated delta rule, with sizes of Qwen3.5 9B's.
std::vector<SharedOp> delta_ops(int64_t tokens, DType t) {
  const auto f32 = DType::F32;
  const DeltaSizes s{16, 32, 128, 128};
  return {ShortConv{tokens, s.columns(), 4, t, false, false, true},
          ShortConvBwd{tokens, s.columns(), 4, t, f32, true, false, false, true},
          DeltaGates{tokens, s.value_heads, t},
          DeltaGatesBwd{tokens, s.value_heads, t, f32, true, true},
          DeltaRule{tokens, s, t},
          DeltaRuleBwd{tokens, s, t},
          HeadGate{tokens, s.value_heads, s.value_dim, t, true, 1e-6f},
          HeadGateBwd{tokens, s.value_heads, s.value_dim, t, f32, true, true, 1e-6f},
          HeadGate{tokens, 16, 256, t},
          HeadGateBwd{tokens, 16, 256, t, f32}};
}

// The ops of one layer, the head and the update.
std::vector<SharedOp> ops_of(const Model& m, DType t) {
  const int64_t q = m.heads * m.head_dim, kv = 2 * m.kv_heads * m.head_dim, n = m.tokens;
  const AttnShape shape{n / m.sequence, m.sequence, m.sequence, m.heads, m.kv_heads, m.head_dim, 0, false, t};
  const auto f32 = DType::F32;
  const LowRankSizes adapters{n, 16, 2, m.ffn, 0, 2 * m.ffn};
  return {Embed{n, m.vocab, m.dim, t},
          EmbedBwd{n, m.vocab, m.dim, t, f32, true},
          RmsNorm{n, m.dim, 1e-5f, t},
          RmsNormBwd{n, m.dim, 1e-5f, t, f32, true, true},
          Linear{n, m.dim, q, t, false, m.heads, m.head_dim},
          Linear{n, m.dim, kv, t, false, m.kv_heads, m.head_dim},
          Linear{n, q, m.dim, t, true},
          Linear{n, m.dim, 2 * m.ffn, t},
          Linear{n, m.ffn, m.dim, t, true},
          LinearDgrad{n, m.dim, q, t, true},
          LinearDgrad{n, m.dim, 2 * m.ffn, t, false},
          LinearDgrad{n, m.ffn, m.dim, t, false},
          LinearWgrad{n, m.dim, q, t, f32, true},
          LinearWgrad{n, m.dim, 2 * m.ffn, t, f32, true},
          LinearWgrad{n, m.ffn, m.dim, t, f32, true},
          LinearWgrad{n, m.ffn, m.dim, t, t, true},
          Dropout{n, m.dim, t, 0.05f, 0, m.sequence, 1},
          LowRank{adapters, t, 2},
          LowRankDgrad{adapters, t, 2},
          LowRankWgrad{adapters, t, f32, 2, true},
          RowNorms{adapters, m.dim, t, 2},
          Magnitude{n, adapters.columns, adapters.first, adapters.adapted(), t},
          MagnitudeBwd{n, adapters.columns, adapters.first, adapters.adapted(), t, f32, true},
          AttnFwd{shape, t, false},
          AttnBwd{shape, t, false, false},
          Rope{n, m.heads, m.head_dim, 0, t},
          RopeBwd{n, m.heads, m.kv_heads, m.head_dim, t, t},
          HeadNormRope{{n, m.heads, m.head_dim, 0, 1e-6f}, t},
          HeadNormRopeBwd{{n, m.heads, m.head_dim, 0, 1e-6f}, t, t, f32, true},
          LayerNorm{n, m.dim, 1e-5f, t, true, true},
          LayerNormBwd{n, m.dim, 1e-5f, t, f32, true, true, true, true, true},
          BiasGrad{n, m.dim, t, f32, true},
          Cast{n * m.dim, t, t == f32 ? DType::BF16 : f32},
          Swiglu{n, m.ffn, t},
          SwigluBwd{n, m.ffn, t},
          HeadLoss{n, m.dim, m.vocab, 1024, t, f32, true, true, false},
          Linear{1, m.dim, 2 * m.ffn, t},
          CachedAttention{1, 1, 1024, m.heads, m.kv_heads, m.head_dim, t},
          CachedAttention{1, 64, 1024, m.heads, m.kv_heads, m.head_dim, t},
          LastLogits{1, 1, m.dim, m.vocab, t},
          AddGradients{m.dim * m.ffn, f32, f32, f32},
          SumSq{m.dim * m.ffn, 0, 1, f32, true},
          AdamW{m.dim * m.ffn, 0, 1, 0.9f, 0.95f, 1e-8f, 0.1f, t, f32, f32, MasterWeights::Off, false},
          AdamW{m.dim * m.ffn, 0, 1, 0.9f, 0.95f, 1e-8f, 0.1f, t, f32, f32,
                t == DType::BF16 ? MasterWeights::F32 : MasterWeights::Off, false},
          AdamW{m.dim * m.ffn, 0, 1, 0.9f, 0.95f, 1e-8f, 0.1f, t, t, t, MasterWeights::Off, t == DType::BF16},
          AdamWMoments{m.dim * m.ffn, 0, 1, 0.9f, 0.95f, t, t, t == DType::BF16},
          AdamW{m.dim * m.ffn, 0, 1, 0.9f, 0.95f, 1e-8f, 0.1f, t, f32, DType::I8,
                t == DType::BF16 ? MasterWeights::I8 : MasterWeights::Off, false},
          SgdMomentum{m.dim * m.ffn, 0, 1, 0.9f, 0.1f, false, t, t, t, MasterWeights::Off, t == DType::BF16},
          Lion{m.dim * m.ffn, 0, 1, 0.9f, 0.99f, 0.1f, t, t, t, MasterWeights::Off, t == DType::BF16},
          Muon{m.ffn, m.dim, 0, 1, 0.95f, 1, 0.1f, true, t, t, t, MasterWeights::Off, t == DType::BF16},
          Adafactor{m.ffn, m.dim, 0, 1, -0.8, 1e-30f, 1e-3f, 1, 0.1f, false, false, false, t, t,
                    MasterWeights::Off, t == DType::BF16}};
}

// Attention of long sequences, with windows and documents that cut pairs off, and of larger heads, behind a
// product and its gradients. GFLOP/s are of all pairs that a window leaves: what documents cut off counts as
// done.
std::vector<SharedOp> attention_ops(DType t) {
  constexpr int64_t kLong = 8192, kShort = 2048;
  std::vector<SharedOp> ops{Linear{kShort, 1024, 1024, t}, LinearDgrad{kShort, 1024, 1024, t, false},
                            LinearWgrad{kShort, 1024, 1024, t, DType::F32, true}};
  for (const AttnShape& shape : {AttnShape{1, kLong, kLong, 9, 3, 64, 0, false, t},
                                 AttnShape{1, kLong, kLong, 9, 3, 64, 0, false, t, 512},
                                 AttnShape{1, kLong, kLong, 9, 3, 64, 0, true, t},
                                 AttnShape{1, kShort, kShort, 8, 4, 128, 0, false, t},
                                 AttnShape{1, kShort, kShort, 4, 1, 256, 0, false, t}}) {
    ops.push_back(AttnFwd{shape, t, false});
    ops.push_back(AttnBwd{shape, t, false, false});
  }
  return ops;
}

// Contents that keep every kernel on its usual path: small values, valid ids, an update that is not skipped.
void fill(const Operand& operand, double skew, std::byte* data) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  if (operand.name == "args") {
    *reinterpret_cast<StepArgs*>(data) = {
        .step = 1, .seed = 1, .learning_rate = 1e-4f, .loss_scale = 1e-3f, .update = 1, .updates = 1};
    return;
  }
  if (operand.name == "spans") {  // a cache that is full but for the new tokens, all of which count
    for (int64_t i = 0; i < operand.elements; ++i)
      reinterpret_cast<int32_t*>(data)[i] = static_cast<int32_t>(i % 2 == 0 ? operand.limit : 1 << 30);
    return;
  }
  if (operand.values == Values::Routing)
    return choose_by_chance(operand.limit, skew,
                            {reinterpret_cast<int32_t*>(data), size_t(operand.elements)});
  const NumberFormat& format = operand.format;
  for (int64_t group = 0; format.block > 0 && group < operand.elements / format.block; ++group)
    reinterpret_cast<float*>(data + operand.elements)[group] = 0.1f;  // scales
  for (int64_t i = 0; i < operand.elements; ++i) {
    const float x = operand.name == "v" ? 0.1f : operand.name == "lse" ? 5.0f : uniform(random);
    if (format.type == DType::F32) reinterpret_cast<float*>(data)[i] = x;
    if (format.type == DType::BF16) reinterpret_cast<Bf16*>(data)[i] = Bf16(x);
    if (format.type == DType::F64) reinterpret_cast<double*>(data)[i] = double{x};
    if (format.type == DType::U8 || format.type == DType::I8)
      reinterpret_cast<uint8_t*>(data)[i] = uint8_t(random());
    if (format.type == DType::I32) {
      reinterpret_cast<int32_t*>(data)[i] =
          static_cast<int32_t>(operand.name == "pos"      ? i % 512  // documents
                               : operand.name == "chosen" ? i % operand.limit
                                                          : i % 256);
    }
  }
}

// The median of several runs, in nanoseconds. Each run of a round has operands of its own, so that they come
// from the last-level cache or from memory, as they do in training.
Result<double> time_of(Backend& backend, std::byte* arena, int64_t arena_bytes, double skew,
                       const SharedOp& op) {
  constexpr int64_t kMaxRuns = 8;
  constexpr double kEnoughNs = 3e8;
  SLUICE_TRY(backend.prepare({&op, 1}));
  const Buffer workspace{arena, backend.workspace_bytes(op)};
  std::byte* next = arena + align_up(workspace.bytes, backend.alignment());
  std::vector<std::vector<Buffer>> runs;
  do {
    std::vector<Buffer>& buffers = runs.emplace_back();
    for (const Operand& operand : operands(op)) {
      buffers.push_back({next, operand.bytes()});
      fill(operand, skew, next);
      next += align_up(operand.bytes(), backend.alignment());
    }
  } while (runs.size() < kMaxRuns && next + (next - arena) / runs.size() < arena + arena_bytes);
  std::vector<double> times;
  double total = 0;
  while (total < kEnoughNs) {
    std::vector<Command> commands;
    for (uint32_t id = 0; id < runs.size(); ++id)
      commands.push_back({id, backend.lanes().compute(), {}, Launch{&*op, runs[id], workspace}, 0});
    SLUICE_ASSIGN(const std::vector<Interval> timeline, run_commands(backend, commands));
    for (const Interval& i : timeline) times.push_back(i.end_ns - i.start_ns);
    total += timeline.back().end_ns;
  }
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

Status run(const CpuOptions& options, const std::vector<DType>& types, const std::string& filter,
           double skew) {
  const std::vector<Model> models{{.tokens = 2048,
                                   .sequence = 256,
                                   .dim = 320,
                                   .heads = 5,
                                   .kv_heads = 5,
                                   .head_dim = 64,
                                   .ffn = 864,
                                   .vocab = 256},
                                  {.tokens = 2048,
                                   .sequence = 2048,
                                   .dim = 1024,
                                   .heads = 16,
                                   .kv_heads = 4,
                                   .head_dim = 64,
                                   .ffn = 2816,
                                   .vocab = 32000},
                                  // SmolLM2-135M
                                  {.tokens = 2048,
                                   .sequence = 2048,
                                   .dim = 576,
                                   .heads = 9,
                                   .kv_heads = 3,
                                   .head_dim = 64,
                                   .ffn = 1536,
                                   .vocab = 49152}};
  const auto backend = make_cpu_backend(options);
  constexpr int64_t kArenaBytes = 512 * kMiB;
  SLUICE_ASSIGN(const Arenas arenas, backend->reserve({{kDevice, kArenaBytes}}));
  std::printf("%s\n", cpu_description(options.isa).c_str());
  std::vector<std::vector<SharedOp>> groups;
  for (const Model& model : models) {
    for (const DType type : types) {
      groups.push_back(ops_of(model, type));
      // Experts of some 64 and of some 256 rows.
      groups.push_back(mixture_ops(model, type, 64));
      groups.push_back(mixture_ops(model, type, 16));
      groups.push_back(delta_ops(model.tokens, type));
    }
  }
  for (const DType type : types) groups.push_back(attention_ops(type));
  for (const std::vector<SharedOp>& ops : groups) {
    const auto asked = [&](const SharedOp& op) { return to_text(op).find(filter) != std::string::npos; };
    if (std::ranges::none_of(ops, asked)) continue;
    std::printf("\n%10s %9s %8s  op\n", "us", "GFLOP/s", "GB/s");
    for (const SharedOp& op : ops) {
      if (!asked(op)) continue;
      SLUICE_ASSIGN(const double ns, time_of(*backend, arenas[kDevice], kArenaBytes, skew, op));
      std::printf("%10.0f %9.0f %8.1f  %s\n", ns / 1e3, flops(op) / ns, traffic(op) / ns,
                  to_text(op).c_str());
      std::fflush(stdout);
    }
  }
  return {};
}

}  // namespace
}  // namespace sluice::core

int main(int argc, char** argv) {
  CLI::App app{"Time of every op on the CPU backend"};
  sluice::core::CpuOptions options;
  std::string dtype, filter;
  app.add_option("--threads", options.threads, "Threads that compute; 0: all cores");
  std::string isa;
  app.add_option("--isa", isa, "baseline, avx2, avx512, avx512_bf16 or amx; the best by default");
  app.add_option("--dtype", dtype, "f32 or bf16; both when absent")->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--filter", filter, "Only ops whose text contains this");
  double skew = 0;
  app.add_option("--skew", skew, "Of choices of experts: 0, all as likely, to 1")
      ->check(CLI::Range(0.0, 1.0));
  CLI11_PARSE(app, argc, argv);
  const auto chosen = sluice::core::cpu_isa_of(isa);
  if (!chosen.ok()) return std::fprintf(stderr, "%s\n", chosen.error().message.c_str()), 1;
  options.isa = *chosen;
  std::vector<sluice::core::DType> types{sluice::core::DType::F32, sluice::core::DType::BF16};
  if (dtype == "f32") types.pop_back();
  if (dtype == "bf16") types.erase(types.begin());
  const sluice::Status status = sluice::core::run(options, types, filter, skew);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
