// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/nearest.h"

namespace sluice::core {
namespace {

// Of matrices, as in the families' own code; those that write into the residual stream begin smaller by the
// root of how often it is written to, so that it does not grow with depth.
constexpr float kDeviation = 0.02f;

class Table {
 public:
  explicit Table(const ModelSpec& spec)
      : spec_(spec), into_residual_(kDeviation / std::sqrt(2.0f * float(spec.layers.size()))) {}

  std::vector<Weight> weights() {
    const int64_t d = spec_.dim, v = spec_.vocab;
    layer_ = -1;
    const TensorNames& names = spec_.names;
    matrix("embedding", ModelPart::Embedding, {{std::string(names.embedding) + ".weight", v, d}});
    if (spec_.positions > 0)
      matrix("positions", ModelPart::Positions,
             {{std::string(names.positions) + ".weight", spec_.positions, d}});
    for (size_t l = 0; l < spec_.layers.size(); ++l) layer(int(l));
    layer_ = -1;
    norm("norm", names.norm, d);
    if (!spec_.tied_embeddings)
      matrix("head", ModelPart::Head, {{std::string(names.head) + ".weight", v, d}});
    return std::move(out_);
  }

 private:
  void layer(int index) {
    const LayerSpec& layer = spec_.layers[size_t(index)];
    const int64_t d = spec_.dim;
    const TensorNames& names = spec_.names;
    layer_ = index;
    const bool before = layer.norms != Norms::After, after = layer.norms != Norms::Before;
    if (before) norm("norm1", at(names.norm1), d);
    std::visit([&](const auto& mixer) { mix(mixer); }, layer.mixer);
    if (after) norm("norm1_after", at(names.norm1_after), d);
    if (before && layer.norm2)
      norm("norm2",
           at(names.norm2 != nullptr ? names.norm2
              : after                ? names.norm2_around
                                     : names.norm1_after),
           d);
    std::visit([&](const auto& half) { feed_forward(half); }, layer.feed_forward);
    if (after) norm("norm2_after", at(names.norm2_after), d);
  }

  void feed_forward(const Mlp& mlp) {
    const TensorNames& names = spec_.names;
    const int64_t d = spec_.dim, f = mlp.ffn;
    const auto gate_and_up = [&](const char* kind, int64_t cols) {
      using Sources = std::vector<WeightSource>;
      if (names.gate_up != nullptr) return Sources{{at(names.gate_up) + kind, 2 * f, cols}};
      if (!mlp.gated) return Sources{{at(names.up) + kind, f, cols}};
      return Sources{{at(names.gate) + kind, f, cols}, {at(names.up) + kind, f, cols}};
    };
    matrix("wgu", ModelPart::Mlp, gate_and_up(".weight", d));
    if (mlp.bias) bias("bgu", gate_and_up(".bias", 1));
    matrix("wd", ModelPart::Mlp, {{at(names.down) + ".weight", d, f}}, into_residual_);
    if (mlp.bias) bias("bd", {{at(names.down) + ".bias", d, 1}});
  }

