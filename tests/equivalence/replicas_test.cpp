// SPDX-License-Identifier: Apache-2.0
// A step of several replicas has the same bits by however many processes they are shared, and under every
// plan.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "comm/forwarding_group.h"
#include "equivalence/small_runs.h"

namespace sluice::core {
namespace {

using rig::must;

constexpr int64_t kSteps = 3;

struct Job {
  Numerics numerics = numerics_under_test().front().numerics;
  Updates updates = Updates::AtTheEnd;
  StepShape shape = kShapes[1].shape;
  int64_t replicas = 4;
  int devices = 1;     // of each process
  bool tight = false;  // a device cap at which most has to stream
  const Optimizer* optimizer = optimizers().front();
  int64_t bucket_bytes = 0;
  bool sharded = false;  // each process has the state of a part of the weights
  Experts experts = {};  // of every layer
  Adapters adapters = {};
};

// The rows of all replicas in one step.
rig::Tokens tokens_of_all(const Job& job, int64_t step) {
  StepShape all = job.shape;
  all.replicas = job.replicas;
  return rig::random_tokens(all, small_request(all, job.numerics).model.vocab, uint64_t(step));
}
rig::Tokens part_of(const rig::Tokens& all, int64_t part, int64_t parts) {
  const auto cut = [&](const std::vector<int32_t>& from) {
    const auto size = int64_t(from.size()) / parts;
    return std::vector<int32_t>(from.begin() + part * size, from.begin() + (part + 1) * size);
  };
  return {cut(all.tokens), cut(all.targets), cut(all.positions)};
}

rig::History run_process(const Job& job, Network* network) {
  const int64_t processes = network == nullptr ? 1 : network->size();
  const int64_t rank = network == nullptr ? 0 : network->rank();
  Question request = small_request(job.shape, job.numerics, job.updates);
  request.model.adapters = job.adapters;
  for (LayerSpec& layer : request.model.layers) {
    if (job.experts.count == 0) break;
    request.model.router_balance = 0.1;
    const Mlp each = layer.mlp();
    Experts& experts = layer.feed_forward.emplace<Experts>(job.experts);
    experts.each = each;
  }
  request.optimizer.optimizer = job.optimizer;
  request.optimizer.values = OptimizerConfig::defaults_of(*job.optimizer);
  request.threads = 1;
  request.shape.replicas = job.replicas / processes;
  request.shape.processes = processes;
  request.optimizer.bucket_bytes = job.bucket_bytes;
  if (job.sharded) request.optimizer.sharded = {processes, rank};
  auto backend = rig::small_devices(job.devices, true, network);
  if (job.tight) {
    const BuiltProgram model =
        build_training(request.model, request.shape, request.numerics, request.optimizer);
    request.caps[kDevice] = 3 * must(minimal_device_bytes(model.program, rig::profile_of(*backend), {})) / 2;
  }
  rig::Rig rig(request, std::move(backend));
  rig.initialize();
  rig.first_row = rank * request.shape.sequences();
  // Whatever each process's plan is, and whichever of its devices exchanges.
  EXPECT_TRUE(std::ranges::is_sorted(exchanges(rig.training().plan()), {}, &TaskId::value));
  rig::History out;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const rig::Tokens all = tokens_of_all(job, step);
    out.norms.push_back(rig.step(step, part_of(all, rank, processes), all.counted()).norm);
  }
  rig.flush(kSteps);
  out.state = rig::read_state(rig.training(), {ObjectKind::Param, ObjectKind::OptState});
  return out;
}

// By process.
std::vector<rig::History> run_job(const Job& job, int processes,
                                  const std::function<void(std::unique_ptr<ProcessGroup>&)>& wrap = {}) {
  auto groups = groups_of_threads(processes);
  std::vector<rig::History> out(groups.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < groups.size(); ++i) {
    threads.emplace_back([&, i] {
      if (wrap) wrap(groups[i]);
      out[i] = run_process(job, groups[i].get());
    });
  }
  for (std::thread& t : threads) t.join();
  return out;
}

void expect_shared_alike(const Job& job, std::initializer_list<int> processes) {
  const rig::History alone = run_process(job, nullptr);
  for (const int n : processes) {
    SCOPED_TRACE(n);
    for (const rig::History& of : run_job(job, n)) expect_same(of, alone);
  }
}

// Every process has all weights, and each a share of the state, which together are one's.
void expect_sharded_alike(Job job, std::initializer_list<int> processes) {
  const rig::History alone = run_process(job, nullptr);
  job.sharded = true;
  for (const int n : processes) {
    SCOPED_TRACE(n);
    std::vector<rig::History> all = run_job(job, n);
    rig::State together;
    for (const rig::History& of : all) {
      EXPECT_EQ(of.norms, alone.norms);
      EXPECT_LT(of.state.size(), alone.state.size());
      for (const auto& [name, bytes] : of.state) {
        const auto [it, fresh] = together.try_emplace(name, bytes);
        EXPECT_TRUE(it->second == bytes) << name << " differs between processes";
        EXPECT_TRUE(fresh || !name.starts_with("m_")) << name << " is in several processes";
      }
    }
    all.front().state = std::move(together);
    expect_same(all.front(), alone);
  }
}

TEST(Replicas, HaveTheBitsOfOneProcessInEveryFormat) {
  for (const NamedNumerics& n : numerics_under_test()) {
    SCOPED_TRACE(n.name);
    expect_shared_alike({.numerics = n.numerics}, {2, 4});
  }
}

TEST(Replicas, HaveTheBitsOfOneProcessHoweverTheyAreUpdated) {
  for (const Updates updates : {Updates::Deferred, Updates::LateMoments}) {
    SCOPED_TRACE(name_of(updates));
    expect_shared_alike({.updates = updates}, {2, 4});
  }
}

TEST(Replicas, HaveTheBitsOfOneProcessWithEveryOptimizer) {
  for (const Optimizer* optimizer : optimizers()) {
    SCOPED_TRACE(optimizer->name);
    expect_shared_alike({.replicas = 2, .optimizer = optimizer}, {2});
  }
}

TEST(Replicas, HaveTheBitsOfOneProcessInEveryShape) {
  for (const NamedShape& s : kShapes) {
    SCOPED_TRACE(s.name);
    expect_shared_alike({.shape = s.shape, .replicas = 2}, {2});
  }
}

TEST(Replicas, OfMixturesHaveTheBitsOfOneProcess) {
  Experts experts;
  experts.count = 6, experts.top_k = 2, experts.group = 3;
  expect_shared_alike({.replicas = 2, .experts = experts}, {2});
  expect_shared_alike({.replicas = 2, .tight = true, .experts = experts}, {2});
  expect_sharded_alike({.replicas = 2, .experts = experts}, {2});
}

// Processes exchange the trained rows of a table alone. Masks are of rows of all.
TEST(Replicas, OfAdaptersAndRowsOfTokensHaveTheBitsOfOneProcess) {
  const Adapters adapters{.rank = 4, .alpha = 8, .tokens = {5, 2, 3}, .dropout = 0.25};
  expect_shared_alike({.replicas = 2, .adapters = adapters}, {2});
  expect_shared_alike({.updates = Updates::LateMoments, .replicas = 2, .adapters = adapters}, {2});
  expect_sharded_alike({.replicas = 2, .adapters = adapters}, {2});
}

TEST(Replicas, NeedNotBeAPowerOfTwo) {
  expect_shared_alike({.replicas = 3}, {3});
  expect_shared_alike({.replicas = 6}, {3});
}

TEST(Replicas, HaveTheBitsOfOneProcessUnderSmallCapsAndOnSeveralDevices) {
  const rig::History alone = run_process({.replicas = 2}, nullptr);
  for (const Job& job : {Job{.replicas = 2, .tight = true}, Job{.replicas = 2, .devices = 2}}) {
    expect_same(run_process(job, nullptr), alone);
    for (const rig::History& of : run_job(job, 2)) expect_same(of, alone);
  }
}

TEST(Replicas, HaveTheBitsOfOneProcessInBucketsOfAnySize) {
  for (const int64_t bytes : {1, 10'000, 1'000'000}) expect_shared_alike({.bucket_bytes = bytes}, {2});
}

TEST(Replicas, OfShardedStateHaveTheBitsOfOneProcessInEveryFormat) {
  for (const NamedNumerics& n : numerics_under_test()) {
    SCOPED_TRACE(n.name);
    expect_sharded_alike({.numerics = n.numerics}, {2});
  }
}

TEST(Replicas, OfShardedStateHaveTheBitsOfOneProcessHoweverTheyAreUpdated) {
  for (const Updates updates : {Updates::AtTheEnd, Updates::Deferred, Updates::LateMoments}) {
    SCOPED_TRACE(name_of(updates));
    expect_sharded_alike({.updates = updates, .replicas = 3}, {3});
  }
}

TEST(Replicas, OfShardedStateHaveTheBitsOfOneProcessWithEveryOptimizer) {
  for (const Optimizer* optimizer : optimizers()) {
    SCOPED_TRACE(optimizer->name);
    expect_sharded_alike({.replicas = 2, .optimizer = optimizer}, {2});
  }
}

TEST(Replicas, OfShardedStateHaveTheBitsOfOneProcessUnderSmallCapsAndOnSeveralDevices) {
  expect_sharded_alike({.replicas = 2, .tight = true}, {2});
  expect_sharded_alike({.replicas = 4, .devices = 2}, {2, 4});
}

TEST(Replicas, DifferFromOneInTheOrderOfSumsAlone) {
  const Job job{.shape = kShapes[1].shape, .replicas = 2};
  Job whole = job;
  whole.shape.rounds *= 2;
  whole.replicas = 1;
  const rig::History two = run_process(job, nullptr), one = run_process(whole, nullptr);
  for (size_t i = 0; i < two.norms.size(); ++i) EXPECT_NEAR(two.norms[i], one.norms[i], 1e-4 * one.norms[i]);
}

// Adds as the library likes.
class AnyOrder final : public ForwardingGroup {
 public:
  using ForwardingGroup::ForwardingGroup;
  // One after the other, the last rank first.
  Status sum(std::span<std::byte> values, DType) override {
    std::vector<std::byte> all(values.size() * size_t(size()));
    SLUICE_TRY(all_gather(values, all));
    const size_t n = values.size() / sizeof(float);
    const auto* const from = reinterpret_cast<const float*>(all.data());
    auto* const to = reinterpret_cast<float*>(values.data());
    for (size_t i = 0; i < n; ++i) {
      to[i] = 0;
      for (int r = size(); r-- > 0;) to[i] += from[size_t(r) * n + i];
    }
    return {};
  }
};

TEST(Replicas, OfAnotherOrderOfSumsAreNoticed) {
  const Job job;
  const auto other =
      run_job(job, 4, [](auto& group) { group = std::make_unique<AnyOrder>(std::move(group)); });
  EXPECT_FALSE(other.front().state == run_process(job, nullptr).state);
}

}  // namespace
}  // namespace sluice::core
