// SPDX-License-Identifier: Apache-2.0
// Benchmarks of whole steps go on cell by cell.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "commands/commands.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

class BenchCommand : public ::testing::Test {
 protected:
  BenchRequest request(const std::string& what) {
    BenchRequest r{.what = what, .models = {"layers=1,dim=32,ffn=64,heads=2,vocab=64"}};
    r.out_dir = (dir_.path() / "bench").string();
    r.seq_len = "16,32", r.compute = "f32", r.steps = 1;
    r.settings = {"run.backend=cpu", "data.cache=" + (dir_.path() / "cache").string()};
    return r;
  }
  Outcome run(const BenchRequest& r) {
    Requests asked;
    return bench(r, asked);
  }
  std::filesystem::path file(const std::string& name) { return dir_.path() / "bench" / name; }
  std::string content(const std::string& name) {
    std::ostringstream out;
    out << std::ifstream(file(name)).rdbuf();
    return out.str();
  }
  int64_t cells() {
    const std::string all = content("cells.jsonl");
    return std::count(all.begin(), all.end(), '\n');
  }

  TempDir dir_;
};

TEST_F(BenchCommand, MeasuresACellOnceForEveryView) {
  ASSERT_TRUE(run(request("model")).ok());
  EXPECT_EQ(cells(), 2);
  const std::string measured = content("cells.jsonl");
  for (const char* what : {"model", "kernels", "memory"}) {
    const Outcome again = run(request(what));
    ASSERT_TRUE(again.ok()) << again.message;
    EXPECT_EQ(content("cells.jsonl"), measured) << what;
    for (const char* ending : {".jsonl", ".md", ".html", ".svg"}) {
      EXPECT_TRUE(std::filesystem::exists(file(what + std::string(ending)))) << what << ending;
    }
  }
  BenchRequest more = request("model");
  more.seq_len = "16,32,48";
  ASSERT_TRUE(run(more).ok());
  EXPECT_EQ(cells(), 3);
  more.fresh = true;
  ASSERT_TRUE(run(more).ok());
  EXPECT_EQ(cells(), 6);
}

TEST_F(BenchCommand, GoesOnAfterALineThatWasCutShort) {
  ASSERT_TRUE(run(request("model")).ok());
  const std::string measured = content("cells.jsonl");
  const size_t second = measured.find('\n') + 1;
  std::filesystem::resize_file(file("cells.jsonl"), second + 100);
  ASSERT_TRUE(run(request("model")).ok());
  EXPECT_EQ(content("cells.jsonl").substr(0, second), measured.substr(0, second));
  EXPECT_EQ(cells(), 3);  // the one that was there, the part of a line, and the one that was measured again
}

TEST_F(BenchCommand, AsksForTheSameAgainWhenItIsInterrupted) {
  Requests asked;
  asked.stop = true;
  EXPECT_EQ(bench(request("model"), asked).ending, Ending::Interrupted);
  EXPECT_EQ(cells(), 0);
  ASSERT_TRUE(run(request("model")).ok());
  EXPECT_EQ(cells(), 2);
}

TEST_F(BenchCommand, ACellThatDoesNotFitIsNoFailure) {
  BenchRequest r = request("model");
  r.settings.push_back("memory.device=16KiB");
  ASSERT_TRUE(run(r).ok());
  EXPECT_NE(content("model.md").find("does not fit"), std::string::npos) << content("model.md");
}

TEST_F(BenchCommand, AttentionNeedsNoModel) {
  BenchRequest r = request("attention");
  r.models.clear();
  r.head_dim = "16,32", r.batch = 2;
  ASSERT_TRUE(run(r).ok());
  const std::string lines = content("attention.jsonl");
  for (const char* cell : {"2 x 16, D 16", "2 x 32, D 16", "2 x 16, D 32", "2 x 32, D 32"}) {
    EXPECT_NE(lines.find(cell), std::string::npos) << cell;
  }
}

TEST_F(BenchCommand, AttentionThatWasMeasuredIsKept) {
  BenchRequest r = request("attention");
  r.models.clear();
  r.batch = 2;
  ASSERT_TRUE(run(r).ok());
  const std::string measured = content("attention_cells.jsonl"), page = content("attention.md");
  EXPECT_EQ(std::count(measured.begin(), measured.end(), '\n'), 2);
  ASSERT_TRUE(run(r).ok());
  EXPECT_EQ(content("attention_cells.jsonl"), measured);
  EXPECT_EQ(content("attention.md"), page) << "the numbers that were measured";
  r.fresh = true;
  ASSERT_TRUE(run(r).ok());
  const std::string again = content("attention_cells.jsonl");
  EXPECT_EQ(std::count(again.begin(), again.end(), '\n'), 4);
}

TEST_F(BenchCommand, SaysWhatIsWrong) {
  BenchRequest r = request("model");
  r.steps = 0;
  EXPECT_NE(run(r).message.find("--steps 0"), std::string::npos) << run(r).message;
  r = request("model");
  r.models = {"gpt5"};
  EXPECT_NE(run(r).message.find("model 'gpt5'"), std::string::npos) << run(r).message;
  r = request("model");
  r.compute = "f8";
  EXPECT_NE(run(r).message.find("f8"), std::string::npos) << run(r).message;
}

}  // namespace
}  // namespace sluice::core
