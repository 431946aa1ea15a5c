// SPDX-License-Identifier: Apache-2.0
// What each kind of a layer's half says of itself, in a file of its own: attention.cpp, convolution.cpp,
// delta.cpp, mlp.cpp and experts.cpp. There it also adds its weights (weight_table.h) and its tasks
// (layers.h).
#pragma once

#include "model/spec.h"

namespace sluice::core {

Status validate(const Attention& a);
Status validate(const Convolution& c);
Status validate(const GatedDelta& d);
Status validate(const Mlp& mlp);
Status validate(const Experts& e);
// `key` of config.json is one of a size.
Status check_positive(const char* key, int64_t value, int64_t most = kMostWidth);

Status validate_adapters(const ModelSpec& spec);

// Columns that a token's products have, for each of the stream's `dim`.
double product_columns(const Attention& a, int64_t dim);
double product_columns(const Convolution& c, int64_t dim);
double product_columns(const GatedDelta& d, int64_t dim);
double product_columns(const Mlp& mlp, int64_t dim);
double product_columns(const Experts& e, int64_t dim);

// "convolution of 3".
std::string text_of(const Attention& a);
std::string text_of(const Convolution& c);
std::string text_of(const GatedDelta& d);

// Tokens before it that a token reads of its piece's neighbour, beside what attention has of all pieces.
int64_t looks_back(const Attention& a);
int64_t looks_back(const Convolution& c);
int64_t looks_back(const GatedDelta& d);

// Elements of an f32 state that stands for all tokens so far; a token takes three products of its size.
int64_t state_elements(const Attention& a);
int64_t state_elements(const Convolution& c);
int64_t state_elements(const GatedDelta& d);

// Elements that a text of `capacity` tokens keeps in a layer for later ones.
int64_t cached_elements(const Attention& a, int64_t dim, int64_t capacity);
int64_t cached_elements(const Convolution& c, int64_t dim, int64_t capacity);
int64_t cached_elements(const GatedDelta& d, int64_t dim, int64_t capacity);

}  // namespace sluice::core
