// SPDX-License-Identifier: Apache-2.0
// A decoder as data: one LayerSpec per layer. What is outside model/ learns of a family through this, through
// the table of weights (model/weights.h) and through the forward code (model/layers.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/format.h"
#include "base/status.h"
#include "ops/behind_heads.h"
#include "ops/delta_sizes.h"
#include "ops/gate_activation.h"
#include "ops/router_score.h"

namespace sluice::core {

// Upper limits of a model: far beyond those there are, and far from where products of sizes end.
constexpr int64_t kMostLayers = 4096, kMostWidth = int64_t{1} << 24, kMostVocab = int64_t{1} << 28;

// Rotary embedding frequencies: theta^(-2 i / head_dim), or by one of the ways of making them reach further,
// as Hugging Face transformers names and computes them.
struct RopeScaling {
  enum Kind : uint8_t {
    Default,
    Linear,   // all are divided by `factor`
    Dynamic,  // theta grows with a sequence that is longer than original_context
    Llama3,   // those slower than original_context are divided by `factor`
    Yarn,     // likewise, between beta_slow and beta_fast turns in original_context
    Long,  // each by a number of its own, which is another where sequences are longer than original_context
    Proportional,  // the first `turned` of them are divided by `factor`, and the others are 0
  } kind = Default;
  double theta = 10000;
  double factor = 1;
  int64_t original_context = 8192;
  double low_freq_factor = 1, high_freq_factor = 4;  // Llama3
  double beta_fast = 32, beta_slow = 1;              // Yarn
  bool truncate = true;                              // Yarn: to whole frequencies
  double attention_factor = 1;                       // of the cosines and sines
  double temperature = 0;  // queries are multiplied by 1 + it ln(1 + floor(position / original_context))
  // Long: of sequences up to original_context, and of others.
  std::vector<double> short_factors, long_factors;
  double turned = 1;  // Proportional: a part of all

  // Whether frequencies depend on how long a sequence is.
  bool follows_length() const { return kind == Dynamic || kind == Long; }
  bool operator==(const RopeScaling&) const = default;
};

// How q and k are normalised before the rotation: not at all, every head, or all heads of a token as one row.
enum class QkNorm : uint8_t { None, Heads, Whole };

struct Attention {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  QkNorm qk_norm = QkNorm::None;
  bool qkv_bias = false, o_bias = false;
  bool rotated = true;  // by their positions
  int64_t window = 0;   // the newest tokens, its own among them, that one attends to; 0: all
  double scale = 0;     // of the scores; 0: 1 / sqrt(head_dim)
  double softcap = 0;   // of the scores, as AttnShape's; 0: none
  bool sinks = false;   // a learnt logit of every head in the softmax's sum, as AttnFwd's
  bool gated = false;   // what it makes is multiplied by a gate of every element, as HeadGate's
  // Values behind the heads of keys, which are normalised by HeadNormRope: its results of a projection of
  // their own, or of the keys'.
  BehindHeads values = BehindHeads::Copied;
  int keys_of = -1;  // an earlier layer, whose keys and values are read here, too; -1: it has its own

  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
  // The columns that its projection of keys and values makes.
  int64_t kv_columns() const { return keys_of >= 0 ? 0 : (values == BehindHeads::Again ? 1 : 2) * kv_dim(); }
  // The factor of rotated q and of rotated k, so that scores over sqrt(head_dim) are of the scale.
  double rotation_scale() const { return scale == 0 ? 1 : std::sqrt(scale * std::sqrt(double(head_dim))); }
  bool operator==(const Attention&) const = default;
};

// A short convolution, as ops/conv.h has it.
struct Convolution {
  int64_t width = 0;
  bool operator==(const Convolution&) const = default;
};

// A gated delta rule (ops/delta.h) over q, k and v behind a short convolution, times a gate.
struct GatedDelta {
  DeltaSizes sizes = {};
  int64_t width = 0;  // of the convolution
  bool operator==(const GatedDelta&) const = default;
};

// down(activation(gate(x)) * up(x)), or without a gate down(activation(up(x)))
struct Mlp {
  int64_t ffn = 0;
  GateActivation activation = GateActivation::Silu;
  bool bias = false;
  bool gated = true;
  double limit = 0;  // of gates and of what they are multiplied with, as Swiglu's; 0: none

