// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "io/model_folder.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

constexpr const char* kHeader =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]},)"
    R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"s":{"dtype":"U8","shape":[],"data_offsets":[14,15]}})";
constexpr int64_t kData = 15;

// Replaces the first `from` in the header above.
std::string with(const std::string& from, const std::string& to) {
  std::string text = kHeader;
  return text.replace(text.find(from), from.size(), to);
}

// The whole file of a header and `data_bytes` zeros.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + std::string(data_bytes, '\0');
}

TEST(SafeTensorsHeader, ReadsTensorsInFileOrder) {
  const auto header = parse_safetensors_header(kHeader, kData);
  ASSERT_TRUE(header.ok()) << header.message();
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].info.name, "a");
  EXPECT_EQ(header->tensors[1].info.name, "b");
  EXPECT_EQ(header->tensors[1].info.type, TensorType::BF16);
  EXPECT_EQ(header->tensors[1].begin, 8);
  EXPECT_EQ(header->tensors[0].info.shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(header->tensors[2].info.elements(), 1);
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(SafeTensorsHeader, WrittenHeadersReadBack) {
  const std::vector<TensorInfo> tensors{{"x\"\n", TensorType::I64, {4, 2}},
                                        {"empty", TensorType::F32, {0, 5}}};
  const std::string text = format_safetensors_header(tensors, {{"k", "v"}});
  EXPECT_EQ((text.size() + 8) % 64, 0u);
  const auto header = parse_safetensors_header(text, 64);
  ASSERT_TRUE(header.ok()) << header.message();
  EXPECT_EQ(header->tensors[0].info.name, "x\"\n");
  EXPECT_EQ(header->tensors[1].info.shape, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(header->metadata.at("k"), "v");
}

struct BadHeader {
  const char* name;
  std::string header;
  const char* says;
};

class SafeTensorsBadHeader : public testing::TestWithParam<BadHeader> {};

TEST_P(SafeTensorsBadHeader, IsAnErrorThatSaysWhy) {
  const auto header = parse_safetensors_header(GetParam().header, kData);
  ASSERT_FALSE(header.ok());
  EXPECT_NE(header.message().find(GetParam().says), std::string::npos) << header.message();
}

INSTANTIATE_TEST_SUITE_P(
    All, SafeTensorsBadHeader,
    testing::Values(
        BadHeader{"Empty", "", "begin with"}, BadHeader{"Array", "[]", "begin with"},
        BadHeader{"Truncated", std::string(kHeader).substr(0, 70), "JSON"},
        BadHeader{"Trailing", std::string(kHeader) + "{}", "JSON"},
        BadHeader{"UnknownType", with("BF16", "BF61"), "unknown dtype 'BF61'"},
        BadHeader{"UnknownField", with("shape", "shade"), "unknown field 'shade'"},
        BadHeader{"MissingField", with(R"("dtype":"F32",)", ""),
                  "tensor 'a': dtype, shape or data_offsets is missing"},
        BadHeader{"FieldTwice", with(R"("dtype":"F32",)", R"("dtype":"F32","dtype":"F32",)"),
                  "appears twice"},
        BadHeader{"NameTwice", with(R"("b":)", R"("a":)"), "'a' appears twice"},
        BadHeader{"MetadataTwice", with(R"("format":"pt")", R"("format":"pt","format":"x")"),
                  "appears twice"},
        BadHeader{"MetadataNotText", with(R"("pt")", "3"), "unexpected a number"},
        BadHeader{"NegativeExtent", with("[3]", "[-3]"), "negative"},
        BadHeader{"FractionalExtent", with("[3]", "[3.5]"), "not whole"},
        BadHeader{"HugeNumber", with("[3]", "[18446744073709551615]"), "out of range"},
        BadHeader{"ProductOverflows", with("[3]", "[4611686018427387904,4611686018427387904]"), "too large"},
        BadHeader{"SizeMismatch", with("[3]", "[4]"), "BF16 [4] takes 8 bytes, data_offsets [8, 14] give 6"},
        BadHeader{"OneOffset", with("[8,14]", "[8]"), "must be two numbers"},
        BadHeader{"OffsetsReversed", with("[8,14]", "[14,8]"), "outside the 15 bytes"},
        BadHeader{"PastTheEnd", with("[14,15]", "[14,16]"), "outside the 15 bytes"},
        BadHeader{"Overlap", with("[8,14]", "[7,14]"), "begins at byte 7, but the data before it ends at 8"},
        BadHeader{"Hole", with("[14,15]", "[15,15]"), "begins at byte 15, but the data before it ends at 14"},
        BadHeader{"Nested", with("[2,1]", "[[2,1]]"), "unexpected an array in 'shape'"},
        BadHeader{"Deep", "{\"a\":" + std::string(100'000, '['), "unexpected an array"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(SafeTensorsHeader, DataOfNoTensorIsAnError) {
  EXPECT_EQ(parse_safetensors_header(kHeader, kData + 2).message(), "2 bytes of data belong to no tensor");
}

// Whatever bytes arrive, the answer is a header whose tensors lie inside the data, or an error.
TEST(SafeTensorsHeader, SurvivesMutations) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::string_view alphabet = "{}[]\",:0123456789-.eE\\u \x00\x7f\xff";
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = kHeader;
    for (size_t edits = 1 + below(3); edits > 0 && !text.empty(); --edits) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = alphabet[below(alphabet.size())];
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.insert(at, 1, alphabet[below(alphabet.size())]);
          break;
        default:
          text.insert(at, text.substr(below(text.size()), below(40)));
      }
    }
    const auto header = parse_safetensors_header(text, kData);
    if (!header.ok()) {
      EXPECT_FALSE(header.message().empty()) << text;
      continue;
    }
    ++accepted;
    for (const auto& [info, begin, end] : header->tensors) {
      ASSERT_TRUE(begin >= 0 && begin <= end && end <= kData && info.bytes() == end - begin) << text;
    }
  }
  EXPECT_GT(accepted, 0) << "mutations inside names stay valid";
}

TEST(SafeTensorsFile, RefusesImpossibleHeaderLengths) {
  TempDir dir;
  std::string huge = file_of(kHeader, kData);
  std::memset(huge.data(), 0xff, 8);
  EXPECT_FALSE(SafeTensorsFile::open(dir.add("huge", huge)).ok());
  std::string past_end = file_of(kHeader, kData);
  past_end[1] = 0x7f;
  EXPECT_FALSE(SafeTensorsFile::open(dir.add("past_end", past_end)).ok());
  EXPECT_FALSE(SafeTensorsFile::open(dir.add("short", "1234567")).ok());
  const std::string message = SafeTensorsFile::open(dir.add("empty", "")).message();
  EXPECT_NE(message.find((dir / "empty").string()), std::string::npos) << message;
}

TEST(SafeTensorsFile, AllowsUnalignedData) {
  TempDir dir;
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})";
  const auto file = SafeTensorsFile::open(dir.add("x", file_of(header, 9)));
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->tensors()[1].bytes.size(), 8u);
}