  void feed_forward(const Experts& e) {
    const TensorNames& names = spec_.names;
    const int64_t d = spec_.dim;
    matrix("router", ModelPart::Router, {{at(names.router) + ".weight", e.count, d}});
    if (e.router_bias) bias("router_bias", {{at(names.router) + ".bias", e.count, 1}});
    if (e.selection_bias) {
      bias("selection_bias", {{at(names.selection_bias), e.count, 1}});
      out_.back().trainable = false;
      out_.back().format = DType::F32;
    }
    for (int64_t first = 0; first < e.count; first += e.group) {
      std::vector<WeightSource> gate_up, down;
      for (int64_t i = first; i < first + e.group; ++i) {
        add_expert(e, i, gate_up, down);
      }
      const std::string number = group_name(first / e.group);
      matrix(("wgu" + number).c_str(), ModelPart::Experts, std::move(gate_up));
      matrix(("wd" + number).c_str(), ModelPart::Experts, std::move(down), into_residual_);
    }
    if (e.each.bias) {
      std::vector<WeightSource> gate_up, down;
      for (int64_t i = 0; i < e.count; ++i) add_biases_of_expert(e, i, gate_up, down);
      bias("bgu", std::move(gate_up));
      bias("bd", std::move(down));
    }
    if (e.shared == 0) return;
    matrix(
        "shared_wgu", ModelPart::Mlp,
        {{at(names.shared_gate) + ".weight", e.shared, d}, {at(names.shared_up) + ".weight", e.shared, d}});
    matrix("shared_wd", ModelPart::Mlp, {{at(names.shared_down) + ".weight", d, e.shared}}, into_residual_);
    matrix("shared_gate", ModelPart::Router, {{at(names.shared_router) + ".weight", 1, d}});
  }

  std::string of_expert(int64_t expert, const char* name, const char* kind) const {
    return fmt::format("{}.{}.{}{}", at(spec_.names.experts), expert, name, kind);
  }
  // Of a tensor that has those of all experts.
  WeightSource of_all(const Experts& e, int64_t expert, const char* name, const char* kind, int64_t rows,
                      int64_t cols, bool turned) const {
    return {.tensor = fmt::format("{}.{}{}", at(spec_.names.experts), name, kind),
            .rows = rows,
            .cols = cols,
            .first_row = expert * rows,
            .tensor_rows = e.count * rows,
            .transposed = turned,
            .stacked = e.count};
  }

  void add_expert(const Experts& e, int64_t expert, std::vector<WeightSource>& gate_up,
                  std::vector<WeightSource>& down) const {
    const TensorNames& names = spec_.names;
    const int64_t d = spec_.dim, f = e.each.ffn;
    if (names.experts_in_one) {
      WeightSource& both = gate_up.emplace_back(of_all(e, expert, names.gate_up_in_one, "", 2 * f, d, true));
      both.blocks = {.rows = 2 * f, .step = 2 * f, .paired = 2 * f, .interleaved = true};
      down.push_back(of_all(e, expert, names.down_in_one, "", d, f, true));
      return;
    }
    gate_up.push_back({of_expert(expert, names.expert_gate, ".weight"), f, d});
    gate_up.push_back({of_expert(expert, names.expert_up, ".weight"), f, d});
    down.push_back({of_expert(expert, names.expert_down, ".weight"), d, f});
    const std::string in_one = at(names.experts), gate_up_in_one = in_one + "." + names.gate_up_in_one;
    gate_up.end()[-2].stack = {gate_up_in_one, e.count, 2 * f, expert * 2 * f};
    gate_up.back().stack = {gate_up_in_one, e.count, 2 * f, expert * 2 * f + f};
    down.back().stack = {in_one + "." + names.down_in_one, e.count, d, expert * d};
  }

  void add_biases_of_expert(const Experts& e, int64_t expert, std::vector<WeightSource>& gate_up,
                            std::vector<WeightSource>& down) const {
    const TensorNames& names = spec_.names;
    const int64_t d = spec_.dim, f = e.each.ffn;
    if (names.experts_in_one) {
      // Gates, then up: two rows, which the tensor has as two columns.
      gate_up.push_back(of_all(e, expert, names.gate_up_in_one, "_bias", 2, f, true));
      down.push_back(of_all(e, expert, names.down_in_one, "_bias", d, 1, false));
      return;
    }
    gate_up.push_back({of_expert(expert, names.expert_gate, ".bias"), f, 1});
    gate_up.push_back({of_expert(expert, names.expert_up, ".bias"), f, 1});
    down.push_back({of_expert(expert, names.expert_down, ".bias"), d, 1});
  }

  std::string at(const char* name) const { return fmt::format("{}.{}.{}", spec_.names.layers, layer_, name); }

