// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.h"

namespace sluice::core {

std::string nccl_version() {
  return {};
}
std::string why_no_nccl() {
  return "this build has no NCCL: -DSLUICE_NCCL=on says what it needs";
}
Result<std::unique_ptr<DeviceNetwork>> join_by_nccl(int /*device*/, Network& /*network*/) {
  return error(ErrorKind::Device, "{}", why_no_nccl());
}

}  // namespace sluice::core
