// SPDX-License-Identifier: Apache-2.0
// Checkpoints: they continue bit for bit, appear whole, and are refused where a run would not go on as it
// was.
#include "checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "backend/testing/forwarding.h"
#include "base/checksum.h"
#include "config/files/load_config.h"
#include "io/elements.h"
#include "io/safetensors.h"
#include "model/families/families.h"
#include "run/forged_checkpoint.h"
#include "run/prepare/manifest.h"
#include "run/small_checkpoint.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

struct Resumed {
  const char* name;
  std::vector<std::string> settings;
};
void PrintTo(const Resumed& r, std::ostream* out) {
  *out << r.name;
}

class Resume : public testing::TestWithParam<Resumed> {};

TEST_P(Resume, ContinuesBitForBit) {
  const TempDir dir;
  const auto& settings = GetParam().settings;
  const Prepared prepared = must(prepare_small(dir, settings));
  const std::vector<double> whole = run_session(prepared, 6, dir / "whole");
  const std::vector<double> first = run_session(prepared, 3, dir / "half");

  std::vector<std::string> more = settings;
  more.push_back("run.resume=" + (dir / "half").string());
  const Prepared again = must(prepare_small(dir, more));
  std::vector<double> both = first;
  for (const double loss : run_session(again, 6, dir / "resumed")) both.push_back(loss);

  EXPECT_EQ(both, whole);
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.json", "checkpoint.json"}) {
    const std::string expected = file_bytes(dir / "whole" / file);
    EXPECT_FALSE(expected.empty()) << file;
    EXPECT_TRUE(file_bytes(dir / "resumed" / file) == expected) << file << " differs";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Resume,
    testing::Values(
        Resumed{"f32", {"train.compute=f32"}},
        Resumed{"f32_deferred", {"train.compute=f32", "train.deferred_update=on"}},
        Resumed{"bf16_master", {"train.compute=bf16", "train.master=on"}},
        Resumed{"compact", {"train.compute=bf16", "train.state=i8", "train.deferred_update=on"}},
        Resumed{"compact_master", {"train.compute=bf16", "train.state=i8", "train.master=on"}},
        Resumed{"masters_of_24_bits", {"train.compute=bf16", "train.master=i8", "train.deferred_update=on"}},
        Resumed{"masters_of_24_bits_exported",
                {"train.compute=bf16", "train.master=i8", "run.export_dtype=f32"}},
        Resumed{"bf16_master_exported", {"train.compute=bf16", "train.master=on", "run.export_dtype=f32"}},
        // Tensors that several weights share.
        Resumed{"gpt_neox",
                {"model.config=" SLUICE_FIXTURES "/gpt_neox_tiny", "train.compute=bf16", "train.master=on",
                 "train.deferred_update=on"}},
        // And some that the folder has turned.
        Resumed{"gpt2",
                {"model.config=" SLUICE_FIXTURES "/gpt2_tiny", "train.compute=bf16", "train.master=on",
                 "train.deferred_update=on"}},
        Resumed{"gpt2_exported",
                {"model.config=" SLUICE_FIXTURES "/gpt2_tiny", "train.compute=bf16", "train.master=on",
                 "run.export_dtype=f32"}},
        // Mixtures of experts, of which one has all of a layer in a tensor.
        Resumed{"olmoe",
                {"model.config=" SLUICE_FIXTURES "/olmoe_tiny", "train.compute=bf16", "train.state=bf16",
                 "train.grad=bf16", "train.master=off", "train.stochastic=on", "train.deferred_update=on",
                 "train.router_z_loss=0.01"}},
        Resumed{"gpt_oss",
                {"model.config=" SLUICE_FIXTURES "/gpt_oss_tiny", "train.compute=bf16", "train.master=on",
                 "train.deferred_update=on"}},
        Resumed{"gpt_oss_exported",
                {"model.config=" SLUICE_FIXTURES "/gpt_oss_tiny", "train.compute=bf16", "train.master=on",
                 "run.export_dtype=f32"}},
        Resumed{"frozen",
                {"train.compute=bf16", "train.master=on", "train.deferred_update=on",
                 "train.freeze=[\"model.layers.0\", \"*.mlp\"]"}},
        Resumed{"bf16_exported",
                {"train.compute=bf16", "train.state=bf16", "train.grad=bf16", "train.master=off",
                 "train.stochastic=on", "run.export_dtype=f32"}},
        Resumed{"adafactor",
                {"train.compute=bf16", "train.master=i8", "train.optimizer=adafactor",
                 "train.scale_parameter=1", "train.deferred_update=on"}},
        Resumed{"muon",
                {"train.compute=bf16", "train.state=i8", "train.optimizer=muon", "train.deferred_update=on"}},
        Resumed{"bf16_stochastic",
                {"train.compute=bf16", "train.state=bf16", "train.grad=bf16", "train.master=off",
                 "train.stochastic=on", "train.deferred_update=on"}}),
    [](const auto& test) { return test.param.name; });

