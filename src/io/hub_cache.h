// SPDX-License-Identifier: Apache-2.0
// What the programs of Hugging Face keep of their hub on this machine. Nothing is downloaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::core {

enum class HubKind : uint8_t { Model, Dataset };

// Where they keep it: HF_HUB_CACHE or HUGGINGFACE_HUB_CACHE, or hub/ below HF_HOME, or below the user's
// cache.
std::filesystem::path hub_cache();

// Whether a path may be a name of the hub: "org/name", and what is below it.
bool is_hub_name(std::string_view path);

// The folder or the file that such a name stands for, of the revision main where it is there. Nothing: the
// cache does not have it.
std::optional<std::filesystem::path> find_in_hub_cache(std::string_view name, HubKind kind);

// The name by which others load the model in a folder: a snapshot has one of the hub, other folders their
// path.
std::string base_name(const std::filesystem::path& folder);

// Whether a folder is such a snapshot of a data set.
bool is_hub_dataset(const std::filesystem::path& folder);

}  // namespace sluice::core
