// SPDX-License-Identifier: Apache-2.0
// Which files a model's tensors go to, as Hugging Face's libraries cut them and read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors_header.h"

namespace sluice::core {

// The default size of the tensors of one file, in bytes.
constexpr int64_t kShardBytes = 5'000'000'000;

constexpr std::string_view kWeightsName = "model.safetensors";
constexpr std::string_view kWeightsIndexName = "model.safetensors.index.json";

// The files of an adapter, as PEFT calls them.
constexpr std::string_view kAdapterName = "adapter_model.safetensors";
constexpr std::string_view kAdapterConfigName = "adapter_config.json";

// Tensors [first, first + count).
struct Shard {
  std::string file;
  size_t first = 0, count = 0;
};

// In order, each file filled until the next tensor would take it past `most_bytes`; a tensor that is larger
// has a file of its own. One file is model.safetensors, several are model-00001-of-00003.safetensors and so
// on.
std::vector<Shard> shards_of(std::span<const TensorInfo> tensors, int64_t most_bytes);
// Whether a file is one of these, or an adapter's.
bool is_weights_file(std::string_view name);

// The text of model.safetensors.index.json.
std::string format_safetensors_index(std::span<const TensorInfo> tensors, std::span<const Shard> shards);

}  // namespace sluice::core
