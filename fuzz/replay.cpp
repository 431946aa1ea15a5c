// SPDX-License-Identifier: Apache-2.0
// Replays inputs where there is no libFuzzer: sluice_fuzz CORPUS [CHANGES [TARGET]] runs every file of
// CORPUS/<target> on its target, and every target on its seed and on that many random changes of it, the same
// in every run. sluice_fuzz --seeds CORPUS writes the seeds there.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <random>
#include <string_view>
#include <vector>

#include "fuzz.h"
#include "io/file.h"

using namespace sluice::core;

namespace {

fuzz::Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// One to eight places of it cut out, doubled, or with other bytes: nearly what it was.
std::string changed(std::string input, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : size_t(random() % n); };
  for (size_t changes = 1 + below(8); changes > 0; --changes) {
    const size_t at = below(input.size() + 1), left = input.size() - at;
    switch (below(6)) {
      case 0:
        if (left > 0) input[at] = char(input[at] ^ (1 << below(8)));
        break;
      case 1:
        if (left > 0) input[at] = char(random());
        break;
      case 2:
        input.erase(at, below(16));
        break;
      case 3:
        input.insert(at, input.substr(below(input.size() + 1), below(32)));
        break;
      case 4: {
        // A number of eight bytes that is near the end of some type.
        constexpr int kShifts[] = {7, 8, 15, 16, 31, 32, 53, 63};
        const uint64_t number = (uint64_t{1} << kShifts[below(std::size(kShifts))]) - below(3);
        if (left >= sizeof(number))
          input.replace(at, sizeof(number), reinterpret_cast<const char*>(&number), sizeof(number));
        break;
      }
      default: {
        constexpr std::string_view kWords[] = {
            "-1", "0", "1e999", "18446744073709551615", "null", "\"", "[[[[", "{}", "\\u0000", "nan"};
        input.replace(at, below(8), kWords[below(std::size(kWords))]);
      }
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  const bool writes = argc == 3 && std::string_view(argv[1]) == "--seeds";
  int64_t changes = 300;
  if (!writes && argc > 2) {
    const std::string_view text = argv[2];
    if (std::from_chars(text.data(), text.data() + text.size(), changes).ec != std::errc()) argc = 0;
  }
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "sluice_fuzz CORPUS [CHANGES [TARGET]], or sluice_fuzz --seeds CORPUS\n");
    return 2;
  }
  const std::filesystem::path corpus = argv[writes ? 2 : 1];
  int64_t count = 0;
  for (const fuzz::Target& target : fuzz::targets()) {
    if (argc == 4 && target.name != argv[3]) continue;
    const std::filesystem::path folder = corpus / target.name;
    if (writes) {
      if (!make_directories(folder).ok() || !write_file(folder / "seed", target.seed()).ok()) return 1;
      continue;
    }
    std::vector<std::string> inputs{target.seed()};
    const auto files = list_files(folder);
    if (!files.ok()) {
      std::fprintf(stderr, "%s\n", files.message().c_str());
      return 1;
    }
    for (const auto& file : *files) {
      auto content = read_file(folder / file);
      if (!content.ok()) return 1;
      // What is no longer read teaches a fuzzer nothing: it never gets past the first check.
      if (file == "seed" && *content != inputs.front()) {
        std::fprintf(stderr, "%s is not what the target's seed is now; write it anew with --seeds\n",
                     (folder / file).c_str());
        return 1;
      }
      inputs.push_back(std::move(*content));
    }
    for (const std::string& input : inputs) target.run(bytes_of(input));
    std::mt19937_64 random;
    for (int64_t i = 0; i < changes; ++i) {
      target.run(bytes_of(changed(inputs[size_t(i) % inputs.size()], random)));
    }
    count += int64_t(inputs.size()) + changes;
  }
  if (!writes) fmt::print("{} inputs replayed\n", count);
}
