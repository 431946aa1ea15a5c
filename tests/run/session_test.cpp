// SPDX-License-Identifier: Apache-2.0
// Whole runs: checkpoints, interruption, and what is refused before it starts.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "commands/commands.h"
#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "run/inputs/resolve.h"
#include "run/session/session.h"
#include "run/small_session.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using rig::must;

TEST(Interrupt, FinishesTheStepAndSaves) {
  const TempDir dir;
  Requests asked;
  const auto metrics = dir / "run/metrics.jsonl";
  // Interrupts once a few steps are written.
  std::thread user([&] {
    while (!asked.stop) {
      asked.stop = file_bytes(metrics).size() > 500;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const Outcome outcome = train({"", small_run(dir, {"train.steps=1000000"}), ""}, asked);
  asked.stop = true;
  user.join();
  ASSERT_TRUE(outcome.ok()) << outcome.message;
  EXPECT_EQ(outcome.ending, Ending::Interrupted);
  const std::string text = file_bytes(metrics);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  const auto checkpoint = nlohmann::json::parse(file_bytes(dir / "run/checkpoints/latest/checkpoint.json"));
  EXPECT_GT(lines, 0);
  EXPECT_EQ(checkpoint["step"].get<int64_t>(), lines);
}

// SmolLM3 may say that no layer is rotated; the table of frequencies is then read by nobody.
TEST(Session, AModelWithoutRotatedLayersTrains) {
  const TempDir dir;
  auto config =
      nlohmann::json::parse(file_bytes(std::filesystem::path(SLUICE_FIXTURES) / "smollm3_tiny/config.json"));
  config["no_rope_layers"] = std::vector<int>(config["num_hidden_layers"].get<size_t>(), 0);
  const std::string model = "model.config=" + dir.add("config.json", config.dump()).string();
  const Prepared prepared = must(prepare_small(dir, {model, "train.compute=f32"}));
  const auto session = must(Session::open(prepared));
  EXPECT_TRUE(std::isfinite(must(session->step()).loss));
}

// Steps without an update leave the state as it was, and enough of them end the run.
TEST(NotFinite, GradientsAreSkippedCountedAndEndTheRun) {
  const TempDir dir;
  const std::vector<std::string> diverging{
      "train.optimizer=sgd",  "train.learning_rate=10", "train.min_learning_rate=10",
      "train.warmup_steps=0", "train.clip_norm=0",      "train.steps=200",
      "train.max_skipped=3",  "run.checkpoint_every=1", "run.keep_last=1000"};
  Requests asked;
  const Outcome outcome = train({"", small_run(dir, diverging), ""}, asked);
  ASSERT_EQ(outcome.ending, Ending::Failed);
  std::vector<nlohmann::json> lines;
  std::istringstream text(file_bytes(dir / "run/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  const size_t n = lines.size();
  ASSERT_GT(n, 4u);
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(lines[i].at("skipped").get<bool>(), i + 3 >= n) << lines[i];
  const auto expect_said = [&](const std::string& part) {
    EXPECT_NE(outcome.message.find(part), std::string::npos) << outcome.message << "\nlacks: " << part;
  };
  expect_said(fmt::format("step {}: ", n));
  expect_said("is not finite");
  expect_said("3 steps in a row");
  expect_said(fmt::format("checkpoints/step-{}", n - 1));
  const auto weights = [&](size_t step) {
    const SafeTensorsFile file =
        must(SafeTensorsFile::open(dir / fmt::format("run/checkpoints/step-{}/model.safetensors", step)));
    std::string bytes;
    for (const SafeTensor& t : file.tensors())
      bytes.append(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
    return bytes;
  };
  EXPECT_EQ(weights(n - 1), weights(n - 3));
  EXPECT_NE(weights(n - 3), weights(n - 4));
}

// What prepare() says about a run that cannot be.
void expect_refused(const TempDir& dir, std::vector<std::string> settings,
                    const std::vector<std::string>& parts) {
  const auto prepared = prepare_small(dir, std::move(settings));
  ASSERT_FALSE(prepared.ok());
  for (const std::string& part : parts) {
    EXPECT_NE(prepared.message().find(part), std::string::npos) << prepared.message() << "\nlacks: " << part;
  }
}

// The cap that a refusal says works, as printed; empty if it says none.
std::string cap_named(const std::string& refusal) {
  const auto cap = refusal.find("the smallest cap that works");
  const auto from = refusal.find(" is ", cap) + 4;
  return cap == std::string::npos ? "" : refusal.substr(from, refusal.find(',', from) - from);
}

// How many residents of the tightest moment it names.
int64_t residents_named(const std::string& refusal) {
  const auto residents = refusal.find("largest residents are ");
  if (residents == std::string::npos) return 0;
  const std::string list = refusal.substr(residents, refusal.find(". Raise") - residents);
  return 1 + std::count(list.begin(), list.end(), ',');
}

TEST(Refused, DeviceCapBelowTheLeast) {
  const TempDir dir;
  const auto prepared = prepare_small(dir, {"memory.device=16KiB"});
  ASSERT_FALSE(prepared.ok());
  const std::string& message = prepared.message();
  EXPECT_NE(message.find("device memory"), std::string::npos) << message;
  EXPECT_NE(message.find("16.0 KiB"), std::string::npos) << message;
  EXPECT_EQ(residents_named(message), 3) << message;
}

// The least cap that a refusal names, as printed, is one that works.
TEST(Refused, NamesACapThatWorks) {
  for (int64_t sequence = 16; sequence <= 128; sequence += 16) {
    const TempDir dir;
    std::vector<std::string> settings{fmt::format("train.seq_len={}", sequence),
                                      fmt::format("train.tokens_per_step={}", sequence),
                                      fmt::format("shape.chunk_tokens={}", sequence), "memory.device=1KiB"};
    const auto refused = prepare_small(dir, settings);
    ASSERT_FALSE(refused.ok());
    settings.back() = "memory.device=" + cap_named(refused.message());
    const auto retried = prepare_small(dir, settings);
    EXPECT_TRUE(retried.ok()) << settings.back() << ": " << retried.message();
  }
}

// So it is of any number of sequences of any length, in chunks that are left to Sluice; and a cap that is
// less by a thirtieth is refused.
TEST(Refused, ABatchOfAnySizeNamesTheLeastCap) {
  for (const auto& [length, rows] : {std::pair<int64_t, int64_t>{7, 9}, {24, 3}, {100, 5}}) {
    const TempDir dir;
    const auto under = [&](const std::string& cap) {
      return prepare_small(dir,
                           {fmt::format("train.seq_len={}", length), "shape.chunk_tokens=0",
                            fmt::format("train.tokens_per_step={}", length * rows), "memory.device=" + cap});
    };
    const std::string batch = fmt::format("{} x {}: ", length, rows);
    const auto refused = under("1KiB");
    ASSERT_FALSE(refused.ok()) << batch;
    EXPECT_EQ(refused.error().kind, ErrorKind::DoesNotFit) << batch << refused.message();
    const auto retried = under(cap_named(refused.message()));
    EXPECT_TRUE(retried.ok()) << batch << refused.message() << ", and then: " << retried.message();
    const int64_t need = *refused.error().shortage->need_bytes;
    EXPECT_FALSE(under(fmt::format("{}KiB", need / 1024 * 29 / 30)).ok()) << batch << need;
  }
}

TEST(Refused, HostCapBelowTheLeast) {
  const TempDir dir;
  const auto prepared = prepare_small(dir, {"memory.host=1MiB"});
  ASSERT_FALSE(prepared.ok());
  const std::string& message = prepared.message();
  for (const std::string part : {"host memory", "1.00 MiB was given", "The tightest moment is "}) {
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
  }
  EXPECT_EQ(residents_named(message), 3) << message;
}

// What a session says about data that cannot be, of which planning knows nothing.
void expect_data_refused(const TempDir& dir, std::vector<std::string> settings,
                         const std::vector<std::string>& parts) {
  const Prepared prepared = must(prepare_small(dir, std::move(settings)));
  const auto session = Session::open(prepared);
  ASSERT_FALSE(session.ok());
  for (const std::string& part : parts) {
    EXPECT_NE(session.message().find(part), std::string::npos) << session.message() << "\nlacks: " << part;
  }
}

// The fixture's model has 97 tokens and no tokenizer: its text does not become bytes.
TEST(Refused, TextWithoutTheModelsTokenizer) {
  const TempDir dir;
  const auto text = dir.add("text/a.txt", std::string(4000, 'z'));
  expect_data_refused(
      dir, {"data.paths=[\"" + text.string() + "\"]", "data.heldout=0"},
      {"data.paths", "a vocabulary of 97 tokens",
       "no tokenizer.json is in " SLUICE_FIXTURES "/llama_tiny. Put its tokenizer.json beside"});
}

TEST(Refused, TokensOutsideTheVocabulary) {
  const TempDir dir;
  std::filesystem::copy_file(std::filesystem::path(SLUICE_TOKENIZERS) / "llama3.json",
                             dir / "tokenizer.json");
  std::filesystem::copy_file(std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny/config.json",
                             dir / "config.json");
  const auto text = dir.add("text/a.txt", std::string(4000, 'z'));
  expect_data_refused(dir,
                      {"model.config=" + (dir / "config.json").string(),
                       "model.weights=", "data.paths=[\"" + text.string() + "\"]", "data.heldout=0"},
                      {"train.tokens", "97"});
}

TEST(Refused, DataThatIsNotThere) {
  const TempDir dir;
  expect_data_refused(dir, {"data.paths=[\"/nonexistent/text\"]"}, {"/nonexistent/text"});
}

TEST(Refused, DataOfAFileIsNamedAsWrittenAndAsItWasTaken) {
  const TempDir dir;
  const auto path = dir.add("configs/a.toml", "[data]\npaths = [\"src\"]\n");
  const Prepared prepared = must(prepare(must(load_config(path.string(), small_run(dir))), "", false));
  const auto session = Session::open(prepared);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.message(), fmt::format("data.paths: 'src' in {} is {}: no such file or directory",
                                           path.string(), (dir / "configs/src").string()));
}

TEST(Planning, OpensNoData) {
  const TempDir dir;
  const auto prepared =
      must(prepare(must(load_config("", small_run(dir, {"data.paths=[\"/nonexistent/text\"]"}))), "", true));
  // What the configuration says of the data is planned for.
  EXPECT_TRUE(prepared.shape.packed);
  EXPECT_NE(prepared.stages.find(kEvaluation), nullptr);
  EXPECT_TRUE(check_fit(prepared.config, prepared.machine).ok());
}

// What a process holds differs by pages from start to start, and is rounded up. A cap that one start names
// works for one that holds less than was rounded away more.
TEST(Planning, KeepsTheCapThatAnotherStartNamed) {
  const TempDir dir;
  const auto at = [&](int64_t host_cap, int64_t held) {
    RunConfig config = must(load_config("", small_run(dir)));
    Machine machine = must(resolve_machine(config, ""));
    machine.held_bytes[kHost] = held;
    machine.profile.overhead_bytes[kHost] = align_up(held + kOverheadGrain / 4, kOverheadGrain);
    config.caps[kHost] = host_cap;
    return prepare_on(config, machine, true);
  };
  const int64_t below = 2 * kOverheadGrain - kOverheadGrain / 4;  // the most that is rounded to two grains
  const auto refused = at(1, below);
  ASSERT_FALSE(refused.ok());
  const int64_t named = *refused.error().shortage->need_bytes;
  EXPECT_TRUE(at(named, below).ok());
  EXPECT_TRUE(at(named, below + 4096).ok()) << at(named, below + 4096).message();
  EXPECT_FALSE(at(named, 3 * kOverheadGrain).ok());
}

// Each device has as much as the first, and no more than there is.
TEST(Planning, UnderOtherCapsNoDeviceTakesMoreThanItHas) {
  const TempDir dir;
  for (const char* devices : {"run.devices=1", "run.devices=2"}) {
    Prepared p = must(prepare_small(dir, {devices, "shape.rounds=1"}));
    const int64_t has = p.stages.arena_bytes()[kDevice] / 2;
    p.machine.device_total_bytes = has;
    const BytesByTier arenas =
        must(prepare_under(std::move(p), BytesByTier(kUnlimited))).stages.arena_bytes();
    EXPECT_LE(arenas[kDevice], has) << devices;
    EXPECT_LE(arenas[Tier::device(1)], has) << devices;
  }
}

TEST(Planning, TakesASingleFileForOneDocument) {
  const TempDir dir;
  const std::string file = dir.add("text/a.txt", std::string(4000, 'a')).string();
  const auto packed = [&](const std::string& path, const std::string& more) {
    return packs_documents(must(load_config("", {"data.paths=[\"" + path + "\"]", more})));
  };
  EXPECT_FALSE(packed(file, "data.mode=contiguous"));
  EXPECT_TRUE(packed(file, "data.mode=packed"));
  EXPECT_TRUE(packed((dir / "text").string(), "data.mode=contiguous"));
  EXPECT_FALSE(packed((dir / "text").string(), "data.respect_documents=false"));
  EXPECT_FALSE(packs_documents(must(load_config("", {"data.mode=packed"}))));  // random tokens
}

TEST(Session, TextBecomesTokensOfTheModelsTokenizer) {
  const TempDir dir;
  const auto path = dir.add("text", std::string(4000, 'a'));
  const RunConfig config =
      must(load_config("", small_run(dir, {model_with_tokenizer(dir),
                                           "data.paths=[\"" + path.string() + "\"]", "data.heldout=0"})));
  EXPECT_EQ(tokenizer_of(config), dir / "model/tokenizer.json");
  const RunData data = must(open_data(config, 97));
  Rows rows(kPlainBatch, 16);
  data.train->fill(0, 0, rows.part(0, 16));
  EXPECT_TRUE(std::ranges::equal(rows.column(BatchColumn::Tokens), std::vector<int32_t>(16, 'a' - ' ')));
  EXPECT_TRUE(data.notices.empty());
  // What the tokenizer has no token for is said.
  dir.add("text", "a\nb\nc" + std::string(4000, 'a'));
  EXPECT_EQ(
      must(open_data(config, 97)).notices,
      std::vector<std::string>{"data.paths: 2 characters or bytes have no token and are left out: text"});
}

// The file that was planned for became a directory.
TEST(Session, RefusesDocumentsThatWereNotPlannedFor) {
  const TempDir dir;
  const auto path = dir.add("text", std::string(4000, 'a'));
  const Prepared prepared = must(prepare_small(
      dir, {model_with_tokenizer(dir), "data.paths=[\"" + path.string() + "\"]", "data.heldout=0"}));
  std::filesystem::remove(path);
  dir.add("text/a", std::string(4000, ' '));
  dir.add("text/b", std::string(4000, '!'));
  const auto session = Session::open(prepared);
  ASSERT_FALSE(session.ok());
  EXPECT_NE(session.message().find("several documents"), std::string::npos) << session.message();
}

TEST(Refused, ShapesThatDoNotDivide) {
  const TempDir dir;
  expect_refused(dir, {"shape.chunk_tokens=12"}, {"chunk_tokens", "12", "16"});
}

}  // namespace
}  // namespace sluice::core
