// SPDX-License-Identifier: Apache-2.0
// Recomputation: what can be dropped, at what price, and the runs that follow.
#include <gtest/gtest.h>

#include "search/six_tasks.h"

namespace sluice::core {
namespace {

// "a 10, b 20": objects of each unit and the time it takes.
std::string units_of(const SixTasks& six) {
  std::string out;
  for (const RecomputeUnit& unit : recompute_units(six.program, six.costs)) {
    out += out.empty() ? "" : ", ";
    for (const ObjectId o : unit.objects) out += six.program.object(o).name + " ";
    out += fmt::format("{}", unit.ns);
  }
  return out;
}

const NumberFormat& row_format(const SixTasks& six, ObjectId o) {
  return six.program.object(o).format;
}

TEST(Units, AreWhatTheBackwardPassReads) {
  SixTasks six;
  six.costs.ns = {10, 20, 40, 10, 10, 10};
  EXPECT_EQ(units_of(six), "a 10, b 20, c 40");
}

TEST(Units, CountWhatOnlyTheForwardPassUsesToWhatIsMadeFromIt) {
  SixTasks six;
  six.costs.ns = {10, 20, 40, 10, 10, 10};
  const ObjectId d = six.object("d", ObjectKind::Activation), e = six.object("e", ObjectKind::Activation);
  six.task("fd", ObjectId(1), d, Phase::Forward);
  six.task("fe", d, e, Phase::Forward);
  six.task("be", e, six.object("ge", ObjectKind::ActGrad), Phase::Backward);
  six.costs.ns.insert(six.costs.ns.end(), {3, 5, 10});
  EXPECT_EQ(units_of(six), "a 10, b 20, c 40, e 8");
}

TEST(Units, LeaveOutTheStreamBetweenLayersAndWhatHasNoLayer) {
  SixTasks six;
  const ObjectId head = six.object("head", ObjectKind::Activation, -1);
  Object stream{"x.L1", "x", ObjectKind::Activation, DType::F32, SixTasks::kBytes, 1};
  stream.stream = Stream::Between;
  const ObjectId x = six.program.add(stream);
  for (const ObjectId o : {head, x}) {
    const std::string name = six.program.object(o).name;
    six.task("f" + name, ObjectId(1), o, Phase::Forward);
    six.task("b" + name, o, six.object("g" + name, ObjectKind::ActGrad), Phase::Backward);
  }
  six.costs.ns.assign(10, 10);
  EXPECT_EQ(units_of(six), "a 10, b 10, c 10");
}

// Six tasks, and two rounds that both read one copy of the weight in both passes.
struct CopiedOnce : SixTasks {
  CopiedOnce() {
    // With scales, as such copies have them.
    Object copy{"q", "q", ObjectKind::Activation, NumberFormat(DType::F32, 32, DType::F32), kBytes, 0};
    const ObjectId q = program.add(copy);
    task("fq", ObjectId(0), q, Phase::Forward);
    for (const int round : {0, 1}) {
      const std::string number = std::to_string(round);
      task("f" + number, q, object("y" + number, ObjectKind::Metric), Phase::Forward, 0, round);
      task("b" + number, q, object("g" + number, ObjectKind::ActGrad), Phase::Backward, 0, round);
    }
    costs.ns.assign(program.tasks().size(), 10);
    costs.workspace_bytes.assign(program.tasks().size(), 0);
  }
  // Of the second part.
  std::string runs(Save how) const {
    const auto step =
        unroll(program, {}, task_order(program, costs, false), costs, link(1), saves("q", how), Limits());
    std::string out;
    for (const Run& run : step.devices.front().runs) {
      if (run.task.value >= 6) out += program.task(run.task).name + (run.recompute ? "' " : " ");
    }
    return out;
  }
};

TEST(Units, OfTheStepAreDroppedAfterPassesOfEachRound) {
  const CopiedOnce all;
  EXPECT_EQ(units_of(all), "a 10, b 10, c 10, q 10");
  EXPECT_EQ(all.runs(Save::Keep), "fq f0 b0 f1 b1 ");
  EXPECT_EQ(all.runs(Save::Host), "fq f0 fq' b0 fq' f1 b1 ");
  EXPECT_EQ(all.runs(Save::Again), "fq f0 fq' b0 fq' f1 fq' b1 ");
}

// One task writes a copy for the forward pass and one for the backward pass: what is made of the first leaves
// the second, and the task, to a unit of its own.
TEST(Units, LeaveWhatComesBesideAnother) {
  SixTasks six;
  const NumberFormat copy = NumberFormat(DType::F8E4M3, NumberFormat::kRow, DType::F32);
  const auto add = [&](const char* name, NumberFormat format) {
    return six.program.add(Object{name, name, ObjectKind::Activation, format, format.bytes(256), 0, 0, 0});
  };
  const ObjectId h = add("h", DType::BF16), row = add("row", copy.over(16)),
                 turned = add("turned", copy.over(16)), y = add("y", DType::BF16);
  const auto run = [&](const char* name, SharedOp op, std::vector<ObjectId> uses, Phase phase) {
    six.program.add(name, std::move(op), uses, phase, 0, 0, 0);
  };
  run("fh", Cast{256, DType::F32, DType::BF16}, {ObjectId(1), h}, Phase::Forward);
  run("q", Quantize{16, 16, DType::BF16, copy, true, true}, {h, row, turned}, Phase::Forward);
  run("fy", Cast{256, row_format(six, row), DType::BF16}, {row, y}, Phase::Forward);
  run("by", Cast{256, DType::BF16, DType::F32}, {y, six.object("gy", ObjectKind::ActGrad)}, Phase::Backward);
  run("bt", Cast{256, row_format(six, turned), DType::F32}, {turned, six.object("gt", ObjectKind::ActGrad)},
      Phase::Backward);
  six.costs.ns.insert(six.costs.ns.end(), {1, 2, 4, 10, 10});
  EXPECT_EQ(units_of(six), "a 10, b 10, c 10, turned 3, y 4");
}

struct Case {
  const char* name;
  const char* again;
  const char* runs;  // an apostrophe: again
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

const Case kCases[] = {
    {"nothing_again", "", "fa fb fc bc bb ba"},
    {"just_before_its_first_use", "a", "fa fb fc bc bb fa' ba"},
    {"from_what_is_kept", "b", "fa fb fc bc fb' bb ba"},
    {"what_it_is_made_from_comes_first_and_once", "a b", "fa fb fc bc fa' fb' bb ba"},
    {"the_whole_chain", "a b c", "fa fb fc fa' fb' fc' bc bb ba"},
};

class Unrolled : public testing::TestWithParam<Case> {};

TEST_P(Unrolled, RunsAgainWhatWasDropped) {
  const SixTasks six;
  const DeviceSchedule s = six.schedule(GetParam().again);
  std::string runs;
  for (const auto& run : s.runs) {
    runs += (runs.empty() ? "" : " ") + six.program.task(run.task).name + (run.recompute ? "'" : "");
  }
  EXPECT_EQ(runs, GetParam().runs);
  EXPECT_EQ(s.start_ns.back(), 10.0 * double(s.runs.size()));
}

INSTANTIATE_TEST_SUITE_P(Again, Unrolled, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Unroll, GivesEveryLifeAValueAndMarksItsLastUseInTheForwardPass) {
  const SixTasks six;
  const DeviceSchedule s = six.schedule("b");
  std::string values;
  for (const Value& v : s.values) {
    values += six.program.object(v.object).name + (v.given ? "+" : "") + (v.circular ? "o" : "");
    for (uint32_t u = 0; u < v.uses.size(); ++u) {
      values += fmt::format(" {}{}{}", v.uses[u].position, v.uses[u].overwrites ? "w" : "",
                            v.crossing == u ? "|" : "");
    }
    values += "\n";
  }
  EXPECT_EQ(values,
            "x+o 0\n"
            "a 0w 1| 4 6\n"
            "b 1w 2\n"
            "c 2w| 3\n"
            "gc 3w\n"
            "b 4w 5\n"
            "gb 5w\n"
            "ga 6w\n");
}

}  // namespace
}  // namespace sluice::core
