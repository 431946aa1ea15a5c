// SPDX-License-Identifier: Apache-2.0
// What is kept from one start to the next: the file, and that what comes back from it computes the same bits.
#include "backend/cuda/library_cache.h"

#include <unistd.h>

#include <fstream>
#include <optional>

#include "base/bytes.h"
#include "conformance/data.h"
#include "conformance/harness.h"
#include "conformance_cuda/gpu.h"
#include "ops/op.h"

namespace sluice::core::conformance {
namespace {

// A path in the folder for temporary files, removed at the end.
struct TemporaryFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("sluice-library-cache-{}", getpid());
  TemporaryFile() { std::filesystem::remove(path); }
  ~TemporaryFile() { std::filesystem::remove(path); }
};

TEST(LibraryCache, KeepsBytesForItsIdentityOnly) {
  const TemporaryFile file;
  const std::string bytes("a\n\0b\n7\n", 7);
  cuda::LibraryCache cache(file.path, "gpu 1");
  cache.put("key one", bytes);
  cache.put("empty", "");
  ASSERT_TRUE(cache.save().ok());
  const cuda::LibraryCache again(file.path, "gpu 1"), other(file.path, "gpu 2");
  ASSERT_TRUE(again.find("key one"));
  EXPECT_EQ(*again.find("key one"), bytes);
  ASSERT_TRUE(again.find("empty"));
  EXPECT_EQ(again.stale_file_note(), "");
  EXPECT_FALSE(other.find("key one"));
  EXPECT_EQ(other.stale_file_note(),
            file.path.string() + ": it was made for gpu 1, this is gpu 2; it is made anew");
}

TEST(LibraryCache, AnAbsentFileIsNoReasonToSpeak) {
  const TemporaryFile file;
  EXPECT_EQ(cuda::LibraryCache(file.path, "gpu").stale_file_note(), "");
}

TEST(LibraryCache, IgnoresADamagedFile) {
  const TemporaryFile file;
  cuda::LibraryCache cache(file.path, "gpu");
  cache.put("a", "1234");
  cache.put("b", "5678");
  ASSERT_TRUE(cache.save().ok());
  std::filesystem::resize_file(file.path, std::filesystem::file_size(file.path) - 3);
  const cuda::LibraryCache damaged(file.path, "gpu");
  EXPECT_FALSE(damaged.find("a"));
  EXPECT_EQ(damaged.stale_file_note(),
            file.path.string() + ": it is damaged: its checksum is not that of its content; it is made anew");
}

// Runs the ops on a backend with the given cache; returns every operand's bytes and the lines of the log.
struct Outcome {
  std::vector<std::vector<Tensor>> operands;
  std::vector<std::string> log;
};
std::optional<Outcome> run_all(const std::string& cache) {
  constexpr auto kBf16 = DType::BF16;
  const AttnShape shape{1, 256, 256, 4, 2, 64, 0, false, kBf16};
  const Op ops[] = {AttnFwd{shape, kBf16, false}, AttnBwd{shape, kBf16, false, false},
                    Linear{256, 512, 768, kBf16}, LinearWgrad{256, 512, 768, kBf16, kBf16, true}};
  CudaOptions options;
  options.cache = cache;
  Outcome out;
  options.log = [&](std::string_view line) { out.log.emplace_back(line); };
  auto backend = make_cuda_backend(options);
  if (!backend.ok()) return std::nullopt;
  auto harness = Harness::create(**backend, 128 * kMiB, {});
  if (!harness.ok()) return std::nullopt;
  for (const Op& op : ops) {
    auto got = harness->run(op, make_operands(op, {.seed = 5}));
    if (!got.ok()) return std::nullopt;
    out.operands.push_back(std::move(*got));
  }
  return out;
}

TEST(LibraryCache, WhatComesBackComputesTheSameBits) {
  SLUICE_SKIP_WITHOUT_GPU();
  const TemporaryFile file;
  const auto built = run_all(file.path.string());
  ASSERT_TRUE(built);
  ASSERT_TRUE(std::filesystem::exists(file.path));
  const auto restored = run_all(file.path.string());
  ASSERT_TRUE(restored);
  for (size_t op = 0; op < built->operands.size(); ++op) {
    for (size_t i = 0; i < built->operands[op].size(); ++i) {
      EXPECT_EQ(built->operands[op][i].bytes, restored->operands[op][i].bytes)
          << "op " << op << " operand " << i;
    }
  }
  // Both products and both attention graphs came from the file.
  int known = 0;
  for (const std::string& line : restored->log) {
    known += line.find("chosen before") != line.npos || line.find("built before") != line.npos;
  }
  EXPECT_EQ(known, 4);
}

}  // namespace
}  // namespace sluice::core::conformance
