// SPDX-License-Identifier: Apache-2.0
// Ids and decoded texts of a tokenizer of each structure, as the library `tokenizers` made them
// (make_fixtures.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "io/file.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

struct Record {
  std::string text;
  std::vector<int32_t> ids;
  std::string decoded, plain;
  std::vector<int32_t> written;  // ids, where special tokens are but text
};

std::vector<Record> records_of(const std::string& name) {
  const auto text = read_file(fs::path(SLUICE_TOKENIZERS) / (name + ".recorded.json"));
  const nlohmann::json list = nlohmann::json::parse(*text);
  std::vector<Record> records;
  for (const nlohmann::json& item : list) {
    Record record{item[0], item[1], {}, {}};
    record.decoded = item[2].is_null() ? record.text : item[2].get<std::string>();
    record.plain = item[3].is_null() ? record.decoded : item[3].get<std::string>();
    record.written = item.size() > 4 ? item[4].get<std::vector<int32_t>>() : record.ids;
    records.push_back(std::move(record));
  }
  return records;
}

Result<Tokenizer> open(const std::string& name, const TokenizerOptions& options = {}) {
  return Tokenizer::open(fs::path(SLUICE_TOKENIZERS) / (name + ".json"), options);
}

std::vector<std::string> structures() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(SLUICE_TOKENIZERS)) {
    const std::string name = entry.path().filename().string();
    const std::string_view end = ".recorded.json";
    if (name.ends_with(end)) names.push_back(name.substr(0, name.size() - end.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Recorded : public testing::TestWithParam<std::string> {};

TEST_P(Recorded, IdsAndTextAreThoseOfTheLibrary) {
  const auto tokenizer = open(GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const auto records = records_of(GetParam());
  EXPECT_GE(records.size(), 100u);
  for (const Record& record : records) {
    std::vector<int32_t> ids;
    const Status status = tokenizer->encode(record.text, true, ids);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(ids, record.ids) << record.text;
    EXPECT_EQ(*tokenizer->decode(record.ids, false), record.decoded) << record.text;
    EXPECT_EQ(*tokenizer->decode(record.ids, true), record.plain) << record.text;
  }
}

TEST_P(Recorded, CharactersOfSpecialTokensAreTextWhereverThatIsSaid) {
  const auto tokenizer = open(GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const Tokenizer::Plain everywhere = Tokenizer::Plain::everywhere({});
  for (const Record& record : records_of(GetParam())) {
    std::vector<int32_t> ids, without, placed;
    EncodeCounts counts;
    ASSERT_TRUE(tokenizer->encode(record.text, true, ids, &counts, everywhere).ok());
    EXPECT_EQ(ids, record.written) << record.text;
    EXPECT_EQ(counts.written >= 0, record.written != record.ids) << record.text;
    const auto in_text = tokenizer->written_in(record.text, {});
    EXPECT_EQ(in_text.value_or(counts.written) >= 0, counts.written >= 0) << record.text;
    const auto take = [&](std::span<const int32_t> some, auto) -> Status {
      placed.insert(placed.end(), some.begin(), some.end());
      return {};
    };
    ASSERT_TRUE(tokenizer->encode(record.text, false, without, nullptr, everywhere).ok());
    if (!tokenizer->encode_places(record.text, everywhere, take).ok()) continue;
    EXPECT_EQ(placed, without) << record.text;
  }
}

// Threads share a tokenizer, and what is remembered of one text changes no other.
TEST_P(Recorded, ThreadsShareATokenizer) {
  const auto tokenizer = open(GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const auto records = records_of(GetParam());
  std::vector<int> wrong(3, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < records.size(); ++i) {
        const Record& record = records[(i * (t + 1)) % records.size()];
        std::vector<int32_t> ids;
        wrong[t] += int(!tokenizer->encode(record.text, true, ids).ok() || ids != record.ids);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

INSTANTIATE_TEST_SUITE_P(Structures, Recorded, testing::ValuesIn(structures()),
                         [](const auto& structure) { return structure.param; });

// All recorded texts as one: cut wherever part_bytes() says, its ids stay the same.
class InParts : public testing::TestWithParam<std::string> {};

TEST_P(InParts, IdsAreThoseOfTheWhole) {
  const auto tokenizer = open(GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  std::string text;
  for (const Record& record : records_of(GetParam())) text += record.text + " and then ";
  int cuts = 0;
  for (const auto& [window, plain] : {std::pair(size_t{97}, Tokenizer::Plain()),
                                      {512, {}},
                                      {3001, {}},
                                      {97, Tokenizer::Plain::everywhere({})},
                                      {512, Tokenizer::Plain::everywhere({})}}) {
    std::vector<int32_t> ids, whole;
    ASSERT_TRUE(tokenizer->encode(text, true, whole, nullptr, plain).ok());
    std::string_view rest = text;
    while (!rest.empty()) {
      Tokenizer::TextPart part{rest.size() == text.size(), false};
      // A window without a place to cut grows.
      size_t bytes = 0;
      for (size_t width = window; bytes == 0 && width < rest.size(); width *= 2) {
        bytes = tokenizer->part_bytes(rest.substr(0, width), part.begins, plain);
        ASSERT_LE(bytes, width);
      }
      if (bytes == 0) {
        bytes = rest.size();
        part.ends = true;
      } else {
        ++cuts;
      }
      const Status status = tokenizer->encode_part(rest.substr(0, bytes), part, true, ids, nullptr, plain);
      ASSERT_TRUE(status.ok()) << status.message();
      rest.remove_prefix(bytes);
    }
    EXPECT_EQ(ids, whole) << "windows of " << window;
  }
  EXPECT_GE(cuts, 20);
}

using Place = std::tuple<int32_t, size_t, size_t>;  // an id, and the bytes it stands for

// Those of a text, and in how many calls they came; nothing where a token does not say what it stands for.
std::optional<std::pair<std::vector<Place>, int>> places_of(const Tokenizer& tokenizer,
                                                            std::string_view text) {
  std::vector<Place> all;
  int calls = 0;
  const Status status = tokenizer.encode_places(
      text, {}, [&](std::span<const int32_t> ids, std::span<const Tokenizer::Stretch> places) -> Status {
        EXPECT_EQ(ids.size(), places.size());
        for (size_t i = 0; i < ids.size(); ++i) all.emplace_back(ids[i], places[i].begin, places[i].end);
        ++calls;
        return {};
      });
  if (!status.ok()) return std::nullopt;
  return std::pair(all, calls);
}

// A tokenizer that cuts by itself; what every token stands for is found part by part, too.
TEST_P(InParts, TokensAndTheirPlacesAreThoseOfTheWhole) {
  const auto whole = open(GetParam()), cutting = open(GetParam(), {.part_bytes = 97});
  ASSERT_TRUE(whole.ok() && cutting.ok());
  std::string all, placed;
  for (const Record& record : records_of(GetParam())) {
    const std::string text = record.text + " and then ";
    all += text;
    if (places_of(*whole, text)) placed += text;
  }
  ASSERT_FALSE(placed.empty());
  while (placed.size() < 4000) placed += placed;
  std::vector<int32_t> ids, ids_of_parts;
  ASSERT_TRUE(whole->encode(all, true, ids).ok());
  ASSERT_TRUE(cutting->encode(all, true, ids_of_parts).ok());
  EXPECT_EQ(ids_of_parts, ids);
  const auto places = places_of(*whole, placed), places_of_parts = places_of(*cutting, placed);
  ASSERT_TRUE(places && places_of_parts);
  EXPECT_TRUE(places_of_parts->first == places->first);
  EXPECT_GT(places_of_parts->second, places->second + 20);
}

INSTANTIATE_TEST_SUITE_P(Structures, InParts,
                         testing::Values("gpt2", "gpt2_prefix", "llama3", "qwen2", "smollm2", "deepseek",
                                         "o200k", "llama2", "unknown", "metaspace", "metaspace_always"),
                         [](const auto& structure) { return structure.param; });

// A place to cut is never guessed: this one looks behind, and rewrites more than a character at a time.
TEST(Parts, AreNotKnownForEveryTokenizer) {
  const auto tokenizer = open("behaviors");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "the quick fox ";
  EXPECT_EQ(tokenizer->part_bytes(text, true), 0u);
}

}  // namespace
}  // namespace sluice::core
