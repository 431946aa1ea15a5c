// SPDX-License-Identifier: Apache-2.0
#include "run/history.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "io/file.h"

namespace sluice::core {

Result<History> read_history(const std::filesystem::path& metrics, int64_t last_step) {
  History history;
  std::error_code unreadable;
  if (!std::filesystem::exists(metrics, unreadable) && !unreadable) return history;
  SLUICE_ASSIGN(const std::string text, read_file(metrics));
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) continue;
    const auto step = object["step"].get<int64_t>();
    if (step > last_step) continue;
    history.lines += line + '\n';
    const auto add = [&](const char* key, Series& series) {
      if (object.contains(key) && object[key].is_number()) {
        series.points.push_back({double(step), object[key].get<double>()});
      }
    };
    add("loss", history.training);
    add("heldout_loss", history.heldout);
  }
  return history;
}

}  // namespace sluice::core
