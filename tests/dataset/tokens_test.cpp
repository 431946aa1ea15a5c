// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "dataset/byte_tokenizer.h"
#include "dataset/token_file.h"
#include "dataset/token_set.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using Tokens = std::vector<int32_t>;

// Writes documents to a token file of Sluice's format.
std::filesystem::path write_documents(const std::filesystem::path& path, const std::vector<Tokens>& documents,
                                      int token_bytes = 2) {
  auto writer = TokenFileWriter::create(path, token_bytes);
  for (const Tokens& document : documents) {
    EXPECT_TRUE(writer->append(document).ok());
    writer->end_document();
  }
  EXPECT_TRUE(writer->commit().ok());
  return path;
}

template <class T>
std::string llmc_file(int32_t magic, const std::vector<T>& tokens) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = 1;
  header[2] = static_cast<int32_t>(tokens.size());
  std::string file(1024 + tokens.size() * sizeof(T), '\0');
  std::memcpy(file.data(), header.data(), 1024);
  std::memcpy(file.data() + 1024, tokens.data(), tokens.size() * sizeof(T));
  return file;
}

Tokens read_all(const TokenFile& file) {
  Tokens tokens(size_t(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

TEST(ByteTokenizer, RoundTripsEveryByte) {
  std::string text(256, '\0');
  std::iota(text.begin(), text.end(), '\0');
  const Tokens tokens = ByteTokenizer::encode(text);
  EXPECT_EQ(tokens.back(), 255);
  EXPECT_EQ(ByteTokenizer::decode(tokens), text);
}

TEST(ByteTokenizer, ShowsUnknownTokens) {
  EXPECT_EQ(ByteTokenizer::decode(Tokens{'a', 256, -1}), "a??");
}

TEST(TokenFile, ReadsBackDocuments) {
  TempDir dir;
  for (const int token_bytes : {2, 4}) {
    const auto file =
        TokenFile::open(write_documents(dir / "x.tokens", {{1, 2, 3}, {}, {9}, {4, 9}}, token_bytes));
    ASSERT_TRUE(file.ok()) << file.message();
    EXPECT_EQ(read_all(*file), (Tokens{1, 2, 3, 9, 4, 9}));
    const auto boundaries = file->boundaries();
    EXPECT_EQ(std::vector(boundaries.begin(), boundaries.end()), (std::vector<int64_t>{0, 3, 4, 6}));
    EXPECT_EQ(file->max_token(), 9);
    EXPECT_EQ(file->max_token_index(), 3);
  }
}

TEST(TokenFile, DocumentsComeInPieces) {
  TempDir dir;
  auto writer = TokenFileWriter::create(dir / "x.tokens", 4);
  ASSERT_TRUE(writer->append(Tokens{1, 2}).ok());
  ASSERT_TRUE(writer->append(Tokens{100'000}).ok());
  ASSERT_TRUE(writer->commit().ok());
  const auto file = TokenFile::open(dir / "x.tokens");
  EXPECT_EQ(read_all(*file), (Tokens{1, 2, 100'000}));
  EXPECT_EQ(file->boundaries().size(), 2u);
}

TEST(TokenFile, ReadsLlmcFiles) {
  TempDir dir;
  const auto gpt2 = TokenFile::open(dir.add("gpt2.bin", llmc_file<uint16_t>(20240520, {5, 50256, 7})));
  ASSERT_TRUE(gpt2.ok()) << gpt2.message();
  EXPECT_EQ(read_all(*gpt2), (Tokens{5, 50256, 7}));
  EXPECT_EQ(gpt2->max_token_index(), 1);
  EXPECT_EQ(gpt2->boundaries().size(), 2u);
  const auto llama = TokenFile::open(dir.add("llama.bin", llmc_file<uint32_t>(20240801, {128000, 3})));
  ASSERT_TRUE(llama.ok()) << llama.message();
  EXPECT_EQ(read_all(*llama), (Tokens{128000, 3}));
}

TEST(TokenFile, BadFilesNamePathAndReason) {
  TempDir dir;
  const std::string good = *read_file(write_documents(dir / "good", {{1, 2, 3}, {4}}));
  const auto message = [&](std::string_view name, const std::string& content) {
    const auto file = TokenFile::open(dir.add(name, content));
    const std::string text = file.ok() ? "(no error)" : file.message();
    EXPECT_NE(text.find((dir / name).string()), std::string::npos) << text;
    return text;
  };
  const auto patched = [&](size_t at, int64_t value) {
    std::string bad = good;
    std::memcpy(bad.data() + at, &value, sizeof value);
    return bad;
  };
  EXPECT_NE(message("empty", "").find("not a token file"), std::string::npos);
  EXPECT_NE(message("text", std::string(2000, 'x')).find("not a token file"), std::string::npos);
  EXPECT_NE(message("cut", good.substr(0, good.size() - 8)).find("tokens in 2 documents take"),
            std::string::npos);
  EXPECT_NE(message("version", patched(8, 2ll << 32 | 9)).find("version 9"), std::string::npos);
  EXPECT_NE(message("width", patched(8, 3ll << 32 | 2)).find("3 bytes per token"), std::string::npos);
  EXPECT_NE(message("count", patched(16, INT64_MAX)).find("cannot be in a file"), std::string::npos);
  EXPECT_NE(message("documents", patched(24, INT64_MAX)).find("cannot be in a file"), std::string::npos);
  EXPECT_NE(message("token", patched(64, 99)).find("do not match their checksum"), std::string::npos);
  EXPECT_NE(message("boundary", patched(80, 99)).find("do not rise"), std::string::npos);
  const std::string llmc = llmc_file<uint16_t>(20240520, {1, 2, 3});
  EXPECT_NE(message("llmc", llmc.substr(0, llmc.size() - 2)).find("3 tokens of 2 bytes"), std::string::npos);
}

TEST(TokenFile, EveryChangedBitIsSeen) {
  TempDir dir;
  const std::string good = *read_file(write_documents(dir / "good", {{1, 2, 3}, {4}}));
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = char(bad[at] ^ (1 << at % 8));
    EXPECT_FALSE(TokenFile::open(dir.add("bad", bad)).ok()) << "byte " << at;
  }
}

// A checksum can be right, and the largest token, by which the vocabulary is checked, wrong.
// Tokens that are context, in whatever pieces they come, and where the first one stands.
TEST(TokenFile, ContextReadsBack) {
  for (const size_t first : {size_t{0}, size_t{7}, size_t{8}, size_t{130}}) {
    TempDir dir;
    Tokens tokens(131), expected;
    std::vector<uint8_t> learnt(tokens.size());
    std::iota(tokens.begin(), tokens.end(), 5);
    for (size_t i = 0; i < tokens.size(); ++i) {
      learnt[i] = i < first || i % 3 == 0 ? 1 : 0;
      expected.push_back(learnt[i] != 0 ? tokens[i] : -1);
    }
    learnt[first] = 0, expected[first] = -1;
    auto writer = TokenFileWriter::create(dir / "x.tokens", 2);
    for (size_t at = 0, piece = 1; at < tokens.size(); at += piece, piece = piece * 2 + 1) {
      piece = std::min(piece, tokens.size() - at);
      ASSERT_TRUE(
          writer->append(std::span(tokens).subspan(at, piece), std::span(learnt).subspan(at, piece)).ok());
    }
    ASSERT_TRUE(writer->commit().ok());
    const auto file = TokenFile::open(dir / "x.tokens");
    ASSERT_TRUE(file.ok()) << file.message();
    EXPECT_EQ(read_all(*file), tokens);
    Tokens targets(tokens.size());
    file->read_targets(0, targets);
    EXPECT_EQ(targets, expected);
    EXPECT_EQ(file->learnt(), std::count(learnt.begin(), learnt.end(), 1));
    Tokens few(9);
    file->read_targets(60, few);
    EXPECT_EQ(few, Tokens(expected.begin() + 60, expected.begin() + 69));
  }
}

TEST(TokenFile, EveryChangedBitOfContextIsSeen) {
  TempDir dir;
  auto writer = TokenFileWriter::create(dir / "x.tokens", 2);
  ASSERT_TRUE(writer->append(Tokens{1, 2, 3}, std::vector<uint8_t>{0, 1, 0}).ok() && writer->commit().ok());
  const std::string whole = *read_file(dir / "x.tokens");
  ASSERT_TRUE(TokenFile::open(dir / "x.tokens").ok());
  for (size_t bit = 0; bit < 64; ++bit) {
    std::string changed = whole;
    changed[changed.size() - 8 + bit / 8] ^= char(1 << bit % 8);
    dir.add("y.tokens", changed);
    EXPECT_NE(TokenFile::open(dir / "y.tokens").message().find("checksum"), std::string::npos) << bit;
  }
  EXPECT_EQ(whole.substr(whole.size() - 8, 1), "\x05");
}

TEST(TokenFile, DoesNotBelieveItsLargestToken) {
  TempDir dir;
  std::string bad = *read_file(write_documents(dir / "good", {{1, 2, 300}}));
  TokenFileHeader header;
  std::memcpy(&header, bad.data(), sizeof header);
  header.max_token = 255;
  header.checksum[0] = header.checksum[1] = 0;
  Checksummer sum;
  sum.add(std::string_view(bad).substr(sizeof header)).add(std::as_bytes(std::span(&header, 1)));
  header.checksum[0] = sum.value().high, header.checksum[1] = sum.value().low;
  std::memcpy(bad.data(), &header, sizeof header);
  const auto file = TokenFile::open(dir.add("bad", bad));
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.message().find("the largest token is 300 at index 2, not 255"), std::string::npos)
      << file.message();
}

TEST(TokenSet, JoinsFilesAndFindsDocuments) {
  TempDir dir;
  write_documents(dir / "a.tokens", {{1, 2}, {3}});
  write_documents(dir / "b.tokens", {{4, 5, 6}}, 4);
  dir.add("notes.txt", "not tokens");
  const auto set = open_tokens(dir.path());
  ASSERT_TRUE(set.ok()) << set.message();
  EXPECT_EQ(set->tokens(), 6);
  EXPECT_EQ(set->documents(), 3);
  Tokens middle(4);
  set->read(1, middle);
  EXPECT_EQ(middle, (Tokens{2, 3, 4, 5}));
  EXPECT_EQ(set->document_at(1).begin, 0);
  EXPECT_EQ(set->document_at(2).begin, 2);
  EXPECT_EQ(set->document_at(3).begin, 3);
  EXPECT_EQ(set->document_at(5).end, 6);
}

TEST(TokenSet, ATokenOutsideTheVocabularyNamesFileIndexAndVocabulary) {
  TempDir dir;
  const auto path = write_documents(dir / "a.tokens", {{1, 300}, {7}});
  const auto set = open_tokens(path);
  EXPECT_TRUE(set->check_vocab(301).ok());
  EXPECT_EQ(set->check_vocab(300).message(),
            path.string() + ": token 300 at index 1 is outside the model's vocabulary of 300");
}

TEST(TokenSet, ADirectoryWithoutTokenFilesIsAnError) {
  TempDir dir;
  EXPECT_NE(open_tokens(dir.path()).message().find(dir.path().string()), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
