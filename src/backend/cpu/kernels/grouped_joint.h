// SPDX-License-Identifier: Apache-2.0
// f32 products over the rows of experts, cut into tasks all together, so that few rows of each keep threads
// busy. A task packs what it multiplies with, and reads rows of tokens where they are. An element is summed
// up in the order of k.
#pragma once

#include "backend/cpu/kernels/kernels.h"
#include "ops/experts.h"

namespace sluice::core::cpu {

// The rows of experts, and what they are of.
class ExpertRows {
 public:
  ExpertRows(const Mixture& mixture, const int32_t* routing) : mixture_(mixture), routing_(routing) {}

  int64_t begin(int64_t expert) const { return routing_[expert]; }
  int64_t count(int64_t expert) const { return routing_[expert + 1] - routing_[expert]; }
  // Choices that an expert's rows are of: a row's token is its choice / top_k().
  const int32_t* choice(int64_t expert) const {
    return routing_ + RoutingLayout{mixture_.experts, mixture_.rows()}.choice() + begin(expert);
  }
  int64_t top_k() const { return mixture_.top_k; }

 private:
  Mixture mixture_;
  const int32_t* routing_;
};

extern const int64_t kJointScratchBytes;  // per thread
int64_t joint_workspace_bytes(const GroupedLinear& op);
int64_t joint_workspace_bytes(const GroupedDgrad& op);
int64_t joint_workspace_bytes(const GroupedWgrad& op);

// Rows of the group alone. REQUIRES, all: dtype and grad_dtype are F32.
void multiply_jointly(const GroupedLinear& op, const Args& args, const KernelContext& context);
void multiply_jointly(const GroupedDgrad& op, const Args& args, const KernelContext& context);
void multiply_jointly(const GroupedWgrad& op, const Args& args, const KernelContext& context);

}  // namespace sluice::core::cpu
