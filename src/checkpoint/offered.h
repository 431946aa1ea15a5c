// SPDX-License-Identifier: Apache-2.0
// Compares what a folder offers with what a model reads of it. Weights that are left out, or taken otherwise
// than they were saved, make another model than the one that somebody named.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "model/spec.h"

namespace sluice::core {

// Tensors that no weight of the model reads (model.unread) are an error, or are left out.
enum class Unread : uint8_t { Refuse, Drop };

// Whether it is of keys or values of a layer that reads those of another one: folders have such tensors,
// which nothing reads.
bool is_idle(const ModelSpec& spec, std::string_view name);

// Compares the names in the files' headers with the model's table of weights, and, where the embedding is
// the head, a head beside it with the embedding, byte by byte. What no family learns, such as frequencies of
// rotary embedding, and what is_idle(), is passed over, as is what a model that wraps this one has beside it.
// Errors name what is not read, why that may be, and what to write. `notices`: of two sets of weights the one
// that is read, and what is dropped, once each.
Status check_offered(const ModelSpec& spec, const TensorFiles& files, Unread unread,
                     std::vector<std::string>& notices);

// The same of an adapter's folder, which has what is trained beside the base and nothing else.
Status check_adapter(const ModelSpec& spec, const TensorFiles& files);

}  // namespace sluice::core
