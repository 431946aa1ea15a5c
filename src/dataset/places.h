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
};
Status write_places(const std::filesystem::path& path, const DocumentPlaces& places);

// The places in a file, each read when it is asked for: there are as many as documents.
class PlacesFile {
 public:
  // Knows none where the file is not there, or is not of so many documents: places serve messages alone.
  static PlacesFile open(const std::filesystem::path& path, int64_t train, int64_t heldout);

  // place_text(); empty: it is not known.
  std::string train(int64_t document) const { return text(document); }
  std::string heldout(int64_t document) const { return text(train_ + document); }

 private:
  std::string text(int64_t document) const;

  std::filesystem::path path_;
  std::vector<std::string> names_;
  int64_t begin_ = 0, train_ = 0;
};

}  // namespace sluice::core
