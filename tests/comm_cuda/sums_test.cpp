// SPDX-License-Identifier: Apache-2.0
// What processes with a GPU each exchange from GPU to GPU: here threads, as many as there are GPUs. The
// additions alone are tried for any number of them on one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "backend/cuda/cuda_backend.h"
#include "comm/group.h"
#include "conformance_cuda/gpu.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

// Values that round differently in every order.
float value_of(int rank, size_t i) {
  return std::sin(float(i % 100003 * 31 + size_t(rank) * 7 + 1)) *
         std::ldexp(1.0f, int(i + size_t(rank) * 5) % 24);
}

std::vector<std::byte> values_of(int rank, size_t elements, DType dtype) {
  std::vector<std::byte> out(elements * size_t(size_of(dtype)));
  with_type(dtype, [&]<class T>(T) {
    for (size_t i = 0; i < elements; ++i) {
      const T value(value_of(rank, i));
      std::memcpy(&out[i * sizeof(T)], &value, sizeof(T));
    }
  });
  return out;
}

// What one process makes of all ranks' values.
std::vector<std::byte> sums_of(int ranks, size_t elements, DType dtype) {
  std::vector<std::vector<float>> of_rank(static_cast<size_t>(ranks), std::vector<float>(elements));
  std::vector<std::span<float>> parts;
  return with_type(dtype, [&]<class T>(T) {
    for (int r = 0; r < ranks; ++r) {
      for (size_t i = 0; i < elements; ++i) of_rank[size_t(r)][i] = float(T(value_of(r, i)));
      parts.emplace_back(of_rank[size_t(r)]);
    }
    add_by_tree(parts, parts[0]);
    std::vector<std::byte> out(elements * sizeof(T));
    for (size_t i = 0; i < elements; ++i) {
      const T value(parts[0][i]);
      std::memcpy(&out[i * sizeof(T)], &value, sizeof(T));
    }
    return out;
  });
}

TEST(Additions, HaveTheBitsOfTheTreeOnAnyRank) {
  SLUICE_SKIP_WITHOUT_GPU();
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 13, 33}) {
      for (const size_t elements : {size_t{1}, size_t{7}, size_t{8}, size_t{4099}}) {
        const std::vector<std::byte> expected = sums_of(ranks, elements, dtype);
        for (const int rank : {0, ranks / 2, ranks - 1}) {
          std::vector<std::byte> parts;
          for (int r = 0; r < ranks; ++r) {
            const std::vector<std::byte> of = values_of(r, elements, dtype);
            parts.insert(parts.end(), of.begin(), of.end());
          }
          const auto added = add_parts(0, parts, ranks, rank, dtype, 1);
          ASSERT_TRUE(added.ok()) << added.message();
          EXPECT_EQ(std::memcmp(&parts[expected.size() * size_t(rank)], expected.data(), expected.size()), 0)
              << name_of(dtype) << ", rank " << rank << " of " << ranks << ", " << elements << " elements";
        }
      }
    }
  }
}

// Runs fn(network of devices) of as many ranks as there are GPUs, in a thread each.
void on_gpus(const std::function<void(DeviceNetwork&, int rank, int ranks)>& fn) {
  const int ranks = int(cuda_devices()->size());
  const auto groups = groups_of_threads(ranks);
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      BackendOptions options;
      options.device = r, options.network = groups[size_t(r)].get();
      const auto joined = cuda_kind().join(options);
      ASSERT_TRUE(joined.ok()) << joined.message();
      ASSERT_NE(joined->network, nullptr) << joined->why_not;
      EXPECT_GT(joined->network->held_bytes(), 0);
      fn(*joined->network, r, ranks);
    });
  }
}

#define SLUICE_SKIP_WITHOUT_NCCL() \
  SLUICE_SKIP_WITHOUT_GPU();       \
  if (nccl_version().empty()) GTEST_SKIP() << "this build has no NCCL"

// Of a few elements some slices are empty; 40 MiB are more than one piece.
TEST(Nccl, SumsHaveTheBitsOfOneProcessOnEveryRank) {
  SLUICE_SKIP_WITHOUT_NCCL();
  on_gpus([](DeviceNetwork& devices, int rank, int ranks) {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      for (const size_t elements : {size_t{1}, size_t{63}, size_t{1001}, size_t{(40 << 20) / 4 + 3}}) {
        std::vector<std::byte> values = values_of(rank, elements, dtype);
        const Status done = devices.make(DeviceNetwork::Call::Sum, values, dtype);
        ASSERT_TRUE(done.ok()) << done.message();
        EXPECT_TRUE(values == sums_of(ranks, elements, dtype))
            << name_of(dtype) << ", rank " << rank << " of " << ranks << ", " << elements << " elements";
      }
    }
  });
}