// A checkpoint in the middle does not disturb the run, also when it forces a pending update.
TEST(Checkpoint, LeavesTheRunAsItWas) {
  const TempDir dir;
  const Prepared prepared = must(prepare_small(dir, {"train.compute=f32", "train.deferred_update=on"}));
  (void)run_session(prepared, 5, dir / "plain");
  const auto session = must(Session::open(prepared));
  CheckpointStore store = must(CheckpointStore::open(dir / "middle"));
  while (session->steps_done() < 5) {
    (void)must(session->step());
    must(session->save(store));
  }
  EXPECT_TRUE(file_bytes(dir / "middle/latest/model.safetensors") ==
              file_bytes(dir / "plain" / "model.safetensors"));
}

// Two steps of which the first learns nothing, or the second alone: the weights are the same ones, as AdamW
// has then seen one gradient; and so they are after a checkpoint between the two.
TEST(Checkpoint, AStepThatLearnsNothingIsNoUpdate) {
  for (const char* deferred : {"train.deferred_update=off", "train.deferred_update=on"}) {
    const TempDir dir;
    const Prepared prepared = must(prepare_small(dir, {"train.compute=f32", deferred}));
    const int64_t tokens = prepared.shape.tokens(), seq = prepared.shape.seq_len;
    Rows targets(kPlainBatch, tokens), none(kPlainBatch, tokens);
    for (Rows* rows : {&targets, &none}) {
      for (int64_t row = 0; row < tokens; row += seq) rows->part(row, seq).fill_padding();
      const auto ids = rows->column(BatchColumn::Tokens);
      for (size_t t = 0; t < ids.size(); ++t) ids[t] = int32_t(t % 50);
    }
    for (int32_t next = 0; int32_t & target : targets.column(BatchColumn::Targets)) target = ++next % 50;
    const auto session = must(Session::open(prepared)), control = must(Session::open(prepared)),
               again = must(Session::open(prepared));
    const Manifest manifest = session->manifest();
    const auto learn = [&](Session& run, const Rows& rows) {
      return must(run.engine().step(rows, 1e-2)).skipped;
    };
    EXPECT_EQ(learn(*session, none), "none of its tokens is learnt");
    must(session->engine().save(manifest, dir / "between"));
    EXPECT_EQ(learn(*session, targets), "");
    EXPECT_EQ(learn(*control, targets), "");
    must(again->engine().load(manifest, dir / "between"));
    EXPECT_EQ(learn(*again, targets), "");
    must(session->engine().save(manifest, dir / "after"));
    must(again->engine().save(manifest, dir / "again"));
    must(control->engine().save(manifest, dir / "control"));
    const auto state = [](Session& run) {
      return rig::read_state(run.engine().training(), {ObjectKind::Param, ObjectKind::OptState});
    };
    EXPECT_TRUE(state(*session) == state(*control)) << deferred;
    EXPECT_TRUE(state(*again) == state(*control)) << deferred;
    const CheckpointInfo info = must(read_checkpoint_info(dir / "after"));
    EXPECT_EQ(std::pair(info.step, info.updates), std::pair(int64_t{2}, int64_t{1})) << deferred;
  }
}

