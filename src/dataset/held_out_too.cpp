// SPDX-License-Identifier: Apache-2.0
#include "dataset/held_out_too.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/counts.h"
#include "base/hash.h"

namespace sluice::core {
namespace {

// Calls f(number, length, hash) for every document; of those that `wanted` does not want by their length
// without a hash.
void for_hashes(const TokenSet& tokens, const auto& wanted, const auto& told, auto&& f) {
  constexpr int64_t kMost = int64_t{1} << 16;  // tokens of a document that decide
  constexpr int64_t kReleased = 1024;          // documents that are read before their memory is given back
  std::vector<int32_t> ids;
  int64_t number = 0, begin = 0;
  for (int64_t t = 0; t < tokens.tokens(); ++number) {
    const TokenSet::Document document = tokens.document_at(t);
    t = document.end;
    const int64_t length = document.end - document.begin;
    if (number % kReleased == 0) {
      tokens.release();
      told(t - std::exchange(begin, t));
    }
    if (!wanted(length)) continue;
    ids.resize(size_t(std::min(length, kMost)));
    tokens.read(document.begin, ids);
    const Checksum sum = checksum_of(std::as_bytes(std::span(ids)));
    f(number, Hash().add(length).add(sum.low).value());
  }
  tokens.release();
  told(tokens.tokens() - begin);
}

}  // namespace

std::string find_held_out_too(const TokenSet& heldout, const TokenSet& train, const PlacesFile& places,
                              Findings& findings, const std::function<void(int64_t)>& told) {
  std::unordered_map<uint64_t, std::vector<int64_t>> held;  // documents by their hashes
  std::unordered_set<int64_t> lengths;
  for_hashes(
      heldout, [&](int64_t length) { return lengths.insert(length), true; }, told,
      [&](int64_t number, uint64_t hash) { held[hash].push_back(number); });
  int64_t trained = 0;
  for_hashes(
      train, [&](int64_t length) { return lengths.contains(length); }, told,
      [&](int64_t number, uint64_t hash) {
        const auto it = held.find(hash);
        if (it == held.end()) return;
        ++trained;
        for (const int64_t own : std::exchange(it->second, {})) {
          const std::string place = places.heldout(own);
          findings.add(FindingKind::HeldOutToo, 1,
                       place.empty() ? "" : fmt::format("{} as {}", place, places.train(number)));
        }
      });
  const Found& found = findings.found[size_t(FindingKind::HeldOutToo)];
  if (found.count == 0) return {};
  return fmt::format(
      "{} of {} held out {} the tokens of {} trained on, so the held-out loss says less of what is new{}",
      found.count, counted(heldout.documents(), "document"), found.count == 1 ? "has" : "have",
      trained == 1 ? "1 document that is" : fmt::format("{} documents that are", trained),
      found.where(FindingKind::HeldOutToo));
}

}  // namespace sluice::core
