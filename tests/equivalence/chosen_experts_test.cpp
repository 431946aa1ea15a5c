// SPDX-License-Identifier: Apache-2.0
// Passes that load what their routers choose make the bits of those that find all weights on the device,
// under every plan, whatever lies where the other experts would; and as many bytes cross as experts were
// chosen.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "backend/testing/delaying_backend.h"
#include "backend/testing/failing_backend.h"
#include "checkpoint/weights.h"
#include "equivalence/small_runs.h"
#include "search/planner.h"

namespace sluice::core {
namespace {

constexpr int64_t kLayers = 3, kDim = 32, kWidth = 16, kTopK = 2, kPasses = 3;

// Layers of 8 experts in two groups.
BuiltProgram decoding(int64_t rows, DType compute) {
  ModelSpec spec = model_of({kDim, kLayers, 4, 2, 8, kWidth, 61});
  for (LayerSpec& layer : spec.layers)
    layer.feed_forward =
        Experts{.each = layer.mlp(), .count = 8, .top_k = kTopK, .score = RouterScore::Chosen, .group = 4};
  return build_generation(spec, {rows, 1, 16}, {.compute = compute});
}

// Fills the whole place of a copy in parts with NaNs just before the parts come.
class PoisoningBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  Status begin(uint32_t commands, bool timed) override {
    last_.clear();
    return inner().begin(commands, timed);
  }
  Status submit(const Command& command) override {
    if (const auto* copy = std::get_if<Copy>(&command.work); copy != nullptr && copy->in_parts) {
      // Behind what it waits for, and what came before it on its lane, the place is nobody's.
      for (const uint32_t wait : command.waits) SLUICE_TRY(inner().wait(wait));
      if (const auto before = last_.find(command.lane); before != last_.end())
        SLUICE_TRY(inner().wait(before->second));
      const std::vector<std::byte> nans(size_t(copy->bytes), std::byte{0xff});
      SLUICE_TRY(inner().upload(copy->to, nans.data(), copy->bytes));
      ++poisoned;
    }
    last_[command.lane] = command.id;
    return inner().submit(command);
  }

  int64_t poisoned = 0;

 private:
  std::map<Lane, uint32_t> last_;
};

class Decoding {
 public:
  explicit Decoding(int64_t rows, DType compute, int devices = 1, bool equal_rows = false)
      : model_(decoding(rows, compute)),
        backend_(devices == 1 ? rig::small_backend() : rig::small_devices(devices, /*joined=*/true)),
        profile_(rig::profile_of(*backend_)),
        equal_rows_(equal_rows) {
    std::vector<SharedOp> all;
    for (const Task& task : model_.program.tasks()) all.push_back(task.op);
    for (const Op& op : all) workspaces_.push_back(backend_->workspace_bytes(op));
    room_ = 4 * (footprint(model_.program).total + *std::ranges::max_element(workspaces_));
    BytesByTier bytes;
    for (const Tier tier : backend_->lanes().tiers()) bytes[tier] = room_;
    arenas_ = rig::must(backend_->reserve(bytes));
    rig::must(backend_->prepare(all));
  }

  const Program& program() const { return model_.program; }
  const Profile& profile() const { return profile_; }
  Backend& backend() { return *backend_; }
  Status check(const Plan& plan) const { return verify(model_.program, plan, workspaces_); }
  PlanRequest request(ExpertLoads experts) const {
    PlanRequest request;
    request.caps = BytesByTier(room_);
    request.experts = experts;
    return request;
  }
  // That keeps as little as goes on the device.
  Plan tight(ExpertLoads experts) const {
    PlanRequest least = request(experts);
    least.least = true;
    return rig::must(make_plan(program(), profile_, least));
  }

