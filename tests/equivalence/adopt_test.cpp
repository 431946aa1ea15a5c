// SPDX-License-Identifier: Apache-2.0
// A model in memory whose plans change after every step computes the bits of one whose plans never do, and
// holds no more than its caps meanwhile.
#include <gtest/gtest.h>

#include "backend/testing/forwarding.h"
#include "checkpoint/weights.h"
#include "equivalence/small_runs.h"
#include "host/host_memory.h"
#include "run/loaded/evaluation.h"
#include "run/loaded/loaded.h"
#include "run/loaded/text_pass.h"
#include "search/placement.h"
#include "search/planner.h"

namespace sluice::core {
namespace {

const StepShape kShape{16, 8, 2, 2, 8, true};

// Looks at what the process holds whenever anything is asked of it.
class Watched final : public ForwardingBackend {
 public:
  Watched(std::unique_ptr<Backend> inner, const BytesByTier& caps)
      : ForwardingBackend(std::move(inner)), caps_(caps) {}

  Result<Arenas> grow(const BytesByTier& bytes) override { return look(ForwardingBackend::grow(bytes)); }
  Status submit(const Command& command) override { return look(ForwardingBackend::submit(command)); }
  Status upload(Location to, const std::byte* from, int64_t bytes) override {
    return look(ForwardingBackend::upload(to, from, bytes));
  }
  std::optional<Fault> finish(std::vector<Interval>* timeline) override {
    return look(ForwardingBackend::finish(timeline));
  }

 private:
  template <class T>
  T look(T result) {
    const BytesByTier held = memory();
    for (const Tier tier : lanes().tiers()) EXPECT_LE(held[tier], caps_[tier]) << name_of(tier);
    return result;
  }

  const BytesByTier caps_;
};

Question request_of(const Numerics& numerics, Updates updates) {
  Question request = small_request(kShape, numerics, updates);
  request.between.push_back({kEvaluation});
  request.between.push_back({kSampling, 8});
  return request;
}

// Random legal plans of one request under random caps, for programs between steps, too.
class RandomStages {
 public:
  // `most`: what arenas may take.
  RandomStages(const Question& request, std::unique_ptr<Backend> backend, const BytesByTier& most)
      : backend_(std::move(backend)),
        profile_(rig::profile_of(*backend_)),
        most_(most),
        programs_(build_stages(request)) {
    // Planning these takes long on several devices.
    if (backend_->lanes().devices() > 1)
      std::erase_if(programs_.beside, [](const Stage& s) { return s.optional; });
    for (const Stage& stage : programs_.beside) {
      if (!stage.optional)
        raise_to(rig::must(room_beside(stage.model.program, profile_, Caches::Own)), room_);
    }
  }

  std::shared_ptr<const Stages> next() {
    for (;; ++seed_) {
      if (auto stages = draw()) return ++seed_, std::make_shared<const Stages>(std::move(*stages));
    }
  }
  const Profile& profile() const { return profile_; }

 private:
  // Nothing where what was drawn does not fit.
  std::optional<Stages> draw() const {
    const Program& program = programs_.main.model.program;
    const size_t devices = backend_->lanes().devices();
    PlanRequest main;
    main.boundary_bytes = room_;
    for (const Tier tier : backend_->lanes().tiers())
      main.caps[tier] = most_[tier] / 8 * int64_t(3 + (seed_ * 7 + tier.index()) % 6);
    if (devices > 1) main.placement = random_placement(program, devices, seed_);
    auto plan = random_plan(program, profile_, main, seed_);
    if (!plan || !within_caps(*plan, profile_, main.caps, 0).ok()) return std::nullopt;
    Stages stages = programs_;
    stages.main.plan = std::move(*plan);
    if (!plan_beside(stages, room_, profile_).ok()) return std::nullopt;
    return stages;
  }

  const std::unique_ptr<Backend> backend_;
  const Profile profile_;
  const BytesByTier most_;
  Stages programs_;
  BytesByTier room_;
  uint64_t seed_ = 0;
};

struct Seen {
  std::vector<double> losses, evaluated;
  std::vector<std::vector<float>> logits;
  rig::State state;

  bool operator==(const Seen&) const = default;
};

// Steps of a model in memory, with an update, an evaluation and a pass over a text after every second.
class Steps {
 public:
  Steps(const Question& request, Loaded& loaded) : request_(request), loaded_(loaded) {
    rig::must(initialize(model(), 1, loaded.main(), [](int64_t, int64_t) {}));
  }

