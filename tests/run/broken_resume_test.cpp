// SPDX-License-Identifier: Apache-2.0
// Negative controls: a run that goes on wrongly, by as little as there is, must look different to the tests
// that show equal bits, or these show nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "run/forged_checkpoint.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

class BrokenResume : public testing::Test {
 protected:
  static constexpr int64_t kHalf = 3, kWhole = 6;

  BrokenResume() {
    (void)run_session(prepared_, kWhole, dir_ / "whole");
    (void)run_session(prepared_, kHalf, dir_ / "half");
  }

  Prepared resuming(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"train.compute=f32", "run.resume=" + (dir_ / "half").string()});
    return must(prepare_small(dir_, std::move(more)));
  }
  // Files of tensors that differ from those of the run that was never stopped.
  std::vector<std::string> differences() const {
    std::vector<std::string> out;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_FALSE(file_bytes(dir_ / "resumed" / file).empty()) << file;
      if (file_bytes(dir_ / "resumed" / file) != file_bytes(dir_ / "whole" / file)) out.emplace_back(file);
    }
    return out;
  }

  const TempDir dir_;
  const Prepared prepared_ = must(prepare_small(dir_, {"train.compute=f32"}));
  const std::vector<std::string> both_{"model.safetensors", "optimizer.safetensors"};
};

TEST_F(BrokenResume, OneThatIsNotBrokenIsSeenAsSuch) {
  (void)run_session(resuming(), kWhole, dir_ / "resumed");
  EXPECT_EQ(differences(), std::vector<std::string>{});
}

// The last bit of one element of one moment of one tensor.
TEST_F(BrokenResume, OneMomentOfOneTensor) {
  const BuiltProgram& model = prepared_.stages.main.model;
  const std::string name = model.program.object(model.params.front().parts[0].state[0]).name;
  const auto file = must(SafeTensorsFile::open(dir_ / "half/optimizer.safetensors"));
  std::optional<std::pair<int64_t, float>> found;
  for (const SafeTensor& t : file.tensors()) {
    for (int64_t i = 0; t.info.name == name && i < t.info.elements() && !found; ++i) {
      float value = 0;
      std::memcpy(&value, t.bytes.data() + 4 * i, 4);
      if (value != 0) found = {i, value};
    }
  }
  ASSERT_TRUE(found) << name;
  forge(dir_ / "half", name, found->first, std::nextafter(found->second, 1e9f));
  (void)run_session(resuming(), kWhole, dir_ / "resumed");
  EXPECT_NE(differences(), std::vector<std::string>{});
}

// Rows of the next step from `first` on.
class Skips : public BatchSource {
 public:
  Skips(std::unique_ptr<BatchSource> source, int64_t first) : source_(std::move(source)), first_(first) {}
  int64_t sequence() const override { return source_->sequence(); }
  int64_t epoch_rows() const override { return source_->epoch_rows(); }
  RowCounts counts() const override { return source_->counts(); }
  bool packed() const override { return source_->packed(); }
  void fill(int64_t step, int64_t row, const RowsView& to) const override {
    source_->fill(at(step), row, to);
  }

 private:
  int64_t at(int64_t step) const { return step >= first_ ? step + 1 : step; }

  const std::unique_ptr<BatchSource> source_;
  const int64_t first_;
};

TEST_F(BrokenResume, OneBatchSkipped) {
  const Prepared again = resuming();
  RunData data = must(open_data(again.config, again.model.vocab, silent_observer()));
  data.train = std::make_unique<Skips>(std::move(data.train), kHalf);
  const auto session = must(Session::open(again, std::move(data), silent_observer()));
  while (session->steps_done() < kWhole) (void)must(session->step());
  must(session->save(dir_ / "resumed"));
  EXPECT_EQ(differences(), both_);
}

// Two loads of as many bytes that take each other's source.
bool swap_two_loads(Plan& plan) {
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      Action &a = plan.actions[i], &b = plan.actions[j];
      if (!a.loads() || !b.loads() || a.bytes != b.bytes || a.from == b.from) continue;
      std::swap(a.from, b.from);
      return true;
    }
  }
  return false;
}

// Under the plan of a smaller cap that was broken behind the proof's back. The proof refuses it, too.
TEST_F(BrokenResume, OneCopySwapped) {
  for (const int kib : {64, 96, 128, 192, 256, 384, 512}) {
    auto again = prepare_small(dir_, {"train.compute=f32", "run.resume=" + (dir_ / "half").string(),
                                      fmt::format("memory.device={}KiB", kib)});
    if (!again.ok()) continue;
    Stage& training = again->stages.main;
    if (!swap_two_loads(training.plan)) continue;
    const Program& program = training.model.program;
    const auto workspaces = cost_of(program, again->machine.profile).workspace_bytes;
    EXPECT_FALSE(verify(program, training.plan, workspaces).ok());
    (void)run_session(*again, kWhole, dir_ / "resumed");
    EXPECT_EQ(differences(), both_) << kib << " KiB";
    return;
  }
  FAIL() << "no cap whose plan loads two objects of one size";
}

}  // namespace
}  // namespace sluice::core