  int64_t up_dim() const { return gated ? 2 * ffn : ffn; }  // of all that reads x
  bool operator==(const Mlp&) const = default;
};

// A mixture of experts, each of which is an MLP: of all of them a token has the results of top_k, times their
// gates.
struct Experts {
  Mlp each = {};
  int64_t count = 0, top_k = 0;
  RouterScore score = RouterScore::Softmax;
  bool normalised = false;      // as Route's
  double scale = 1;             // of gates
  bool router_bias = false;     // of the logits
  bool selection_bias = false;  // of choices alone, and no gradient moves it
  int64_t shared = 0;           // the width of an expert for every token, with a gate; 0: there is none
  // The width of an MLP beside the mixture, for every token. Then the router and the experts read the stream
  // by norms of their own, and both results are normalised before they are added. 0: there is none.
  int64_t beside = 0;
  bool gate_scales = false;  // gates are multiplied by a learnt factor of their expert
  int64_t group = 0;         // experts whose weights are one object, so that they are moved at once

  bool operator==(const Experts&) const = default;
};

// Where the norms of a layer's halves stand: x + half(norm(x)), x + norm(half(x)), or both.
enum class Norms : uint8_t { Before, After, Around };

// The kind of the stream's norms: they divide by the root of the mean square (RMSNorm), or take the mean off
// before (LayerNorm); and whether they have weights, and biases.
struct NormKind {
  bool centred = false, weight = true, bias = false;
  bool operator==(const NormKind&) const = default;
};

// Names of a model's tensors in checkpoints and, behind `layers` and a number, of a layer's, and whether
// several are one tensor there, stacked by rows.
struct TensorNames {
  const char *embedding = "model.embed_tokens", *layers = "model.layers", *norm = "model.norm",
             *head = "lm_head";
  const char *q = "self_attn.q_proj", *k = "self_attn.k_proj", *v = "self_attn.v_proj",
             *o = "self_attn.o_proj", *sinks = "self_attn.sinks";
  const char *q_norm = "self_attn.q_norm", *k_norm = "self_attn.k_norm";
  const char *conv_in = "conv.in_proj", *conv = "conv.conv", *conv_out = "conv.out_proj";
  // Names of a gated delta rule: what its tensors' names begin with. Also whether those that read x have the
  // rows of a key head, with the value heads that share it, before those of the next.
  const char* delta = "linear_attn";
  bool delta_by_heads = false;
  const char *gate = "mlp.gate_proj", *up = "mlp.up_proj", *down = "mlp.down_proj";
  const char *qkv = nullptr, *gate_up = nullptr;  // null: they are apart
  // Names of a mixture: its router, its numbered experts, and the parts of one expert.
  const char *router = "mlp.gate", *experts = "mlp.experts";
  const char *expert_gate = "gate_proj", *expert_up = "up_proj", *expert_down = "down_proj";
  const char* selection_bias = "mlp.expert_bias";
  // Or all experts of a layer are one tensor, [experts, rows, columns], gates before up. Or it is turned,
  // with rows for inputs, and then columns of gates and of up stand in turn. Classes of transformers hold the
  // others in such tensors, too.
  enum InOne : uint8_t { Apart, Stacked, Turned } experts_in_one = Apart;
  const char *gate_up_in_one = "gate_up_proj", *down_in_one = "down_proj";
  // The expert that all tokens share, and its gate.
  const char *shared_gate = "mlp.shared_expert.gate_proj", *shared_up = "mlp.shared_expert.up_proj",
             *shared_down = "mlp.shared_expert.down_proj", *shared_router = "mlp.shared_expert_gate";
  // Tensors that layers add to the stream beside their halves, and multiply it by.
  const char *input_table = "model.embed_tokens_per_layer",
             *input_projection = "model.per_layer_model_projection",
             *input_norm = "model.per_layer_projection_norm", *input_gate = "per_layer_input_gate",
             *input_out = "per_layer_projection", *input_after = "post_per_layer_input_norm",
             *layer_scale = "layer_scalar";
  bool qkv_by_heads = false;  // q, k and v of a head follow each other, before those of the next
  const char* positions = nullptr;
  bool transposed = false;  // matrices of layers have a row for each input
  // Tensors of a mixture with an MLP beside it.
  const char *router_norm = "router.scale", *gate_scales = "router.per_expert_scale",
             *beside_after = "post_feedforward_layernorm_1", *experts_before = "pre_feedforward_layernorm_2",
             *experts_after = "post_feedforward_layernorm_2";
  // Norms before and behind attention and MLP; null: by their order, as in most families.
  const char *norm1 = "input_layernorm", *norm1_after = "post_attention_layernorm", *norm2 = nullptr,
             *norm2_around = "pre_feedforward_layernorm", *norm2_after = "post_feedforward_layernorm";
  bool operator==(const TensorNames&) const = default;
};

// Which rows of a head are rotated, as checkpoints have them. They are the first `rows`, or all if that is 0,
// of which neighbours are pairs, or else each of the first half with its like of the second.
struct RotatedRows {
  int64_t rows = 0;
  bool neighbours = false;
  bool operator==(const RotatedRows&) const = default;
};

// Low-rank adapters beside matrices of layers (LoRA): a product with W has scale * B (A x) added to it. A
// model with adapters trains these, and the weights that `whole` names. Patterns name tensors as
// names_part() says.
struct Adapters {
  int64_t rank = 0;     // rows of an A, columns of a B; 0: there are none
  double alpha = 1;     // scale is alpha / rank
  bool rslora = false;  // or alpha / sqrt(rank)
  // None: every matrix that every token is multiplied with, but for the head.
  std::vector<std::string> targets, exclude;
  // Other values for what the pattern names; the last that does decides.
  struct Other {
    std::string pattern;
    double value;
    bool operator==(const Other&) const = default;
  };
  std::vector<Other> ranks, alphas;
  std::vector<std::string> whole;
  // Rows of the embedding, and of a head that is not the embedding, that are trained, too.
  std::vector<int64_t> tokens, head_tokens;
  bool decay = false;  // weight decay reaches A, B and these rows
  double dropout = 0;  // share of an A's input that is 0 in training
  // Rows of W + scale * B A are divided by their norms, which are constants, and multiplied by magnitudes
  // that are trained (DoRA, https://arxiv.org/abs/2402.09353).
  bool dora = false;

