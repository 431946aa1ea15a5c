// SPDX-License-Identifier: Apache-2.0
// Sweeps of a model of two layers on a simulated machine, and their table.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "commands/commands.h"
#include "equivalence/rig/rig.h"
#include "io/lock_file.h"
#include "support/temp_dir.h"
#include "what_if/sweep_table.h"

namespace sluice::core {
namespace {

using rig::must;

SweepRow row(int64_t device_gib, int64_t host_gib, double tokens_per_s) {
  SweepRow r{.model = "8",
             .machine = "h200",
             .mode = "simulate",
             .seq_len = 8192,
             .tokens_per_step = 131072,
             .inputs = "0123456789abcdef"};
  r.caps[kDevice] = device_gib * kGiB;
  r.caps[kHost] = host_gib * kGiB;
  r.status = tokens_per_s > 0 ? "ok" : "infeasible";
  r.tokens_per_s = tokens_per_s;
  return r;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

TEST(SweepTable, RowsComeBack) {
  const TempDir dir;
  SweepRow r = row(8, 64, 1234.5);
  r.caps[kHost] = kUnlimited;
  r.caps[kDevice] = 48 * kMiB + 1;
  r.needs[kDevice] = 9 * kGiB;
  r.message = "a, \"b\"";
  const auto path = dir.add("sweep.csv", sweep_header() + sweep_line(r));
  const std::vector<SweepRow> rows = must(load_sweep(path));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(sweep_line(rows[0]), sweep_line(r));
  EXPECT_EQ(rows[0].caps[kDevice], 48 * kMiB + 1);
  EXPECT_EQ(rows[0].caps[kHost], kUnlimited);
}

TEST(SweepTable, ATornLastLineIsDroppedAndMended) {
  const TempDir dir;
  const std::string whole = sweep_header() + sweep_line(row(8, 64, 100)), next = sweep_line(row(9, 64, 110));
  // At any byte, even where what is left would be a row.
  for (size_t kept = 1; kept < next.size(); kept += 7) {
    const auto path = dir.add("sweep.csv", whole + next.substr(0, kept));
    EXPECT_EQ(must(load_sweep(path)).size(), 1u) << kept;
    EXPECT_EQ(bytes_of(path), whole) << kept;
  }
  const auto path = dir.add("sweep.csv", sweep_header().substr(0, 9));
  EXPECT_EQ(must(load_sweep(path)).size(), 0u);
  EXPECT_EQ(bytes_of(path), sweep_header());
}

TEST(SweepTable, OtherDamageIsAnErrorThatNamesTheLine) {
  const TempDir dir;
  const auto path = dir.add("sweep.csv", sweep_header() + "rubbish\n" + sweep_line(row(8, 64, 100)));
  const auto loaded = load_sweep(path);
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.message().find("sweep.csv:2: not a row"), std::string::npos) << loaded.message();
  const auto old = load_sweep(dir.add("old.csv", "a,b\n1,2\n"));
  ASSERT_FALSE(old.ok());
  EXPECT_NE(old.message().find("columns"), std::string::npos) << old.message();
}

TEST(SweepTable, MoreMemoryThatIsSlowerIsMarked) {
  std::vector<SweepRow> rows{row(8, 64, 100),   row(8, 128, 90), row(16, 64, 100),
                             row(16, 128, 120), row(24, 128, 0), row(4, 256, 200)};
  EXPECT_EQ(mark_slower(rows), 2);
  EXPECT_EQ(rows[1].slower_than, "device 8 GiB host 64 GiB: 100 tok/s");
  EXPECT_EQ(rows[4].slower_than, "device 16 GiB host 128 GiB: 120 tok/s");
  EXPECT_EQ(rows[0].slower_than + rows[2].slower_than + rows[3].slower_than + rows[5].slower_than, "");
}

TEST(SweepTable, APlanForLessMemoryIsTakenWhereItIsFaster) {
  std::vector<SweepRow> rows{row(8, 64, 100), row(8, 128, 90), row(16, 64, 100), row(24, 128, 0)};
  for (SweepRow& r : rows) r.mode = "simulate", r.inputs = fmt::format("{}", &r - rows.data());
  EXPECT_EQ(take_faster_plans(rows), 2);
  EXPECT_EQ(mark_slower(rows), 0);
  for (const SweepRow& r : rows) EXPECT_EQ(r.tokens_per_s, 100);
  EXPECT_EQ(rows[3].status, "ok");
  EXPECT_EQ(rows[3].message, "the plan for device 8 GiB host 64 GiB");
  EXPECT_EQ(rows[3].caps[kDevice], 24 * kGiB);
  EXPECT_EQ(rows[3].inputs, "3");
  EXPECT_EQ(rows[2].message, "");
}

TEST(SweepTable, WhatWasMeasuredStays) {
  std::vector<SweepRow> rows{row(8, 64, 100), row(16, 64, 90)};
  for (SweepRow& r : rows) r.mode = "measure";
  EXPECT_EQ(take_faster_plans(rows), 0);
  EXPECT_EQ(rows[1].tokens_per_s, 90);
}

SweepRequest small_sweep(const TempDir& dir) {
  SweepRequest r;
  r.model = (std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny" / "config.json").string();
  r.seq_len = "16";
  r.tokens_per_step = 32;
  r.machine = "h200";
  r.device_mem = "601MiB,700MiB";
  r.host_mem = "2GiB,none";
  r.out_dir = (dir / "out").string();
  r.settings = {"shape.chunk_tokens=16", "shape.rounds=2", "data.cache=" + (dir / "cache").string()};
  return r;
}

TEST(Sweep, RowsAreInOrderWithNeedsAndHeatmaps) {
  const TempDir dir;
  Requests asked;
  const Outcome done = sweep(small_sweep(dir), asked);
  ASSERT_TRUE(done.ok()) << done.message;
  const std::vector<SweepRow> rows = must(load_sweep(dir / "out" / "sweep.csv"));
  ASSERT_EQ(rows.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i].caps[kDevice], (i % 2 == 0 ? 601 : 700) * kMiB);
    EXPECT_EQ(rows[i].caps[kHost], i < 2 ? 2 * kGiB : kUnlimited);
    EXPECT_EQ(rows[i].status, i % 2 == 0 ? "infeasible" : "ok") << rows[i].message;
    EXPECT_EQ(rows[i].ok(), rows[i].tokens_per_s > 0);
    EXPECT_EQ(rows[i].slower_than, "");
  }
  EXPECT_GT(rows[0].needs[kDevice], 601 * kMiB);
  EXPECT_LE(rows[0].needs[kDevice], 700 * kMiB);
  EXPECT_EQ(rows[0].needs[kHost], 0);  // no host cap helps
  for (const char* metric : {"tokens", "tflops", "mfu", "hfu"}) {
    const std::string stem = "config-16-h200-simulate-" + std::string(metric);
    EXPECT_NE(bytes_of(dir / "out" / (stem + ".svg")).find("≥ "), std::string::npos) << stem;
  }
}

TEST(Sweep, ResumesByInputs) {
  const TempDir dir;
  Requests asked;
  SweepRequest request = small_sweep(dir);
  request.host_mem = "none";
  ASSERT_TRUE(sweep(request, asked).ok());
  const auto path = dir / "out" / "sweep.csv";
  // A mark that planning would not make shows which rows were taken from the table.
  std::vector<SweepRow> rows = must(load_sweep(path));
  ASSERT_EQ(rows.size(), 2u);
  std::string marked = sweep_header();
  for (SweepRow& r : rows) {
    r.message = "kept";
    marked += sweep_line(r);
  }
  dir.add("out/sweep.csv", marked + "8,81");
  ASSERT_TRUE(sweep(request, asked).ok());
  rows = must(load_sweep(path));
  ASSERT_EQ(rows.size(), 2u);
  for (const SweepRow& r : rows) EXPECT_EQ(r.message, "kept");
  // Another setting is another cell; the old ones stay in the table.
  request.settings.push_back("train.clip_norm=0");
  ASSERT_TRUE(sweep(request, asked).ok());
  rows = must(load_sweep(path));
  EXPECT_EQ(rows.size(), 4u);
  EXPECT_EQ(std::count_if(rows.begin(), rows.end(), [](const SweepRow& r) { return r.message == "kept"; }),
            2);
}

TEST(Sweep, SeveralDevicesAreOtherCells) {
  const TempDir dir;
  Requests asked;
  SweepRequest request = small_sweep(dir);
  request.device_mem = "700MiB";
  request.host_mem = "none";
  ASSERT_TRUE(sweep(request, asked).ok());
  for (const char* peer : {"auto", "off"}) {
    request.devices = "2";
    request.settings.push_back(std::string("run.peer=") + peer);
    ASSERT_TRUE(sweep(request, asked).ok()) << peer;
  }
  const std::vector<SweepRow> rows = must(load_sweep(dir / "out" / "sweep.csv"));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].machine, "2 x h200");
  EXPECT_EQ(rows[1].machine, "2 x h200");
  EXPECT_EQ(rows[2].machine, "h200");
  for (const SweepRow& r : rows) EXPECT_EQ(r.status, "ok") << r.message;
  request.devices = "65";
  EXPECT_NE(sweep(request, asked).message.find("run.devices = 65: allowed are"), std::string::npos);
}