TEST(TensorFiles, ReadsTheFixture) {
  const auto files = TensorFiles::open(SLUICE_FIXTURES "/llama_tiny");
  ASSERT_TRUE(files.ok()) << files.message();
  const SafeTensor* embedding = files->find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->info.type, TensorType::F32);
  EXPECT_EQ(embedding->info.shape, (std::vector<int64_t>{97, 32}));
  EXPECT_EQ(embedding->bytes.size(), 97u * 32 * 4);
  EXPECT_EQ(files->find("no.such.tensor"), nullptr);
  EXPECT_NE(files->get("no.such.tensor").message().find("no.such.tensor"), std::string::npos);
}

std::string one_tensor(const char* name) {
  return file_of(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}}})", name), 2);
}

TEST(TensorFiles, JoinsShards) {
  TempDir dir;
  dir.add("one.safetensors", one_tensor("a"));
  dir.add("two.safetensors", one_tensor("b"));
  dir.add("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto files = TensorFiles::open(dir.path());
  ASSERT_TRUE(files.ok()) << files.message();
  EXPECT_EQ(files->names(), (std::vector<std::string_view>{"a", "b"}));
  EXPECT_EQ(files->find("b")->bytes.size(), 2u);
}

TEST(TensorFiles, ATensorMissingFromItsShardIsAnError) {
  TempDir dir;
  dir.add("one.safetensors", one_tensor("a"));
  const auto index = dir.add("x.index.json", R"({"weight_map":{"b":"one.safetensors"}})");
  EXPECT_NE(TensorFiles::open(index).message().find("tensor 'b' is not in one.safetensors"),
            std::string::npos);
}

TEST(TensorFiles, AnIndexCannotLeaveItsDirectory) {
  TempDir dir;
  for (const char* file : {R"("../x")", R"("/etc/passwd")", R"("..")", R"("")", "3"}) {
    const auto index = dir.add("x.index.json", fmt::format(R"({{"weight_map":{{"a":{}}}}})", file));
    EXPECT_NE(TensorFiles::open(index).message().find("not a file name"), std::string::npos) << file;
  }
}

TEST(TensorFiles, MalformedIndexesAreErrors) {
  TempDir dir;
  for (const char* text : {"", "[]", "{", "{}", R"({"weight_map":[]})"}) {
    EXPECT_NE(TensorFiles::open(dir.add("x.index.json", text)).message().find("weight_map"),
              std::string::npos)
        << text;
  }
}

TEST(TensorFiles, AnIndexSaysOnceWhereATensorLies) {
  TempDir dir;
  dir.add("one.safetensors", one_tensor("a"));
  dir.add("model-9.safetensors", one_tensor("a"));
  const auto index = [&](const std::string& map) {
    dir.add("model.safetensors.index.json", R"({"weight_map":{)" + map + "}}");
    return TensorFiles::open(dir.path());
  };
  EXPECT_NE(
      index(R"("a":"one.safetensors","a":"model-9.safetensors")").message().find("key 'a' is there twice"),
      std::string::npos);
  const auto files = index(R"("a":"one.safetensors")");
  ASSERT_TRUE(files.ok()) << files.message();
  EXPECT_EQ(files->passed_over(), std::vector<std::string>{"model-9.safetensors"});
}

TEST(TensorFiles, AnEmptyDirectoryIsAnErrorThatNamesBothFiles) {
  TempDir dir;
  const std::string message = TensorFiles::open(dir.path()).message();
  EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
  EXPECT_NE(message.find("model.safetensors.index.json"), std::string::npos) << message;
}

// Files that lie there instead of safetensors are named with what to type.
TEST(TensorFiles, FoldersOfOtherKindsAreNamed) {
  const std::pair<const char*, const char*> kinds[] = {
      {"pytorch_model.bin", "save_pretrained("},
      {"pytorch_model-00001-of-00002.bin", "save_pretrained("},
      {"Model-Q4_K_M.gguf", "scripts/gguf_to_folder"},
      {"adapter_config.json", "export --merged"},
      {"consolidated.00.pth", "the folder that transformers loads"},
      {"params.json", "the folder that transformers loads"},
      {"tf_model.h5", "TensorFlow"},
      {"flax_model.msgpack", "Flax"},
      {"model.onnx", "ONNX"},
      {"model-00001-of-00002.safetensors", "model.safetensors.index.json"},
      {"weights.safetensors", "model.weights"},
      {"checkpoint-500/config.json", "name that folder"},
  };
  for (const auto& [file, words] : kinds) {
    const TempDir dir;
    dir.add(file, "x");
    const auto opened = TensorFiles::open(dir.path());
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.message().find(words), std::string::npos) << file << ": " << opened.message();
  }
}

