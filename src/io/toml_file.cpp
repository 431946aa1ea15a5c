// SPDX-License-Identifier: Apache-2.0
#include "io/toml_file.h"

#include "io/file.h"

namespace sluice::core {

Result<Settings> read_toml(const std::filesystem::path& path) {
  SLUICE_ASSIGN(const std::string text, read_file(path, kMostTomlBytes));
  return parse_toml(text, path.string());
}

}  // namespace sluice::core