TEST(CheckpointInfo, UpdatesAreItsStepsUnlessItSaysOtherwise) {
  const TempDir dir;
  (void)run_session(must(prepare_small(dir)), 2, dir / "saved");
  const std::string text = file_bytes(dir / "saved/checkpoint.json"), both = "\"updates\": 2,";
  const auto updates = [&](std::string_view instead) {
    const auto info = parse_checkpoint_info(resealed(text, both, instead), "dir/checkpoint.json");
    return info.ok() ? fmt::format("{}", info->updates) : info.message();
  };
  EXPECT_EQ(updates(both), "2");
  EXPECT_EQ(updates(""), "2");
  EXPECT_EQ(updates("\"updates\": 0,"), "0");
  EXPECT_EQ(
      updates("\"updates\": 3,"),
      "dir/checkpoint.json: it is damaged: updates is 3, and step 2; it is a whole number from 0 to step");
}

// What a run says that resumes with other settings than the one that saved.
std::string refusal(const TempDir& dir, const std::vector<std::string>& saved, std::vector<std::string> now) {
  (void)run_session(must(prepare_small(dir, saved)), 1, dir / "saved");
  now.push_back("run.resume=" + (dir / "saved").string());
  const Prepared prepared = must(prepare_small(dir, now));
  const auto session = Session::open(prepared);
  return session.ok() ? "" : session.message();
}

TEST(Manifest, DifferencesAreNamedFromBothSides) {
  const std::string sum(32, 'a'), other(32, 'b');
  const Manifest before{{"a", "1"},
                        {"b", "2"},
                        {"c", "3"},
                        {"rate", "1.0000000000000002e-06"},
                        {"near", "0.1000000000000001"},
                        {"sum", sum},
                        {"random", "random tokens"}};
  const Manifest now{{"a", "1"},      {"b", "4"},     {"d", "5"},      {"rate", "9.999999999999999e-05"},
                     {"near", "0.1"}, {"sum", other}, {"random", sum}, {"train.schedule", "wsd"}};
  const std::vector<std::string> expected{"b is 4, it was 2",
                                          "d is 5, it was not set",
                                          "rate is 0.0001, it was 1e-06",
                                          "near is 0.1, and differs in digits beyond these from what it was",
                                          "sum is another one, not the one that it was",
                                          "random is another one, it was random tokens",
                                          "train.schedule is wsd, it was cosine",
                                          "c is not set, it was 3"};
  EXPECT_EQ(differences(before, now, {{"train.schedule", "cosine"}}), expected);
  EXPECT_TRUE(differences(now, now).empty());
}

TEST(Checkpoint, OfOtherNumberFormatsIsRefused) {
  const TempDir dir;
  const std::string message =
      refusal(dir, {"train.compute=bf16"}, {"train.compute=bf16", "train.state=bf16", "train.master=off"});
  EXPECT_NE(message.find("train.state is bf16, it was f32"), std::string::npos) << message;
  EXPECT_NE(message.find("train.master is false, it was true"), std::string::npos) << message;
}

TEST(Checkpoint, EveryDifferenceThatChangesResultsIsNamed) {
  const TempDir dir;
  const std::string text = dir.add("text", std::string(4000, '!')).string();
  const std::string message = refusal(
      dir, {"train.min_learning_rate=1e-4"},
      {model_with_tokenizer(dir), "train.min_learning_rate=1e-4", "train.seed=2", "train.beta1=0.5",
       "data.paths=[\"" + text + "\"]", "shape.rounds=1", "train.learning_rate=1e-3", "run.threads=2"});
  for (const char* part :
       {"train.seed is 2, it was 1", "train.beta1 is 0.5, it was 0.9", "data.content is ",
        "it was random tokens (--allow data)",
        "train.learning_rate is 0.001, it was 0.01 (--allow learning_rate)", "model.weights = "}) {
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
  }
  for (const char* part : {"train.min_learning_rate", "threads", "model.hidden_size"}) {
    EXPECT_EQ(message.find(part), std::string::npos) << message << "\nhas: " << part;
  }
}

