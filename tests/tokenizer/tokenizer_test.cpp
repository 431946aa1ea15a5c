// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "support/temp_dir.h"
#include "tokenizer/beside.h"
#include "tokenizer/normalizer.h"

namespace sluice::core {
namespace {

using nlohmann::json;

json minimal() {
  return json::parse(R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "aba": 3}, "merges": ["a b", "ab a"]}})");
}

std::vector<int32_t> encoded(const json& file, const std::string& text) {
  const auto tokenizer = Tokenizer::parse(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.message();
  std::vector<int32_t> ids;
  const Status status = tokenizer->encode(text, true, ids);
  EXPECT_TRUE(status.ok()) << status.message();
  return ids;
}

std::string refusal(const json& file) {
  const auto tokenizer = Tokenizer::parse(file.dump());
  return tokenizer.ok() ? "" : tokenizer.message();
}

using Ids = std::vector<int32_t>;

TEST(Tokenizer, MergesByRankAndPlace) {
  EXPECT_EQ(encoded(minimal(), "abaab"), (Ids{3, 2}));
  json pairs = minimal();
  pairs["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"ab", "a"})});
  EXPECT_EQ(encoded(pairs, "abaab"), (Ids{3, 2}));
  EXPECT_EQ(encoded(minimal(), ""), Ids{});
}

// A file that makes much of little would take memory that no cap knows of.
TEST(Tokenizer, TextThatGrowsIsRefusedBeforeItTakesMemory) {
  const auto growing = [](size_t times) {
    json file = minimal();
    file["normalizer"] = {
        {"type", "Replace"}, {"pattern", {{"String", "b"}}}, {"content", std::string(times, 'a')}};
    return file;
  };
  TokenizerOptions options;
  options.most_piece_bytes = 1 << 16;
  options.why = ", for this reason";
  const std::string text((1 << 16) + 1, 'b');
  Ids ids;
  const auto four = Tokenizer::parse(growing(4).dump(), options);
  ASSERT_TRUE(four.ok()) << four.message();
  EXPECT_TRUE(four->encode(std::string_view(text).substr(0, 1 << 14), true, ids).ok());
  const auto five = Tokenizer::parse(growing(5).dump(), options);
  ASSERT_TRUE(five.ok()) << five.message();
  EXPECT_EQ(five->encode(text, true, ids).message(),
            "the normalizer makes more than 262148 bytes of a text of 65537, for this reason");
  // Where memory has no room for four times as much.
  TokenizerOptions tight = options;
  tight.most_text_bytes = 1 << 17;
  const auto less = Tokenizer::parse(growing(4).dump(), tight);
  ASSERT_TRUE(less.ok()) << less.message();
  EXPECT_EQ(less->encode(text, true, ids).message(),
            "the normalizer makes more than 131072 bytes of a text of 65537, for this reason");
  // Where nobody asks for limits there is one, too.
  const auto much = Tokenizer::parse(growing(10'000).dump());
  ASSERT_TRUE(much.ok()) << much.message();
  EXPECT_EQ(much->encode(std::string_view(text).substr(0, 20'000), true, ids).message(),
            "the normalizer makes more than 4194304 bytes of a text of 20000");
  // Nor does it become more in pieces, between tokens that are found before.
  json split = growing(4);
  split["added_tokens"] = {{{"id", 100},
                            {"content", "<|>"},
                            {"special", false},
                            {"normalized", false},
                            {"single_word", false},
                            {"lstrip", false},
                            {"rstrip", false}}};
  const auto pieces = Tokenizer::parse(split.dump(), tight);
  ASSERT_TRUE(pieces.ok()) << pieces.message();
  std::string many;
  for (int i = 0; i < 8; ++i) many += std::string(1 << 13, 'b') + "<|>";
  EXPECT_EQ(pieces->encode(many, true, ids).message(),
            "more than 131072 tokens of a text of 65560 bytes, for this reason");
  // Several that grow it fourfold each.
  json thrice = minimal();
  thrice["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 3; ++i) {
    thrice["normalizer"]["normalizers"].push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "b"}}}, {"content", "bbbb"}});
  }
  const auto cubed = Tokenizer::parse(thrice.dump(), options);
  ASSERT_TRUE(cubed.ok()) << cubed.message();
  EXPECT_FALSE(cubed->encode(text, true, ids).ok());
}

// It took five seconds, and the square of that for more.
TEST(Tokenizer, APatternThatReadsATextAgainAndAgainGivesUp) {
  json file = minimal();
  file["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "a*[bc]|a"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const auto tokenizer = Tokenizer::parse(file.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  Ids ids;
  EXPECT_TRUE(tokenizer->encode(std::string(2000, 'a'), true, ids).ok());
  EXPECT_EQ(tokenizer->encode(std::string(200'000, 'a'), true, ids).message(),
            "a pattern gave up on a text of 200000 bytes");
}

TEST(Tokenizer, CountsWhatIsDropped) {
  const auto tokenizer = Tokenizer::parse(minimal().dump());
  ASSERT_TRUE(tokenizer.ok());
  Ids ids;
  EncodeCounts counts;
  ASSERT_TRUE(tokenizer->encode("axbyé", true, ids, &counts).ok());
  EXPECT_EQ(ids, (Ids{2}));  // as if they had never been there
  EXPECT_EQ(counts.dropped, 3);
}

TEST(Tokenizer, AMissingUnknownTokenIsAnErrorOfTheText) {
  json file = minimal();
  file["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(encoded(file, "ab"), Ids{2});
  const auto tokenizer = Tokenizer::parse(file.dump());
  Ids ids;
  const Status status = tokenizer->encode("abc", true, ids);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("'<unk>' is not in vocab"), std::string::npos) << status.message();
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8ByLine) {
  const auto tokenizer = Tokenizer::parse(minimal().dump());
  Ids ids;
  const Status status = tokenizer->encode("a\nb\n\xff", true, ids);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "line 3: byte 0xff is not UTF-8");
}

TEST(Tokenizer, GivesAddedTokensTheIdsOfTheLibrary) {
  json file = minimal();
  const auto token = [](int id, const char* content) {
    return json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  file["added_tokens"] = {token(9, "<x>"), token(2, "ab"), token(7, "<y>")};
  EXPECT_EQ(encoded(file, "<x>ab<y>"), (Ids{4, 2, 5}));
  const auto tokenizer = Tokenizer::parse(file.dump());
  EXPECT_EQ(tokenizer->vocab(), 6);
  EXPECT_EQ(tokenizer->token(5), "<y>");
  EXPECT_EQ(tokenizer->token(9), std::nullopt);
  EXPECT_EQ(tokenizer->id("<y>"), 5);
  EXPECT_TRUE(tokenizer->is_special(2) && !tokenizer->is_special(1));
  EXPECT_EQ(*tokenizer->decode(Ids{4, 0, 77, -1}, true), "a");
}

TEST(Tokenizer, RefusesByNameWhatItDoesNotSupport) {
  struct Case {
    const char* patch;
    const char* what;
  };
  const Case kCases[] = {
      {R"({"version": "2.0"})", "version"},
      {R"({"normalizer": {"type": "NFKC"}})", "normalizer: the normalizer NFKC is not supported"},
      {R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}})",
       "normalizer.normalizers[0]: the normalizer Lowercase"},
      {R"({"pre_tokenizer": {"type": "Whitespace"}})", "pre-tokenizer Whitespace"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\b"}, "behavior": "Isolated", "invert": false}})",
       "pre_tokenizer.pattern.Regex: pattern '\\b'"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": "x"}, "behavior": "Sideways", "invert": false}})",
       "allowed are Removed, Isolated"},
      {R"({"decoder": {"type": "WordPiece"}})", "decoder WordPiece"},
      {R"({"post_processor": {"type": "BertProcessing"}})", "post-processor BertProcessing"},
      {R"({"model": {"type": "Unigram"}})", "model.type: Unigram is not supported"},
      {R"({"model": {"type": "WordPiece"}})", "model.type: WordPiece is not supported"},
      {R"({"model": {"type": "WordLevel"}})", "model.type: WordLevel is not supported"},
      {R"({"model": {"dropout": 0.1}})", "model.dropout: 0.1 is not supported"},
      {R"({"model": {"end_of_word_suffix": "</w>"}})", "model.end_of_word_suffix: '</w>'"},
      {R"({"model": {"vocab": {"a": 1}}})", "have the same id, 1"},
      {R"({"model": {"vocab": {"c": 4000000000}}})", "model.vocab: 4000000000: allowed are 0 to"},
      {R"({"model": {"vocab": {"c": -1}}})", "model.vocab: -1: allowed are 0 to"},
      {R"({"model": {"vocab": {"c": "x"}}})", "string instead of a whole number"},
      {R"({"model": {"merges": ["a  b"]}})", "model.merges: number 0 is neither"},
      {R"({"model": {"merges": ["a c"]}})", "needs the token 'c', which vocab lacks"},
      {R"({"model": {"merges": ["a b", ["a", "b"]]}})", "model.merges: number 1 is neither"},
      {R"({"added_tokens": [{"id": 1}]})", "added_tokens[0]: 'content' is missing"},
      {R"({"added_tokens": 5})", "added_tokens: number instead of an array"},
  };
  for (const Case& c : kCases) {
    json file = minimal();
    file.merge_patch(json::parse(c.patch));
    EXPECT_NE(refusal(file).find(c.what), std::string::npos) << c.patch << "\n" << refusal(file);
  }
  json missing = minimal();
  missing.erase("model");
  EXPECT_NE(refusal(missing).find("'model' is missing"), std::string::npos);
  EXPECT_FALSE(Tokenizer::parse("{").ok());
  EXPECT_FALSE(Tokenizer::parse("[]").ok());
  EXPECT_NE(Tokenizer::open("/nonexistent/tokenizer.json").message().find("/nonexistent"), std::string::npos);
}

// Time that grows with the square of the length would take minutes here.
TEST(Tokenizer, EncodesLongRuns) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "ab";
  EXPECT_EQ(encoded(minimal(), text).size(), 200000u);
}

