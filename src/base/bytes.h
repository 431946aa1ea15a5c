// SPDX-License-Identifier: Apache-2.0
// Byte counts as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice::core {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;
constexpr int64_t kGiB = 1024 * kMiB;

// No limit: the cap of a tier whose size does not matter.
constexpr int64_t kUnlimited = INT64_MAX;

// "48MiB", "1.5GiB", "16 gib", "800 kB", "none" (kUnlimited), in any case. KiB, MiB, GiB, TiB and K, M, G, T
// are powers of 1024, kB, MB, GB and TB of 1000; fractions are allowed; the result is positive. A number
// without a unit is refused with the size that was probably meant. Errors begin with the text.
Result<int64_t> parse_bytes(std::string_view text);

// Bytes per second of "10Gb/s", "2.5 Gbit/s", "800Mb/s", "1.2GB/s": a small b is a bit, as networks are sold.
// Errors begin with the text.
Result<double> parse_rate(std::string_view text);

// Three significant digits in the largest binary unit that keeps the number at or above one: "47.2 MiB".
std::string format_bytes(int64_t bytes);
// The same, rounded up: read back, it is never less than `bytes`. For limits that a user is told to keep.
std::string format_bytes_up(int64_t bytes);
// Every byte of it, in the largest binary unit that needs no fraction: "48MiB", "1001B", "none".
// parse_bytes() reads it back.
std::string exact_bytes(int64_t bytes);

// Smallest multiple of `alignment` (a power of two) not below `bytes`.
constexpr int64_t align_up(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) & ~(alignment - 1);
}

// Largest multiple of `alignment` (a power of two) not above `bytes`.
constexpr int64_t align_down(int64_t bytes, int64_t alignment) {
  return bytes & ~(alignment - 1);
}

}  // namespace sluice::core
