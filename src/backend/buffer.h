// SPDX-License-Identifier: Apache-2.0
// Bytes that an op reads or writes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::core {

// A placed range of bytes in one arena. `data` is null on backends that move no data.
struct Buffer {
  std::byte* data = nullptr;
  int64_t bytes = 0;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace sluice::core
