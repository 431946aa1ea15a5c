// SPDX-License-Identifier: Apache-2.0
// One anonymous mapping, touched and ready.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace sluice::core::cpu {

class ThreadPool;

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    swap(other);
    return *this;
  }

  // Maps `bytes` in huge pages where the system grants them and has every page handed out, with all threads.
  // `what` names the arena in errors.
  static Result<Arena> create(std::string_view what, int64_t bytes, ThreadPool& pool);

  // Makes it larger, to so many bytes; what it holds stays, where it begins may change. `what` as above.
  // After an error it is as it was.
  Status grow(std::string_view what, int64_t bytes, ThreadPool& pool);

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void swap(Arena& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace sluice::core::cpu
