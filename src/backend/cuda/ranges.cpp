// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>

namespace sluice::core::cuda {
namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("sluice");
  return handle;
}

void push(std::string_view name) {
  // NVTX wants an end, which a part of a path has not; nothing is allocated within a step.
  std::array<char, 96> text{};
  std::copy_n(name.begin(), std::min(name.size(), text.size() - 1), text.begin());
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.data();
  nvtxDomainRangePushEx(domain(), &attributes);
}

}  // namespace

void Ranges::begin_step() {
  end_step();
  push("step");
  open_[depth_++] = "step";
  outer_ = depth_;
}

void Ranges::enter(std::string_view path, bool copy) {
  size_t depth = std::min(depth_, outer_);
  if (!copy) {
    // The part of the path that is shared with the open ranges. Its last part is the command itself, which
    // never goes on.
    depth = 1;  // within the step
    for (size_t slash; depth + 1 < kDepth && (slash = path.find('/')) != path.npos; ++depth) {
      const std::string_view name = path.substr(0, slash);
      if (depth >= outer_ || open_[depth] != name) {
        close_to(depth);
        push(name);
        open_[depth_++] = name;
        outer_ = depth_;
      }
      path.remove_prefix(slash + 1);
    }
  }
  close_to(depth);
  outer_ = depth;
  if (path.empty()) return;
  push(path);
  open_[depth_++] = path;
}

void Ranges::end_step() {
  close_to(0);
}

void Ranges::close_to(size_t depth) {
  for (; depth_ > depth; --depth_) nvtxDomainRangePop(domain());
}

}  // namespace sluice::core::cuda
