// SPDX-License-Identifier: Apache-2.0
// Master weights of 24 bits: a bf16 parameter and a byte beside it. The definition for every backend, usable
// from device code; the CPU's kernels have it once more in vectors, which the conformance tests compare.
//
// The master is a float of 16 bits of precision: the upper 24 bits of an f32. They are the parameter's 16
// bits times 256 plus the byte, taken as a signed number; so the parameter is the master rounded to nearest,
// ties away from zero. An f32 becomes a master by rounding to nearest, ties to even: no random numbers.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace sluice::core {

// A master in its two parts, as they are in memory.
struct SplitMaster {
  uint16_t parameter;
  uint8_t residual;
};

// The f32, given by its bits, rounded to a master. What is not finite stays so.
SLUICE_HOST_DEVICE inline SplitMaster split_master(uint32_t float_bits) {
  if ((float_bits & 0x7f800000u) == 0x7f800000u) {
    const bool nan = (float_bits & 0x7fffffu) != 0;
    return {static_cast<uint16_t>(float_bits >> 16 | (nan ? 0x40u : 0u)), 0};
  }
  const uint32_t master = (float_bits + 0x7fu + (float_bits >> 8 & 1u)) >> 8;
  return {static_cast<uint16_t>((master + 0x80u) >> 8), static_cast<uint8_t>(master)};
}

// The master as the bits of an f32, which holds it exactly.
SLUICE_HOST_DEVICE inline uint32_t join_master(uint16_t parameter, uint8_t residual) {
  const uint32_t sign = residual >= 0x80u ? 0xffff0000u : 0u;
  return (uint32_t{parameter} << 16) + (sign | uint32_t{residual} << 8);
}

}  // namespace sluice::core