// Where it is allowed, what is frozen from now on keeps its bits, and what is not begins to change.
TEST(Checkpoint, GoesOnWithOthersFrozenIfAllowed) {
  const std::string layers[] = {"train.freeze=[\"model.layers.0\"]", "train.freeze=[\"model.layers.1\"]"};
  for (const char* compute : {"train.compute=f32", "train.compute=bf16"}) {
    const TempDir dir;
    const std::string message = refusal(dir, {compute, layers[0]}, {compute, layers[1]});
    EXPECT_NE(message.find("train.freeze is [model.layers.1], it was [model.layers.0] (--allow freeze)"),
              std::string::npos)
        << message;
    RunConfig config =
        must(load_config("", small_run(dir, {compute, layers[1], "run.resume=" + (dir / "saved").string()})));
    config.allow = {"freeze"};
    (void)run_session(must(prepare(config, "", false)), 3, dir / "after");
    const TensorFiles before = must(TensorFiles::open(dir / "saved")),
                      after = must(TensorFiles::open(dir / "after"));
    for (const bool frozen : {false, true}) {
      const std::string name = fmt::format("model.layers.{}.mlp.down_proj.weight", int(frozen));
      const auto first = must(before.get(name))->bytes, last = must(after.get(name))->bytes;
      EXPECT_EQ(std::equal(first.begin(), first.end(), last.begin(), last.end()), frozen) << name;
    }
    // Going on with all trained is another such change.
    config.train.freeze.clear();
    config.run.resume = (dir / "after").string();
    EXPECT_EQ(run_session(must(prepare(config, "", false)), 5, dir / "all").size(), 2u);
    config.allow.clear();
    const auto session = Session::open(must(prepare(config, "", false)));
    ASSERT_FALSE(session.ok());
    EXPECT_NE(session.message().find("train.freeze is [], it was [model.layers.1]"), std::string::npos);
  }
}

// What a configuration leaves open is as the checkpoint has it.
TEST(Checkpoint, KeepsItsFormats) {
  const std::vector<std::string> formats{"train.compute=bf16", "train.master=i8"};
  const TempDir dir;
  (void)run_session(must(prepare_small(dir, formats)), 1, dir / "saved");
  const std::string resume = "run.resume=" + (dir / "saved").string();
  const Prepared open = must(prepare_small(dir, {resume}));
  EXPECT_EQ(open.numerics.compute, DType::BF16);
  EXPECT_EQ(open.numerics.state, DType::I8);
  EXPECT_EQ(open.numerics.master, MasterWeights::I8);
  EXPECT_EQ(run_session(open, 2, dir / "more").size(), 1u);
  const Prepared given = must(prepare_small(dir, {resume, "train.master=off", "train.state=f32"}));
  EXPECT_EQ(given.numerics.master, MasterWeights::Off);
  EXPECT_EQ(given.numerics.state, DType::F32);
}

