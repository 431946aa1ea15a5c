// SPDX-License-Identifier: Apache-2.0
// How fast one thread encodes, in time of its core, and what comes out: for bench/tokenizer/run and tests/tokenizer/compare.py.
//
// Texts are records: a little-endian uint32 of bytes, then the bytes. Results are, for each text, the ids as
// a count and int32s, then the text they are decoded to, once with and once without special tokens, as
// records.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <vector>

#include "io/file.h"
#include "tokenizer/tokenizer.h"

namespace {

using sluice::core::EncodeCounts;
using sluice::core::Tokenizer;

template <class T>
void put(std::string& out, const T* data, size_t count) {
  const auto n = uint32_t(count);
  out.append(reinterpret_cast<const char*>(&n), sizeof(n));
  out.append(reinterpret_cast<const char*>(data), count * sizeof(T));
}

sluice::Status run(const std::string& tokenizer_path, const std::string& texts_path,
                   const std::string& out_path, int rounds) {
  SLUICE_ASSIGN(const Tokenizer tokenizer, Tokenizer::open(tokenizer_path));
  SLUICE_ASSIGN(const std::string records, sluice::core::read_file(texts_path));
  std::vector<std::string_view> texts;
  for (size_t at = 0; at + 4 <= records.size();) {
    uint32_t bytes = 0;
    std::memcpy(&bytes, records.data() + at, sizeof(bytes));
    texts.push_back(std::string_view(records).substr(at + 4, bytes));
    at += 4 + bytes;
  }
  std::vector<int32_t> ids;
  EncodeCounts counts;
  double best = 0;
  size_t bytes = 0, tokens = 0;
  for (int round = 0; round < rounds; ++round) {
    bytes = tokens = 0;
    const std::clock_t begin = std::clock();
    for (const std::string_view text : texts) {
      ids.clear();
      SLUICE_TRY(tokenizer.encode(text, true, ids, &counts));
      bytes += text.size();
      tokens += ids.size();
    }
    const double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
    best = std::max(best, double(bytes) / 1e6 / seconds);
  }
  std::printf("{\"bytes\": %zu, \"tokens\": %zu, \"mb_per_s\": %.3f, \"dropped\": %lld}\n", bytes, tokens,
              best, static_cast<long long>(counts.dropped));
  if (out_path.empty()) return {};
  std::ofstream out(out_path, std::ios::binary);
  for (const std::string_view text : texts) {
    ids.clear();
    SLUICE_TRY(tokenizer.encode(text, true, ids));
    std::string record;
    put(record, ids.data(), ids.size());
    for (const bool skip : {false, true}) {
      SLUICE_ASSIGN(const std::string decoded, tokenizer.decode(ids, skip));
      put(record, decoded.data(), decoded.size());
    }
    out << record;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Encodes records of text with one thread.");
  std::string tokenizer, texts, out;
  int rounds = 1;
  app.add_option("TOKENIZER", tokenizer, "tokenizer.json")->required();
  app.add_option("TEXTS", texts, "records of text")->required();
  app.add_option("--out", out, "write ids and decoded texts to this file");
  app.add_option("--rounds", rounds, "of which the fastest counts");
  CLI11_PARSE(app, argc, argv);
  const sluice::Status status = run(tokenizer, texts, out, rounds);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}