  void step(int64_t number) {
    const rig::Tokens tokens = rig::random_tokens(kShape, request_.model.vocab, uint64_t(number));
    // A deferred update is that of the step before.
    const bool deferred = request_.optimizer.deferred;
    StepArgs args = rig::args_for(deferred ? std::max<int64_t>(1, number - 1) : number, tokens.counted());
    args.update = !deferred || pending_ ? 1 : 0;
    rig::write_tokens(loaded_.main(), model(), tokens);
    rig::write_args(loaded_.main(), model(), args);
    rig::must(loaded_.main().step());
    pending_ = deferred;
    seen_.losses.push_back(rig::read_losses(loaded_.main(), model(), tokens).loss);
    if (number % 2 == 0) between(number);
  }
  const Seen& end(int64_t number) {
    flush(number);
    seen_.state = rig::read_state(loaded_.main(), {ObjectKind::Param, ObjectKind::OptState});
    return seen_;
  }

 private:
  const BuiltProgram& model() const { return loaded_.stages().main.model; }
  void flush(int64_t number) {
    if (!pending_) return;
    Executor& executor = loaded_.at(kFlush);
    rig::write_args(executor, loaded_.stages().at(kFlush).model, rig::args_for(number, 1));
    rig::must(executor.step());
    pending_ = false;
  }
  void between(int64_t number) {
    flush(number);
    const Stage& evaluation = loaded_.stages().at(kEvaluation);
    const rig::Tokens tokens = rig::random_tokens(evaluation.model.shape, request_.model.vocab, 77);
    Executor& executor = loaded_.at(kEvaluation);
    rig::write_tokens(executor, evaluation.model, tokens);
    rig::write_args(executor, evaluation.model, rig::args_for(1, 1));
    rig::must(executor.step());
    TokenLosses losses;
    rig::must(read_token_losses(evaluation.model, executor, losses));
    seen_.evaluated.insert(seen_.evaluated.end(), losses.loss.begin(), losses.loss.end());
    TextPass text(loaded_.stages().at(kSampling).model, loaded_.at(kSampling));
    rig::must(text.forget());
    const std::vector<int32_t> prompt{3, 1, 4, 1, 5};
    const RowInput input{0, 0, prompt};
    const auto embed = [&](std::span<const int32_t> ids, std::vector<std::byte>& rows) -> Status {
      const int64_t row_bytes = request_.model.dim * size_of(request_.numerics.compute);
      rows.resize(ids.size() * size_t(row_bytes));
      for (size_t t = 0; t < ids.size(); ++t)
        SLUICE_TRY(loaded_.main().read(rig::find(model().program, "embedding"),
                                       std::span(rows).subspan(t * size_t(row_bytes), size_t(row_bytes)),
                                       ids[t] * row_bytes));
      return {};
    };
    rig::must(text.run(std::span(&input, 1), {}, {}, embed));
    const auto logits = text.logits(0);
    seen_.logits.emplace_back(logits.begin(), logits.end());
  }

