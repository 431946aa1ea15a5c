// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/nearest.h"
#include "model/weight_table.h"
#include "ops/cast.h"

namespace sluice::core {

WeightTable::WeightTable(const ModelSpec& spec)
    : spec_(spec), into_residual_(kDeviation / std::sqrt(2.0f * float(spec.layers.size()))) {}

std::vector<Weight> WeightTable::weights() {
  const int64_t d = spec_.dim, v = spec_.vocab;
  layer_ = -1;
  const TensorNames& names = spec_.names;
  matrix("embedding", ModelPart::Embedding, {{std::string(names.embedding) + ".weight", v, d}});
  if (spec_.positions > 0)
    matrix("positions", ModelPart::Table, {{std::string(names.positions) + ".weight", spec_.positions, d}});
  const auto inputs = std::ranges::find_if(spec_.layers, [](const LayerSpec& l) { return l.input > 0; });
  if (inputs != spec_.layers.end())
    plain_norm("input_norm", std::string(names.input_norm) + ".weight", inputs->input);
  for (size_t l = 0; l < spec_.layers.size(); ++l) layer(int(l));
  layer_ = -1;
  norm("norm", names.norm, d);
  if (!spec_.tied_embeddings) matrix("head", ModelPart::Head, {{std::string(names.head) + ".weight", v, d}});
  return std::move(out_);
}

void WeightTable::layer(int index) {
  const LayerSpec& layer = spec_.layers[size_t(index)];
  const int64_t d = spec_.dim;
  const TensorNames& names = spec_.names;
  layer_ = index;
  const bool before = layer.norms != Norms::After, after = layer.norms != Norms::Before;
  if (before) norm("norm1", at(names.norm1), d);
  std::visit([&](const auto& mixer) { add(mixer); }, layer.mixer);
  if (after) norm("norm1_after", at(names.norm1_after), d);
  if (before && layer.norm2)
    norm("norm2",
         at(names.norm2 != nullptr ? names.norm2
            : after                ? names.norm2_around
                                   : names.norm1_after),
         d);
  std::visit([&](const auto& half) { add(half); }, layer.feed_forward);
  if (after) norm("norm2_after", at(names.norm2_after), d);
  if (layer.input > 0) add_input(layer.input);
  if (!layer.scaled) return;
  kept("layer_scale", ModelPart::Norm, at(names.layer_scale), 1, {Init::Ones});
  out_.back().trainable = false;
}

// Tables and projections of all layers are one tensor each. In a row of the first a token's rows stand beside
// each other; layers' rows follow each other in the second.
void WeightTable::add_input(int64_t width) {
  const TensorNames& names = spec_.names;
  const auto layers = int64_t(spec_.layers.size());
  matrix("input_table", ModelPart::Table,
         {{.tensor = std::string(names.input_table) + ".weight",
           .rows = spec_.vocab,
           .cols = width,
           .first_row = layer_,
           .tensor_rows = spec_.vocab * layers,
           .blocks = {.rows = 1, .step = layers},
           .abreast = layers}});
  matrix("winput", ModelPart::Mlp,
         {{.tensor = std::string(names.input_projection) + ".weight",
           .rows = width,
           .cols = spec_.dim,
           .first_row = layer_ * width,
           .tensor_rows = width * layers}});
  matrix("winput_gate", ModelPart::Mlp, {{at(names.input_gate) + ".weight", width, spec_.dim}});
  matrix_into_stream("winput_out", ModelPart::Mlp, {{at(names.input_out) + ".weight", spec_.dim, width}});
  norm("input_after", at(names.input_after), spec_.dim);
}

namespace {

// Whether rows of a weight may be in a format of their own: one that a product has, and whose tensors have
// these rows. Codes of a folder have them even where its numbers are turned.
bool may_be_packed(const ModelSpec& spec, const Weight& w) {
  if (w.part == ModelPart::Convolution || w.part == ModelPart::Table) return false;
  const bool codes = spec.base && spec.base == spec.folder_format;
  return !w.sources.front().transposed || (codes && w.part == ModelPart::Experts);
}

// Those that the base's format is for. A pass that writes one token reads the experts that it chooses, which
// casts would read all: without adapters experts stay.
bool is_of_base(const ModelSpec& spec, const Weight& w) {
  return spec.base && !w.trainable && may_be_packed(spec, w) && w.part != ModelPart::Router &&
         (w.part != ModelPart::Experts || spec.adapters.any()) && spec.base->fits(w.sources.front().cols);
}

// The format that a tensor of a product is stored in.
std::optional<NumberFormat> format_of(const ModelSpec& spec, const Weight& w, const WeightSource& source) {
  const StoredIn* const stored = stored_in(spec.stored, source.tensor);
  const auto& format = stored != nullptr ? stored->format : is_of_base(spec, w) ? spec.base : std::nullopt;
  return format ? std::optional(format->over(source.cols)) : std::nullopt;
}

// The weight, or where its tensors' formats differ, those of one format after the other.
void add_parts(const ModelSpec& spec, Weight w, std::vector<Weight>& out) {
  const bool product = w.matrix && w.layer >= 0 && w.part != ModelPart::Adapter;
  for (size_t first = 0, number = 0; product; ++number) {
    w.format = format_of(spec, w, w.sources[first]);
    const auto end =
        std::find_if(w.sources.begin() + long(first), w.sources.end(),
                     [&](const WeightSource& source) { return format_of(spec, w, source) != w.format; });
    if (first == 0 && end == w.sources.end()) break;
    Weight& part = out.emplace_back(w);
    part.sources.assign(w.sources.begin() + long(first), end);
    if (number > 0) part.role = part_name(w.role, number);
    part.object = fmt::format("{}.L{}", part.role, w.layer);
    first = size_t(end - w.sources.begin());
    if (end == w.sources.end()) return;
  }
  out.push_back(std::move(w));
}

}  // namespace

void WeightTable::put(const char* role, ModelPart part, std::vector<WeightSource> sources, Init init,
                      const ProductFormats& product) {
  const bool matrix = part != ModelPart::Norm && part != ModelPart::Bias;
  Weight& w = out_.emplace_back();
  w.object = layer_ < 0 ? role : fmt::format("{}.L{}", role, layer_);
  w.role = role;
  w.part = part;
  w.layer = layer_;
  w.sources = std::move(sources);
  w.product = product;
  w.matrix = w.decay = matrix;
  w.init = init;
  if (!spec_.freeze.empty())
    w.trainable = !std::all_of(w.sources.begin(), w.sources.end(),
                               [&](const WeightSource& s) { return frozen(spec_.freeze, s.tensor); });
  const Adapters& adapters = spec_.adapters;
  if (part == ModelPart::Adapter) {
    w.decay = adapters.decay;
    return;
  }
  if (adapters.any())
    w.trainable = std::any_of(w.sources.begin(), w.sources.end(), [&](const WeightSource& s) {
      return std::any_of(adapters.whole.begin(), adapters.whole.end(),
                         [&](const std::string& pattern) { return names_part(pattern, s.tensor); });
    });
  if (part == ModelPart::Embedding) learn_rows(adapters.tokens);
  if (part == ModelPart::Head) learn_rows(adapters.head_tokens);
  if (!matrix || layer_ < 0) return;
  w.wide =
      std::ranges::any_of(w.sources, [&](const WeightSource& s) { return frozen(spec_.wide, s.tensor); });
  if (spec_.names.transposed) {
    for (WeightSource& source : w.sources) source.transposed = true;
  }
  const WeightSource& first = w.sources.front();
  w.format = format_of(spec_, w, first);
  w.wide = w.wide || (!spec_.stored.empty() && std::ranges::any_of(w.sources, [&](const WeightSource& s) {
             return format_of(spec_, w, s) != w.format;
           }));
  if (const StoredIn* stored = stored_in(spec_.stored, first.tensor)) {
    w.product = stored->product;
    w.product.y = product.y;
    if (w.product.w && !w.product.x) w.product.w = w.product.w->over(first.cols);
  }
  if (!w.product.w && !w.product.y && may_be_narrow(w)) w.product = spec_.products;
  if (!spec_.adapters.any()) return;
  if (part == ModelPart::Experts) return adapt_experts(Weight(w));
  adapt(Weight(w));
}

// Tokens that follow one another are one run.
void WeightTable::learn_rows(const std::vector<int64_t>& tokens) {
  Weight& w = out_.back();
  const WeightSource& all = w.sources.front();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && tokens[i] == tokens[i - 1] + 1) {
      ++w.learnt.back().rows.rows;
      continue;
    }
    WeightSource run{module_of(spec_, all.tensor).append(kTokenRows), 1, all.cols};
    run.first_row = int64_t(i);
    run.tensor_rows = int64_t(tokens.size());
    w.learnt.push_back({tokens[i] * all.cols, std::move(run)});
  }
  if (tokens.empty()) return;
  w.trainable = true;
  w.decay = spec_.adapters.decay;
}