TEST(Tokenizer, FindsPlacesInLongRunsThatAreNormalizedAsOne) {
  json file = minimal();
  file["normalizer"] = {{"type", "NFC"}};
  file["model"]["vocab"] = {{"\u00e9", 0}};
  file["model"]["merges"] = json::array();
  const auto tokenizer = Tokenizer::parse(file.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  std::string text;
  for (int i = 0; i < 500000; ++i) text += "\u00e9";
  size_t at = 0;
  const Status status =
      tokenizer->encode_places(text, {}, [&](auto, std::span<const Tokenizer::Stretch> places) -> Status {
        for (const auto& place : places) {
          EXPECT_EQ(place.begin, at);
          at = place.end;
        }
        return {};
      });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(at, text.size());
}

// A piece of bytes is encoded in parts where no merge can join them, with the ids of the whole.
TEST(Tokenizer, EncodesLongPiecesOfBytesInParts) {
  constexpr int kTimes = 40000;
  json file = minimal();
  file["pre_tokenizer"] =
      json::parse(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})");
  file["model"]["vocab"] = json::parse(R"({"a": 0, "b": 1, "c": 2, "ab": 3, "aba": 4})");
  // Nothing joins c with what is beside it; x has no token.
  for (const std::string text : {"ababc", "aabacb", "cab", "ababxc"}) {
    std::string piece;
    Ids parts;
    const Ids one = encoded(file, text);
    for (int i = 0; i < kTimes; ++i) {
      piece += text;
      parts.insert(parts.end(), one.begin(), one.end());
    }
    EXPECT_TRUE(encoded(file, piece) == parts) << text;
  }
}

