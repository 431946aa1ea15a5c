// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a model: memory, time and money, every number with its formula. Nothing is planned or
// measured, so no machine is needed.
#pragma once

#include <optional>
#include <string>

#include "estimate/memory.h"
#include "estimate/subject.h"
#include "pages/page.h"

namespace sluice::core {

// A device for this arithmetic.
struct Device {
  std::string name;
  double memory_bytes = 0;
  double peak_flops = 0;             // dense products, data sheet
  std::string peak_format = "bf16";  // that are multiplied
  double memory_rate = 0;            // bytes per second, data sheet
  int multiprocessors = 0;           // 0: unknown
  double overhead_bytes = 0;         // context and kernels
};

// Devices that share a model: weights are sharded over `fsdp` of them and gathered for use, matrices are cut
// over `tp`. A device has the link rate on each axis of the mesh that a way of sharing uses.
struct Mesh {
  int64_t fsdp = 1, fsdp_axes = 1, tp = 1, tp_axes = 1;
  double link_rate = 0;   // bytes per second and axis
  double peak_flops = 0;  // of a device; 0: the machine's
};
// "fsdp=16/2,tp=4/1,link=180e9,peak=460e12": sizes and how many axes they use; those that are left out are 1.
Result<Mesh> parse_mesh(std::string_view text);

struct EstimateInput {
  Subject subject;
  std::optional<Device> device;  // what needs one is left out without
  const Recipe* recipe = &recipes().front();
  BatchShape batch{2048, 1};  // of one device, forward and backward at once
  int64_t accumulate = 1;     // such batches per step
  int64_t devices = 1, tp = 1, pp = 1;
  double tokens = 0;        // to evaluate or train on; 0: not asked
  double price = 0;         // USD per device and hour; 0: unknown
  double mfu = 1;           // at which hours are computed
  double tokens_per_s = 0;  // measured, of all devices; 0: none
  double step_s = 0;        // the same as seconds of a step
  std::optional<Mesh> mesh;
};

Result<Page> estimate(const EstimateInput& input);

}  // namespace sluice::core
