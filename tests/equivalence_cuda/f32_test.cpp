// SPDX-License-Identifier: Apache-2.0
// Whole steps in f32, which only measurements take on a GPU: they learn what the same steps learn on a CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "equivalence/small_runs.h"

namespace sluice::core {
namespace {

Question request(const Numerics& numerics) {
  Question r = small_request({512, 512, 4, 2, 256}, numerics);
  r.model = model_of({256, 2, 4, 2, 64, 512, 64});
  return r;
}

std::vector<double> losses(const Numerics& numerics, std::unique_ptr<Backend> backend) {
  rig::Rig run(request(numerics), std::move(backend));
  return rig::run_steps(run, 4).losses;
}

TEST(InF32, StepsLearnWhatTheyLearnOnACpu) {
  const auto on_gpu = losses({}, rig::small_backend()), on_cpu = losses({}, make_cpu_backend());
  const auto in_bf16 =
      losses({DType::BF16, DType::F32, DType::F32, MasterWeights::F32, false}, rig::small_backend());
  ASSERT_EQ(on_gpu.size(), on_cpu.size());
  double apart = 0, bf16_apart = 0;
  for (size_t i = 0; i < on_cpu.size(); ++i) {
    apart = std::max(apart, std::abs(on_gpu[i] / on_cpu[i] - 1));
    bf16_apart = std::max(bf16_apart, std::abs(in_bf16[i] / on_cpu[i] - 1));
  }
  // A mean over tokens of errors that are as often above as below zero: far below one unit of TF32 or bf16.
  EXPECT_LE(apart, 1e-6);
  EXPECT_GT(bf16_apart, 1e-5);
}

// The same bits, however little memory the device has.
TEST(InF32, CapsChangeNoBit) {
  rig::Rig free(request({}));
  Question little = request({});
  little.caps[kDevice] = free.plan().arenas[kDevice].bytes * 6 / 10;
  rig::Rig capped(little);
  EXPECT_GT(totals(capped.model().program, capped.plan()).loads.actions,
            totals(free.model().program, free.plan()).loads.actions);
  EXPECT_EQ(rig::run_steps(capped, 3).losses, rig::run_steps(free, 3).losses);
}

}  // namespace
}  // namespace sluice::core