TEST(Tokenizer, RefusesLongerPiecesThanItMay) {
  const auto tokenizer =
      Tokenizer::parse(minimal().dump(), {.most_piece_bytes = 1000, .why = ", for a reason"});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  std::vector<int32_t> ids;
  std::string text;
  for (int i = 0; i < 500; ++i) text += "ab";
  EXPECT_TRUE(tokenizer->encode(text, true, ids).ok());
  EXPECT_EQ(tokenizer->encode(text + "a", true, ids).message(),
            "a piece of 1001 bytes that cannot be cut; allowed are 1000, for a reason");
}

// As transformers 5.24 takes the files beside a tokenizer.json.
TEST(TokenizerFolder, TokensOfTheFilesBesideAreTokens) {
  const auto opened = [](const std::vector<std::pair<std::string, std::string>>& files) {
    const TempDir dir;
    dir.add("tokenizer.json", minimal().dump());
    for (const auto& [name, text] : files) dir.add(name, text);
    auto tokenizer = Tokenizer::open(dir / "tokenizer.json");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.message();
    return std::move(*tokenizer);
  };
  const auto ids = [](const Tokenizer& tokenizer, const std::string& text) {
    Ids out;
    EXPECT_TRUE(tokenizer.encode(text, true, out).ok());
    return out;
  };
  const Tokenizer alone = opened({});
  EXPECT_EQ(alone.content(), Tokenizer::parse(minimal().dump())->content());
  const std::string config = "tokenizer_config.json", map = "special_tokens_map.json";
  const std::pair<std::string, std::string> cases[] = {
      // Ids are the next ones, whatever the file says.
      {config, R"({"added_tokens_decoder": {"300": {"content": "<x>", "special": true}}})"},
      {config, R"({"added_tokens_decoder": {"4": {"content": "<x>", "special": false}}})"},
      {config, R"({"additional_special_tokens": ["<x>"]})"},
      {config, R"({"extra_special_tokens": ["<x>"]})"},
      {config, R"({"extra_special_tokens": {"image_token": "<x>"}})"},
      {config, R"({"model_specific_special_tokens": {"image_token": "<x>"}})"},
      {config, R"({"pad_token": "<x>"})"},
      {config, R"({"image_token": "<x>", "model_max_length": 9})"},
      {map, R"({"eos_token": "<x>"})"},
      {map, R"({"eos_token": {"content": "<x>", "lstrip": false}})"},
      {map, R"({"additional_special_tokens": ["<x>"]})"},
      {"added_tokens.json", R"({"<x>": 4})"},
  };
  for (const auto& [file, text] : cases) {
    const Tokenizer tokenizer = opened({{file, text}});
    EXPECT_EQ(ids(tokenizer, "a<x>b"), (Ids{0, 4, 1})) << text;
    EXPECT_EQ(tokenizer.id("<x>"), 4);
    EXPECT_NE(tokenizer.content(), alone.content()) << text;
  }
  // A list of added tokens stands for the other files.
  const Tokenizer listed =
      opened({{config, R"({"added_tokens_decoder": {"5": {"content": "<y>"}, "4": {"content": "<x>"}}})"},
              {map, R"({"additional_special_tokens": ["<z>"]})"},
              {"added_tokens.json", R"({"<w>": 4})"}});
  EXPECT_EQ(listed.id("<x>"), 4);
  EXPECT_EQ(listed.id("<y>"), 5);
  EXPECT_EQ(listed.id("<z>"), -1);
  EXPECT_EQ(listed.id("<w>"), -1);
  // Tokens that tokenizer.json has itself are not named anew.
  json own = minimal();
  own["added_tokens"] = json::array({{{"id", 4},
                                      {"content", "<x>"},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}}});
  const TempDir dir;
  dir.add("tokenizer.json", own.dump());
  dir.add(config,
          R"({"eos_token": "<x>", "added_tokens_decoder": {"4": {"content": "<x>", "special": true}}})");
  EXPECT_EQ(Tokenizer::open(dir / "tokenizer.json")->content(), Tokenizer::parse(own.dump())->content());
}

