// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <map>

#include "bench/precision.h"
#include "lowering/build.h"

namespace sluice::core {
namespace {

struct Way {
  std::string_view key, name;
  Numerics numerics;
};
// Formats for "auto" where bf16 products are slow, on a CPU where they are fast, and on a GPU.
constexpr std::array<Way, 3> kWays{{
    {"f32", "f32", {}},
    {"bf16_masters", "bf16, f32 masters", {.compute = DType::BF16, .master = MasterWeights::F32}},
    {"bf16", "bf16, stochastic", {DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true}},
}};

struct Group {
  std::array<std::string, kWays.size()> formats;
  std::array<int64_t, kWays.size()> bytes{};
  ObjectKind kind{};
};

}  // namespace

Section formats_of_tensors(const std::string& model, const ModelSpec& spec) {
  constexpr int64_t kTokens = 256;
  StepShape shape{.seq_len = kTokens, .chunk_tokens = kTokens, .head_tokens = kTokens};
  std::vector<std::string> order;
  std::map<std::string, Group> groups;
  for (size_t way = 0; way < kWays.size(); ++way) {
    OptimizerConfig optimizer;
    const BuiltProgram built = build_training(spec, shape, kWays[way].numerics, optimizer);
    for (const Object& o : built.program.objects()) {
      // Each weight has roles of its own; they are alike in format.
      const bool of_weights =
          o.kind == ObjectKind::Param || o.kind == ObjectKind::Grad || o.kind == ObjectKind::OptState;
      const std::string name =
          of_weights ? std::string(name_of(o.kind)) : fmt::format("{}: {}", name_of(o.kind), o.role);
      const auto [it, fresh] = groups.try_emplace(name);
      if (fresh) order.push_back(name);
      it->second.kind = o.kind;
      it->second.bytes[way] += o.bytes;
      std::string& formats = it->second.formats[way];
      if ((", " + formats + ",").find(fmt::format(", {},", to_text(o.format))) == std::string::npos) {
        formats += (formats.empty() ? "" : ", ") + to_text(o.format);
      }
    }
  }
  Table t{.key = "tensors",
          .title = fmt::format("{}, one sequence of {} tokens", model, kTokens),
          .row_title = "kind and role"};
  t.note_key = "formats", t.note_title = "format in each";
  for (const Way& way : kWays) {
    t.columns.push_back({std::string(way.key) + "_bytes", std::string(way.name), Form::Memory});
  }
  for (const std::string& name : order) {
    const Group& g = groups[name];
    Row row{.name = name};
    for (size_t way = 0; way < kWays.size(); ++way) {
      row.values.push_back(g.formats[way].empty() ? std::nullopt : std::optional(double(g.bytes[way])));
      row.note += (way == 0 ? "" : " | ") + (g.formats[way].empty() ? "-" : g.formats[way]);
    }
    t.rows.push_back(std::move(row));
  }
  Section s{.key = "tensors", .title = "Which format every tensor of a step has"};
  s.tables.push_back(std::move(t));
  s.notes = {
      "f32: a CPU without fast bf16 products. bf16 with f32 masters: one with. bf16 with stochastic "
      "rounding: a GPU. Sums within ops are f32 everywhere, the loss is f64."};
  return s;
}

}  // namespace sluice::core
