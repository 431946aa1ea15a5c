// SPDX-License-Identifier: Apache-2.0
// What is refused before anything is measured, searched for or written.
#include "run/prepare/checks.h"
#include "run/inputs/paths.h"

#include "host/host_memory.h"
#include "run/inputs/resolve.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

// Passes when preparing fails with a message that has every one of `parts`, and neither costs nor plans were
// kept: measuring and searching end with that.
void expect_refused_early(std::vector<std::string> settings, const std::vector<std::string>& parts) {
  const TempDir dir;
  const auto prepared = prepare_small(dir, std::move(settings));
  ASSERT_FALSE(prepared.ok());
  for (const std::string& part : parts)
    EXPECT_NE(prepared.message().find(part), std::string::npos) << prepared.message() << "\nlacks: " << part;
  EXPECT_FALSE(std::filesystem::exists(dir / "cache"));
}

TEST(EarlyChecks, WeightsThatAreNotThereOrNone) {
  expect_refused_early({"model.weights=/nonexistent"}, {"model.weights = /nonexistent: no such file"});
  expect_refused_early(
      {"model.weights=nowhere/w"},
      {"model.weights: 'nowhere/w' in the working directory is /", "/nowhere/w: no such file"});
  const TempDir dir;
  expect_refused_early({"model.weights=" + dir.path().string()}, {"model.weights", "model.safetensors"});
  expect_refused_early({"model.weights=" + dir.add("w.safetensors", "no").string()},
                       {"model.weights", "w.safetensors"});
}

TEST(EarlyChecks, AConfigThatCannotBeRead) {
  expect_refused_early({"model.config=/nonexistent/config.json"},
                       {"model.config = /nonexistent/config.json: no such"});
  const TempDir empty;
  expect_refused_early(
      {"model.config=" + empty.path().string()},
      {"model.config = " + empty.path().string() + ": there is no config.json in this folder"});
}

TEST(EarlyChecks, ADirectoryStandsForItsConfig) {
  RunConfig config;
  config.model.config = (std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny").string();
  EXPECT_TRUE(resolve_model(config).ok());
}

TEST(EarlyChecks, ACheckpointThatIsNotThere) {
  expect_refused_early({"run.resume=/nonexistent"}, {"run.resume = /nonexistent: no such"});
}

TEST(EarlyChecks, ACacheThatCannotBeWritten) {
  const TempDir dir;
  const std::string below = (dir.add("file", "") / std::string("cache")).string();
  const auto prepared = prepare_small(dir, {"data.cache=" + below});
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.message(),
            fmt::format("data.cache = {}: {} is not a directory", below, (dir / "file").string()));
}

TEST(EarlyChecks, CapsAboveWhatThisMachineHas) {
  for (const char* tier : {"device", "host"}) {
    expect_refused_early({fmt::format("memory.{}=1000TiB", tier)},
                         {fmt::format("memory.{} = 1000TiB: {} has {}", tier, host_limit().whose,
                                      format_bytes(host_limit().bytes))});
  }
}

// Hundreds of thousands of tasks: the search would hold gigabytes.
TEST(EarlyChecks, AHostCapThatTheSearchWouldExceed) {
  const TempDir dir;
  const auto prepared =
      prepare_small(dir, {"train.tokens_per_step=1048576", "shape.chunk_tokens=8", "memory.host=512MiB"});
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.error().kind, ErrorKind::DoesNotFit);
  EXPECT_NE(prepared.message().find("memory.host = 512MiB: the search for a plan of some"), std::string::npos)
      << prepared.message();
}

TEST(EarlyChecks, ANamedCardImpliesItsMemoryAndSaysSo) {
  const Machine card = must(resolve_machine(RunConfig(), "RTX 4090"));
  RunConfig config;
  ASSERT_TRUE(check_early(config, card).ok());
  EXPECT_EQ(config.caps[kDevice], 24564 * kMiB - kGiB);
  EXPECT_EQ(config.caps[kHost], kUnlimited);
  EXPECT_EQ(config.notices,
            std::vector<std::string>{
                "memory.device: 23.0 GiB, what the card RTX 4090 24 GB has less 1 GiB for its driver"});
  config = {};
  config.caps[kDevice] = 16 * kGiB;
  ASSERT_TRUE(check_early(config, card).ok());
  EXPECT_EQ(config.caps[kDevice], 16 * kGiB);
  EXPECT_TRUE(config.notices.empty());
  config = {};
  ASSERT_TRUE(check_early(config, must(resolve_machine(config, "a100-40gb"))).ok());
  EXPECT_EQ(config.caps[kDevice], 39 * kGiB);
  config = {};
  ASSERT_TRUE(check_early(config, must(resolve_machine(config, "a100"))).ok());
  EXPECT_EQ(config.caps[kDevice], 79 * kGiB);
}