// As transformers 5.24 takes it: of these classes the pre-tokenizer is made anew by their own key.
TEST(TokenizerFolder, ASpaceInFrontIsTheSameInBothFiles) {
  const auto said = [](bool own, const std::string& config, const char* model = "llama") {
    json file = minimal();
    file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", own}, {"use_regex", false}};
    const TempDir dir;
    dir.add("tokenizer.json", file.dump());
    dir.add("tokenizer_config.json", config);
    dir.add("config.json", json{{"model_type", model}}.dump());
    const auto opened = Tokenizer::open(dir / "tokenizer.json");
    return opened.ok() ? std::string() : opened.message();
  };
  const std::string refused =
      said(false, R"({"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": true})");
  EXPECT_NE(
      refused.find("tokenizer.json: pre_tokenizer: add_prefix_space is false, and transformers goes by"),
      std::string::npos)
      << refused;
  EXPECT_NE(said(true, R"({"tokenizer_class": "GPT2Tokenizer"})"), "");
  EXPECT_NE(said(false, R"({"add_prefix_space": true})", "qwen2"), "");
  EXPECT_EQ(said(true, R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})"), "");
  EXPECT_EQ(said(false, R"({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": false})"), "");
  EXPECT_EQ(said(false, R"({"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": true})"), "");
  EXPECT_EQ(said(true, "{}"), "");
}

