// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose optimizer state is in several files, as processes that each have a part of it write them.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/export.h"
#include "io/shards.h"
#include "run/forged_checkpoint.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

// A copy of a checkpoint with every other tensor of its state in a second file.
void split_state(const fs::path& from, const fs::path& to) {
  fs::copy(from, to);
  fs::remove(to / kStateName);
  const auto whole = must(SafeTensorsFile::open(from / kStateName));
  for (int part = 0; part < 2; ++part) {
    std::vector<TensorInfo> infos;
    for (size_t t = size_t(part); t < whole.tensors().size(); t += 2)
      infos.push_back(whole.tensors()[t].info);
    auto writer = must(SafeTensorsWriter::create(to / state_name(part, 2), infos, whole.metadata()));
    for (size_t t = size_t(part); t < whole.tensors().size(); t += 2)
      ASSERT_TRUE(writer.write(whole.tensors()[t].info.name, 0, whole.tensors()[t].bytes).ok());
    ASSERT_TRUE(writer.commit().ok());
  }
  auto root = nlohmann::ordered_json::parse(file_bytes(to / "checkpoint.json"));
  root["format"] = 5;
  root["files"].erase(std::string(kStateName));
  for (int part = 0; part < 2; ++part) root["files"][state_name(part, 2)] = {{"bytes", 0}, {"xxh128", ""}};
  std::ofstream(to / "checkpoint.json") << root.dump(2);
  seal_again(to);
}

class StateFiles : public testing::Test {
 protected:
  void save(std::vector<std::string> settings) {
    (void)run_session(must(prepare_small(dir_, std::move(settings))), 2, dir_ / "whole");
    split_state(dir_ / "whole", dir_ / "parts");
  }
  RunConfig going_on(const char* from, std::vector<std::string> settings) const {
    settings.push_back("run.resume=" + (dir_ / from).string());
    return must(load_config("", small_run(dir_, std::move(settings))));
  }
  void expect_same(const char* a, const char* b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_TRUE(file_bytes(dir_ / a / file) == file_bytes(dir_ / b / file)) << file;
  }

  const TempDir dir_;
};

// All of them: one is missing, cut short, or not named.
TEST_F(StateFiles, AreGoneOnFrom) {
  save({});
  ASSERT_TRUE(check_whole(dir_ / "parts").ok());
  for (const char* from : {"whole", "parts"}) {
    (void)run_session(must(prepare(going_on(from, {}), "", false)), 4, dir_ / (std::string(from) + "4"));
  }
  expect_same("whole4", "parts4");
  const auto refused = [&](const char* what, const std::function<void(const fs::path&)>& spoil) {
    fs::copy(dir_ / "parts", dir_ / what);
    spoil(dir_ / what);
    const auto session = Session::open(must(prepare(going_on(what, {}), "", false)));
    EXPECT_FALSE(session.ok()) << what;
    return session.ok() ? std::string() : session.message();
  };
  const std::string second = state_name(1, 2);
  const auto expect_in = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), message.npos) << message;
  };
  expect_in(refused("missing", [&](const fs::path& dir) { fs::remove(dir / second); }), second);
  expect_in(refused("short", [&](const fs::path& dir) { fs::resize_file(dir / second, 100); }),
            second + ": it is damaged: it has 100 bytes");
  expect_in(refused("unnamed",
                    [&](const fs::path& dir) {
                      auto root = nlohmann::ordered_json::parse(file_bytes(dir / "checkpoint.json"));
                      root["files"].erase(second);
                      std::ofstream(dir / "checkpoint.json") << root.dump(2);
                      seal_again(dir);
                    }),
            "of this model are missing");
}

// By an export, and by a run that goes on in other formats.
TEST_F(StateFiles, HaveTheMasters) {
  save({"train.compute=bf16", "train.master=on", "train.state=f32"});
  for (const char* from : {"whole", "parts"}) {
    RunConfig config =
        going_on(from, {"train.compute=bf16", "train.master=i8", "train.state=i8", "train.stochastic=off"});
    config.allow = {"formats"};
    (void)run_session(must(prepare(config, "", false)), 3, dir_ / (std::string(from) + "3"));
    const auto done = export_model(dir_ / from, dir_ / (std::string(from) + "_out"),
                                   {.type = TensorType::F32, .shard_bytes = kShardBytes},
                                   [](std::string_view, int64_t, int64_t) { return Status(); });
    ASSERT_TRUE(done.ok()) << done.message();
    EXPECT_TRUE(done->from_masters);
  }
  expect_same("whole3", "parts3");
  EXPECT_TRUE(file_bytes(dir_ / "whole_out/model.safetensors") ==
              file_bytes(dir_ / "parts_out/model.safetensors"));
}

TEST(StateFilesWritten, AreNamedByWhoWroteThem) {
  const TempDir dir;
  static const std::vector<std::byte> bytes(8);
  const StoredTensor tensor{{"t", TensorType::F32, {2}}, {{ObjectId(0), 0, 8, 0}}, TensorType::F32};
  const PartReader reader = [](const StoredPart&, int64_t, int64_t) -> Result<std::span<const std::byte>> {
    return std::span<const std::byte>(bytes);
  };
  CheckpointContent content{{{tensor}, {tensor}, 16, 16}, {}, "{}", std::make_shared<ModelFiles>()};
  content.info.step = 7;
  const auto written = [&](const char* to, const StateWriter& write_state) {
    fs::create_directory(dir / to);
    EXPECT_TRUE(write_checkpoint(content, dir / to, reader, write_state).ok());
    const auto root = nlohmann::json::parse(file_bytes(dir / to / "checkpoint.json"));
    return std::pair(root["format"].get<int>(), must(look_at_checkpoint(dir / to)).state_files());
  };
  // What older programs go on from, too, where one file has all.
  EXPECT_EQ(written("one", {}), std::pair(4, std::vector<std::string>{"optimizer.safetensors"}));
  const auto parts = [&](const fs::path& to) -> Result<FileSums> {
    FileSums sums;
    for (int part = 0; part < 2; ++part) {
      StoredTensor own = tensor;
      own.info.name += fmt::format("{}", part);
      const std::string name = state_name(part, 2);
      SLUICE_ASSIGN(sums[name], write_state_file(std::span(&own, 1), to / name, 7, reader));
    }
    return sums;
  };
  EXPECT_EQ(written("two", parts),
            std::pair(5, std::vector<std::string>{"optimizer-00001-of-00002.safetensors",
                                                  "optimizer-00002-of-00002.safetensors"}));
  // A best model has none of them.
  fs::create_directory(dir / "best");
  ASSERT_TRUE(link_weights(dir / "two", dir / "best").ok());
  EXPECT_FALSE(must(read_checkpoint_info(dir / "best")).has_state());
  EXPECT_FALSE(fs::exists(dir / "best" / state_name(0, 2)));
  EXPECT_TRUE(check_whole(dir / "best").ok());
  // An error of whoever writes leaves no checkpoint.
  fs::create_directory(dir / "none");
  const auto full = [](const fs::path&) -> Result<FileSums> {
    return error(ErrorKind::Io, "the disk is full");
  };
  const Status refused = write_checkpoint(content, dir / "none", reader, full);
  EXPECT_EQ(refused.message(), "the disk is full");
  EXPECT_FALSE(fs::exists(dir / "none/checkpoint.json"));
}

}  // namespace
}  // namespace sluice::core