  const Question& request_;
  Loaded& loaded_;
  Seen seen_;
  bool pending_ = false;
};

void expect_same(const Seen& got, const Seen& expected) {
  EXPECT_EQ(got.losses, expected.losses);
  EXPECT_EQ(got.evaluated, expected.evaluated);
  EXPECT_EQ(got.logits, expected.logits);
  for (const auto& [name, bytes] : expected.state)
    EXPECT_TRUE(got.state.at(name) == bytes) << name << " differs";
}

class ChangesOfPlans : public testing::TestWithParam<std::tuple<NamedDevices, NamedNumerics, Updates>> {};

TEST_P(ChangesOfPlans, ChangeNoBitAndExceedNoCap) {
  const auto& [devices, numerics, updates] = GetParam();
  const Question request = request_of(numerics.numerics, updates);
  const int64_t count = devices.count == 1 ? 6 : std::max<int64_t>(2, int64_t(random_cases(8)));
  const auto backend = [&] { return rig::small_devices(devices.count, devices.joined); };
  const Stages fixed = [&] {
    const auto one = rig::small_backend();
    return rig::must(make_stages(request, rig::profile_of(*one)));
  }();
  Seen expected;
  {
    Loaded loaded =
        rig::must(Loaded::reserve(rig::small_backend(), fixed, BytesByTier(kUnlimited), silent_observer()));
    rig::must(loaded.prepare());
    Steps steps(request, loaded);
    for (int64_t step = 1; step <= count; ++step) steps.step(step);
    expected = steps.end(count);
  }
  // Plans may take so much of each tier, and the process some of the host beside them.
  BytesByTier arenas, caps;
  constexpr int64_t kBeside = 96 * kMiB;
  const int64_t all = 2 * footprint(fixed.main.model.program).total;
  for (const Tier tier : backend()->lanes().tiers()) arenas[tier] = caps[tier] = all;
  caps[kHost] += resident_bytes() + kBeside;
  RandomStages random(request, backend(), arenas);
  const auto first = random.next();
  Loaded loaded =
      rig::must(Loaded::reserve(std::make_unique<Watched>(backend(), caps), *first, caps, silent_observer()));
  rig::must(loaded.prepare());
  Steps steps(request, loaded);
  int64_t moved = 0;
  BytesByTier held = first->arena_bytes();
  bool grown = false;
  for (int64_t step = 1; step <= count; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    steps.step(step);
    const auto next = random.next();
    grown = grown || !within(next->arena_bytes(), held);
    raise_to(next->arena_bytes(), held);
    const auto adopted = loaded.adopt(next, random.profile());
    ASSERT_TRUE(adopted.ok()) << adopted.message();
    moved += adopted->bytes;
  }
  expect_same(steps.end(count), expected);
  EXPECT_GT(moved, 0);
  EXPECT_TRUE(grown);
}

std::string names(const auto& test) {
  return std::string(std::get<0>(test.param).name) + "_" + std::get<1>(test.param).name + "_" +
         name_of(std::get<2>(test.param));
}
INSTANTIATE_TEST_SUITE_P(OneDevice, ChangesOfPlans,
                         testing::Combine(testing::Values(NamedDevices{"one", 1, true}),
                                          testing::Values(kNumerics[0], kNumerics[3]),
                                          testing::Values(Updates::AtTheEnd, Updates::Deferred,
                                                          Updates::LateMoments)),
                         [](const auto& test) { return names(test); });
// A case stands for all: planning the programs between steps takes long there.
INSTANTIATE_TEST_SUITE_P(TwoDevices, ChangesOfPlans,
                         testing::Combine(testing::Values(NamedDevices{"two", 2, true}),
                                          testing::Values(kNumerics[3]), testing::Values(Updates::Deferred)),
                         [](const auto& test) { return names(test); });
INSTANTIATE_TEST_SUITE_P(ThreeDevices, ChangesOfPlans,
                         testing::Combine(testing::Values(NamedDevices{"three_by_the_host", 3, false}),
                                          testing::Values(kNumerics[0]), testing::Values(Updates::AtTheEnd)),
                         [](const auto& test) { return names(test); });

// Refused before anything has changed: the steps go on under the plans that there are.
TEST(ChangeOfPlans, IsRefusedWhereItCannotBe) {
  const Question request = request_of({}, Updates::Deferred);
  const auto backend = rig::small_backend();
  const Profile profile = rig::profile_of(*backend);
  const auto made = [&](const Question& r) {
    return std::make_shared<const Stages>(rig::must(make_stages(r, profile)));
  };
  const auto first = made(tightest(request, *backend));
  BytesByTier caps = first->arena_bytes();
  caps[kHost] = kUnlimited;
  Loaded loaded = rig::must(Loaded::reserve(rig::small_backend(), *first, caps, silent_observer()));
  rig::must(loaded.prepare());
  Steps steps(request, loaded);
  steps.step(1);
  const auto refused = [&](std::shared_ptr<const Stages> next) {
    const auto adopted = loaded.adopt(std::move(next), profile);
    return adopted.ok() ? std::string("nothing") : adopted.message();
  };
  Question other = request;
  other.optimizer.clip_norm = 3;
  EXPECT_NE(refused(made(other)).find("another step"), std::string::npos);
  other = request;
  other.between.clear();
  EXPECT_NE(refused(made(other)).find("no program \"evaluation\""), std::string::npos);
  const auto large = made(request);
  ASSERT_GT(large->arena_bytes()[kDevice], caps[kDevice]);
  const std::string too_large = refused(large);
  EXPECT_NE(too_large.find("memory.device"), std::string::npos) << too_large;
  EXPECT_NE(too_large.find("too much"), std::string::npos) << too_large;
  // One that was not proved, and is none.
  auto broken = std::make_shared<Stages>(*first);
  for (Action& a : broken->main.plan.actions) a.wait_count = 0;
  EXPECT_NE(refused(broken).find("does not wait"), std::string::npos);
  EXPECT_EQ(&loaded.stages(), first.get());
  steps.step(2);
  EXPECT_EQ(refused(first), "nothing");
  steps.step(3);
}

}  // namespace
}  // namespace sluice::core
