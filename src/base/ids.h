// SPDX-License-Identifier: Apache-2.0
// Strong integer ids: an ObjectId is not a TaskId.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace sluice::core {

template <class Tag>
struct Id {
  uint32_t value = UINT32_MAX;

  Id() = default;
  constexpr explicit Id(uint64_t v) : value(static_cast<uint32_t>(v)) {}

  bool valid() const { return value != UINT32_MAX; }
  auto operator<=>(const Id&) const = default;
};

using ObjectId = Id<struct ObjectTag>;
using TaskId = Id<struct TaskTag>;

}  // namespace sluice::core

template <class Tag>
struct std::hash<sluice::core::Id<Tag>> {
  size_t operator()(sluice::core::Id<Tag> id) const noexcept { return id.value; }
};
