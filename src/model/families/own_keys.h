// SPDX-License-Identifier: Apache-2.0
// Keys of a config.json that one family alone has, and what reads and writes them. A row of the table points
// at its own.
#pragma once

#include "model/families/family.h"

namespace sluice::core {

extern const OwnKeys kLlamaOwnKeys, kStarcoder2OwnKeys, kPhi3OwnKeys, kGraniteOwnKeys, kGemmaOwnKeys,
    kGemma3OwnKeys, kGemma2OwnKeys, kCohere2OwnKeys, kGptNeoxOwnKeys, kGpt2OwnKeys, kLfm2OwnKeys,
    kMixtralOwnKeys, kOlmoeOwnKeys, kQwen2MoeOwnKeys, kQwen3MoeOwnKeys, kLfm2MoeOwnKeys, kGptOssOwnKeys;

}  // namespace sluice::core