void WeightTable::matrix_into_stream(const char* role, ModelPart part, std::vector<WeightSource> sources) {
  put(role, part, std::move(sources), {Init::Normal, into_residual_});
}

void WeightTable::plain_norm(const char* role, std::string tensor, int64_t rows) {
  put(role, ModelPart::Norm, {{std::move(tensor), rows, 1}},
      {spec_.norm_offset == 0 ? Init::Ones : Init::Zeros});
}

void WeightTable::kept(const char* role, ModelPart part, std::string tensor, int64_t rows, Init init) {
  put(role, part, {{std::move(tensor), rows, 1}}, init);
  out_.back().format = DType::F32;
}

void WeightTable::norm(const std::string& role, const std::string& tensor, int64_t rows) {
  if (spec_.norm.weight) plain_norm(role.c_str(), tensor + ".weight", rows);
  if (spec_.norm.bias) bias((role + "_bias").c_str(), {{tensor + ".bias", rows, 1}});
}

namespace {

constexpr char kTakesBack = '!';

// The name in a pattern, without the mark.
std::string_view named_by(std::string_view pattern) {
  return pattern.starts_with(kTakesBack) ? pattern.substr(1) : pattern;
}

bool names(std::string_view pattern, std::string_view tensor) {
  const std::string whole(named_by(pattern)), part = whole + ".*", name(tensor);
  return fnmatch(whole.c_str(), name.c_str(), 0) == 0 || fnmatch(part.c_str(), name.c_str(), 0) == 0;
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

bool names_part(std::string_view pattern, std::string_view tensor) {
  return names(pattern, tensor) || names("*." + std::string(pattern), tensor);
}

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

bool frozen(std::span<const std::string> patterns, std::string_view tensor) {
  bool out = false;
  for (const std::string& pattern : patterns) {
    if (names(pattern, tensor)) out = !pattern.starts_with(kTakesBack);
  }
  return out;
}

const StoredIn* stored_in(std::span<const StoredIn> patterns, std::string_view tensor) {
  const StoredIn* out = nullptr;
  for (const StoredIn& stored : patterns) {
    if (names(stored.pattern, tensor)) out = &stored;
  }
  return out;
}

namespace {

Status check_stored(const ModelSpec& spec, const Weight& stack) {
  const auto product_of = [&](const WeightSource& source) {
    const StoredIn* const stored = stored_in(spec.stored, source.tensor);
    return stored == nullptr ? ProductFormats() : stored->product;
  };
  const WeightSource& one = stack.sources.front();
  for (const WeightSource& source : stack.sources) {
    if (product_of(source) != product_of(one))
      return error("model: {} and {} are one product here, and read as several formats: give both the same",
                   one.tensor, source.tensor);
    const StoredIn* const stored = stored_in(spec.stored, source.tensor);
    if (stored == nullptr || !stored->format) continue;
    const NumberFormat& format = *stored->format;
    // Blocks lie within the rows of a matrix.
    if (!format.fits(source.cols))
      return error("model: {} has rows of {} elements, and is stored in {}; a multiple of {} is needed",
                   source.tensor, source.cols, to_text(format),
                   format.block == NumberFormat::kRow ? 8 : format.padded(1));
    // Elements that share a scale cannot be updated one by one.
    if (stack.trainable)
      return error("model: {} is stored in {}, and is not trained so", source.tensor, to_text(format));
    if (!may_be_packed(spec, stack))
      return error("model: {} cannot be stored in {}", source.tensor, to_text(format));
  }
  return {};
}

}  // namespace

Status check_stored(const ModelSpec& spec) {
  if (spec.stored.empty()) return {};
  std::vector<Weight> products = stacks_of(spec);
  std::erase_if(products, [](const Weight& w) { return !w.matrix || w.layer < 0; });
  for (const StoredIn& stored : spec.stored) {
    const bool any = std::any_of(products.begin(), products.end(), [&](const Weight& w) {
      return std::any_of(w.sources.begin(), w.sources.end(),
                         [&](const WeightSource& s) { return names(stored.pattern, s.tensor); });
    });
    if (!any)
      return error(
          "model: '{}' names no product of a layer, and is to be stored in a format; near names are {}",
          stored.pattern, fmt::join(near_names(stored.pattern, products), ", "));
  }
  for (const Weight& weight : products) SLUICE_TRY(check_stored(spec, weight));
  return {};
}

Status keep_wide(ModelSpec& spec, std::vector<std::string> patterns, std::string_view key) {
  spec.wide.clear();
  std::vector<Weight> products = weights_of(spec);
  std::erase_if(products, [](const Weight& weight) { return !may_be_narrow(weight); });
  for (const std::string& pattern : patterns) {
    const bool any = std::ranges::any_of(products, [&](const Weight& weight) {
      return std::ranges::any_of(weight.sources,
                                 [&](const WeightSource& s) { return names(pattern, s.tensor); });
    });
    if (!any)
      return error("{}: '{}' names no product that 8 bits could have; near names are {}", key, pattern,
                   fmt::join(near_names(pattern, products), ", "));
  }
  spec.wide = std::move(patterns);
  return {};
}

Status freeze(ModelSpec& spec, std::vector<std::string> patterns, std::string_view key) {
  spec.freeze = std::move(patterns);
  const std::vector<Weight> weights = stacks_of(spec);
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
  // Weights without a pattern: some are never trained.
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
  // A tensor that is no matrix may have its elements in another order, as if it were one.
  std::vector<int64_t> out{matrix ? matrix_rows() / abreast : matrix_rows() * cols};
  if (of_conv) out.push_back(1);
  if (matrix) out.insert(transposed ? out.begin() : out.end(), cols * abreast);
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

std::vector<Weight::Stretch> Weight::learnt_elements() const {
  if (learnt.empty()) return {{0, elements()}};
  std::vector<Stretch> out;
  for (const Learnt& run : learnt) out.push_back({run.first, run.rows.elements()});
  return out;
}

std::string group_name(int64_t group) {
  return group == 0 ? std::string() : fmt::format("_{}", group);
}

std::string part_name(std::string_view role, size_t number) {
  return fmt::format("{}-{}", role, number);
}

std::vector<Weight> stacks_of(const ModelSpec& spec) {
  return WeightTable(spec).weights();
}

std::vector<Weight> weights_of(const ModelSpec& spec) {
  std::vector<Weight> stacks = stacks_of(spec), out;
  if (spec.stored.empty()) return stacks;
  for (Weight& stack : stacks) add_parts(spec, std::move(stack), out);
  return out;
}

bool is_packed(const Weight& weight) {
  return weight.format && weight.format->block > 0;
}

bool may_stay_in_files(const Weight& weight) {
  const bool product = weight.part == ModelPart::Projection || weight.part == ModelPart::AttentionOut ||
                       weight.part == ModelPart::ConvProjection || weight.part == ModelPart::Mlp ||
                       weight.part == ModelPart::Experts;
  return product && weight.layer >= 0 && weight.matrix && !weight.trainable;
}

bool may_be_narrow(const Weight& weight) {
  const int64_t cols = weight.sources.front().cols;
  const bool dense = weight.part == ModelPart::Projection || weight.part == ModelPart::AttentionOut ||
                     weight.part == ModelPart::ConvProjection || weight.part == ModelPart::Mlp;
  return dense && weight.layer >= 0 && !weight.wide && !weight.format && is_narrow(cols) &&
         is_narrow(weight.elements() / cols);
}

bool is_looked_up(const Weight& weight) {
  return weight.part == ModelPart::Embedding || (weight.part == ModelPart::Table && weight.layer >= 0);
}

// A table is scaled by the root of its width, and its sum with what it is added to by the root of a half.
float row_scale(const ModelSpec& spec, const Weight& weight) {
  return weight.layer < 0 ? float(spec.stream_embedding_scale())
                          : std::sqrt(0.5f * float(weight.sources.front().cols));
}

bool is_of_experts(const ModelSpec& spec, const Weight& weight) {
  return weight.part == ModelPart::Adapter &&
         weight.sources.front().tensor.find(fmt::format(".{}.{}.", weight.layer, spec.names.experts)) !=
             std::string::npos;
}

double active_elements(const ModelSpec& spec, const Weight& weight) {
  if (weight.part != ModelPart::Experts && !is_of_experts(spec, weight)) return double(weight.elements());
  const Experts& e = *spec.layers[size_t(weight.layer)].experts();
  return double(weight.elements()) * double(e.top_k) / double(e.count);
}

}  // namespace sluice::core
