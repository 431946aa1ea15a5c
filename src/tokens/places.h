// SPDX-License-Identifier: Apache-2.0
// Where each document of a corpus is, as people find it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::core {

struct DocumentPlace {
  uint32_t source = 0;  // of DocumentPlaces::names
  uint32_t line = 0;    // of its file; 0: it has none
  uint32_t place = 0;   // its own in the file
};

// The documents that have tokens, in their order.
struct DocumentPlaces {
  std::vector<std::string> names;
  std::vector<DocumentPlace> train, heldout;

  bool known() const { return !names.empty(); }
  // place_text() of one.
  std::string text(const DocumentPlace& place) const;
};

Status write_places(const std::filesystem::path& path, const DocumentPlaces& places);
// None where the file is not there, or is not of so many documents: they serve messages alone.
DocumentPlaces read_places(const std::filesystem::path& path, int64_t train, int64_t heldout);

}  // namespace sluice::core
