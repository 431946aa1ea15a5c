// SPDX-License-Identifier: Apache-2.0
// Checkpoints that a fault or somebody else changed are refused, and what no run could go on from is not
// saved.
#include <gtest/gtest.h>

#include <fstream>
#include <tuple>

#include "run/forged_checkpoint.h"
#include "run/small_checkpoint.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

// A run's checkpoint, and a session that loads damaged copies of it.
struct Damaged {
  explicit Damaged(std::vector<std::string> settings = {})
      : prepared(must(prepare_small(dir, std::move(settings)))), session(must(Session::open(prepared))) {}

  void save() { must(session->save(dir / "saved")); }
  // What loading says when a file has other content.
  std::string said(const std::string& file, const std::string& content) {
    const std::string whole = file_bytes(dir / "saved" / file);
    dir.add("saved/" + file, content);
    const Manifest manifest = session->manifest();
    const Status loaded = session->engine().load(manifest, dir / "saved");
    dir.add("saved/" + file, whole);
    return loaded.ok() ? "" : loaded.message();
  }

  const TempDir dir;
  const Prepared prepared;
  const std::unique_ptr<Session> session;
};

TEST(Checkpoint, AnyBitThatFlippedIsFound) {
  Damaged d;
  d.save();
  for (const char* file : kCheckpointFiles) {
    const std::string whole = file_bytes(d.dir / "saved" / file);
    for (size_t i = 0; i < 40; ++i) {
      std::string bytes = whole;
      char& byte = bytes[(i * 7919 + i * whole.size() / 40) % whole.size()];
      byte = char(byte ^ 1 << i % 8);
      const std::string said = d.said(file, bytes);
      EXPECT_NE(said.find(file), std::string::npos) << file << " " << i << ": " << said;
    }
    EXPECT_EQ(d.said(file, whole), "");
  }
}

TEST(Checkpoint, FilesOfAnotherSizeAreNamed) {
  Damaged d;
  d.save();
  for (const char* file : kCheckpointFiles) {
    const std::string whole = file_bytes(d.dir / "saved" / file);
    for (const std::string& content : {whole.substr(0, whole.size() / 2), "x" + whole, std::string()}) {
      const std::string said = d.said(file, content);
      EXPECT_NE(said.find(std::string(file) + ": it is damaged"), std::string::npos) << said;
    }
  }
}

constexpr float kInfinite = std::numeric_limits<float>::infinity(),
                kNotANumber = std::numeric_limits<float>::quiet_NaN();

// What ruins a run does not come in by its checkpoint: with right checksums, too.
TEST(Checkpoint, ValuesThatNoRunCouldGoOnFromAreNotLoaded) {
  for (const auto& [value, slot, says] : {std::tuple{kInfinite, 1, "element 2 is inf"},
                                          {kNotANumber, 0, "element 2 is nan"},
                                          {-1.0f, 1, "element 2 is -1"},
                                          {-1.0f, 0, ""}}) {
    Damaged d({"train.compute=f32"});
    const BuiltProgram& model = d.prepared.stages.main.model;
    const std::string name = model.program.object(model.params.back().parts[0].state[size_t(slot)]).name;
    d.save();
    forge(d.dir / "saved", name, 2, value);
    const Status loaded = d.session->engine().load(d.session->manifest(), d.dir / "saved");
    const std::string expected = *says == 0 ? "" : "optimizer.safetensors: tensor " + name + ": " + says;
    EXPECT_NE(loaded.message().find(expected), std::string::npos) << loaded.message();
    EXPECT_EQ(loaded.ok(), *says == 0);
    const std::string_view damaged = loaded.ok() ? "" : loaded.error().detail("damaged");
    EXPECT_EQ(damaged, loaded.ok() ? "" : (d.dir / "saved").string());
  }
}