TEST(Sweep, FreshKeepsTheTableThatIsThere) {
  const TempDir dir;
  Requests asked;
  asked.stop = true;
  SweepRequest request = small_sweep(dir);
  request.fresh = true;
  for (const char* mark : {"8", "16"}) {
    dir.add("out/sweep.csv", sweep_header() + sweep_line(row(8, std::stoi(mark), 100)));
    ASSERT_TRUE(sweep(request, asked).ok());
    EXPECT_EQ(bytes_of(dir / "out/sweep.csv"), sweep_header());
  }
  EXPECT_EQ(must(load_sweep(dir / "out/sweep-1.csv"))[0].caps[kHost], 8 * kGiB);
  EXPECT_EQ(must(load_sweep(dir / "out/sweep-2.csv"))[0].caps[kHost], 16 * kGiB);
}

TEST(Sweep, OneAtATimeInADirectory) {
  const TempDir dir;
  Requests asked;
  std::filesystem::create_directory(dir / "out");
  const LockFile first = must(LockFile::take(dir / "out/sweep.lock"));
  EXPECT_NE(sweep(small_sweep(dir), asked).message.find("uses " + (dir / "out").string()), std::string::npos);
}

TEST(SweepTable, AFileThatIsNoTableStays) {
  const TempDir dir;
  const auto path = dir.add("sweep.csv", "somebody's");
  EXPECT_FALSE(load_sweep(path).ok());
  EXPECT_EQ(bytes_of(path), "somebody's");
}

