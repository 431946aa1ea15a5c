// SPDX-License-Identifier: Apache-2.0
// What the runner's files share: an op's operands, and types of the device.
#pragma once

#include <span>

#include "backend/cuda/check.h"
#include "backend/cuda/device_type.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/runner.h"

namespace sluice::core::cuda {

// An op's operands, typed, and where it runs.
struct Runner::Call {
  std::span<const Buffer> operands;
  Buffer workspace;
  cudaStream_t stream;
  bool early;  // its kernels may begin before those queued last have ended

  Queue queue() const { return {stream, early}; }
  const Buffer& operator[](int i) const { return operands[size_t(i)]; }
  template <class T>
  T* as(int i) const {
    return operands[size_t(i)].as<T>();
  }
  Scratch scratch() const { return {workspace.data, workspace.bytes}; }
};

// Calls f, which launches kernels, with a value of the type that holds elements of `dtype` on the device.
template <class F>
Status with_float(DType dtype, F f) {
  return check(with_device_type(dtype, f), "kernel launch");
}

// The same with the types of activations and of gradients; those of f32 activations are f32.
template <class F>
Status with_floats(DType dtype, DType grad, F f) {
  if (is_f32(dtype)) return check(f(float{}, float{}), "kernel launch");
  return with_float(grad, [&](auto g) { return f(bf16{}, g); });
}

inline Activation activation_of(GateActivation activation) {
  switch (activation) {
    case GateActivation::Silu:
      return Activation::Silu;
    case GateActivation::Gelu:
      return Activation::Gelu;
    case GateActivation::QuickGelu:
      return Activation::QuickGelu;
    case GateActivation::GeluTanh:
      break;
  }
  return Activation::GeluTanh;
}

}  // namespace sluice::core::cuda