  struct Result {
    std::vector<float> logits;  // of all passes
    LoadedBytes loaded;         // of the last one
  };
  Result run(const Plan& plan, Backend& backend) {
    rig::poison(*backend_, plan.arena_bytes());
    Executor executor(program(), plan, backend, arenas_);
    rig::must(initialize(model_, 1, executor, [](int64_t, int64_t) {}));
    for (uint32_t o = 0; o < program().objects().size(); ++o) {
      if (program().objects()[o].kind == ObjectKind::Cache) rig::must(executor.clear(ObjectId(o)));
    }
    Result out;
    for (int64_t pass = 0; pass < kPasses; ++pass) {
      rig::must(step(executor, pass));
      const std::vector<float> logits = rig::read_floats(executor, model_.logits);
      out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    }
    out.loaded = executor.loaded_bytes();
    return out;
  }
  Result run(const Plan& plan) { return run(plan, *backend_); }
  // With these rows as the embedding of the pass's tokens.
  Status step(Executor& executor, int64_t pass) {
    const int64_t rows = model_.shape.sequences();
    std::mt19937_64 random{uint64_t(pass + 1)};
    std::vector<float> one(kDim), embedded;
    for (int64_t r = 0; r < rows; ++r) {
      if (r == 0 || !equal_rows_) {
        for (float& x : one) x = float(random() % 2001) / 1000 - 1;
      }
      embedded.insert(embedded.end(), one.begin(), one.end());
    }
    write_floats(executor, model_.embedded, embedded);
    std::vector<int32_t> spans;
    for (int64_t r = 0; r < rows; ++r) spans.insert(spans.end(), {int32_t(pass), 1});
    SLUICE_TRY(executor.write(model_.spans, std::as_bytes(std::span(spans))));
    rig::Tokens tokens;
    tokens.tokens.assign(size_t(rows), 0), tokens.targets.assign(size_t(rows), -1);
    tokens.positions.assign(size_t(rows), int32_t(pass));
    if (!model_.batch.empty()) rig::write_tokens(executor, model_, tokens);
    return executor.step();
  }
  Executor executor(const Plan& plan, Backend& backend) { return {program(), plan, backend, arenas_}; }

 private:
  void write_floats(Executor& executor, ObjectId id, const std::vector<float>& values) {
    with_type(program().object(id).format.type, [&]<class T>(T) {
      std::vector<T> raw(values.size());
      std::ranges::transform(values, raw.begin(), [](float v) { return T(v); });
      rig::must(executor.write(id, std::as_bytes(std::span(raw))));
    });
  }

  BuiltProgram model_;
  std::unique_ptr<Backend> backend_;
  Profile profile_;
  bool equal_rows_;
  std::vector<int64_t> workspaces_;
  int64_t room_ = 0;
  Arenas arenas_;
};

DType compute_here() {
  return rig::takes({}) ? DType::F32 : DType::BF16;
}

int64_t chosen_loads(const Plan& plan) {
  return std::ranges::count_if(plan.actions, [](const Action& a) { return a.chooses(); });
}

using Case = std::tuple<int64_t, DType, int>;
class ChosenExperts : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Rows, ChosenExperts,
                         testing::Combine(testing::Values(1, 3, 12), testing::Values(DType::F32, DType::BF16),
                                          testing::Values(1, 2)),
                         [](const auto& test) {
                           return fmt::format("{}_{}_{}", std::get<0>(test.param),
                                              name_of(std::get<1>(test.param)), std::get<2>(test.param));
                         });