  void mix(const Convolution& convolution) {
    const int64_t d = spec_.dim;
    const TensorNames& names = spec_.names;
    matrix("wconv_in", ModelPart::ConvProjection, {{at(names.conv_in) + ".weight", 3 * d, d}});
    matrix("wconv", ModelPart::Convolution, {{at(names.conv) + ".weight", d, convolution.width}});
    out_.back().sources.front().of_conv = true;
    out_.back().format = {};
    matrix("wconv_out", ModelPart::ConvProjection, {{at(names.conv_out) + ".weight", d, d}}, into_residual_);
  }

  void mix(const Attention& a) {
    const int64_t d = spec_.dim, q = a.q_dim(), kv = a.kv_dim();
    const TensorNames& names = spec_.names;
    matrix("wq", ModelPart::Projection, {projection(a, at(names.q), Qkv::Q, ".weight", d)});
    if (a.qkv_bias) bias("bq", {projection(a, at(names.q), Qkv::Q, ".bias", 1)});
    const auto keys_and_values = [&](const char* kind, int64_t cols) {
      return std::vector<WeightSource>{projection(a, at(names.k), Qkv::K, kind, cols),
                                       projection(a, at(names.v), Qkv::V, kind, cols)};
    };
    matrix("wkv", ModelPart::Projection, keys_and_values(".weight", d));
    if (a.qkv_bias) bias("bkv", keys_and_values(".bias", 1));
    if (a.qk_norm != QkNorm::None) {
      const bool whole = a.qk_norm == QkNorm::Whole;
      plain_norm("q_norm", at(names.q_norm) + ".weight", whole ? q : a.head_dim);
      plain_norm("k_norm", at(names.k_norm) + ".weight", whole ? kv : a.head_dim);
    }
    if (a.sinks) bias("sinks", {{at(names.sinks), a.heads, 1}});
    matrix("wo", ModelPart::AttentionOut, {{at(names.o) + ".weight", d, q}}, into_residual_);
    if (a.o_bias) bias("bo", {{at(names.o) + ".bias", d, 1}});
  }

  // The rows of q, k or v, in a tensor of their own, which is called `own`, or in that of all three: one
  // after the other, or so by heads.
  enum class Qkv : uint8_t { Q, K, V };
  WeightSource projection(const Attention& a, const std::string& own, Qkv which, const char* kind,
                          int64_t cols) const {
    const TensorNames& names = spec_.names;
    const int64_t rows = which == Qkv::Q ? a.q_dim() : a.kv_dim();
    WeightSource out{own + kind, rows, cols};
    if (names.qkv != nullptr) {
      out.tensor = fmt::format("{}.{}.{}{}", names.layers, layer_, names.qkv, kind);
      out.tensor_rows = a.q_dim() + 2 * a.kv_dim();
      const int64_t q = names.qkv_by_heads ? a.head_dim : a.q_dim();
      const int64_t kv = names.qkv_by_heads ? a.head_dim : a.kv_dim();
      out.first_row = which == Qkv::Q ? 0 : which == Qkv::K ? q : q + kv;
    }
    const bool turned = a.rotated && which != Qkv::V && spec_.rotated != RotatedRows{};
    if (!turned && !names.qkv_by_heads) return out;
    out.blocks = {.rows = a.head_dim, .step = names.qkv_by_heads ? 3 * a.head_dim : a.head_dim};
    if (!turned) return out;
    out.blocks.paired = spec_.rotated_rows();
    out.blocks.interleaved = spec_.rotated.neighbours;
    return out;
  }