  bool any() const { return rank > 0; }
  bool operator==(const Adapters&) const = default;
};

// The halves of a layer are of one kind each: what mixes tokens, and what every token goes through alone.
using Mixer = std::variant<Attention, Convolution, GatedDelta>;
using FeedForward = std::variant<Mlp, Experts>;

struct LayerSpec {
  Mixer mixer;
  FeedForward feed_forward;
  Norms norms = Norms::Before;
  // Both halves read the layer's input, and are added to it; and without norm2 its first norm's result.
  bool parallel = false, norm2 = true;
  // The width of a row that a table of the layer has for every token. It is added to a projection of the
  // embedding, gates what the stream is projected to, and that is added to the stream behind both halves. 0:
  // there is none.
  int64_t input = 0;
  bool scaled = false;  // then the stream is multiplied by a number of the layer, which is not trained

  // Null: the half is of another kind.
  const Attention* attention() const { return std::get_if<Attention>(&mixer); }
  Attention* attention() { return std::get_if<Attention>(&mixer); }
  const Convolution* convolution() const { return std::get_if<Convolution>(&mixer); }
  const GatedDelta* delta() const { return std::get_if<GatedDelta>(&mixer); }
  const Experts* experts() const { return std::get_if<Experts>(&feed_forward); }
  Experts* experts() { return std::get_if<Experts>(&feed_forward); }
  // The MLP of every token, or of each expert.
  const Mlp& mlp() const { return experts() ? experts()->each : std::get<Mlp>(feed_forward); }
  Mlp& mlp() { return experts() ? experts()->each : std::get<Mlp>(feed_forward); }
  bool operator==(const LayerSpec&) const = default;
};

// As a product of a layer reads what it multiplies, and what it makes, by role. Nothing: in the type of
// activations. With scales x, w and dy all have them, and are copied by row and turned (Quantize in
// ops/cast.h). A w of another format than it is stored in is cast.
struct ProductFormats {
  std::optional<NumberFormat> x = {}, w = {}, dy = {}, y = {};
  bool operator==(const ProductFormats&) const = default;
};

// The formats of tensors that a pattern names, as one of freeze (model/weights.h). Nothing: that which is
// computed in.
struct StoredIn {
  std::string pattern;
  std::optional<NumberFormat> format = {};
  ProductFormats product = {};
};

struct ModelSpec {
  // Compiled once, in spec.cpp, as it has many parts.
  ModelSpec();
  ModelSpec(const ModelSpec&);
  ModelSpec(ModelSpec&&) noexcept;
  ModelSpec& operator=(const ModelSpec&);
  ModelSpec& operator=(ModelSpec&&) noexcept;
  ~ModelSpec();

