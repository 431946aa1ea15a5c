// SPDX-License-Identifier: Apache-2.0
// What lies beside config.json and weights in a model's folder and belongs to the model: its tokenizer, the
// template of its chats, how it generates. Who serves the model needs it, so checkpoints and exports carry it
// along byte for byte, but for what training changed of it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/descriptor.h"
#include "io/safetensors.h"

namespace sluice::core {

// Files that stay open: what happens to their names afterwards does not matter. Any thread may copy.
class ModelFiles {
 public:
  ModelFiles() = default;  // none
  // Those of the first folder that has any. A folder that is not there has none. A link that leads out of the
  // folder is an error, unless the folder is one of a Hugging Face cache and the link stays in that.
  static Result<ModelFiles> open(std::span<const std::filesystem::path> folders);
  // Those of a model that wraps the one of these: what it is processed with beside text, and what these lack.
  Status add_of_whole(const std::filesystem::path& folder);
  // Takes these texts, by their names, in place of the files.
  void replace(const std::map<std::string, std::string>& texts);

  std::vector<std::string> names() const;
  int64_t bytes() const;  // of all, as they were when they were opened
  // Writes each into a directory, durably, and says by name what was written.
  Result<std::map<std::string, FileSum>> copy_to(const std::filesystem::path& dir) const;

 private:
  struct File {
    std::filesystem::path path;
    std::optional<Descriptor> fd;  // none: it is the text
    int64_t bytes;
    std::string text = {};
  };
  // Those of these names that are there, and not among the files yet.
  Status add(const std::filesystem::path& folder, std::span<const std::string_view> names);
  std::vector<File> files_;
};

}  // namespace sluice::core
