// SPDX-License-Identifier: Apache-2.0
// What gates of the feed-forward part become: of models, which need not know the ops.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::core {

// What a gate becomes: x sigmoid(h(x)). Silu: h(x) = x. GeluTanh: h(x) = 2 sqrt(2/pi) (x + 0.044715 x^3),
// which is x (1 + tanh(h(x) / 2)) / 2, the approximation of GELU of Hendrycks and Gimpel. Gelu: x Phi(x)
// itself, with the standard normal distribution.
enum class GateActivation : uint8_t { Silu, GeluTanh, Gelu };
constexpr std::string_view name_of(GateActivation a) {
  return a == GateActivation::Silu ? "silu" : a == GateActivation::Gelu ? "gelu" : "gelu_tanh";
}

}  // namespace sluice::core