// A run that goes on in other formats and saves at once has the state that was saved, rounded; and going back
// from fewer bits to more changes nothing.
TEST(Checkpoint, IsConvertedToOtherFormatsIfAllowed) {
  const std::vector<std::string> f32{"train.compute=bf16", "train.master=on", "train.state=f32"},
      i8{"train.compute=bf16", "train.master=i8", "train.state=i8"},
      bf16{"train.compute=bf16", "train.master=off", "train.state=bf16", "train.stochastic=off"};
  const TempDir dir;
  const std::string message = refusal(dir, f32, i8);
  for (const char* part :
       {"train.state is i8, it was f32 (--allow formats)", "train.master is i8, it was true"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  const auto convert = [&](const char* from, const char* to, std::vector<std::string> settings) {
    settings.push_back("run.resume=" + (dir / from).string());
    RunConfig config = must(load_config("", small_run(dir, settings)));
    config.allow = {"formats"};
    (void)run_session(must(prepare(config, "", false)), 1, dir / to);
  };
  convert("saved", "i8", i8), convert("i8", "again", i8), convert("i8", "wide", f32);
  convert("wide", "i8_again", i8), convert("i8", "bf16", bf16), convert("bf16", "f32", f32);
  const auto tensors = [&](const char* of, const char* file) {
    return must(TensorFiles::open(dir / of / file));
  };
  const auto floats = [](const SafeTensor& tensor) {
    std::vector<float> values;
    read_elements(tensor.info.type, tensor.bytes, values);
    return values;
  };
  const TensorFiles saved = tensors("saved", "optimizer.safetensors"),
                    wide = tensors("wide", "optimizer.safetensors");
  int moments = 0, squares = 0, masters = 0;
  for (const std::string_view name : saved.names()) {
    const std::vector<float> before = floats(*must(saved.get(name))), after = floats(*must(wide.get(name)));
    ASSERT_EQ(before.size(), after.size()) << name;
    const bool master = name.starts_with("master_"), square = name.starts_with("v_");
    (master ? masters : square ? squares : moments) += 1;
    for (size_t i = 0; i < before.size(); ++i) {
      float largest = 0;  // of its group
      for (size_t j = i / 32 * 32; j < std::min(i / 32 * 32 + 32, before.size()); ++j)
        largest = std::max(largest, std::abs(before[j]));
      // Half of the largest step between kept numbers: of the moments, of roots of squares, of 16 bits.
      const float error = master   ? std::abs(before[i]) * 0x1p-16f
                          : square ? 2 * std::sqrt(before[i] * largest) / 510 + largest / (510.0f * 510) +
                                         largest / (255.0f * 255)
                                   : largest / 127;
      ASSERT_NEAR(before[i], after[i], error * 1.001f) << name << " " << i;
    }
  }
  EXPECT_GT(moments, 5);
  EXPECT_EQ(moments, squares);
  EXPECT_EQ(moments, masters);
  const auto same = [&](const char* a, const char* b) {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_TRUE(file_bytes(dir / a / file) == file_bytes(dir / b / file)) << a << " " << b << " " << file;
  };
  same("i8", "again");
  same("i8", "i8_again");
  EXPECT_TRUE(file_bytes(dir / "bf16/model.safetensors") == file_bytes(dir / "i8/model.safetensors"));
  EXPECT_TRUE(file_bytes(dir / "f32/model.safetensors") == file_bytes(dir / "bf16/model.safetensors"));
}

// Numbers of rows and columns are f32 in all of them, and stay.
TEST(Checkpoint, OfRowsAndColumnsIsConvertedToOtherFormats) {
  const std::vector<std::string> adafactor{"train.compute=bf16", "train.optimizer=adafactor"};
  const auto with = [&](std::vector<std::string> settings) {
    settings.insert(settings.end(), adafactor.begin(), adafactor.end());
    return settings;
  };
  const TempDir dir;
  (void)run_session(must(prepare_small(dir, with({"train.master=on"}))), 1, dir / "saved");
  auto other = with({"train.master=i8"});
  other.push_back("run.resume=" + (dir / "saved").string());
  RunConfig config = must(load_config("", small_run(dir, other)));
  config.allow = {"formats"};
  (void)run_session(must(prepare(config, "", false)), 1, dir / "other");
  const TensorFiles saved = must(TensorFiles::open(dir / "saved/optimizer.safetensors")),
                    now = must(TensorFiles::open(dir / "other/optimizer.safetensors"));
  int compared = 0;
  for (const std::string_view name : saved.names()) {
    if (!name.starts_with("row_") && !name.starts_with("col_")) continue;
    const SafeTensor *a = must(saved.get(name)), *b = must(now.get(name));
    EXPECT_EQ(a->info.type, TensorType::F32);
    EXPECT_TRUE(std::ranges::equal(a->bytes, b->bytes)) << name;
    compared += 1;
  }
  EXPECT_GT(compared, 10);
}

TEST(Checkpoint, OfAnotherShapeIsRefused) {
  const TempDir dir;
  const std::string message = refusal(dir, {"shape.rounds=4"}, {"shape.rounds=2"});
  EXPECT_NE(message.find("shape.rounds is 2, it was 4"), std::string::npos) << message;
}

// What the configuration leaves open is taken from the checkpoint, whatever would be chosen now.
TEST(Checkpoint, KeepsItsShape) {
  const std::vector<std::string> given[] = {
      {"shape.rounds=4", "shape.chunk_tokens=16", "shape.head_tokens=4"},
      // Seven sequences in chunks of two.
      {"train.tokens_per_step=112", "shape.rounds=2", "shape.chunk_tokens=32", "shape.head_tokens=4"}};
  for (const auto& settings : given) {
    const TempDir dir;
    const Prepared before = must(prepare_small(dir, settings));
    (void)run_session(before, 1, dir / "saved");
    const Prepared after =
        must(prepare_small(dir, {settings.front(), "shape.chunk_tokens=0", "shape.rounds=0",
                                 "run.resume=" + (dir / "saved").string()}));
    EXPECT_EQ(to_text(after.shape), to_text(before.shape));
    EXPECT_EQ(after.shape.head_tokens, before.shape.head_tokens);
    const auto session = Session::open(after);
    EXPECT_TRUE(session.ok()) << session.message();
  }
}

TEST(Checkpoint, MissingIsNamed) {
  const TempDir dir;
  const auto prepared = prepare_small(dir, {"run.resume=" + (dir / "nowhere").string()});
  ASSERT_FALSE(prepared.ok());
  EXPECT_NE(prepared.message().find("nowhere"), std::string::npos) << prepared.message();
  EXPECT_EQ(prepared.error().kind, ErrorKind::NotFound);
}

// A CPU backend whose n-th download from now on fails.
int64_t downloads_left = -1;
class FailingDownloads final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  Status download(std::byte* to, Location from, int64_t bytes) override {
    if (downloads_left == 0) return error(ErrorKind::Device, "the device is gone");
    if (downloads_left > 0) --downloads_left;
    return ForwardingBackend::download(to, from, bytes);
  }
};

std::vector<std::string> files_of(const std::filesystem::path& dir) {
  std::vector<std::string> out;
  for (const char* file : kCheckpointFiles) out.push_back(file_bytes(dir / file));
  return out;
}

// A save that fails at any object leaves the checkpoint before it, whole.
TEST(Checkpoint, AppearsWholeOrNotAtAll) {
  const TempDir dir;
  Prepared prepared = must(prepare_small(dir));
  static const BackendKind* const cpu = prepared.machine.backend;
  BackendKind failing = *cpu;
  failing.make = [](const BackendOptions& options) -> Result<std::unique_ptr<Backend>> {
    SLUICE_ASSIGN(std::unique_ptr<Backend> made, cpu->make(options));
    return std::unique_ptr<Backend>(std::make_unique<FailingDownloads>(std::move(made)));
  };
  prepared.machine.backend = &failing;
  const auto session = must(Session::open(prepared));
  (void)must(session->step());
  CheckpointStore store = must(CheckpointStore::open(dir / "saved", {1}));
  must(session->save(store));
  const std::vector<std::string> first = files_of(dir / "saved/latest");
  (void)must(session->step());
  int64_t failures = 0;
  for (;; ++failures) {
    downloads_left = failures;
    const Status saved = session->save(store);
    downloads_left = -1;
    if (saved.ok()) break;
    EXPECT_TRUE(files_of(dir / "saved/latest") == first) << "failure " << failures;
    EXPECT_EQ(must(read_checkpoint_info(dir / "saved/latest")).step, 1);
  }
  EXPECT_GT(failures, 20);  // the model has more objects
  EXPECT_EQ(must(read_checkpoint_info(dir / "saved/latest")).step, 2);
  const std::vector<std::string> second = files_of(dir / "saved/latest");
  for (const size_t file : {0u, 1u, 3u}) EXPECT_FALSE(second[file] == first[file]) << kCheckpointFiles[file];
}

// The weights that other programs get are the master weights, and are there once.
TEST(Checkpoint, ExportsMasterWeights) {
  const TempDir dir;
  const auto with = [&](const char* dtype, std::vector<std::string> more = {}) {
    more.insert(more.end(),
                {"train.compute=bf16", "train.master=on", fmt::format("run.export_dtype={}", dtype)});
    return must(prepare_small(dir, more));
  };
  (void)run_session(with("auto"), 2, dir / "auto");
  (void)run_session(with("f32"), 2, dir / "f32");
  const auto own = must(TensorFiles::open(dir / "auto")), wide = must(TensorFiles::open(dir / "f32"));
  int64_t values = 0, finer = 0;
  for (const std::string_view name : own.names()) {
    const SafeTensor &a = *must(own.get(name)), &b = *must(wide.get(name));
    ASSERT_EQ(a.info.type, TensorType::BF16) << name;
    ASSERT_EQ(b.info.type, TensorType::F32) << name;
    for (int64_t i = 0; i < a.info.elements(); ++i, ++values) {
      float master = 0;
      uint16_t rounded = 0;
      std::memcpy(&master, b.bytes.data() + 4 * i, 4);
      std::memcpy(&rounded, a.bytes.data() + 2 * i, 2);
      ASSERT_EQ(Bf16(master).bits, rounded) << name << " " << i;
      finer += float(Bf16(master)) != master;
    }
  }
  EXPECT_GT(finer, values / 2);
  const auto bytes = [&](const char* run) {
    int64_t sum = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir / run))
      sum += int64_t(entry.file_size());
    return sum;
  };
  EXPECT_LT(bytes("f32"), bytes("auto"));
  // Either goes on under the other.
  for (const auto& [from, now] : {std::pair{"auto", "f32"}, std::pair{"f32", "auto"}}) {
    (void)run_session(with(now, {"run.resume=" + (dir / from).string()}), 2, dir / "again");
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_TRUE(file_bytes(dir / "again" / file) == file_bytes(dir / now / file)) << now << " " << file;
    std::filesystem::remove_all(dir / "again");
  }
}

