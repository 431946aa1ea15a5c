// SPDX-License-Identifier: Apache-2.0
// How the table of weights is made: each kind of a layer's half adds its own, in its file.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/weights.h"

namespace sluice::core {

class WeightTable {
 public:
  // Borrows it.
  explicit WeightTable(const ModelSpec& spec);

  std::vector<Weight> weights();

 private:
  void add(const Attention& a);
  void add(const Convolution& c);
  void add(const GatedDelta& d);
  void add(const Mlp& mlp);
  void add(const Experts& e);

  void layer(int index);
  void add_input(int64_t width);
  // The tensor of the layer that is called so.
  std::string at(const char* name) const { return fmt::format("{}.{}.{}", spec_.names.layers, layer_, name); }
  void put(const char* role, ModelPart part, std::vector<WeightSource> sources, Init init,
           const ProductFormats& product = {});
  void matrix(const char* role, ModelPart part, std::vector<WeightSource> sources,
              const ProductFormats& product = {}) {
    put(role, part, std::move(sources), {Init::Normal, kDeviation}, product);
  }
  // Has these rows of the newest weight trained, a table's.
  void learn_rows(const std::vector<int64_t>& tokens);
  // One that writes into the residual stream.
  void matrix_into_stream(const char* role, ModelPart part, std::vector<WeightSource> sources);
  // Puts what adapts a matrix that is there: all of it, or its sources [first, end). Returns whether one of
  // these has an adapter, which is its so many-th.
  void adapt(const Weight& base);
  bool adapt(const Weight& base, size_t first, size_t end, size_t number);
  void adapt_experts(const Weight& base);
  void plain_norm(const char* role, std::string tensor, int64_t rows);
  // A norm of the stream, with what its norms have.
  void norm(const std::string& role, const std::string& tensor, int64_t rows);
  // One that is f32, whatever is computed in.
  void kept(const char* role, ModelPart part, std::string tensor, int64_t rows, Init init);
  void bias(const char* role, std::vector<WeightSource> sources) {
    put(role, ModelPart::Bias, std::move(sources), {Init::Zeros});
  }

  // The rows of q, k or v, in a tensor of their own, which is called `own`, or in that of all three: one
  // after the other, or so by heads.
  enum class Qkv : uint8_t { Q, K, V };
  WeightSource projection(const Attention& a, const std::string& own, Qkv which, const char* kind,
                          int64_t cols) const;
  WeightSource gate(const Attention& a, const char* kind, int64_t cols) const;
  void turn_like_heads(const Attention& a);
  std::string of_expert(int64_t expert, const char* name, const char* kind) const;
  // Rows of a tensor that has those of all experts.
  WeightSource of_all(const Experts& e, int64_t expert, const char* name, const char* kind, int64_t rows,
                      int64_t cols, bool turned) const;
  void add_expert(const Experts& e, int64_t expert, std::vector<WeightSource>& gate_up,
                  std::vector<WeightSource>& down) const;
  void add_biases_of_expert(const Experts& e, int64_t expert, std::vector<WeightSource>& gate_up,
                            std::vector<WeightSource>& down) const;

  // Products whose results are f32, whatever is computed in.
  static constexpr ProductFormats kF32Result = {.y = DType::F32};
  // Matrices begin so in families' own code. Those that write into the residual stream begin smaller by the
  // root of how often it is written to, so that it does not grow with depth.
  static constexpr float kDeviation = 0.02f;

  const ModelSpec& spec_;
  const float into_residual_;
  int layer_ = -1;  // what follows belongs to it; -1: to none
  std::vector<Weight> out_;
};

}  // namespace sluice::core
