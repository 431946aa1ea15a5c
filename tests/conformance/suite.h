// SPDX-License-Identifier: Apache-2.0
// Every case and relation as a GoogleTest, for one backend.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "conformance/harness.h"

namespace sluice::core::conformance {

struct Subject {
  std::string name;  // of the test suite
  std::function<Result<std::unique_ptr<Backend>>()> make;
  int64_t device_bytes;  // of its arena: enough for any one op with its workspace
  Demands demands;
  std::function<bool(const Op&)> takes = [](const Op&) { return true; };  // ops to test
};

// Call before RUN_ALL_TESTS(). One backend serves all tests; it is made when the first of them runs.
void register_suite(Subject subject);

}  // namespace sluice::core::conformance