TEST(TokenizerFolder, NamesTheFirstAndTheLastTokenAsTransformersDoes) {
  struct Case {
    std::string config, map, model, bos, eos;
  };
  const Case cases[] = {
      {R"({"eos_token": "e"})", "", "", "", "e"},
      {R"({"eos_token": {"content": "e", "lstrip": true}, "bos_token": "b"})", "", "", "b", "e"},
      {"", R"({"eos_token": "e"})", "", "", "e"},
      {R"({"eos_token": "c"})", R"({"eos_token": "e"})", "", "", "e"},
      {R"({"eos_token": "c", "added_tokens_decoder": {}})", R"({"eos_token": "e"})", "", "", "c"},
      // GPT-2 as it was published.
      {R"({"model_max_length": 1024})", "", "gpt2", "<|endoftext|>", "<|endoftext|>"},
      {"", "", "gpt_neox", "<|endoftext|>", "<|endoftext|>"},
      {"", "", "qwen3", "", "<|endoftext|>"},
      {"", "", "gemma2", "<bos>", "<eos>"},
      {"", "", "llama", "", ""},
      {R"({"tokenizer_class": "GPT2TokenizerFast"})", "", "llama", "<|endoftext|>", "<|endoftext|>"},
      {R"({"tokenizer_class": "GPT2TokenizerFast"})", "", "mistral", "", ""},
      {R"({"tokenizer_class": "PreTrainedTokenizerFast"})", "", "gpt2", "", ""},
      {R"({"eos_token": null})", "", "gpt2", "<|endoftext|>", ""},
  };
  for (const Case& c : cases) {
    const TempDir dir;
    if (!c.config.empty()) dir.add("tokenizer_config.json", c.config);
    if (!c.map.empty()) dir.add("special_tokens_map.json", c.map);
    if (!c.model.empty()) dir.add("config.json", json{{"model_type", c.model}}.dump());
    const auto beside = read_beside_tokenizer(dir.path());
    ASSERT_TRUE(beside.ok()) << beside.message();
    const auto named = [&](const char* key) {
      const auto it = beside->special.find(key);
      return it == beside->special.end() ? std::string() : it->second;
    };
    EXPECT_EQ(named("bos_token"), c.bos) << c.config << c.map << c.model;
    EXPECT_EQ(named("eos_token"), c.eos) << c.config << c.map << c.model;
  }
  const TempDir dir;
  dir.add("tokenizer_config.json", R"({"eos_token": 7})");
  EXPECT_NE(
      read_beside_tokenizer(dir.path()).message().find("tokenizer_config.json: eos_token: 7; allowed are"),
      std::string::npos);
}

