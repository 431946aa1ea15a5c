// SPDX-License-Identifier: Apache-2.0
// The table of a model's weights: where each comes from in a checkpoint, its shape, how it begins and how it
// is trained. Everything that makes, loads, saves or updates weights goes by it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/spec.h"
#include "ops/low_rank.h"

namespace sluice::core {

// Blocks of rows in a tensor, such as heads, and the order in them. In a Program row i of a block is a pair
// with i + rows / 2: rotated together, or a gate and what it is multiplied with. What checkpoints have
// otherwise is read so, and written back. Scores do not change with it, as q and k are read alike.
struct RowBlocks {
  int64_t rows = 0;          // of a block; 0: there are none, and rows follow each other
  int64_t step = 0;          // in the tensor, from a block to the next
  int64_t paired = 0;        // the first rows of a block, which are pairs; 0: all are in the tensor's order
  bool interleaved = false;  // the tensor has the rows of a pair beside each other

  // The row of the tensor's block that is row `i` here.
  int64_t in_tensor(int64_t i) const;
  bool operator==(const RowBlocks&) const = default;
};

// Rows of a tensor of a Hugging Face checkpoint.
struct WeightSource {
  std::string tensor;  // "model.layers.3.self_attn.k_proj.weight"
  int64_t rows, cols;
  // Rows within a tensor that several weights share: the first one, and how many the tensor has.
  int64_t first_row = 0, tensor_rows = 0;  // 0 rows: these alone
  RowBlocks blocks = {};
  // So many rows here stand beside each other in one of the tensor's.
  int64_t abreast = 1;
  // The tensor has a row for each column of these. stretch() is of the tensor as it would be otherwise; what
  // reads and writes files turns it.
  bool transposed = false;
  // The tensor is so many matrices, one of which has these rows, and each of which is turned by itself. 0: it
  // is a matrix.
  int64_t stacked = 0;
  bool of_conv = false;  // the tensor has a size of 1 between rows and columns
  // An expert with its own tensors: its rows in a folder that keeps all experts of a layer in one tensor,
  // [experts, rows, cols], as transformers' classes do. Such folders are read, too.
  struct Stack {
    std::string tensor;  // empty: there is none
    int64_t experts = 0, rows = 0, first_row = 0;
  };
  Stack stack = {};

  // The tensor's, of which a matrix has two sizes.
  std::vector<int64_t> shape(bool matrix) const;
  // Where the element is in the tensor that stretch() has at `at`.
  int64_t in_tensor(int64_t at) const;

  int64_t elements() const { return rows * cols; }
  int64_t all_rows() const { return tensor_rows == 0 ? rows : tensor_rows; }
  int64_t matrix_rows() const { return all_rows() / (stacked == 0 ? 1 : stacked); }
  // Elements that follow each other here and in the tensor.
  struct Stretch {
    int64_t at;  // in the tensor
    int64_t count;
  };
  // From element `element` of these on, up to `end` at most.
  Stretch stretch(int64_t element, int64_t end) const;
};

// How a weight begins where it is not loaded.
struct Init {
  enum Kind : uint8_t { Zeros, Ones, Normal, Uniform, LogUniform } kind = Zeros;
  float deviation = 0;  // Normal; of Uniform the largest, and of LogUniform that of which it is the logarithm
};

// The part of a model that a weight is. Experts' weights are those that only tokens that chose them meet.
// Tables have rows that are looked up and added, as the embedding's: of learnt positions, and of layers' own.
// Projections are those that make q, k and v,
// and read the same. Those around a convolution are products; its own weights are not. An adapter's are A, B
// and magnitudes.
enum class ModelPart : uint8_t {
  Embedding,
  Table,
  Projection,
  AttentionOut,
  ConvProjection,
  Convolution,
  Mlp,
  Router,
  Experts,
  Norm,
  Bias,
  Head,
  Adapter
};

// One weight object of a program: tensors stacked by rows.
struct Weight {
  std::string object;  // "wkv.L3"
  std::string role;    // "wkv", by which model/layers.h asks for it
  ModelPart part = ModelPart::Bias;
  int layer = -1;
  std::vector<WeightSource> sources;
  bool matrix = true;  // tensors are [rows, cols], else [rows]
  Init init;
  bool decay = true;  // under weight decay
  bool trainable = true;
  bool wide = false;  // ModelSpec::wide names one of its tensors, or their formats differ
  std::optional<NumberFormat> format = {};  // as it is stored; nothing: in the type that is computed in
  ProductFormats product = {};              // of its products
  // An adapter's B says what it adds to the result of its weight's product, without tokens, and the role of
  // its A, and of its magnitudes, if it has some. Weights that are rows of one tensor share an A, and
  // `target`, which names it in draws of dropout. Of experts they are sizes of one, and its adapters follow
  // each other.
  struct Adds {
    LowRankSizes sizes;
    double scale;
    std::string a;
    uint64_t target;
    std::string magnitudes = {};
  };
  std::optional<Adds> adds = {};
  // Where it is not loaded it begins as the norms of rows of another weight of its layer, which has that
  // role: those that hold its own sources' tensors.
  struct Norms {
    std::string of;
    int64_t first;  // row
  };
  std::optional<Norms> norms = {};
  // The rows that are trained where not all are, as an adapter's folder has them and in its order, and where
  // they begin among the weight's elements. Empty: all rows are trained, or none.
  struct Learnt {
    int64_t first;
    WeightSource rows;
  };
  std::vector<Learnt> learnt = {};

