// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run: a directory with weights (model.safetensors, or shards of it), config.json and the
// model's other files, as others load a model from. It also has optimizer state (optimizer.safetensors, or a
// file of each process that has a part of it) and checkpoint.json. That says how far the run was, what it
// was, and the size and checksum of every file. docs/checkpoints.md describes them. One of the weights alone
// is the same without optimizer state: a model's folder, and nothing that a run goes on from.
//
// The files appear together (AtomicDirectory). What is damaged, or of another checkpoint, is refused.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/copy.h"
#include "checkpoint/heldout_record.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_files.h"
#include "checkpoint/write.h"
#include "exec/executor.h"
#include "io/safetensors.h"
#include "lowering/build.h"

namespace sluice::core {

// The file of optimizer state and master weights in a checkpoint, where one process has all of it.
constexpr std::string_view kStateName = "optimizer.safetensors";
// That of the part which one of several has: "optimizer-00001-of-00002.safetensors".
std::string state_name(int process, int processes);
// Whether a file is one of these.
bool is_state_file(std::string_view name);

// A checkpoint's facts beside tensors.
struct CheckpointInfo {
  int64_t step = 0;     // steps made
  int64_t updates = 0;  // those of them that changed the weights; checkpoints that do not say it: all
  Manifest manifest;
  bool f32_weights = false;              // as layout_of() takes it
  std::map<std::string, FileSum> files;  // by name; of those that are beside checkpoint.json
  HeldoutRecord heldout;                 // up to that step

  std::vector<std::string> state_files() const;
  bool has_state() const { return !state_files().empty(); }
};

// Content of a checkpoint beside the bytes of its tensors.
struct CheckpointContent {
  CheckpointLayout layout;
  CheckpointInfo info;  // its files are found out by writing
  std::string config;   // the text of config.json, or of an adapter's
  std::shared_ptr<const ModelFiles> files;
  bool has_state = true;   // false: of the weights alone
  Metadata metadata = {};  // of the weights, beside what all have
};
CheckpointContent weights_only(CheckpointContent content);

// Writes the files of optimizer state into a directory, and says what they are.
using StateWriter = std::function<Result<FileSums>(const std::filesystem::path& dir)>;

// Writes the files into a directory that has none of them. What the reader reads is the state after the
// info's step: the update of a deferred one must have been flushed. With `write_state` that writes the files
// of state, and the reader is asked for weights alone.
Status write_checkpoint(const CheckpointContent& content, const std::filesystem::path& dir,
                        const PartReader& reader, const StateWriter& write_state = {});
// One file of state of that step.
Result<FileSum> write_state_file(std::span<const StoredTensor> tensors, const std::filesystem::path& path,
                                 int64_t step, const PartReader& reader);

// A checkpoint that waits to be written. It has all that it needs, so that another thread can do that.
struct CheckpointCopy {
  CheckpointContent content;
  StateCopy state;

  // Once. As write_checkpoint(); the memory goes back as it is written.
  Status write(const std::filesystem::path& dir);
};

// Makes in an empty directory of the same file system a checkpoint of the weights alone from a whole one. The
// files that they share are one file, as nobody changes them.
Status link_weights(const std::filesystem::path& checkpoint, const std::filesystem::path& dir);
// Has a model that was just written say its own held-out loss as the lowest: that is what it is compared by.
Status set_own_loss(const std::filesystem::path& dir, double loss);

// An error if a run cannot go on from it, as it is of the weights alone; `dir` is where it was read from.
Status check_has_state(const CheckpointInfo& info, const std::filesystem::path& dir);

// Reads checkpoint.json, without the tensors.
Result<CheckpointInfo> read_checkpoint_info(const std::filesystem::path& dir);
// The same of its text, for which `path` stands in errors. The text may be anything.
Result<CheckpointInfo> parse_checkpoint_info(std::string_view text, const std::filesystem::path& path);

// The same of a checkpoint whose files all have the sizes that were saved, which is all that is read of them.
Result<CheckpointInfo> look_at_checkpoint(const std::filesystem::path& dir);

// Whether a file beside checkpoint.json, one of info.files, is what was saved: reads it in pieces, and calls
// `progress` with the bytes of each.
Status check_file(const CheckpointInfo& info, const std::filesystem::path& path,
                  const PieceProgress& progress = {});

// Whether a checkpoint is what was saved, every byte of it.
Status check_whole(const std::filesystem::path& dir);

// Differences of the saved run from the resumed one.
struct OtherState {
  // Other weights were trained. State of what is not trained any more is passed over, and what is trained
  // anew begins as in a new run: zeros, and master weights that are the weights.
  bool trained = false;
  // State or master weights have other number formats: they are rounded to nearest (checkpoint/convert.h).
  bool formats = false;
};

// Reads what write_checkpoint() wrote, once, through memory of a few MiB. A run that would go on with other
// results than the one that was saved is refused: the error has every difference between the checkpoint's
// manifest and `manifest`. Sizes are checked first, contents as they are read. An error about the
// files, not about the run that would go on, has the detail "damaged": the checkpoint's directory. One with
// the detail "state" leaves the model with parts of two states; after others it is as it was.
Result<CheckpointInfo> load_checkpoint(const BuiltProgram& model, const Manifest& manifest,
                                       const std::filesystem::path& dir, Executor& executor,
                                       const OtherState& other = {});

}  // namespace sluice::core
