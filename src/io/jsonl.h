// SPDX-License-Identifier: Apache-2.0
// A log of JSON objects, one per line.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <utility>

#include "base/status.h"
#include "io/descriptor.h"

namespace sluice::core {

// Appends lines to a file; each is in the file, whole, when append() returns. A line that a killed process
// left unfinished is ended when the file is opened, so that it spoils no other. One thread at a time.
class JsonLines {
 public:
  static Result<JsonLines> open(const std::filesystem::path& path);

  // Keys keep their order. NaN and infinities become null, which is all that JSON offers.
  Status append(const nlohmann::ordered_json& object);
  // Makes the lines durable.
  Status flush();

 private:
  JsonLines(std::filesystem::path path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::filesystem::path path_;
  Descriptor fd_;
};

}  // namespace sluice::core
