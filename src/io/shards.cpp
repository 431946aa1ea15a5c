// SPDX-License-Identifier: Apache-2.0
#include "io/shards.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice::core {

std::vector<Shard> shards_of(std::span<const TensorInfo> tensors, int64_t most_bytes) {
  std::vector<Shard> shards(1);
  int64_t bytes = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (shards.back().count > 0 && tensors[t].bytes() > most_bytes - bytes) {
      shards.push_back({"", t, 0});
      bytes = 0;
    }
    ++shards.back().count;
    bytes += tensors[t].bytes();
  }
  for (size_t s = 0; s < shards.size(); ++s) {
    shards[s].file = shards.size() == 1
                         ? std::string(kWeightsName)
                         : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
  }
  return shards;
}

bool is_weights_file(std::string_view name) {
  return (name.starts_with("model") && name.ends_with(".safetensors")) || name == kAdapterName;
}

std::string format_safetensors_index(std::span<const TensorInfo> tensors, std::span<const Shard> shards) {
  int64_t bytes = 0, elements = 0;
  nlohmann::json files = nlohmann::json::object();
  for (const Shard& shard : shards) {
    for (const TensorInfo& tensor : tensors.subspan(shard.first, shard.count)) {
      bytes += tensor.bytes();
      elements += tensor.elements();
      files[tensor.name] = shard.file;
    }
  }
  const nlohmann::json root = {{"metadata", {{"total_parameters", elements}, {"total_size", bytes}}},
                               {"weight_map", files}};
  return root.dump(2) + "\n";
}

}  // namespace sluice::core
