// SPDX-License-Identifier: Apache-2.0
// What belongs to a model beside its weights goes along in checkpoints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "checkpoint/model_files.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

// A model's folder with what belongs to it, and a key that Sluice does not know.
std::filesystem::path served_model(const TempDir& dir) {
  const std::filesystem::path fixture = std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny";
  nlohmann::json config = nlohmann::json::parse(file_bytes(fixture / "config.json"));
  config["eos_token_id"] = {7, 9};
  config["of_somebody_else"] = "kept";
  dir.add("served/config.json", config.dump());
  dir.add("served/tokenizer.json", std::string(3 << 20, 't'));
  dir.add("served/generation_config.json", "{}");
  dir.add("served/LICENSE", "theirs");
  return dir / "served";
}

// A folder that somebody made may have a link to a file that is not to be published.
TEST(ModelFiles, LinksOutOfAFolderAreRefusedButForThoseOfACache) {
  namespace fs = std::filesystem;
  const TempDir dir;
  dir.add("secret", "a key");
  dir.add("model/config.json", "{}");
  fs::create_symlink("../secret", dir / "model/vocab.json");
  const fs::path model = dir / "model";
  const std::string said = ModelFiles::open(std::span(&model, 1)).message();
  EXPECT_NE(said.find("vocab.json is a link out of its folder"), std::string::npos) << said;
  dir.add("models--a--b/blobs/0123", "words");
  dir.add("models--a--b/snapshots/9/config.json", "{}");
  const fs::path snapshot = dir / "models--a--b/snapshots/9";
  fs::create_symlink("../../blobs/0123", snapshot / "vocab.json");
  EXPECT_EQ(must(ModelFiles::open(std::span(&snapshot, 1))).names(), std::vector<std::string>{"vocab.json"});
  fs::create_symlink("../../../secret", snapshot / "merges.txt");
  EXPECT_FALSE(ModelFiles::open(std::span(&snapshot, 1)).ok());
}

// Whoever serves a checkpoint finds in it what the model came with; what happens to that meanwhile does not
// matter.
TEST(Checkpoint, CarriesTheModelsFiles) {
  const TempDir dir;
  const std::filesystem::path model = served_model(dir);
  const std::vector<std::string> settings{"model.config=" + model.string(), "train.compute=bf16"};
  const std::string config = file_bytes(model / "config.json"), words = file_bytes(model / "tokenizer.json");
  {
    const Prepared prepared = must(prepare_small(dir, settings));
    const auto session = must(Session::open(prepared));
    std::filesystem::remove(model / "tokenizer.json");
    std::filesystem::remove(model / "generation_config.json");
    (void)must(session->step());
    must(session->save(dir / "saved"));
  }
  EXPECT_TRUE(file_bytes(dir / "saved/tokenizer.json") == words);
  EXPECT_EQ(file_bytes(dir / "saved/generation_config.json"), "{}");
  EXPECT_FALSE(std::filesystem::exists(dir / "saved/LICENSE"));
  auto expected = nlohmann::json::parse(config);
  expected["dtype"] = "bfloat16";
  EXPECT_EQ(nlohmann::json::parse(file_bytes(dir / "saved/config.json")), expected);
  EXPECT_EQ(must(read_checkpoint_info(dir / "saved")).files.size(), 5u);

  // The run goes on without them, and still has them.
  std::vector<std::string> more = settings;
  more.push_back("run.resume=" + (dir / "saved").string());
  (void)run_session(must(prepare_small(dir, more)), 2, dir / "on");
  EXPECT_TRUE(file_bytes(dir / "on/tokenizer.json") == words);

  // A checkpoint is a model.
  const std::string saved = (dir / "saved").string();
  (void)run_session(must(prepare_small(dir, {"model.config=" + saved, "model.weights=" + saved})), 1,
                    dir / "new");
  EXPECT_TRUE(file_bytes(dir / "new/tokenizer.json") == words);
}

}  // namespace
}  // namespace sluice::core
