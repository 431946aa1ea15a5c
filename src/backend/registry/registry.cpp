// SPDX-License-Identifier: Apache-2.0
#include "backend/registry/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/sim/sim_backend.h"

namespace sluice::core {

std::span<const BackendKind* const> backends() {
  static const std::array all{&cuda_kind(), &cpu_kind(), &sim_kind()};
  return all;
}

Result<const BackendKind*> find_backend(std::string_view name) {
  std::vector<std::string_view> names;
  for (const BackendKind* kind : backends()) {
    if (kind->name == name) return kind;
    names.push_back(kind->name);
  }
  return error("run.backend = {}: allowed are auto, {}", name, fmt::join(names, ", "));
}

}  // namespace sluice::core