  std::string family = "llama";  // model_type of a Hugging Face config.json
  int64_t dim = 0, vocab = 0;
  double norm_eps = 1e-5;
  double norm_offset = 0;  // norms multiply with this plus their weight
  NormKind norm;
  TensorNames names;
  // The name of the module "model" in the class of transformers, where that wraps this model; empty: the
  // same.
  std::string text_module;
  bool tied_embeddings = false;  // the head is the embedding
  // Factors of the embedding, what each half of a layer adds to the stream, and the logits.
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  double logit_softcap = 0;  // as HeadLoss's; 0: none
  int64_t positions = 0;     // of a table with a row for each, added to the embedding; 0: there is none
  int64_t context = 0;       // max_position_embeddings, where its file says it; 0: it does not
  RopeScaling rope;
  std::optional<RopeScaling> window_rope = {};  // of layers with a window; nothing: as of the others
  RotatedRows rotated = {};
  // Terms of a step's loss beside its tokens', from layers with experts: RouterLosses' balance, in the mean
  // of its rounds, and z, in the mean of its tokens.
  double router_balance = 0, router_z = 0;
  std::vector<LayerSpec> layers;
  // Frozen weights: patterns over the names of tensors, see frozen() in model/weights.h.
  std::vector<std::string> freeze;
  Adapters adapters = {};
  // In which formats layers' products have their weights: the last that names a tensor decides. What is
  // trained is stored in the type that is computed in.
  std::vector<StoredIn> stored;
  // The format of all other weights of layers' products that are not trained, but routers, where it fits
  // their rows; of experts beside adapters alone. Products take them in the type that is computed in.
  std::optional<NumberFormat> base = {};
  // Those of the products of weights that may_be_narrow().
  ProductFormats products = {};
  bool narrow_head = false;  // the head's read 8 bits, too: see HeadLoss::x_format
  // Patterns, as freeze's, over the tensors whose products are not among them.
  std::vector<std::string> wide;
  // The format that config.json says its folder's matrices have; nothing: numbers.
  std::optional<NumberFormat> folder_format = {};
  // The folder's files have the frozen matrices of layers: numbers, or the codes as which they are stored. So
  // devices can read them from there (reads_files), and they need no place on the host.
  bool files_have = false, reads_files = false;
  // The text of the config.json that it was read from, with all that others know of the model; empty: none.
  std::string config;
  // Notices for the reader of that text, such as a size that it leaves out.
  std::vector<std::string> notices;

  int64_t params() const;
  // Parameters that a token is multiplied with: only those of the experts that it chooses.
  int64_t active_params() const;
  bool has_experts() const;
  // That of the first layer that has it, in many ways as all others; of none one without heads.
  const Attention& attention() const;
  int64_t rotated_rows(const Attention& of) const { return rotated.rows == 0 ? of.head_dim : rotated.rows; }
  // Whether window_rope rotates a layer.
  bool rotates_as_window(const Attention& attention) const { return window_rope && attention.window > 0; }
  const RopeScaling& rope_of(const Attention& attention) const {
    return rotates_as_window(attention) ? *window_rope : rope;
  }
  // The stream is kept divided by residual_scale, so that what is added to it need not be multiplied. The
  // embedding begins it so, and norms of it have an epsilon that is as much smaller as its squares are.
  double stream_embedding_scale() const { return embedding_scale / residual_scale; }
  double stream_norm_eps() const { return norm_eps / (residual_scale * residual_scale); }
};

// Layers that are all alike, as most families have them.
struct EqualLayers {
  int64_t dim, layers, heads, kv_heads, head_dim, ffn, vocab;
};
ModelSpec model_of(const EqualLayers& shape);

// Tokens that a text may have, its prompt among them; 0: nobody says. Frequencies that change as a text grows
// are those of one that fits the context that they were trained for.
int64_t positions_of(const ModelSpec& spec);
// The longest text that a model's file says it is for, as far as a scaling of its rotation reaches; 0: nobody
// says, or there is no end.
int64_t reach_of(const ModelSpec& spec);
// Rows that a model is trained or evaluated on.
struct TextRows {
  int64_t tokens = 0;
  bool packed = false;  // documents may begin inside
  int64_t longest = 0;  // document, in tokens; 0: unknown
};
// Says that rows are beyond the model's reach, or that short documents get the rotation of long rows; `key`
// stands for the tokens of a row.
std::vector<std::string> notices_of_length(const ModelSpec& spec, const TextRows& rows, std::string_view key);
// Whether texts of so many tokens have positions in the model; `key` stands for the number.
Status check_length(const ModelSpec& spec, int64_t tokens, std::string_view key);

// Tokens that a piece of a sequence needs at least: as many as a convolution looks back.
int64_t least_piece(const ModelSpec& spec);
// Whether sequences may be cut into chunks of so many tokens.
Status check_pieces(const ModelSpec& spec, int64_t seq_len, int64_t chunk_tokens);

// Shapes that fit together: positive sizes, heads divisible by kv_heads, one even head_dim. Errors name the
// key of config.json.
Status validate(const ModelSpec& spec);

// "32 x 4096, 32 of 8 heads of 128, ffn 14336, vocabulary 128256", and what differs from Llama: the shapes
// that decide what a step costs. Layers that differ are listed.
std::string to_text(const ModelSpec& spec);

// "adapters of rank 16, alpha 32, beside q_proj, v_proj".
std::string to_text(const Adapters& adapters);

// inv_freq[i] for i < head_dim / 2, for sequences of seq_len tokens. `rotated` says how many rows of a head
// are rotated, 0 for all; the others have 0, as no angle turns them.
std::vector<float> rope_inv_freq(const RopeScaling& rope, int64_t head_dim, int64_t seq_len,
                                 int64_t rotated = 0);

}  // namespace sluice::core
