// SPDX-License-Identifier: Apache-2.0
// Tensors to files: in one, or in shards with an index, in the number format that they are to have there.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "checkpoint/copy.h"
#include "checkpoint/layout.h"
#include "io/safetensors.h"

namespace sluice::core {

using FileSums = std::map<std::string, FileSum>;  // by name
using Metadata = std::map<std::string, std::string>;

// The name of a weights' number format in config.json: "float32". REQUIRES: is_weight_type().
std::string_view type_in_config(TensorType type);

// Refuses to save or load values that a run cannot go on from. An error names the tensor and the element
// where elements from `first` on, with these bytes, are not finite, or negative where squares are summed.
Status check_values(const TensorInfo& tensor, bool never_negative, int64_t first,
                    std::span<const std::byte> bytes);

// Called with the bytes of each piece that was read; an error ends the writing.
using PieceProgress = std::function<Status(int64_t)>;

// Writes tensors in their order, through memory of a few MiB, and 16 more for matrices that are turned. These
// are read as often as 16 MiB of them go into theirs. Where the parts have another number format, they are
// rounded to nearest, ties to even. A value that the format has no finite number for is an error that names
// the tensor, and so is one that check_values() refuses. Both have the detail "tensor".
Result<FileSum> write_tensors(std::span<const StoredTensor> tensors, const std::filesystem::path& path,
                              const Metadata& metadata, const PartReader& reader,
                              const PieceProgress& progress = {});

// The same of a layout's weights into a directory that has none of the files: model.safetensors, or if that
// would have more than shard_bytes of tensors, shards and their index (io/shards.h). An adapter has its one
// file. Each has the metadata, and "format": "pt", which Hugging Face's readers want.
Result<FileSums> write_weights(const CheckpointLayout& layout, const std::filesystem::path& dir,
                               Metadata metadata, const PartReader& reader,
                               const PieceProgress& progress = {});

}  // namespace sluice::core
