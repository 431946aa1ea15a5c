// SPDX-License-Identifier: Apache-2.0
// Bytes of a compressed file, piece by piece. Which forms there are is decided by what is linked.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"

namespace sluice::core {

class Expander {
 public:
  virtual ~Expander() = default;

  struct Step {
    size_t taken, made;  // bytes
  };
  // Takes from `in` and fills `out`; where it does neither, it needs more of both.
  virtual Result<Step> expand(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  // Whether the input may end here.
  virtual bool complete() const = 0;
};

// Errors, where the library is not there: what to install.
Result<std::unique_ptr<Expander>> make_gzip_expander();
Result<std::unique_ptr<Expander>> make_zstd_expander();

}  // namespace sluice::core
