// SPDX-License-Identifier: Apache-2.0
// Checkpoints for tests of what is around them.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace sluice::core {

// Of every checkpoint.
inline constexpr const char* kCheckpointFiles[] = {"model.safetensors", "optimizer.safetensors",
                                                   "config.json", "checkpoint.json"};

// A checkpoint of a few bytes.
inline Status write_small(const std::filesystem::path& to, int64_t step) {
  static const std::vector<std::byte> bytes(8);
  const StoredTensor tensor{{"t", TensorType::F32, {2}}, {{ObjectId(0), 0, 8, 0}}, TensorType::F32};
  CheckpointContent content{{{tensor}, {tensor}, 16, 16}, {}, "{}", std::make_shared<ModelFiles>()};
  content.info.step = step;
  return write_checkpoint(content, to,
                          [](const StoredPart&, int64_t, int64_t) -> Result<std::span<const std::byte>> {
                            return std::span<const std::byte>(bytes);
                          });
}

}  // namespace sluice::core
