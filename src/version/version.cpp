// SPDX-License-Identifier: Apache-2.0
#include "version/version.h"

#include "version/commit.h"  // made by cmake/Commit.cmake when building

namespace sluice::core {

std::string_view version() {
  return SLUICE_VERSION;
}
std::string_view commit() {
  return SLUICE_COMMIT;
}
std::string_view commit_date() {
  return SLUICE_COMMIT_DATE;
}

}  // namespace sluice::core