TEST_P(ChosenExperts, MakeTheSameUnderEveryPlan) {
  const auto& [rows, compute, devices] = GetParam();
  if (!rig::takes({.compute = compute})) GTEST_SKIP() << "the backend computes in another type";
  Decoding one(rows, compute), runs(rows, compute, devices);
  const Plan free = rig::must(make_plan(one.program(), one.profile(), one.request(ExpertLoads::Chosen)));
  EXPECT_EQ(chosen_loads(free), 0);  // everything stays
  const std::vector<float> expected = one.run(free).logits;
  EXPECT_TRUE(std::ranges::all_of(expected, [](float x) { return x == x; }));
  EXPECT_EQ(one.run(one.tight(ExpertLoads::Whole)).logits, expected);
  EXPECT_EQ(one.run(one.tight(ExpertLoads::Chosen)).logits, expected);
  int64_t chosen = 0, poisoned = 0;
  const uint64_t seeds = random_cases(40);
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PlanRequest any = runs.request(ExpertLoads::Chosen);
    any.placement = random_placement(runs.program(), size_t(devices), seed);
    const std::optional<Plan> plan = random_plan(runs.program(), runs.profile(), any, seed);
    if (!plan) continue;
    const Status valid = runs.check(*plan);
    ASSERT_TRUE(valid.ok()) << valid.message();
    DelayingBackend delayed(runs.backend(), {.seed = seed, .window = size_t{1} << (seed % 9)});
    PoisoningBackend poisoning(delayed);
    ASSERT_EQ(runs.run(*plan, poisoning).logits, expected);
    chosen += kPasses * chosen_loads(*plan);
    poisoned += poisoning.poisoned;
  }
  EXPECT_GT(chosen, 0);
  EXPECT_EQ(poisoned, chosen);
}

// Rows that are all alike choose as one does: of each layer top_k experts cross, whole.
TEST(ChosenExpertsLoads, AreOfAsManyExpertsAsWereChosen) {
  const int64_t expert_bytes = 3 * kDim * kWidth * size_of(compute_here());
  for (const int64_t rows : {1, 3}) {
    Decoding runs(rows, compute_here(), 1, /*equal_rows=*/true);
    const Plan plan = runs.tight(ExpertLoads::Chosen);
    EXPECT_EQ(chosen_loads(plan), kLayers * 2 * 2);  // of each group what goes up, and down
    const LoadedBytes loaded = runs.run(plan).loaded;
    const PlanTotals t = totals(runs.program(), plan);
    EXPECT_EQ(loaded.chosen, kLayers * kTopK * expert_bytes);
    EXPECT_EQ(loaded.all - loaded.chosen, t.loads.bytes - t.chosen.bytes);
    EXPECT_EQ(t.chosen_from, kLayers * 8 * expert_bytes);
    const Plan whole = runs.tight(ExpertLoads::Whole);
    const LoadedBytes all = runs.run(whole).loaded;
    EXPECT_EQ(all.chosen, 0);
    EXPECT_EQ(all.all, totals(runs.program(), whole).loads.bytes);
    EXPECT_GE(all.all, kLayers * 8 * expert_bytes);
  }
}

// Wherever a backend fails, reading routings back too, the pass ends and says so.
TEST(ChosenExpertsLoads, EndWithTheErrorOfABackendThatFails) {
  Decoding runs(2, compute_here());
  const Plan plan = runs.tight(ExpertLoads::Chosen);
  const std::vector<float> expected = runs.run(plan).logits;
  for (const auto mode : {FailingBackend::Mode::Synchronous, FailingBackend::Mode::Asynchronous}) {
    FailingBackend counting(runs.backend(), INT64_MAX, mode);
    rig::must(runs.executor(plan, counting).step());
    // begin(), every submit(), finish(), and for each layer wait() and download().
    EXPECT_EQ(counting.calls(), int64_t(plan.actions.size()) + 2 + 2 * kLayers);
    for (int64_t call = 1; call <= counting.calls(); call += kOneIn) {
      FailingBackend failing(runs.backend(), call, mode);
      const Status status = runs.executor(plan, failing).step();
      ASSERT_FALSE(status.ok()) << "call " << call;
      EXPECT_TRUE(status.message().ends_with("injected failure at call " + std::to_string(call)))
          << status.message();
    }
  }
  EXPECT_EQ(runs.run(plan).logits, expected);
}

}  // namespace
}  // namespace sluice::core
