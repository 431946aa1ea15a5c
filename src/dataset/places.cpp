// SPDX-License-Identifier: Apache-2.0
#include "dataset/places.h"

#include <cstring>
#include <span>

#include "io/file.h"
#include "io/pieces.h"
#include "records/findings.h"

namespace sluice::core {
namespace {

std::span<const std::byte> bytes_of(const std::vector<DocumentPlace>& places) {
  return std::as_bytes(std::span(places));
}

}  // namespace

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

PlacesFile PlacesFile::open(const std::filesystem::path& path, int64_t train, int64_t heldout) {
  PlacesFile places;
  std::error_code none;
  const auto size = int64_t(std::filesystem::file_size(path, none));
  const int64_t begin = size - (train + heldout) * int64_t(sizeof(DocumentPlace));
  if (none || begin < 1) return places;
  std::string names;
  const auto take = [&](std::string_view piece) -> Status {
    names += piece;
    return {};
  };
  if (!read_pieces(path, 0, begin, take).ok()) return places;
  std::string_view rest = names;
  std::vector<std::string> found;
  for (size_t end = rest.find('\0'); end != rest.npos && end > 0; end = rest.find('\0')) {
    found.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  if (rest != std::string_view("\0", 1)) return places;
  places.path_ = path;
  places.names_ = std::move(found);
  places.begin_ = begin;
  places.train_ = train;
  return places;
}

std::string PlacesFile::text(int64_t document) const {
  if (names_.empty()) return {};
  DocumentPlace place;
  const int64_t at = begin_ + document * int64_t(sizeof(place));
  std::string bytes;
  const auto take = [&](std::string_view piece) -> Status {
    bytes += piece;
    return {};
  };
  if (!read_pieces(path_, at, at + int64_t(sizeof(place)), take).ok()) return {};
  std::memcpy(&place, bytes.data(), sizeof(place));
  return place.source < names_.size() ? place_text(names_[place.source], place.line, place.place) : "";
}

}  // namespace sluice::core
