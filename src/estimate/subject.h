// SPDX-License-Identifier: Apache-2.0
// What is estimated: a model that Sluice builds Programs of, or the dimensions of one that it does not.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/spec.h"

namespace sluice::core {

struct Subject {
  // A stack of matrices alone, without attention and vocabulary: `layers` blocks of `matrices` of dim x ffn.
  struct Blocks {
    int64_t layers = 0, dim = 0, ffn = 0, matrices = 0;
    int64_t params() const { return layers * matrices * dim * ffn; }
  };

  std::string name;
  // One of these is there, or neither: then only the number of parameters is known.
  std::optional<ModelSpec> spec;
  std::optional<Blocks> blocks;
  int64_t params = 0;  // all of them
};

// A preset ("llama3-8b"), the path of a config.json or of its directory, or dimensions:
//   layers=32,dim=4096,ffn=11008,heads=32,vocab=32000   and kv_heads, head_dim, tied=1
//   layers=126,dim=16384,ffn=53248,matrices=2           blocks of matrices alone
//   params=52B                                          a number of parameters alone
Result<Subject> parse_subject(std::string_view text);

// The same model with `layers` layers and its width in proportion, heads as wide as before: what "constant
// depth to width" means. The vocabulary stays. REQUIRES: layers > 0, and all of its layers are alike.
ModelSpec scaled_to(const ModelSpec& spec, int64_t layers);

// "3B", "1.4T", "100M", "250k", "1e9": numbers of parameters and of tokens to train on, by thousands. Errors
// begin with `what`.
Result<double> parse_amount(std::string_view what, std::string_view text);

}  // namespace sluice::core
