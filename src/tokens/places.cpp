// SPDX-License-Identifier: Apache-2.0
#include "tokens/places.h"

#include <cstring>
#include <span>

#include "io/file.h"
#include "records/findings.h"

namespace sluice::core {
namespace {

std::span<const std::byte> bytes_of(const std::vector<DocumentPlace>& places) {
  return std::as_bytes(std::span(places));
}

}  // namespace

std::string DocumentPlaces::text(const DocumentPlace& place) const {
  return place_text(names[place.source], place.line, place.place);
}

// Names, each with a zero behind it; a zero; then the places of both sides.
Status write_places(const std::filesystem::path& path, const DocumentPlaces& places) {
  std::string names;
  for (const std::string& name : places.names) (names += name) += '\0';
  names += '\0';
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  SLUICE_TRY(file.write_at(0, names));
  auto at = int64_t(names.size());
  for (const auto* side : {&places.train, &places.heldout}) {
    SLUICE_TRY(file.write_at(at, bytes_of(*side)));
    at += int64_t(bytes_of(*side).size());
  }
  return file.commit();
}

DocumentPlaces read_places(const std::filesystem::path& path, int64_t train, int64_t heldout) {
  const auto file = read_file(path);
  if (!file.ok()) return {};
  std::string_view rest = *file;
  DocumentPlaces places;
  while (!rest.empty() && rest.front() != '\0') {
    const size_t end = rest.find('\0');
    if (end == rest.npos) return {};
    places.names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  if (rest.size() != 1 + size_t(train + heldout) * sizeof(DocumentPlace)) return {};
  rest.remove_prefix(1);
  for (const auto& [side, count] : {std::pair(&places.train, train), std::pair(&places.heldout, heldout)}) {
    side->resize(size_t(count));
    std::memcpy(side->data(), rest.data(), size_t(count) * sizeof(DocumentPlace));
    rest.remove_prefix(size_t(count) * sizeof(DocumentPlace));
    for (const DocumentPlace& place : *side) {
      if (place.source >= places.names.size()) return {};
    }
  }
  return places;
}

}  // namespace sluice::core
