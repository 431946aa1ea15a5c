// SPDX-License-Identifier: Apache-2.0
// What scores of experts are: of models, which need not know the ops.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::core {

// The functions behind experts' scores and the gates of chosen ones.
enum class RouterScore : uint8_t {
  Softmax,  // over all experts; gates are the chosen ones' scores
  Chosen,   // softmax over the chosen ones' logits: that of all, normalised again
  Sigmoid,  // of each logit by itself
};
constexpr std::string_view name_of(RouterScore score) {
  switch (score) {
    case RouterScore::Softmax:
      return "softmax";
    case RouterScore::Chosen:
      return "chosen";
    case RouterScore::Sigmoid:
      return "sigmoid";
  }
  return "";
}

}  // namespace sluice::core
