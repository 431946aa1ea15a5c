// SPDX-License-Identifier: Apache-2.0
// Which weights of a model a folder has: a model's has all. One with adapters begins from the folder of its
// base, which stays as it is; what is trained beside that lies in a folder of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "model/weights.h"

namespace sluice::core {

enum class Held : uint8_t { Whole, Base, Adapter };

inline bool holds(Held held, const Weight& weight) {
  const bool adapter = weight.part == ModelPart::Adapter;
  return held == Held::Whole || (held == Held::Base ? !adapter : weight.trainable);
}

inline bool has_adapters(const std::vector<Weight>& weights) {
  return std::any_of(weights.begin(), weights.end(),
                     [](const Weight& w) { return w.part == ModelPart::Adapter; });
}
// The part that checkpoints and exports of a model have.
inline Held saved_of(const std::vector<Weight>& weights) {
  return has_adapters(weights) ? Held::Adapter : Held::Whole;
}

// The rows of a weight that such a folder has, in order, and where they begin among its elements.
struct HeldRows {
  int64_t first;
  const WeightSource* rows;
};
inline std::vector<HeldRows> rows_in(Held held, const Weight& weight) {
  std::vector<HeldRows> out;
  if (held == Held::Adapter && !weight.learnt.empty()) {
    for (const auto& [first, rows] : weight.learnt) out.push_back({first, &rows});
    return out;
  }
  int64_t first = 0;
  for (const WeightSource& rows : weight.sources) {
    out.push_back({first, &rows});
    first += rows.elements();
  }
  return out;
}

// The name of a tensor in such a folder, and the tensor's own.
inline std::string name_in(Held held, std::string_view tensor) {
  return std::string(held == Held::Adapter ? kAdapterPart : "").append(tensor);
}
inline std::string_view own_name(std::string_view name) {
  return name.starts_with(kAdapterPart) ? name.substr(kAdapterPart.size()) : name;
}

}  // namespace sluice::core
