// SPDX-License-Identifier: Apache-2.0
#include "io/model_folder.h"

#include <string>

#include "io/directory.h"

namespace sluice::core {
namespace fs = std::filesystem;

fs::path model_folder(const fs::path& named) {
  std::error_code ignored;
  const fs::path folder = followed(named), newest = followed(folder / "checkpoints" / "latest");
  return fs::is_directory(newest, ignored) ? newest : folder;
}

bool is_config_file(const fs::path& path) {
  std::error_code ignored;
  const std::string name = path.filename().string();
  return name.ends_with(".json") && !name.ends_with(".index.json") && fs::is_regular_file(path, ignored);
}

}  // namespace sluice::core
