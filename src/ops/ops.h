// SPDX-License-Identifier: Apache-2.0
// What can be asked of any op, whatever it is: enough to hold ops, pass them on, price and print them. What
// an op is made of stands in ops/op.h, which only those include that make ops or look into them: a new
// attribute recompiles them alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/lane_kind.h"
#include "base/status.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

struct Op;  // one of ops/op.h

std::string_view name_of(const Op& op);
Operands operands(const Op& op);
Work work(const Op& op);
// FLOPs of products: multiply-adds count two; elementwise work counts nothing.
double flops(const Op& op);
// The kind of the lane that it runs on.
LaneKind lane_of(const Op& op);
// Bytes that a process sends to others for the op, as it receives as many.
double network_bytes(const Op& op);
// Bytes that the op needs on a GPU beside its operands (ops/gpu_workspace.h).
int64_t workspace_bytes(const Op& op, const GpuLibraries& libraries);
// Bytes the op must move through memory at least: every operand once, accumulated ones twice.
double traffic(const Op& op);
// All attributes as text, "linear tokens=512 in=320 ...": for messages and hashes.
std::string to_text(const Op& op);
// As to_text(), without attributes that do not change how long the op takes: ops with equal keys cost the
// same.
std::string cost_key(const Op& op);

// An op that copies of it share; nobody changes it.
class SharedOp {
 public:
  SharedOp(Op op);  // NOLINT(google-explicit-constructor)
  // One of those that an Op may be.
  template <class T>
  requires requires { T::kName; }
  SharedOp(T op);  // NOLINT(google-explicit-constructor)

  const Op& operator*() const { return *op_; }
  operator const Op&() const { return *op_; }  // NOLINT(google-explicit-constructor)

 private:
  std::shared_ptr<const Op> op_;
};

}  // namespace sluice::core