TEST(Nfc, KnowsTheTablesOfTheLibrary) {
  EXPECT_EQ(to_nfc("e\u0301 A\u030a"), "\u00e9 \u00c5");
  EXPECT_EQ(to_nfc("\u1100\u1161\u11a8"), "\uac01");
  // Marks that came after the library's tables keep their place and what comes behind them.
  EXPECT_EQ(to_nfc("a\u0301\u0897\u0316"), "\u00e1\u0897\u0316");
  EXPECT_EQ(to_nfc("\U000105d2\u0307"), "\U000105d2\u0307");
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "e\u0301x";
  std::string expected;
  for (int i = 0; i < 50000; ++i) expected += "\u00e9x";
  EXPECT_EQ(to_nfc(text), expected);
}

// Files with bytes or values exchanged, cut or put twice: read or refused, never worse; what is read encodes.
TEST(Tokenizer, StandsDamagedFiles) {
  uint64_t state = 12345;
  const auto random = [&](size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return size_t(state >> 33) % below;
  };
  int read = 0;
  for (const char* name : {"gpt2_prefix", "llama2", "metaspace", "behaviors", "deepseek"}) {
    const auto original = read_file(std::filesystem::path(SLUICE_TOKENIZERS) / (std::string(name) + ".json"));
    ASSERT_TRUE(original.ok());
    json whole = json::parse(*original);
    // Short vocabularies, so that most damage is elsewhere.
    std::vector<std::string> gone;
    for (const auto& [token, id] : whole["model"]["vocab"].items()) {
      if (id > 300) gone.push_back(token);
    }
    for (const std::string& token : gone) whole["model"]["vocab"].erase(token);
    whole["model"]["merges"] = json::array();
    const std::string base = whole.dump();
    const std::string words[] = {"null",      "true",         "-1",
                                 "1e99",      "\"\"",         "[]",
                                 "{}",        "\"Sequence\"", "99999999999999999999",
                                 "\"(\"",     "\"[^a\"",      "\"\\u0000\"",
                                 "\"type\":", "\"\\ud800\""};
    for (int round = 0; round < 160; ++round) {
      std::string text = base;
      for (size_t edits = 1 + random(4); edits > 0; --edits) {
        // Behind or before the vocabulary, which is most of the file.
        const size_t at = random(2) == 0 ? random(text.size()) : random(std::min<size_t>(text.size(), 1500));
        const size_t length = std::min(random(12), text.size() - at);
        switch (random(4)) {
          case 0:
            text[at] = static_cast<char>(random(256));
            break;
          case 1:
            text.erase(at, length);
            break;
          case 2:
            text.insert(at, text.substr(random(text.size()), length));
            break;
          default:
            text.replace(at, length, words[random(std::size(words))]);
        }
      }
      const auto tokenizer = Tokenizer::parse(text);
      if (!tokenizer.ok()) {
        EXPECT_FALSE(tokenizer.message().empty());
        continue;
      }
      ++read;
      Ids ids;
      if (tokenizer->encode("It's <s> 12 naïve\n\n 一二 <r>  fox e\u0301", true, ids).ok())
        (void)tokenizer->decode(ids, false);
      (void)tokenizer->part_bytes("some words that go on and on, 1 2 3 4 5, and on", true);
    }
  }
  EXPECT_GT(read, 10);
}

}  // namespace
}  // namespace sluice::core
