// SPDX-License-Identifier: Apache-2.0
// What a checkpoint's files of tensors hold, and where it lies between steps: as data, so that saving,
// loading, copying and counting bytes agree.
#pragma once

#include <cstdint>
#include <vector>

#include "io/safetensors_header.h"
#include "step/build.h"

namespace sluice::core {

// Bytes [offset, offset + bytes) of an object.
struct StoredPart {
  ObjectId object;
  int64_t offset, bytes;
  int64_t position;  // the bytes of all parts before it in the layout
};

struct StoredTensor {
  TensorInfo info;
  std::vector<StoredPart> parts;  // one after another
  bool widened = false;           // the parts are bf16, the tensor is f32
};

struct CheckpointLayout {
  std::vector<StoredTensor> weights;  // of model.safetensors
  std::vector<StoredTensor> state;    // of optimizer.safetensors
  int64_t part_bytes = 0;             // of all parts
  int64_t file_bytes = 0;             // of all tensors; headers come on top

  // Everything but tensors is far below this: headers, config.json and checkpoint.json.
  static constexpr int64_t kOtherBytes = 4 << 20;
};

// `f32_weights`: the weights are saved in f32. Master weights, where there are any, are then the weights, and
// no part of the state.
CheckpointLayout layout_of(const Model& model, bool f32_weights);

}  // namespace sluice::core