  void put(const char* role, ModelPart part, std::vector<WeightSource> sources, Init init) {
    const bool matrix = part != ModelPart::Norm && part != ModelPart::Bias;
    Weight& w = out_.emplace_back();
    w.object = layer_ < 0 ? role : fmt::format("{}.L{}", role, layer_);
    w.role = role;
    w.part = part;
    w.layer = layer_;
    w.sources = std::move(sources);
    w.matrix = w.decay = matrix;
    w.init = init;
    if (!spec_.freeze.empty()) w.trainable = !all_frozen(w.sources);
    if (!matrix || layer_ < 0) return;
    w.format = spec_.layers[size_t(layer_)].matrices;
    if (spec_.names.transposed) {
      for (WeightSource& source : w.sources) source.transposed = true;
    }
  }
  void matrix(const char* role, ModelPart part, std::vector<WeightSource> sources,
              float deviation = kDeviation) {
    put(role, part, std::move(sources), {Init::Normal, deviation});
  }
  void plain_norm(const char* role, std::string tensor, int64_t rows) {
    put(role, ModelPart::Norm, {{std::move(tensor), rows, 1}},
        {spec_.norm_offset == 0 ? Init::Ones : Init::Zeros});
  }
  // Of the stream, with what its norms have.
  void norm(const std::string& role, const std::string& tensor, int64_t rows) {
    if (spec_.norm.weight) plain_norm(role.c_str(), tensor + ".weight", rows);
    if (spec_.norm.bias) bias((role + "_bias").c_str(), {{tensor + ".bias", rows, 1}});
  }
  void bias(const char* role, std::vector<WeightSource> sources) {
    put(role, ModelPart::Bias, std::move(sources), {Init::Zeros});
  }

  bool all_frozen(const std::vector<WeightSource>& sources) const {
    return std::all_of(sources.begin(), sources.end(),
                       [&](const WeightSource& s) { return frozen(spec_.freeze, s.tensor); });
  }