// With three GPUs and more, in whose order sums round.
TEST(Nccl, TheLibrarysSumIsNear) {
  SLUICE_SKIP_WITHOUT_NCCL();
  on_gpus([](DeviceNetwork& devices, int rank, int ranks) {
    constexpr size_t kElements = 100'000;
    std::vector<std::byte> values = values_of(rank, kElements, DType::F32);
    ASSERT_TRUE(devices.make(DeviceNetwork::Call::LibrarySum, values, DType::F32).ok());
    for (size_t i = 0; i < kElements; ++i) {
      double exact = 0, size = 0;
      for (int r = 0; r < ranks; ++r) exact += value_of(r, i), size += std::fabs(double(value_of(r, i)));
      float found = 0;
      std::memcpy(&found, &values[i * sizeof found], sizeof found);
      // An addition rounds by half a unit of the last place of what it makes.
      ASSERT_LE(std::fabs(double(found) - exact), double(ranks - 1) * 0x1p-24 * size * 1.001) << i;
    }
  });
}

TEST(Nccl, PassesOnWhatOneHasToTheNext) {
  SLUICE_SKIP_WITHOUT_NCCL();
  on_gpus([](DeviceNetwork& devices, int rank, int ranks) {
    std::vector<std::byte> values = values_of(rank, 12345, DType::BF16);
    ASSERT_TRUE(devices.make(DeviceNetwork::Call::PassOn, values, DType::BF16).ok());
    EXPECT_TRUE(values == values_of((rank - 1 + ranks) % ranks, 12345, DType::BF16));
  });
}

// The ops of a plan, on the network lane of a backend.
TEST(Nccl, OpsOfTheNetworkLaneExchangeByIt) {
  SLUICE_SKIP_WITHOUT_NCCL();
  const int ranks = int(cuda_devices()->size());
  const auto groups = groups_of_threads(ranks);
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      constexpr int64_t kElements = 100'003, kBytes = 200'192;
      BackendOptions options;
      options.device = r, options.network = groups[size_t(r)].get();
      const auto joined = cuda_kind().join(options);
      ASSERT_TRUE(joined.ok()) << joined.message();
      options.device_network = joined->network.get();
      auto backend = cuda_kind().make(options);
      ASSERT_TRUE(backend.ok()) << backend.message();
      const auto arenas = (*backend)->reserve({{kDevice, 2 * kBytes + 512}, {kHost, 0}});
      ASSERT_TRUE(arenas.ok()) << arenas.message();
      std::byte* const base = (*arenas)[kDevice];
      const Op sum = SumOverProcesses{kElements, ranks, 0, 1, DType::BF16, true};
      const Op share =
          ShareWeight{.elements = kElements, .processes = ranks, .owner = ranks - 1, .dtype = DType::BF16};
      const std::vector<SharedOp> ops{sum, share};
      ASSERT_TRUE((*backend)->prepare(ops).ok());
      const std::vector<std::byte> own = values_of(r, kElements, DType::BF16);
      for (const int64_t at : {int64_t{0}, kBytes})
        ASSERT_TRUE((*backend)->upload({kDevice, at}, own.data(), int64_t(own.size())).ok());
      const Buffer g{base, int64_t(own.size())}, p{base + kBytes, int64_t(own.size())},
          sums{base + 2 * kBytes, 8};
      const std::vector<Buffer> of_sum{g, sums}, of_share{p};
      const Lane lane = (*backend)->lanes().running(LaneKind::Network, kDevice);
      ASSERT_TRUE((*backend)->begin(2, false).ok());
      ASSERT_TRUE((*backend)->submit({0, lane, {}, Launch{&sum, of_sum, {}, "a sum"}, 0}).ok());
      ASSERT_TRUE((*backend)->submit({1, lane, {}, Launch{&share, of_share, {}, "a weight"}, 0}).ok());
      const auto fault = (*backend)->finish(nullptr);
      ASSERT_FALSE(fault.has_value()) << fault->error.message;
      std::vector<std::byte> found(own.size());
      ASSERT_TRUE((*backend)->download(found.data(), {kDevice, 0}, int64_t(found.size())).ok());
      EXPECT_TRUE(found == sums_of(ranks, kElements, DType::BF16)) << "rank " << r;
      ASSERT_TRUE((*backend)->download(found.data(), {kDevice, kBytes}, int64_t(found.size())).ok());
      EXPECT_TRUE(found == values_of(ranks - 1, kElements, DType::BF16)) << "rank " << r;
    });
  }
}

TEST(Nccl, IsNotUsedWhereProcessesShareAGpuOrAreKeptApart) {
  SLUICE_SKIP_WITHOUT_NCCL();
  for (const bool apart : {false, true}) {
    const auto groups = groups_of_threads(2);
    std::vector<std::jthread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        BackendOptions options;
        options.network = groups[size_t(r)].get(), options.joined = !apart || r == 0;
        const auto joined = cuda_kind().join(options);
        ASSERT_TRUE(joined.ok()) << joined.message();
        EXPECT_EQ(joined->network, nullptr);
        EXPECT_EQ(joined->why_not, apart ? "process 1: run.peer = off" : "processes 0 and 1 share a GPU");
      });
    }
  }
}

}  // namespace
}  // namespace sluice::core
