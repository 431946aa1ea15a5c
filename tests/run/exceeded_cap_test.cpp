// SPDX-License-Identifier: Apache-2.0
// A step after which more is in use than a cap allows ends the run, and says which.
#include <gtest/gtest.h>

#include "backend/testing/forwarding.h"
#include "run/small_session.h"
#include "run/training/training.h"

namespace sluice::core {
namespace {

Tier grown_tier = kHost;  // in the run of a test
bool grown = false;

// Says of one tier that it is full beyond its cap, from some time on.
class GrownBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  BytesByTier memory() const override {
    BytesByTier bytes = ForwardingBackend::memory();
    if (grown) bytes[grown_tier] = 2 * kGiB;
    return bytes;
  }
};

Result<std::unique_ptr<Backend>> make_grown(const BackendOptions& options) {
  SLUICE_ASSIGN(auto inner, must(find_backend("cpu"))->make(options));
  return std::unique_ptr<Backend>(std::make_unique<GrownBackend>(std::move(inner)));
}

TEST(ExceededCap, EndsTheRunAfterTheStepAndSaysWhich) {
  const TempDir dir;
  Prepared prepared = must(prepare_small(dir, {"memory.device=1GiB", "memory.host=1GiB"}));
  BackendKind kind = *must(find_backend("cpu"));
  kind.make = make_grown;
  prepared.machine.backend = &kind;
  for (const auto& [tier, said] :
       {std::pair{
            kHost,
            "memory.host: 2.00 GiB of the process are resident, 1.00 GiB more than the cap of 1.00 GiB"},
        std::pair{kDevice,
                  "memory.device: the process holds 2.00 GiB on the device, 1.00 GiB more than the cap of "
                  "1.00 GiB"}}) {
    grown = false;
    grown_tier = tier;
    const auto session = must(Session::open(prepared));
    (void)must(session->step());
    grown = true;
    TrainingOptions options;
    options.stop = [] { return false; };
    const auto ended = train(*session, silent_observer(), options);
    ASSERT_FALSE(ended.ok());
    EXPECT_NE(ended.message().find(said), std::string::npos) << ended.message();
    EXPECT_EQ(session->steps_done(), 2);
  }
}

}  // namespace
}  // namespace sluice::core