TEST(Sweep, InterruptedBeforeItStartsLeavesATableToGoOnFrom) {
  const TempDir dir;
  Requests asked;
  asked.stop = true;
  EXPECT_EQ(sweep(small_sweep(dir), asked).ending, Ending::Interrupted);
  EXPECT_EQ(bytes_of(dir / "out" / "sweep.csv"), sweep_header());
}

TEST(Sweep, RefusesWhatItCannotDo) {
  const TempDir dir;
  Requests asked;
  SweepRequest request = small_sweep(dir);
  request.device_mem = "8GiB:4GiB:1GiB";
  EXPECT_NE(sweep(request, asked).message.find("--device-mem"), std::string::npos);
  request = small_sweep(dir);
  request.measure = true;
  EXPECT_NE(sweep(request, asked).message.find("only the machine at hand is measured"), std::string::npos);
  request = small_sweep(dir);
  request.device_mem = "700MiB,200GiB";
  EXPECT_NE(sweep(request, asked).message.find("memory.device = 200GiB: the card H200 141 GB has"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

TEST(Sweep, WithoutADeviceCapANamedCardHasItsOwnAndThatIsSaid) {
  const TempDir dir;
  Requests asked;
  SweepRequest request = small_sweep(dir);
  request.device_mem = request.host_mem = "none";
  request.machine = "RTX 4090";
  testing::internal::CaptureStdout();
  const Outcome done = sweep(request, asked);
  const std::string said = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(done.ok()) << done.message;
  EXPECT_NE(said.find("note     memory.device: 23.0 GiB, what the card RTX 4090 24 GB has"),
            std::string::npos)
      << said;
  const std::vector<SweepRow> rows = must(load_sweep(dir / "out" / "sweep.csv"));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].machine, "rtx4090");
  EXPECT_LE(rows[0].caps[kDevice], 24564 * kMiB - kGiB);
}

}  // namespace
}  // namespace sluice::core