// Large weights are cut; tests have small ones and cut smaller.
TEST(Checkpoint, InShardsGoesOnBitForBit) {
  const TempDir dir;
  // Some CPUs multiply in bf16 unless told otherwise, and half of the bytes make half of the files.
  const std::string f32 = "train.compute=f32";
  const Prepared prepared = must(prepare_small(dir, {f32}));
  (void)run_session(prepared, 3, dir / "whole");
  {
    const auto session = must(Session::open(prepared));
    (void)must(session->step());
    CheckpointContent content;
    content.layout = layout_of(prepared.stages.main.model, false);
    content.info.step = content.info.updates = 1;
    content.info.manifest = session->manifest();
    content.config = prepared.model.config;
    content.files = std::make_shared<const ModelFiles>();
    content.layout.shard_bytes = 20000;
    std::filesystem::create_directory(dir / "cut");
    must(write_checkpoint(content, dir / "cut", reader_of(session->engine().training())));
  }
  ASSERT_TRUE(std::filesystem::exists(dir / "cut/model-00006-of-00006.safetensors"));
  const auto resumed = must(prepare_small(dir, {f32, "run.resume=" + (dir / "cut").string()}));
  (void)run_session(resumed, 3, dir / "again");
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(file_bytes(dir / "again" / file) == file_bytes(dir / "whole" / file)) << file;

  // Each of the files is one that can be damaged.
  for (const auto& [name, sum] : must(read_checkpoint_info(dir / "cut")).files) {
    const std::string whole = file_bytes(dir / "cut" / name);
    dir.add("cut/" + name, whole + "x");
    const auto session = Session::open(resumed);
    ASSERT_FALSE(session.ok());
    EXPECT_NE(session.message().find(name + ": it is damaged"), std::string::npos) << session.message();
    std::filesystem::remove(dir / "cut" / name);
    EXPECT_FALSE(Session::open(resumed).ok()) << name;
    dir.add("cut/" + name, whole);
  }
  EXPECT_TRUE(Session::open(resumed).ok());
}

