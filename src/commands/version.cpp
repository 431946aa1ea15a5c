// SPDX-License-Identifier: Apache-2.0
#include "version/version.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "backend/registry/registry.h"
#include "commands/commands.h"

namespace sluice::core {

std::string version_text() {
  std::vector<std::string_view> has, lacks;
  for (const BackendKind* kind : backends()) {
    (kind->is_built == nullptr || kind->is_built() ? has : lacks).push_back(kind->name);
  }
  std::string out = fmt::format("sluice {}\ncommit {}", version(), commit());
  if (!commit_date().empty()) out += fmt::format(" of {}", commit_date());
  out += fmt::format("\nbackends {}", fmt::join(has, ", "));
  if (!lacks.empty()) out += fmt::format("; built without {}", fmt::join(lacks, ", "));
  return out;
}

Release release() {
  return {std::string(version()), std::string(commit_date())};
}

}  // namespace sluice::core
