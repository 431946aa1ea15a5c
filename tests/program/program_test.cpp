// SPDX-License-Identifier: Apache-2.0
// A Program's own rules, the versions of its objects, and its dumps.
#include "program/program.h"
#include "ops/op.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "lowering/build.h"

namespace sluice::core {
namespace {

constexpr int64_t kBytes = 256;  // of every object: 8 x 8 f32

Object object(std::string name, ObjectKind kind, int64_t bytes = kBytes) {
  Object o;
  o.name = o.role = std::move(name);
  o.kind = kind;
  o.format = DType::F32;
  o.bytes = bytes;
  o.persistent = kind == ObjectKind::Param;
  return o;
}

const Op kCopy = Cast{64, DType::F32, DType::F32};
const Op kAddProduct = LinearWgrad{8, 8, 8, DType::F32, DType::F32, true};

enum : uint32_t { kX, kY, kW, kM };

// A program with its objects, to which a test adds tasks.
struct Example {
  Program program;

  Example() {
    program.add(object("x", ObjectKind::Input));
    program.add(object("y", ObjectKind::Activation));
    program.add(object("w", ObjectKind::Param));
    program.add(object("m", ObjectKind::Metric));
  }
  Example& task(std::string name, const Op& op, std::vector<uint32_t> bound,
                std::vector<int64_t> offsets = {}) {
    offsets.resize(bound.size(), 0);
    std::vector<Bound> uses;
    for (size_t i = 0; i < bound.size(); ++i) uses.emplace_back(ObjectId(bound[i]), offsets[i]);
    program.add(std::move(name), op, uses, Phase::Forward, 0, 0, 0);
    return *this;
  }
};

Example whole() {
  Example e;
  e.task("copy", kCopy, {kX, kY}).task("change", kAddProduct, {kY, kX, kW}).task("show", kCopy, {kW, kM});
  return e;
}

TEST(ProgramRule, AValidProgramPasses) {
  const Status status = verify(whole().program);
  EXPECT_TRUE(status.ok()) << status.message();
}

struct Broken {
  const char* name;
  std::function<Example()> make;
  std::vector<std::string> says;
};
void PrintTo(const Broken& b, std::ostream* out) {
  *out << b.name;
}

class ProgramRules : public testing::TestWithParam<Broken> {};

TEST_P(ProgramRules, Rejects) {
  const Status status = verify(GetParam().make().program);
  ASSERT_FALSE(status.ok());
  for (const std::string& part : GetParam().says) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message() << "\nlacks: " << part;
  }
}

INSTANTIATE_TEST_SUITE_P(
    One, ProgramRules,
    testing::Values(
        Broken{"two_objects_of_one_name",
               [] {
                 Example e = whole();
                 e.program.add(object("y", ObjectKind::Activation));
                 return e;
               },
               {"two objects are named y"}},
        Broken{"two_tasks_of_one_name",
               [] {
                 return whole().task("copy", kCopy, {kX, kY});
               },
               {"two tasks are named copy"}},
        Broken{"object_that_is_not_there",
               [] {
                 return whole().task("extra", kCopy, {9, kY});
               },
               {"extra", "object 9"}},
        Broken{"use_outside_its_object",
               [] {
                 return whole().task("extra", kCopy, {kW, kY}, {128, 0});
               },
               {"extra", "128 to 384", "w", "256"}},
        Broken{"use_before_its_object",
               [] {
                 return whole().task("extra", kCopy, {kW, kY}, {-64, 0});
               },
               {"extra", "-64"}},
        Broken{"activation_read_before_it_is_whole",
               [] {
                 return whole().task("extra", kAddProduct, {kX, kX, kY});
               },
               {"extra writes y, which change has read"}},
        Broken{"input_written",
               [] {
                 return whole().task("extra", kCopy, {kW, kX});
               },
               {"extra writes x", "input"}},
        Broken{"constant_written",
               [] {
                 Example e = whole();
                 const ObjectId c = e.program.add(object("c", ObjectKind::Constant));
                 return e.task("extra", kCopy, {kW, c.value});
               },
               {"extra writes c", "constant"}},
        Broken{"part_of_an_object_overwritten",
               [] {
                 Example e = whole();
                 const ObjectId large = e.program.add(object("large", ObjectKind::Activation, 512));
                 return e.task("extra", kCopy, {kW, large.value}, {0, 256});
               },
               {"extra overwrites 256 of the 512 bytes of large"}},
        Broken{"written_and_read_by_one_task",
               [] {
                 return whole().task("extra", kCopy, {kY, kY});
               },
               {"extra writes y", "another operand"}},
        Broken{"changed_and_read_by_one_task",
               [] {
                 return whole().task("extra", kAddProduct, {kY, kW, kW});
               },
               {"extra writes w", "another operand"}},
        Broken{"read_before_written",
               [] {
                 return Example().task("change", kAddProduct, {kY, kX, kW}).task("show", kCopy, {kW, kM});
               },
               {"change uses y before anything wrote it"}},
        Broken{"accumulated_before_written",
               [] {
                 Example e = whole();
                 const ObjectId sum = e.program.add(object("sum", ObjectKind::Grad));
                 return e.task("extra", kAddProduct, {kY, kX, sum.value});
               },
               {"extra uses sum before anything wrote it"}},
        Broken{"metric_never_written",
               [] {
                 return Example().task("copy", kCopy, {kX, kY});
               },
               {"metric m is never written"}}),
    [](const auto& test) { return test.param.name; });

TEST(Versions, CountWritesAndAccumulations) {
  const Versions v = versions_of(whole().task("again", kCopy, {kW, kY}).program);
  EXPECT_EQ(v.before, (std::vector<std::vector<uint32_t>>{{0, 0}, {1, 0, 0}, {1, 0}, {1, 1}}));
  EXPECT_EQ(v.last, (std::vector<uint32_t>{0, 2, 1, 1}));
}

TEST(ProgramHash, TellsProgramsApart) {
  const uint64_t hash = whole().program.hash();
  EXPECT_EQ(whole().program.hash(), hash);
  EXPECT_NE(whole().task("extra", kCopy, {kX, kY}).program.hash(), hash);
  Example other_op, other_binding;
  other_op.task("copy", kCopy, {kX, kY})
      .task("change", LinearWgrad{8, 8, 8, DType::F32, DType::F32, false}, {kY, kX, kW});
  other_op.task("show", kCopy, {kW, kM});
  other_binding.task("copy", kCopy, {kX, kY})
      .task("change", kAddProduct, {kX, kY, kW})
      .task("show", kCopy, {kW, kM});
  EXPECT_NE(other_op.program.hash(), hash);
  EXPECT_NE(other_binding.program.hash(), hash);
}

TEST(Footprint, SumsByKind) {
  const Footprint f = footprint(whole().program);
  EXPECT_EQ(f.by_kind[int(ObjectKind::Param)], kBytes);
  EXPECT_EQ(f.by_kind[int(ObjectKind::Grad)], 0);
  EXPECT_EQ(f.total, 4 * kBytes);
}

// Every Program that the model builder makes keeps the rules, in every shape: one chunk, chunked sequences,
// packed rows.
TEST(ModelPrograms, KeepTheRules) {
  ModelSpec model =
      model_of({.dim = 32, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 64});
  for (const bool bf16 : {false, true}) {
    for (const bool deferred : {false, true}) {
      for (const bool tied : {false, true}) {
        for (const int64_t chunk : {8, 16, 32}) {
          model.tied_embeddings = tied;
          Numerics numerics;
          numerics.compute = bf16 ? DType::BF16 : DType::F32;
          numerics.master = bf16 ? MasterWeights::F32 : MasterWeights::Off;
          OptimizerConfig optimizer;
          optimizer.deferred = deferred;
          StepShape shape;
          shape.seq_len = 16, shape.chunk_tokens = chunk, shape.chunks_per_round = chunk < 16 ? 4 : 2;
          shape.rounds = 2, shape.head_tokens = 8, shape.last_tokens = chunk == 32 ? 16 : 0;
          SCOPED_TRACE(fmt::format("bf16 {} deferred {} tied {} chunk {}", bf16, deferred, tied, chunk));
          std::vector<BuiltProgram> models{build_training(model, shape, numerics, optimizer),
                                           build_evaluation(model, shape, numerics),
                                           build_generation(model, {1, 8, 16}, numerics)};
          if (deferred) models.push_back(build_flush(model, numerics, optimizer));
          for (const BuiltProgram& m : models) {
            const Status status = verify(m.program);
            EXPECT_TRUE(status.ok()) << status.message();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::core