  const ModelSpec& spec_;
  const float into_residual_;
  int layer_ = -1;  // what follows belongs to it; -1: to none
  std::vector<Weight> out_;
};

constexpr char kTakesBack = '!';

// What a pattern names, without the mark.
std::string_view named_by(std::string_view pattern) {
  return pattern.starts_with(kTakesBack) ? pattern.substr(1) : pattern;
}

bool names(std::string_view pattern, std::string_view tensor) {
  const std::string whole(named_by(pattern)), part = whole + ".*", name(tensor);
  return fnmatch(whole.c_str(), name.c_str(), 0) == 0 || fnmatch(part.c_str(), name.c_str(), 0) == 0;
}

// Of the names of tensors, and of the parts of which they are made ("self_attn", "q_proj.weight"), those that
// are nearest to what a pattern says between its stars.
std::vector<std::string> near_names(std::string_view pattern, const std::vector<Weight>& weights) {
  constexpr size_t kMost = 3;
  std::string_view said = named_by(pattern);
  const size_t first = std::min(said.find_first_not_of("*."), said.size());
  said = said.substr(first, said.find_last_not_of("*.") + 1 - first);
  std::set<std::pair<size_t, std::string>> found;
  for (const Weight& weight : weights) {
    for (const WeightSource& source : weight.sources) {
      const std::string_view name = source.tensor;
      for (size_t begin = 0; begin < name.size(); begin = std::min(name.find('.', begin), name.size()) + 1) {
        for (size_t end = begin; end < name.size();) {
          end = std::min(name.find('.', end + 1), name.size());
          const std::string_view part = name.substr(begin, end - begin);
          const bool a_number = part.find_first_not_of("0123456789") == part.npos;
          if (!a_number) found.emplace(edit_distance(said, part), part);
        }
      }
      if (found.size() > kMost) found.erase(std::next(found.begin(), kMost), found.end());
    }
  }
  std::vector<std::string> out;
  for (const auto& [distance, name] : found) out.push_back(name);
  return out;
}

Status check_together(const ModelSpec& spec, const Weight& weight, std::string_view key) {
  const WeightSource& one = weight.sources.front();
  const bool first = frozen(spec.freeze, one.tensor);
  for (const WeightSource& other : weight.sources) {
    if (frozen(spec.freeze, other.tensor) == first) continue;
    return error("{}: {} is frozen and {} is not, and they are one weight here: freeze both or neither", key,
                 first ? one.tensor : other.tensor, first ? other.tensor : one.tensor);
  }
  return {};
}

}  // namespace

bool frozen(std::span<const std::string> patterns, std::string_view tensor) {
  bool out = false;
  for (const std::string& pattern : patterns) {
    if (names(pattern, tensor)) out = !pattern.starts_with(kTakesBack);
  }
  return out;
}

Status freeze(ModelSpec& spec, std::vector<std::string> patterns, std::string_view key) {
  spec.freeze = std::move(patterns);
  const std::vector<Weight> weights = weights_of(spec);
  const auto any = [&](auto&& is) {
    return std::any_of(weights.begin(), weights.end(), [&](const Weight& weight) {
      return std::any_of(weight.sources.begin(), weight.sources.end(), is);
    });
  };
  for (const std::string& pattern : spec.freeze) {
    if (any([&](const WeightSource& s) { return names(pattern, s.tensor); })) continue;
    return error("{}: '{}' names no tensor of this model; near names are {}", key, pattern,
                 fmt::join(near_names(pattern, weights), ", "));
  }
  for (const Weight& weight : weights) SLUICE_TRY(check_together(spec, weight, key));
  // Of weights that nobody names some are never trained.
  if (std::ranges::any_of(weights_of(spec), &Weight::trainable)) return {};
  return error("{} = [{}]: nothing is left to train", key, fmt::join(spec.freeze, ", "));
}

int64_t RowBlocks::in_tensor(int64_t i) const {
  if (paired == 0) return i;
  const int64_t half = rows / 2, pairs = paired / 2, second = i / half, pair = i % half;
  if (pair >= pairs) return paired + second * (half - pairs) + pair - pairs;
  return interleaved ? 2 * pair + second : second * pairs + pair;
}

std::vector<int64_t> WeightSource::shape(bool matrix) const {
  // What is no matrix may have its elements in another order, as if it were one.
  std::vector<int64_t> out{matrix ? matrix_rows() : matrix_rows() * cols};
  if (of_conv) out.push_back(1);
  if (matrix) out.insert(transposed ? out.begin() : out.end(), cols);
  if (stacked > 0) out.insert(out.begin(), stacked);
  return out;
}

int64_t WeightSource::in_tensor(int64_t at) const {
  if (!transposed) return at;
  const int64_t elements = matrix_rows() * cols, in_matrix = at % elements;
  return at - in_matrix + in_matrix % cols * matrix_rows() + in_matrix / cols;
}

WeightSource::Stretch WeightSource::stretch(int64_t element, int64_t end) const {
  if (blocks.rows == 0) return {first_row * cols + element, end - element};
  const auto row_of = [&](int64_t row) {
    return first_row + row / blocks.rows * blocks.step + blocks.in_tensor(row % blocks.rows);
  };
  const int64_t first = element / cols, last = (end - 1) / cols;
  int64_t row = first;
  while (row < last && row_of(row + 1) == row_of(row) + 1) ++row;
  return {row_of(first) * cols + element % cols, std::min(end, (row + 1) * cols) - element};
}

int64_t Weight::elements() const {
  int64_t elements = 0;
  for (const WeightSource& s : sources) elements += s.elements();
  return elements;
}

std::string group_name(int64_t group) {
  return group == 0 ? std::string() : fmt::format("_{}", group);
}

std::vector<Weight> weights_of(const ModelSpec& spec) {
  return Table(spec).weights();
}

double active_elements(const ModelSpec& spec, const Weight& weight) {
  if (weight.part != ModelPart::Experts) return double(weight.elements());
  const Experts& e = *spec.layers[size_t(weight.layer)].experts();
  return double(weight.elements()) * double(e.top_k) / double(e.count);
}

}  // namespace sluice::core
