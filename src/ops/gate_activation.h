// SPDX-License-Identifier: Apache-2.0
// What gates of the feed-forward part become: of models, which need not know the ops.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::core {

// The function of a gate: x sigmoid(h(x)). Silu: h(x) = x. GeluTanh: h(x) = 2 sqrt(2/pi) (x + 0.044715 x^3),
// which is x (1 + tanh(h(x) / 2)) / 2, the approximation of GELU of Hendrycks and Gimpel. Gelu: x Phi(x)
// itself, with the standard normal distribution. QuickGelu: h(x) = 1.702 x.
enum class GateActivation : uint8_t { Silu, GeluTanh, Gelu, QuickGelu };
constexpr std::string_view name_of(GateActivation a) {
  switch (a) {
    case GateActivation::Silu:
      return "silu";
    case GateActivation::GeluTanh:
      return "gelu_tanh";
    case GateActivation::Gelu:
      return "gelu";
    case GateActivation::QuickGelu:
      return "quick_gelu";
  }
  return "";
}

}  // namespace sluice::core