  int64_t elements() const;
  // The elements of `learnt`, run by run, or all.
  struct Stretch {
    int64_t first, count;
  };
  std::vector<Stretch> learnt_elements() const;
};

// The roles of the weights of the adapters of a weight. Those of all its tensors are one. With dropout, which
// each has for itself, they are several, one after the other.
std::string adapter_a(std::string_view role, size_t number);
std::string adapter_b(std::string_view role, size_t number);
std::string adapter_magnitudes(std::string_view role);

// The suffix of the roles of experts' weights, by the number of their group.
std::string group_name(int64_t group);
// The role of a part of a stack that is stored in several formats, from 1 on. The first has the stack's.
std::string part_name(std::string_view role, size_t number);

// The ending, behind the module's name, of the tensor that has an adapter's rows of tokens.
constexpr std::string_view kTokenRows = ".token_adapter.trainable_tokens_delta";

// The adapter of a tensor of a weight; nothing: it has none.
struct AdapterOf {
  int64_t rank;
  double alpha, scale;
};
std::optional<AdapterOf> adapter_of(const ModelSpec& spec, const Weight& weight, std::string_view tensor);
// "model.layers.3.self_attn.k_proj" of "model.layers.3.self_attn.k_proj.weight", as PEFT calls it: within the
// class of transformers (ModelSpec::text_module).
std::string module_of(const ModelSpec& spec, std::string_view tensor);

// Every weight, in the order of the forward pass. What spec.freeze names is not trained; a weight of several
// tensors is not if that holds of each. Tensors that are multiplied at once but stored in several formats are
// weights of their own, one behind the other.
std::vector<Weight> weights_of(const ModelSpec& spec);
// The same with all that is multiplied at once in one weight, whatever it is stored in.
std::vector<Weight> stacks_of(const ModelSpec& spec);
// Whether it is stored with scales.
bool is_packed(const Weight& weight);
// Whether it is one of those of ModelSpec::files_have.
bool may_stay_in_files(const Weight& weight);
// Whether it is a dense product of a layer whose sizes operands in 8 bits have (ops/cast.h), and is not wide.
bool may_be_narrow(const Weight& weight);
// Whether a pass begins with a token's row of it, which those that generate text are given: the embedding,
// and tables of layers. Rows are multiplied by row_scale().
bool is_looked_up(const Weight& weight);
float row_scale(const ModelSpec& spec, const Weight& weight);
// Whether it is A or B of experts.
bool is_of_experts(const ModelSpec& spec, const Weight& weight);
// Elements of a weight that a token is multiplied with: only those of chosen experts.
double active_elements(const ModelSpec& spec, const Weight& weight);

// Whether patterns freeze a tensor. A pattern is as a shell has them (*, ?, [0-7]; * takes dots, too) and
// names tensors, or what they are parts of: "model.layers.3" has all of that layer. One that begins with !
// takes back what those before it froze. The last that names the tensor decides.
bool frozen(std::span<const std::string> patterns, std::string_view tensor);

// Whether a pattern, which is as freeze's but for the mark, names a tensor or what it is part of, from any
// part of its name on. So "k_proj" and "layers.3" do, of the third layer's keys.
bool names_part(std::string_view pattern, std::string_view tensor);
// The names of tensors, or of their parts ("self_attn", "q_proj.weight"), that are nearest to a pattern's
// text between its stars.
std::vector<std::string> near_names(std::string_view pattern, const std::vector<Weight>& weights);

// The formats of a tensor by ModelSpec::stored; null: no pattern names it.
const StoredIn* stored_in(std::span<const StoredIn> patterns, std::string_view tensor);
// Whether each pattern names something, which may be stored so.
Status check_stored(const ModelSpec& spec);

// Gives the model adapters. An error names the key of `section` that names no tensor, or one that can have no
// adapter.
Status adapt(ModelSpec& spec, Adapters adapters, std::string_view section);

// Has products with these tensors read no 8 bits. An error if a pattern names none of a product that could.
Status keep_wide(ModelSpec& spec, std::vector<std::string> patterns, std::string_view key);

// Has the patterns freeze tensors of the model. An error if one of them names no tensor, if tensors that are
// one weight are not frozen together, or if nothing is left to train. `key` stands for the list.
Status freeze(ModelSpec& spec, std::vector<std::string> patterns, std::string_view key);

}  // namespace sluice::core
