// SPDX-License-Identifier: Apache-2.0
// A log of JSON objects, one per line.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <utility>

#include "base/status.h"
#include "io/appended_file.h"

namespace sluice::core {

// Appends lines to a file, as io/appended_file.h says. A line that a killed process left unfinished is ended
// when the file is opened, so that it spoils no other. One thread at a time.
class JsonLines {
 public:
  static Result<JsonLines> open(const std::filesystem::path& path);

  // Keys keep their order. NaN and infinities become null, which is all that JSON offers.
  Status append(const nlohmann::ordered_json& object);
  // Makes the lines durable.
  Status flush() { return file_.flush(); }

 private:
  explicit JsonLines(AppendedFile file) : file_(std::move(file)) {}

  AppendedFile file_;
};

}  // namespace sluice::core
