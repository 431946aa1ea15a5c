// SPDX-License-Identifier: Apache-2.0
// A model written anew as a folder that others load it from: in another number format, in shards of another
// size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/merge.h"
#include "checkpoint/offered.h"
#include "io/shards.h"

namespace sluice::core {

struct ExportOptions {
  std::optional<TensorType> type;  // F32, BF16 or F16; none: that of each tensor
  int64_t shard_bytes = kShardBytes;
  Unread unread = Unread::Refuse;
  bool best = false;  // of a run: the model with the lowest held-out loss, not the newest
  // The folder of an adapter's base, and whether the adapter is added to it. Empty: `from` has a model.
  std::filesystem::path base = {};
  bool merged = false;
  // Adapters of a layer's experts are one A and one B, as of PEFT's target_parameters
  // (checkpoint/stacked_experts.h).
  bool experts_in_one = false;
  // A folder of a model that wraps `from`'s (model/families/families.h); empty: `from` itself, if it wraps
  // one.
  std::filesystem::path around = {};
  // Not written of that: tensors with this in front of the first dot of their names; empty: all are.
  std::string without = {};
  // Texts in place of the model's files, by their names, from those of the folder that is exported.
  std::function<Result<std::map<std::string, std::string>>(const std::filesystem::path&)> texts = {};
};

struct Exported {
  std::filesystem::path from;  // the checkpoint, where a run was named
  int64_t parameters = 0;
  int64_t bytes = 0;                         // of all tensors
  std::vector<TensorType> types;             // of the tensors, each once
  bool from_masters = false;                 // rounded from the f32 master weights, not from the weights
  std::vector<std::string> weights, others;  // names of files
  std::string config;                        // that of config.json, or of an adapter's
  std::vector<std::string> left_out;         // tensors that are none of the model's
  std::optional<MergeLoss> merge;            // of an adapter that was added to its base
  // Notices on how other programs treat such a folder.
  std::vector<std::string> notices;
};

// Called before and after each piece of work, with bytes done of bytes in total; an error ends it all.
using ExportProgress = std::function<Status(std::string_view what, int64_t done, int64_t total)>;

// Writes the directory `to`, whole or not at all, with:
//
// - the model's tensors: each bit for bit where its number format is to stay, else rounded to nearest, ties
// to
//   even; of a checkpoint with f32 master weights these are what is rounded. Tied embeddings are there once;
// - config.json, in which at most the type of the weights changes;
// - the model's other files (checkpoint/model_files.h), byte for byte;
// - of an adapter what is trained, in its one file, and adapter_config.json, with which PEFT loads it on its
//   base; or, where it is to be added to that, the base's folder with the sums in f32, rounded once;
// - of a model that wraps the text model its config.json, and its other tensors bit for bit, whatever `type`
//   says. Experts are one tensor of a layer where they are in its folder, or in `from`.
//
// `from` is the folder of a model or a checkpoint, of which everything that is read is checked against its
// checksum first, or the directory of a run: then its newest checkpoint. Takes a few MiB of memory. Errors:
// something is at `to`, or at "<to>.tmp", where the work is done; too little room on the disk. Others: a
// tensor of the model that is missing or has another shape; a value that the number format cannot hold.
Result<Exported> export_model(const std::filesystem::path& from, const std::filesystem::path& to,
                              const ExportOptions& options, const ExportProgress& progress);

}  // namespace sluice::core
