// Lanes: in-order queues of a backend. Work on different lanes overlaps unless one waits for the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

enum class Lane : uint8_t {
  Compute,  // kernels
  Load,     // host to device
  Store,    // device to host
};

constexpr size_t kLaneCount = 3;
constexpr std::array<Lane, kLaneCount> kLanes{Lane::Compute, Lane::Load, Lane::Store};

constexpr std::string_view name_of(Lane lane) {
  constexpr std::array<std::string_view, kLaneCount> kNames{"compute", "load", "store"};
  return kNames[static_cast<size_t>(lane)];
}

}  // namespace sluice
