// SPDX-License-Identifier: Apache-2.0
// Runs single ops on a backend and judges what they leave behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "conformance/cases.h"
#include "conformance/tensor.h"

namespace sluice::core::conformance {

// What a backend is asked beyond the contract of backend.h.
struct Demands {
  // The same bits when every operand lies one alignment unit further on.
  bool same_bits_when_shifted = true;
};

struct Verdict {
  std::vector<std::string> findings;     // empty: the case passes
  double elementwise = 0, normwise = 0;  // largest over the operands, as in Comparison
};

// REQUIRES: nothing has been reserved on the backend yet. The backend outlives the harness.
class Harness {
 public:
  // Reserves a device arena of `device_bytes`, enough for one op with its operands and workspace.
  static Result<Harness> create(Backend& backend, int64_t device_bytes, Demands demands);

  // Runs the case's op three times: on NaN as the old content of everything it overwrites and of its
  // workspace, again on other garbage, and at other addresses. Checks the results against the reference and
  // against each other, and that no byte changed that is not the op's to write, within operands or around
  // them.
  Verdict check(const Case& test);

  // Runs one op on these operands and returns them as they are afterwards. Operands that the op only writes
  // start out as NaN whatever is given.
  Result<std::vector<Tensor>> run(const Op& op, std::vector<Tensor> operands);

 private:
  // Where a run puts things, and what fills the bytes that must not matter.
  struct Setup {
    std::byte garbage;
    int64_t shift;
  };
  struct Outcome {
    std::vector<Tensor> operands;
    std::vector<std::string> trespasses;
  };

  Harness(Backend& backend, std::byte* device, int64_t device_bytes, Demands demands)
      : backend_(&backend), device_(device), device_bytes_(device_bytes), demands_(demands) {}

  Result<Outcome> run(const Op& op, const std::vector<Tensor>& operands, const Setup& setup);

  Backend* backend_;
  std::byte* device_;
  int64_t device_bytes_;
  Demands demands_;
};

}  // namespace sluice::core::conformance
