// SPDX-License-Identifier: Apache-2.0
// What stands behind heads that are normalised: of models, which need not know the ops.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::core {

// The columns behind heads that are normalised and rotated, as values stand behind keys.
enum class BehindHeads : uint8_t {
  Copied,  // from x
  Normed,  // heads of x, each normalised without a weight, and not rotated
  Again,   // the same of the first heads themselves; x has nothing behind these
};
constexpr std::string_view name_of(BehindHeads behind) {
  switch (behind) {
    case BehindHeads::Copied:
      return "copied";
    case BehindHeads::Normed:
      return "normed";
    case BehindHeads::Again:
      return "again";
  }
  return "";
}

}  // namespace sluice::core