// And no checkpoint is made of which this would be said: the one before it stays.
TEST(Checkpoint, ValuesThatNoRunCouldGoOnFromAreNotSaved) {
  for (const auto& [value, slot, says] :
       {std::tuple{kInfinite, 0, "element 2 is inf"},
        {kNotANumber, 1, "element 2 is nan"},
        {-1.0f, 1, "element 2 is -1; a mean of squares is never negative"}}) {
    Damaged d({"train.compute=f32"});
    const BuiltProgram& model = d.prepared.stages.main.model;
    const ObjectId moment = model.params.back().parts[0].state[size_t(slot)];
    must(d.session->engine().training().write(moment, std::as_bytes(std::span(&value, 1)), 8));
    const Status saved = d.session->save(d.dir / "saved");
    ASSERT_FALSE(saved.ok());
    EXPECT_NE(saved.message().find("tensor " + model.program.object(moment).name + ": " + says),
              std::string::npos)
        << saved.message();
    EXPECT_EQ(saved.error().detail("tensor"), model.program.object(moment).name);
    EXPECT_FALSE(std::filesystem::exists(d.dir / "saved"));
  }
  Damaged d({"train.compute=f32"});
  const ObjectId weight = d.prepared.stages.main.model.params.back().param;
  must(d.session->engine().training().write(weight, std::as_bytes(std::span(&kNotANumber, 1)), 8));
  EXPECT_FALSE(d.session->save(d.dir / "saved").ok()) << "a weight that is written in its own format";
}

TEST(CheckpointInfo, WeightsAreTheirOwnOrF32) {
  Damaged d;
  d.save();
  std::string text = file_bytes(d.dir / "saved/checkpoint.json");
  text.replace(text.find("\"own\""), 5, "\"x\"");
  std::ofstream(d.dir / "saved/checkpoint.json") << text;
  seal_again(d.dir / "saved");
  EXPECT_NE(read_checkpoint_info(d.dir / "saved").message().find("neither \"own\" nor \"f32\""),
            std::string::npos);
}

TEST(CheckpointInfo, NonsenseIsRefused) {
  for (const char* text : {"", "[", "[]", "{}", "7", "{\"format\": 3}", "{\"format\": \"3\", \"step\": 1}",
                           "{\"format\": 3, \"step\": -5, \"manifest\": {}, \"files\": {}}"}) {
    const auto info = parse_checkpoint_info(text, "dir/checkpoint.json");
    ASSERT_FALSE(info.ok()) << text;
    EXPECT_EQ(info.message().find("dir/checkpoint.json: "), 0u) << info.message();
  }
}

// A checksum is no secret: what is sealed may still be hostile.
TEST(CheckpointInfo, AStepBeyondAllRunsIsRefused) {
  Damaged d;
  d.save();
  const std::string text = file_bytes(d.dir / "saved/checkpoint.json");
  const auto info =
      parse_checkpoint_info(resealed(text, "\"step\": 0", "\"step\": 1000000001"), "dir/checkpoint.json");
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.message(), "dir/checkpoint.json: step = 1000000001: at most 1000000000 are allowed");
}

// Files of two checkpoints, as copying while a run saves may bring them together.
TEST(Checkpoint, OfFilesOfTwoStepsIsRefused) {
  const TempDir dir;
  const Prepared prepared = must(prepare_small(dir));
  (void)run_session(prepared, 1, dir / "one");
  (void)run_session(prepared, 2, dir / "two");
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    std::filesystem::copy(dir / "one", dir / "mixed");
    std::filesystem::copy_file(dir / "two" / file, dir / "mixed" / file,
                               std::filesystem::copy_options::overwrite_existing);
    const Prepared resumed = must(prepare_small(dir, {"run.resume=" + (dir / "mixed").string()}));
    const auto session = Session::open(resumed);
    ASSERT_FALSE(session.ok()) << file;
    EXPECT_NE(session.message().find(file), std::string::npos) << session.message();
    EXPECT_NE(session.message().find("of step 2"), std::string::npos) << session.message();
    std::filesystem::remove_all(dir / "mixed");
  }
}

}  // namespace
}  // namespace sluice::core