// What the version before wrote: weights in one file, config.json with what decides the arithmetic, and no
// other files.
TEST(Checkpoint, OfFormat3GoesOn) {
  const TempDir dir;
  const Prepared prepared = must(prepare_small(dir));
  (void)run_session(prepared, 3, dir / "whole");
  (void)run_session(prepared, 1, dir / "old");
  const std::string config = to_json(prepared.model);
  dir.add("old/config.json", config);
  std::string text = file_bytes(dir / "old/checkpoint.json");
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  const CheckpointInfo saved = must(read_checkpoint_info(dir / "old"));
  const FileSum& before = saved.files.at("config.json");
  replace("\"format\": 4", "\"format\": 3");
  replace(
      fmt::format("\"bytes\": {},\n      \"xxh128\": \"{}\"", before.bytes, before.checksum.to_text()),
      fmt::format("\"bytes\": {},\n      \"xxh128\": \"{}\"", config.size(), checksum_of(config).to_text()));
  const size_t seal = text.rfind("  \"checksum\"");
  const std::string sealed = text.substr(0, seal);
  dir.add("old/checkpoint.json",
          fmt::format("{}  \"checksum\": \"{}\"\n}}\n", sealed, checksum_of(sealed).to_text()));

  const auto resumed = must(prepare_small(dir, {"run.resume=" + (dir / "old").string()}));
  (void)run_session(resumed, 3, dir / "again");
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.json", "checkpoint.json"})
    EXPECT_TRUE(file_bytes(dir / "again" / file) == file_bytes(dir / "whole" / file)) << file;
}

}  // namespace
}  // namespace sluice::core
