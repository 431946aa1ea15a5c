// SPDX-License-Identifier: Apache-2.0
// Arenas of several devices when another process, here another backend, has the memory of one of them.
#include "base/bytes.h"
#include "conformance_cuda/gpu.h"

namespace sluice::core::conformance {
namespace {

TEST(Reserve, OfSeveralDevicesNamesTheOneThatIsTooFull) {
  SLUICE_SKIP_WITHOUT_GPU();
  constexpr int64_t kPart = 4 * kGiB;
  const auto gpus = cuda_devices();
  ASSERT_TRUE(gpus.ok()) << gpus.message();
  const int last = int(gpus->size()) - 1;
  CudaOptions options = untuned();
  options.devices = {last};
  const auto hog = make_cuda_backend(options);
  ASSERT_TRUE(hog.ok()) << hog.message();
  // Of a single GPU the first part still fits.
  const int64_t left = last == 0 ? kPart + kPart / 2 : kPart / 2;
  const auto held = (*hog)->reserve({{kDevice, (*cuda_devices())[size_t(last)].free_bytes - left}});
  ASSERT_TRUE(held.ok()) << held.message();

  options.devices = {0, last};
  const BytesByTier bytes{{kDevice, kPart}, {Tier::device(1), kPart}, {kHost, kMiB}};
  {
    const auto both = make_cuda_backend(options);
    ASSERT_TRUE(both.ok()) << both.message();
    const auto arenas = (*both)->reserve(bytes);
    ASSERT_FALSE(arenas.ok());
    EXPECT_TRUE(arenas.error().kind == ErrorKind::Device);
    const std::string& message = arenas.message();
    EXPECT_EQ(message.find("device " + std::to_string(last) + ": the device arena needs 4.00 GiB"), 0u)
        << message;
    EXPECT_NE(message.find("lower the device cap"), std::string::npos) << message;
  }
  // What the others had is given back.
  EXPECT_TRUE((*make_cuda_backend(options))->reserve({{kDevice, kPart}, {kHost, kMiB}}).ok());
}

}  // namespace
}  // namespace sluice::core::conformance