TEST(TensorFiles, PointersAndBrokenLinksAreNamed) {
  const char* const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 269060552\n";
  for (const char* file : {"model.safetensors", "tokenizer.json", "tokenizer.model", "config.json",
                           "model-00001-of-00002.safetensors", "chat_template.jinja"}) {
    const TempDir dir;
    dir.add(file, pointer);
    const auto opened = TensorFiles::open(dir.path());
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.message().find("git lfs pull"), std::string::npos) << opened.message();
    std::filesystem::remove(dir / file);
    std::filesystem::create_symlink("../../blobs/0123", dir / file);
    const auto linked = TensorFiles::open(dir.path());
    ASSERT_FALSE(linked.ok());
    EXPECT_NE(linked.message().find("a link to ../../blobs/0123"), std::string::npos) << linked.message();
  }
  const TempDir dir;
  const auto alone = SafeTensorsFile::open(dir.add("any.safetensors", pointer));
  ASSERT_FALSE(alone.ok());
  EXPECT_NE(alone.message().find("git lfs pull"), std::string::npos) << alone.message();
}

TEST(TensorFiles, WhatCameInsteadOfAFileIsNamed) {
  const std::pair<std::string, const char*> kinds[] = {
      {"<!DOCTYPE html><html>log in", "a page of a web site"},
      {"<html><body>", "a page of a web site"},
      {"/annex/objects/SHA256E-s9--a", "git annex get"},
      {std::string("PK\x03\x04", 4) + "a", "an archive of ZIP"}};
  for (const auto& [text, words] : kinds) {
    for (const char* file : {"model.safetensors", "config.json", "tokenizer.json"}) {
      const TempDir dir;
      dir.add(file, text);
      const auto opened = TensorFiles::open(dir.path());
      ASSERT_FALSE(opened.ok());
      EXPECT_NE(opened.message().find(words), std::string::npos) << opened.message();
    }
  }
  const TempDir dir;
  dir.add("model.safetensors", "01234567");
  dir.add("model.safetensors.aria2", "");
  const auto opened = TensorFiles::open(dir.path());
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.message().find("aria2 has not brought all of it"), std::string::npos) << opened.message();
}

