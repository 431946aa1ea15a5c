// SPDX-License-Identifier: Apache-2.0
// The types that hold elements on the device.
#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "base/dtype.h"

namespace sluice::core::cuda {

// As with_type(), with the device's types.
template <class F>
decltype(auto) with_device_type(DType t, F&& f) {
  return with_type(t, [&]<class T>(T) {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, Bf16>);
    return f(std::conditional_t<std::is_same_v<T, Bf16>, __nv_bfloat16, float>{});
  });
}

// Whether a product is written in f32; otherwise in bf16.
inline bool is_f32(DType t) {
  return with_type(t, []<class T>(T) { return std::is_same_v<T, float>; });
}

}  // namespace sluice::core::cuda