TEST(EarlyChecks, ACapAboveTheCardIsRefusedWithBothNumbers) {
  RunConfig config;
  config.caps[kDevice] = 200 * kGiB;
  const Status status = check_early(config, must(resolve_machine(config, "h100")));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::DoesNotFit);
  for (const char* part : {"memory.device = 200GiB", "H100 80 GB", "79.65 GiB", "78.6 GiB"})
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message() << "\nlacks: " << part;
}

TEST(EarlyChecks, OutputsThatCannotBeWritten) {
  const TempDir dir;
  const std::filesystem::path file = dir.add("file", "");
  EXPECT_TRUE(check_directory("run.dir", dir / "a/b/c").ok());
  EXPECT_TRUE(check_directory("run.dir", "runs/latest").ok());
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
  EXPECT_EQ(check_directory("run.dir", file / "run").message(),
            fmt::format("run.dir = {}: {} is not a directory", (file / "run").string(), file.string()));
  EXPECT_TRUE(check_output("--html", dir / "page.html").ok());
  EXPECT_TRUE(check_output("--html", file).ok());
  EXPECT_EQ(check_output("--html", dir.path()).message(),
            fmt::format("--html = {}: that is a directory; a file is needed", dir.path().string()));
  EXPECT_EQ(check_output("--html", dir / "none/page.html").message(),
            fmt::format("--html = {}: there is no directory {}", (dir / "none/page.html").string(),
                        (dir / "none").string()));
}

// The rates of a card are those of its bf16 products, and its kernels take nothing else.
TEST(Numerics, NoSpeedInF32IsPredictedFromARateInBf16) {
  RunConfig config;
  config.train.compute = DType::F32;
  const Machine card = must(resolve_machine(config, "h100"));
  const auto refused = resolve_numerics(config, card);
  ASSERT_FALSE(refused.ok());
  for (const char* part : {"train.compute = f32", "h100", "bf16", "tensor cores", "nor rates to plan by",
                           "train.master = on", "sluice bench model"})
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message() << "\nlacks: " << part;
  config.run.backend = "cpu";
  EXPECT_EQ(must(resolve_numerics(config, must(resolve_machine(config, "")))).compute, DType::F32);
}

TEST(Numerics, MasterWeightsBringTheirState) {
  RunConfig config;
  const Machine card = must(resolve_machine(config, "h100"));
  const core::Numerics compact = must(resolve_numerics(config, card));
  EXPECT_EQ(compact.state, DType::BF16);
  EXPECT_TRUE(compact.stochastic);
  config.train.master = core::MasterWeights::F32;
  const core::Numerics masters = must(resolve_numerics(config, card));
  EXPECT_EQ(masters.master, core::MasterWeights::F32);
  EXPECT_EQ(masters.state, DType::F32);
  EXPECT_FALSE(masters.stochastic);
}

TEST(EarlyChecks, ACapThatLeavesTheSystemNothingIsSaid) {
  const Machine here = must(resolve_machine(must(load_config("", {"run.backend=cpu"})), ""));
  const auto notices = [&](int64_t host_cap) {
    RunConfig config;
    config.data.cache.clear();
    config.caps[kHost] = host_cap;
    EXPECT_TRUE(check_early(config, here).ok());
    return config.notices;
  };
  EXPECT_TRUE(notices(host_limit().bytes / 2).empty());
  const auto said = notices(host_limit().bytes);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find(" to the system and other programs; "), std::string::npos) << said[0];
}

TEST(EarlyChecks, DevicesAndThreadsThatACpuHasNot) {
  expect_refused_early({"run.device=3"}, {"run.device = 3: the backend cpu has one device, 0"});
  expect_refused_early({"run.device=3", "run.devices=2"}, {"run.device = 3: run.devices = 2 says which"});
  const TempDir dir;
  const Prepared prepared = must(prepare_small(dir, {"run.threads=1000"}));
  const auto& said = prepared.config.notices;
  EXPECT_TRUE(
      std::ranges::any_of(said, [](const std::string& n) { return n.starts_with("run.threads = 1000: "); }));
}

}  // namespace
}  // namespace sluice::core
