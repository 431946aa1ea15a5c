// SPDX-License-Identifier: Apache-2.0
// What a checkpoint's files of tensors hold, and where it lies between steps: as data, so that saving,
// loading, copying and counting bytes agree.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/held.h"
#include "io/safetensors_header.h"
#include "io/shards.h"
#include "lowering/build.h"

namespace sluice::core {

// Bytes [offset, offset + bytes) of an object, or of what else a PartReader numbers so.
struct StoredPart {
  ObjectId object;
  int64_t offset, bytes;
  int64_t position;  // the bytes of all parts before it in the layout
  // The first element in the tensor; in a turned tensor, in the source's order.
  int64_t element = 0;
  bool again = false;  // it is read several times
  size_t source = 0;   // of StoredTensor::turned
  // The object is packed (checkpoint/compact.h), and offset and bytes are those of its elements in bf16,
  // which holds them exactly.
  bool packed = false;
};

struct StoredTensor {
  TensorInfo info;
  std::vector<StoredPart> parts;  // one after another
  TensorType from;                // of the parts' elements
  bool never_negative = false;    // the values, by what they are
  // The sources of a tensor whose matrices are turned (WeightSource::transposed), in any order; else empty.
  // Parts may be `as_written`: in the tensor's order all the same.
  std::vector<WeightSource> turned = {};
  bool as_written = false;
  // The bytes beside bf16 parts that make them masters of 24 bits (ops/master.h): one for each of `parts`, or
  // none at all. Such a part and its residual are read together, kMostJoined elements at most.
  std::vector<StoredPart> residuals = {};
};

constexpr int64_t kMostJoined = 2 << 20;

// Adds elements [first, first + count) of a bf16 object and of one of residuals, where they begin at element
// `residual_first`: the tensor's, or the last of its sources', from `element` on.
void add_joined(ObjectId parameter, int64_t first, ObjectId residual, int64_t residual_first, int64_t count,
                int64_t element, StoredTensor& to);
// The source that parts of a tensor are of.
size_t last_source(const StoredTensor& tensor);
// Puts the parts of a tensor, which weights have in other orders, into its own.
void put_in_order(StoredTensor& tensor);

// The suffix of a scales' tensor, after the object's name.
constexpr std::string_view kScaleSuffix = ".scale";

struct CheckpointLayout {
  std::vector<StoredTensor> weights;  // of model.safetensors, or shards of it
  std::vector<StoredTensor> state;    // of optimizer.safetensors
  int64_t part_bytes = 0;             // of all parts
  int64_t file_bytes = 0;             // of all tensors; headers come on top

  int64_t shard_bytes = kShardBytes;  // of weights
  Held held = Held::Whole;

  // Everything but tensors and the model's own files takes less: headers and index by tensor, config.json and
  // checkpoint.json.
  int64_t other_bytes() const { return (256 << 10) + 512 * int64_t(weights.size() + state.size()); }
};

// `held`: which weights it has; those of an adapter's folder have PEFT's names. `f32_weights`: the weights
// are saved in f32. Master weights, where there are any, are then the weights, and no part of the state;
// those of 24 bits are written as f32, which holds them exactly.
CheckpointLayout layout_of(const BuiltProgram& model, bool f32_weights, Held held = Held::Whole);
// Without the state.
CheckpointLayout weights_only(CheckpointLayout layout);

}  // namespace sluice::core
