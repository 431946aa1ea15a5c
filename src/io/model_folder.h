// SPDX-License-Identifier: Apache-2.0
// Models as people name them, and folders that have something else.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::core {

// No config.json is larger.
constexpr int64_t kMostConfigBytes = 16 << 20;
constexpr std::string_view kConfigName = "config.json";

// The folder of the model: of a run's directory that of its newest checkpoint, else what was named.
std::filesystem::path model_folder(const std::filesystem::path& named);

// Whether a folder has an adapter, as PEFT writes it, and no model.
bool is_adapter_folder(const std::filesystem::path& folder);

// Whether it is a config.json by itself, as a file with that ending that is no index of weights.
bool is_config_file(const std::filesystem::path& path);

// The config.json of a folder, or the file itself. Errors: there is none, and what is there in its place; a
// download that is not whole.
struct ConfigText {
  std::filesystem::path path;
  std::string text;
};
Result<ConfigText> read_model_config(const std::filesystem::path& named);

// An error if a file of a model's folder is a link to nothing, or a pointer of Git LFS. Such a file would be
// passed over, or read as what it is not. Without weights their files do not matter.
enum class FolderUse : uint8_t { Text, Weights };
Status check_downloaded(const std::filesystem::path& folder, FolderUse use);
// Names of the files of weights and of their index in a folder, rising.
std::vector<std::string> weights_in(const std::filesystem::path& folder);

// Whether these are the first bytes of a pointer of Git LFS, eight at least, and what is said of it.
bool is_lfs_pointer(std::span<const std::byte> bytes);
Error lfs_pointer(const std::filesystem::path& path);

// Names what lies in a folder in place of config.json and safetensors, and what to type; ends an error.
// Empty: nothing that is known.
std::string found_instead(const std::filesystem::path& folder);

}  // namespace sluice::core
