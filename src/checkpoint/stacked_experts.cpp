// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stacked_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checkpoint/found_tensor.h"
#include "io/elements.h"

namespace sluice::core {
namespace {

constexpr std::string_view kExperts = "mlp.experts";
constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";

}  // namespace

Result<std::vector<StackedExperts>> stacked_experts(const ModelSpec& spec) {
  std::vector<StackedExperts> out;
  std::map<std::pair<int, bool>, size_t> known;  // by layer, and whether it is down
  const std::vector<Weight> weights = weights_of(spec);
  for (const Weight& b : weights) {
    if (!b.adds || !is_of_experts(spec, b)) continue;
    if (spec.names.experts != kExperts)
      return error("--layout peft5: {} is called otherwise in the class of transformers; take --merged",
                   b.sources.front().tensor);
    const bool down = b.role.starts_with("wd");
    const auto [it, fresh] = known.try_emplace({b.layer, down}, out.size());
    if (fresh) {
      const std::string& first = b.sources.front().tensor;
      const auto a = std::ranges::find_if(
          weights, [&](const Weight& w) { return w.layer == b.layer && w.role == b.adds->a; });
      out.push_back({.module = first.substr(0, first.find(kExperts) + kExperts.size()),
                     .parameter = down ? spec.names.down_in_one : spec.names.gate_up_in_one,
                     .sizes = b.adds->sizes,
                     .scale = b.adds->scale,
                     .experts = spec.layers[size_t(b.layer)].experts()->count,
                     .in = a->sources.front().cols,
                     .modules = {}});
    }
    for (const WeightSource& source : b.sources)
      out[it->second].modules.push_back(source.tensor.substr(0, source.tensor.rfind(kLoraB)));
  }
  return out;
}

std::vector<int64_t> StackedExperts::shape(bool b) const {
  return b ? std::vector<int64_t>{sizes.columns, rank() * experts}
           : std::vector<int64_t>{experts * rank(), in};
}

Result<std::vector<float>> StackedExperts::read(const TensorFiles& files, bool b) const {
  const std::vector<int64_t> all = shape(b);
  std::vector<float> out(size_t(all[0] * all[1])), values;
  for (size_t m = 0; m < modules.size(); ++m) {
    SLUICE_ASSIGN(const SafeTensor* const tensor, files.get(modules[m] + std::string(b ? kLoraB : kLoraA)));
    const int64_t expert = int64_t(m) / sizes.parts, part = int64_t(m) % sizes.parts;
    const std::vector<int64_t> own =
        b ? std::vector<int64_t>{sizes.part, sizes.rank} : std::vector<int64_t>{sizes.rank, in};
    SLUICE_TRY(check_stored(tensor->info, own, files.path()));
    read_elements(tensor->info.type, tensor->bytes, values);
    if (!b) {
      std::ranges::copy(values, out.begin() + (expert * rank() + part * sizes.rank) * in);
      continue;
    }
    for (int64_t o = 0; o < sizes.part; ++o) {
      for (int64_t j = 0; j < sizes.rank; ++j) {
        const int64_t row = sizes.first + part * sizes.part + o;
        const int64_t column = (part * sizes.rank + j) * experts + expert;
        out[size_t(row * all[1] + column)] = values[size_t(o * sizes.rank + j)];
      }
    }
  }
  return out;
}

}  // namespace sluice::core