TEST(ModelConfigFile, IsNamedByItsFolderOrByItself) {
  const TempDir dir;
  dir.add("m/config.json", "{}");
  EXPECT_TRUE(read_model_config(dir / "m").ok());
  EXPECT_TRUE(read_model_config(dir.add("other.json", "{}")).ok());
  for (const auto& [file, words] : {std::pair{"m/model.safetensors", "did you mean"},
                                    {"m/model.safetensors.index.json", "did you mean"},
                                    {"m/pytorch_model.bin", "did you mean"},
                                    {"m/x.gguf", "scripts/gguf_to_folder"},
                                    {"empty/README.md", nullptr}}) {
    const auto path = dir.add(file, "x");
    const auto read = read_model_config(words == nullptr ? path.parent_path() : path);
    ASSERT_FALSE(read.ok());
    EXPECT_NE(read.message().find(words == nullptr ? "no config.json in this folder" : words),
              std::string::npos)
        << read.message();
  }
}

TEST(SafeTensorsWriter, WritesPiecesInAnyOrder) {
  TempDir dir;
  const auto path = dir / "x.safetensors";
  const std::vector<float> values{1, 2, 3, 4};
  const auto bytes = std::as_bytes(std::span(values));
  auto writer = SafeTensorsWriter::create(
      path, {{"first", TensorType::U8, {3}}, {"values", TensorType::F32, {2, 2}}}, {{"format", "pt"}});
  ASSERT_TRUE(writer.ok()) << writer.message();
  ASSERT_TRUE(writer->write("values", 8, bytes.subspan(8)).ok());
  ASSERT_TRUE(writer->write("first", 0, bytes.first(3)).ok());
  ASSERT_TRUE(writer->write("values", 0, bytes.first(8)).ok());
  EXPECT_FALSE(std::filesystem::exists(path)) << "nothing is there before commit";
  ASSERT_TRUE(writer->commit().ok());

  const auto files = TensorFiles::open(path);
  ASSERT_TRUE(files.ok()) << files.message();
  const auto read = files->find("values")->bytes;
  EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes.begin(), bytes.end()));
  EXPECT_EQ(files->find("first")->info.shape, std::vector<int64_t>{3});
}

TEST(SafeTensorsWriterDeathTest, AnIncompleteTensorIsABug) {
  TempDir dir;
  auto writer = SafeTensorsWriter::create(dir / "x", {{"a", TensorType::F32, {2}}});
  EXPECT_DEATH((void)writer->commit(), "tensor 'a': 0 of 8 bytes");
}

}  // namespace
}  // namespace sluice::core
