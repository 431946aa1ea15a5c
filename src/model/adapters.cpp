// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters: their weights beside those that they are of, and their tasks before the products that
// they add to.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>

#include "base/hash.h"
#include "model/kinds.h"
#include "model/layers.h"
#include "model/weight_table.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

constexpr int64_t kMostRank = 4096;
// The endings of PEFT's tensors behind a module's name.
constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight",
                           kMagnitudes = ".lora_magnitude_vector";

// Every token is multiplied with such weights, as Linear does it. A tensor with rows of every layer would
// have one adapter, which layers' products cannot share.
bool takes_adapter(const ModelSpec& spec, const Weight& weight) {
  const ModelPart part = weight.part;
  const bool of_layer =
      weight.sources.front().tensor.starts_with(fmt::format("{}.{}.", spec.names.layers, weight.layer));
  if (!of_layer) return false;
  return part == ModelPart::Projection || part == ModelPart::AttentionOut ||
         part == ModelPart::ConvProjection || part == ModelPart::Mlp || part == ModelPart::Experts;
}

// Experts have adapters where a pattern says that it means them: one that names parts of layers, such as
// layers.3 or gate_proj, means what every token goes through.
bool means_experts(std::string_view pattern) {
  return pattern.find("experts") != pattern.npos;
}

// Patterns are over the tensor's own name, and that of its module in the class.
bool names_part(const ModelSpec& spec, std::string_view pattern, std::string_view tensor) {
  return core::names_part(pattern, tensor) ||
         (!spec.text_module.empty() && core::names_part(pattern, module_of(spec, tensor)));
}

bool any_names(const ModelSpec& spec, const std::vector<std::string>& patterns, std::string_view tensor) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return names_part(spec, pattern, tensor); });
}

double other_of(const ModelSpec& spec, const std::vector<Adapters::Other>& others, std::string_view tensor,
                double usual) {
  for (const auto& [pattern, value] : others) {
    if (names_part(spec, pattern, tensor)) usual = value;
  }
  return usual;
}

}  // namespace

std::string module_of(const ModelSpec& spec, std::string_view tensor) {
  constexpr std::string_view kModel = "model";
  std::string module(tensor.substr(0, tensor.rfind(".weight")));
  if (!spec.text_module.empty() && module.starts_with(std::string(kModel) + "."))
    module.replace(0, kModel.size(), spec.text_module);
  return module;
}

std::optional<AdapterOf> adapter_of(const ModelSpec& spec, const Weight& weight, std::string_view tensor) {
  const Adapters& all = spec.adapters;
  if (!all.any() || !takes_adapter(spec, weight)) return {};
  const auto targets = [&](const std::string& pattern) {
    return (weight.part != ModelPart::Experts || means_experts(pattern)) && names_part(spec, pattern, tensor);
  };
  const bool all_products = all.targets.empty() && weight.part != ModelPart::Experts;
  if (!all_products && std::ranges::none_of(all.targets, targets)) return {};
  if (any_names(spec, all.exclude, tensor) || any_names(spec, all.whole, tensor)) return {};
  const auto rank = int64_t(other_of(spec, all.ranks, tensor, double(all.rank)));
  const double alpha = other_of(spec, all.alphas, tensor, all.alpha);
  return AdapterOf{rank, alpha, alpha / (all.rslora ? std::sqrt(double(rank)) : double(rank))};
}

std::string adapter_a(std::string_view role, size_t number) {
  return fmt::format("{}_a{}", role, number > 0 ? std::to_string(number) : "");
}
std::string adapter_b(std::string_view role, size_t number) {
  return fmt::format("{}_b{}", role, number > 0 ? std::to_string(number) : "");
}

std::string adapter_magnitudes(std::string_view role) {
  return fmt::format("{}_m", role);
}

std::string to_text(const Adapters& a) {
  std::string out = fmt::format(
      "adapters{} of rank {}, alpha {:g}{}, beside {}", a.dora ? " with magnitudes (DoRA)" : "", a.rank,
      a.alpha, a.rslora ? " over the root of the rank" : "",
      a.targets.empty() ? "every product of a layer" : fmt::format("{}", fmt::join(a.targets, ", ")));
  if (!a.exclude.empty()) out += fmt::format(" but {}", fmt::join(a.exclude, ", "));
  for (const auto& [what, others] : {std::pair{"rank", &a.ranks}, {"alpha", &a.alphas}}) {
    for (const auto& [pattern, value] : *others) out += fmt::format(", {} {:g} of {}", what, value, pattern);
  }
  if (!a.whole.empty()) out += fmt::format(", and {} whole", fmt::join(a.whole, ", "));
  if (!a.tokens.empty()) out += fmt::format(", and rows {} of the embedding", fmt::join(a.tokens, ", "));
  if (!a.head_tokens.empty()) out += fmt::format(", and rows {} of the head", fmt::join(a.head_tokens, ", "));
  if (a.dropout > 0) out += fmt::format(", dropout {:g}", a.dropout);
  return out;
}

namespace {

// Whether a table's rows of tokens can be trained alone. `key` names their list.
Status check_rows(const ModelSpec& spec, std::string_view key, const std::vector<int64_t>& tokens,
                  const Weight& table) {
  std::set<int64_t> known;
  for (const int64_t token : tokens) {
    if (token < 0 || token >= spec.vocab)
      return error("{}: {} is no row of {}, which has {}; resize the base for more", key, token,
                   table.sources.front().tensor, spec.vocab);
    if (!known.insert(token).second) return error("{}: {} stands there twice", key, token);
  }
  if (!tokens.empty() && any_names(spec, spec.adapters.whole, table.sources.front().tensor))
    return error("{}: modules_to_save has all of {} trained; leave out one", key,
                 table.sources.front().tensor);
  return {};
}

// A product has the same adapters for each expert, and those of an expert have one rank and one scale.
Status check_experts(const ModelSpec& spec, const Weight& weight) {
  const WeightSource* first = nullptr;
  for (const WeightSource& source : weight.sources) {
    if (first == nullptr && adapter_of(spec, weight, source.tensor)) first = &source;
  }
  if (first == nullptr) first = &weight.sources.front();
  const std::optional<AdapterOf> as = adapter_of(spec, weight, first->tensor);
  if (as && spec.names.experts_in_one != TensorNames::Apart)
    return error(
        "adapter.targets: {} has all experts of a layer; adapters are of experts with tensors of their own",
        first->tensor);
  if (as && spec.adapters.dora)
    return error(
        "adapter.dora: experts have no magnitudes, as in PEFT; take {} and the like from adapter.targets",
        first->tensor);
  if (as && spec.adapters.dropout > 0)
    return error(
        "adapter.dropout = {:g}: what experts read is not dropped, as in PEFT; take {} and the like from "
        "adapter.targets",
        spec.adapters.dropout, first->tensor);
  const std::string experts = fmt::format("{}.", spec.names.experts);
  for (const WeightSource& source : weight.sources) {
    // The same of the layer's first expert.
    std::string other = source.tensor;
    const size_t at = other.find(experts) + experts.size();
    if (spec.names.experts_in_one == TensorNames::Apart) other.replace(at, other.find('.', at) - at, "0");
    const auto own = adapter_of(spec, weight, source.tensor), like = adapter_of(spec, weight, other);
    if (own.has_value() != like.has_value())
      return error("adapter.targets: {} has an adapter and {} has none; experts of a layer are alike",
                   own ? source.tensor : other, own ? other : source.tensor);
    if (!own) continue;
    for (const auto& [tensor, has] : {std::pair{first->tensor, as}, {other, like}}) {
      if (has && own->rank == has->rank && own->scale == has->scale) continue;
      return error(
          "model: the adapter of {} has rank {} and scale {:g}, that of {} another, and they are one product "
          "here: give both the same",
          source.tensor, own->rank, own->scale, tensor);
    }
  }
  return {};
}

}  // namespace

// Tensors of one weight are one product, whose adapters have one rank and one scale.
Status validate_adapters(const ModelSpec& spec) {
  const Adapters& adapters = spec.adapters;
  if (!adapters.any()) return {};
  const auto check_rank = [](double rank) {
    const bool good = rank >= 1 && rank <= kMostRank && rank == std::floor(rank);
    return good ? Status() : error("model: adapters of rank {}; 1 to {} are allowed", rank, kMostRank);
  };
  SLUICE_TRY(check_rank(double(adapters.rank)));
  for (const auto& [pattern, rank] : adapters.ranks) SLUICE_TRY(check_rank(rank));
  if (!(adapters.dropout >= 0 && adapters.dropout < 1))
    return error("model: dropout {:g} of adapters; numbers from 0 to below 1 are allowed", adapters.dropout);
  if (adapters.dora && adapters.dropout > 0)
    return error(
        "adapter.dora with adapter.dropout = {:g}: PEFT then drops what the base reads, too, which takes a "
        "second product with it; leave out one",
        adapters.dropout);
  if (spec.tied_embeddings && !adapters.head_tokens.empty())
    return error(
        "adapter.head_tokens: the head of this model is its embedding; adapter.tokens names rows of both");
  bool any = false;
  for (const Weight& weight : stacks_of(spec)) {
    any = any || weight.part == ModelPart::Adapter;
    if (adapters.dora && weight.product.w && !weight.product.x &&
        adapter_of(spec, weight, weight.sources.front().tensor))
      return error("adapter.dora: products read {} as {}; numbers are needed", weight.sources.front().tensor,
                   to_text(*weight.product.w));
    if (weight.part == ModelPart::Embedding)
      SLUICE_TRY(check_rows(spec, "adapter.tokens", adapters.tokens, weight));
    if (weight.part == ModelPart::Head)
      SLUICE_TRY(check_rows(spec, "adapter.head_tokens", adapters.head_tokens, weight));
    if (weight.part == ModelPart::Experts) {
      SLUICE_TRY(check_experts(spec, weight));
      continue;
    }
    const WeightSource* first = nullptr;
    for (const WeightSource& source : weight.sources) {
      const auto own = adapter_of(spec, weight, source.tensor);
      if (!own) continue;
      if (first == nullptr) first = &source;
      const AdapterOf as = *adapter_of(spec, weight, first->tensor);
      if (own->rank != as.rank || own->scale != as.scale)
        return error(
            "model: the adapter of {} has rank {} and scale {:g}, that of {} rank {} and scale {:g}, and "
            "they "
            "are one product here: give both the same",
            first->tensor, as.rank, as.scale, source.tensor, own->rank, own->scale);
    }
  }
  return any ? Status() : error("model: adapters of no tensor");
}

namespace {

// Patterns that name what has no adapter anyway, and ranks that no product has.
void note_idle(ModelSpec& spec, std::span<const Weight> products, std::string_view section) {
  const Adapters& all = spec.adapters;
  const auto note = [&](std::string text) {
    if (std::find(spec.notices.begin(), spec.notices.end(), text) == spec.notices.end())
      spec.notices.push_back(std::move(text));
  };
  // Whether a tensor that the pattern names is one that `has` says.
  const auto any = [&](std::string_view pattern, auto&& has) {
    return std::any_of(products.begin(), products.end(), [&](const Weight& w) {
      return std::any_of(w.sources.begin(), w.sources.end(), [&](const WeightSource& s) {
        return names_part(spec, pattern, s.tensor) && has(w, s.tensor);
      });
    });
  };
  const auto adapted = [&](const Weight& w, std::string_view tensor) {
    return adapter_of(spec, w, tensor).has_value();
  };
  const auto check = [&](std::string_view key, std::string_view pattern) {
    if (!any(pattern, adapted))
      note(fmt::format("{}.{}: '{}' does not count, as no tensor of that name has an adapter", section, key,
                       pattern));
  };
  for (const std::string& pattern : all.targets) check("targets", pattern);
  for (const auto& [pattern, rank] : all.ranks) check("rank_pattern", pattern);
  for (const auto& [pattern, alpha] : all.alphas) check("alpha_pattern", pattern);
  for (const std::string& pattern : all.exclude) {
    const auto targeted = [&](const Weight&, std::string_view tensor) {
      return all.targets.empty() || any_names(spec, all.targets, tensor);
    };
    if (!any(pattern, targeted))
      note(fmt::format("{}.exclude: '{}' does not count, as {}.targets leaves that out", section, pattern,
                       section));
  }
  int64_t beyond = 0, most = 0;
  for (const Weight& w : products) {
    for (const WeightSource& s : w.sources) {
      const auto own = adapter_of(spec, w, s.tensor);
      const int64_t least = std::min(s.rows, s.cols);
      if (!own || own->rank <= least) continue;
      ++beyond;
      most = std::max(most, least);
    }
  }
  if (beyond > 0)
    note(
        fmt::format("{}.rank: {} tensors have adapters of a rank above their own, which is {} at most, and "
                    "more adds nothing",
                    section, beyond, most));
}

}  // namespace

Status adapt(ModelSpec& spec, Adapters adapters, std::string_view section) {
  spec.adapters = {};
  // PEFT takes both of what is one, and then writes one.
  if (spec.tied_embeddings && adapters.head_tokens == adapters.tokens) adapters.head_tokens.clear();
  const std::vector<Weight> all = stacks_of(spec);
  std::vector<Weight> products = all;
  std::erase_if(products, [&](const Weight& w) { return !takes_adapter(spec, w); });
  const auto any = [&](const std::vector<Weight>& weights, std::string_view pattern) {
    return std::any_of(weights.begin(), weights.end(), [&](const Weight& w) {
      return std::any_of(w.sources.begin(), w.sources.end(),
                         [&](const WeightSource& s) { return names_part(spec, pattern, s.tensor); });
    });
  };
  std::vector<Weight> dense = products;
  std::erase_if(dense, [](const Weight& w) { return w.part == ModelPart::Experts; });
  const auto check = [&](std::string_view key, std::string_view pattern,
                         const std::vector<Weight>& among) -> Status {
    if (any(among, pattern)) return {};
    if (any(products, pattern))
      return error(
          "{}.{}: '{}' names products of experts alone, which have adapters where a pattern says so: "
          "experts, "
          "or experts.*.{}",
          section, key, pattern, pattern);
    if (any(all, pattern))
      return error(
          "{}.{}: '{}' names no product of a layer that every token goes through, and others have no "
          "adapters; {}.modules_to_save trains whole weights",
          section, key, pattern, section);
    return error("{}.{}: '{}' names no tensor of this model; near names are {}", section, key, pattern,
                 fmt::join(near_names(pattern, among), ", "));
  };
  for (const std::string& pattern : adapters.targets)
    SLUICE_TRY(check("targets", pattern, means_experts(pattern) ? products : dense));
  for (const std::string& pattern : adapters.exclude) SLUICE_TRY(check("exclude", pattern, products));
  for (const auto& [pattern, rank] : adapters.ranks) SLUICE_TRY(check("rank_pattern", pattern, products));
  for (const auto& [pattern, alpha] : adapters.alphas) SLUICE_TRY(check("alpha_pattern", pattern, products));
  for (const std::string& pattern : adapters.whole) SLUICE_TRY(check("modules_to_save", pattern, all));
  for (const Weight& weight : all) {
    const std::string& one = weight.sources.front().tensor;
    const bool whole = any_names(spec, adapters.whole, one);
    for (const WeightSource& other : weight.sources) {
      if (any_names(spec, adapters.whole, other.tensor) != whole)
        return error("{}.modules_to_save: {} and {} are one weight here: name both or neither", section, one,
                     other.tensor);
    }
    // Classes of transformers call these otherwise than their files do.
    const bool renamed = weight.part == ModelPart::Experts || weight.part == ModelPart::Router ||
                         (weight.part == ModelPart::Head && spec.family == "gpt_neox") ||
                         module_of(spec, one) != module_of(ModelSpec(), one);
    const bool has_rows = weight.part == ModelPart::Head && !adapters.head_tokens.empty();
    if ((whole || has_rows) && renamed)
      return error("{}.{}: {} has another name in PEFT, which would not find it; leave it out", section,
                   has_rows ? "head_tokens" : "modules_to_save", one);
    if (whole && weight.part == ModelPart::Embedding && spec.tied_embeddings)
      return error(
          "{}.modules_to_save: {} is the head of this model, too, of which other programs would train or "
          "load "
          "one alone; leave it out, or untie the head in a copy of the folder",
          section, one);
  }
  spec.adapters = std::move(adapters);
  note_idle(spec, products, section);
  return validate_adapters(spec);
}

void WeightTable::adapt(const Weight& base) {
  const size_t all = base.sources.size();
  size_t number = 0;
  for (size_t first = 0, end = all; first < all; first = end) {
    const auto other =
        std::find_if(base.sources.begin() + long(first), base.sources.end(),
                     [&](const WeightSource& source) { return source.tensor != base.sources[first].tensor; });
    end = spec_.adapters.dropout > 0 ? size_t(other - base.sources.begin()) : all;
    number += adapt(base, first, end, number);
  }
}

// An A reads what its tensor reads. Rows of a tensor whose A another weight of the layer has add to the
// product with that one.
bool WeightTable::adapt(const Weight& base, size_t first, size_t end, size_t number) {
  std::vector<WeightSource> a, b;
  Weight::Adds adds = {};
  for (size_t i = 0; i < base.sources.size(); ++i) {
    const WeightSource& source = base.sources[i];
    const auto own = i >= first && i < end ? adapter_of(spec_, base, source.tensor) : std::nullopt;
    LowRankSizes& sizes = adds.sizes;
    if (own && b.empty()) sizes.first = sizes.columns;
    sizes.columns += source.rows;
    if (!own) continue;
    const std::string module = module_of(spec_, source.tensor);
    if (a.empty() || a.back().tensor != module + std::string(kLoraA)) {
      a.push_back({module + std::string(kLoraA), own->rank, source.cols});
      ++sizes.parts;
    }
    if (sizes.parts == 1) sizes.part += source.rows;
    sizes.rank = own->rank;
    adds.scale = own->scale;
    WeightSource rows{module + std::string(kLoraB), source.rows, own->rank, source.first_row,
                      source.tensor_rows};
    rows.blocks = source.blocks;
    b.push_back(std::move(rows));
  }
  if (b.empty()) return false;
  SLUICE_CHECK(int64_t(b.size()) == adds.sizes.parts || adds.sizes.parts == 1,
               "{}: adapters of {} tensors with several rows each", base.object, adds.sizes.parts);
  const auto shared = std::find_if(out_.begin(), out_.end(), [&](const Weight& w) {
    return w.part == ModelPart::Adapter && w.sources.front().tensor == a.front().tensor;
  });
  adds.a = shared == out_.end() ? adapter_a(base.role, number) : shared->role;
  adds.target = Hash().add(a.front().tensor).value();
  const float largest = 1 / std::sqrt(float(a.front().cols));  // as PEFT's, and torch's of linear layers
  if (shared == out_.end()) put(adds.a.c_str(), ModelPart::Adapter, std::move(a), {Init::Uniform, largest});
  std::vector<WeightSource> magnitudes;
  if (spec_.adapters.dora) {
    adds.magnitudes = adapter_magnitudes(base.role);
    for (const WeightSource& rows : b) {
      WeightSource& m = magnitudes.emplace_back(rows);
      m.tensor = m.tensor.substr(0, m.tensor.rfind(kLoraB)) + std::string(kMagnitudes);
      m.cols = 1;
    }
  }
  const std::string role = adds.magnitudes;
  const int64_t first_row = adds.sizes.first;
  put(adapter_b(base.role, number).c_str(), ModelPart::Adapter, std::move(b), {Init::Zeros});
  out_.back().adds = std::move(adds);
  if (magnitudes.empty()) return true;
  // In f32: a norm changes by less than bf16 tells apart.
  put(role.c_str(), ModelPart::Adapter, std::move(magnitudes), {Init::Ones});
  Weight& m = out_.back();
  m.matrix = m.decay = false;
  m.format = DType::F32;
  m.norms = Weight::Norms{base.role, first_row};
  return true;
}

// A of one expert follows that of the one before, and so does B.
void WeightTable::adapt_experts(const Weight& base) {
  const Experts& e = *spec_.layers[size_t(base.layer)].experts();
  if (spec_.names.experts_in_one != TensorNames::Apart) return;
  const size_t each = base.sources.size() / size_t(e.group);
  std::vector<WeightSource> a, b;
  Weight::Adds adds = {};
  LowRankSizes& sizes = adds.sizes;
  for (size_t i = 0; i < base.sources.size(); ++i) {
    const WeightSource& source = base.sources[i];
    const auto own = adapter_of(spec_, base, source.tensor);
    if (i < each) {
      if (own && b.empty()) sizes.first = sizes.columns;
      sizes.columns += source.rows;
      if (own) ++sizes.parts, sizes.part = source.rows, sizes.rank = own->rank, adds.scale = own->scale;
    }
    if (!own) continue;
    const std::string module = module_of(spec_, source.tensor);
    a.push_back({module + std::string(kLoraA), own->rank, source.cols});
    b.push_back({module + std::string(kLoraB), source.rows, own->rank});
  }
  if (b.empty()) return;
  adds.a = adapter_a(base.role, 0);
  const float largest = 1 / std::sqrt(float(a.front().cols));
  put(adds.a.c_str(), ModelPart::Adapter, std::move(a), {Init::Uniform, largest});
  put(adapter_b(base.role, 0).c_str(), ModelPart::Adapter, std::move(b), {Init::Zeros});
  out_.back().adds = std::move(adds);
}

std::optional<ObjectId> Forward::adapt(const Projection& p, ObjectId x, std::optional<ObjectId> residual,
                                       const Place& at) {
  const auto& adapters = adapters_[size_t(at.layer + 1)];
  for (size_t number = 0;; ++number) {
    const auto found = adapters.find(adapter_b(p.weight, number));
    if (!spec_.adapters.any() || found == adapters.end()) return residual;
    const Weight::Adds& adds = found->second;
    LowRankSizes s = adds.sizes;
    s.tokens = tokens(at);
    const std::string name = fmt::format("{}{}", p.task, number > 0 ? std::to_string(number) : "");
    const ObjectId a = weight(adds.a, at.layer);
    if (low_rank_.a != a || low_rank_.x != x) {
      const ObjectId read = drop(name, x, p.in, adds.target, at);
      low_rank_ = {a, x, activation(name + "_u", s.inner(), at)};
      task(name + "_a", Linear{.tokens = s.tokens, .in = p.in, .out = s.inner(), .dtype = activations_},
           {read, a, low_rank_.u}, at);
      record();
    }
    const ObjectId sum = activation(name + "_low_rank", p.out, at);
    LowRank op{
        .sizes = s, .dtype = activations_, .scale = float(adds.scale), .has_residual = residual.has_value()};
    std::vector<Bound> uses{low_rank_.u, weight(found->first, at.layer), sum};
    if (residual) uses.emplace_back(*residual);
    program_.add(made(name + "_b", op, uses, at));
    record();
    residual = sum;
  }
}

TaskId Forward::magnify(const Projection& p, const Weight::Adds& adds, ObjectId b, ObjectId z, ObjectId y,
                        std::optional<ObjectId> residual, const Place& at) {
  const LowRankSizes& s = adds.sizes;
  const ObjectId m = weight(adds.magnitudes, at.layer);
  ObjectId& norms = norms_[m.value];
  if (!norms.valid()) {
    // Once in a step, by the first pass through the weight: A and B stay as they are until its end.
    const std::string role = fmt::format("{}_norms", p.weight);
    norms = program_.add(Object{fmt::format("{}.L{}", role, at.layer), role, ObjectKind::Activation,
                                DType::F32, s.adapted() * size_of(DType::F32), at.layer});
    task(role, RowNorms{.sizes = s, .in = p.in, .dtype = activations_, .scale = float(adds.scale)},
         {multiplied(p.weight, at), weight(adds.a, at.layer), b, norms}, at);
  }
  Magnitude op{.tokens = tokens(at),
               .columns = p.out,
               .first = s.first,
               .adapted = s.adapted(),
               .dtype = activations_,
               .has_bias = !p.bias.empty(),
               .has_residual = residual.has_value()};
  std::vector<Bound> uses{z, m, norms, y};
  if (op.has_bias) uses.emplace_back(weight(p.bias, at.layer));
  if (residual) uses.emplace_back(*residual);
  return program_.add(made(fmt::format("{}_magnitude", p.task), op, uses, at));
}

void Forward::record_products(std::span<const TaskId> products) {
  if (gradients_ == nullptr) return;
  std::vector<TaskId> plain;
  for (const TaskId& product : products) {
    if (std::holds_alternative<Magnitude>(*program_.task(product).op)) {
      gradients_->record(std::span(&product, 1));
    } else {
      plain.push_back(product);
    }
  }
  if (!plain.empty()) gradients_->record(plain);
}

ObjectId Forward::drop(std::string_view name, ObjectId x, int64_t width, uint64_t target, const Place& at) {
  if (spec_.adapters.dropout == 0 || gradients_ == nullptr) return x;
  int64_t first = tokens_before(at);
  for (int r = 0; r < at.round; ++r) {
    const std::vector<int64_t>& chunks = chunking_.tokens[size_t(r)];
    first = std::accumulate(chunks.begin(), chunks.end(), first);
  }
  const ObjectId y = activation(fmt::format("{}_kept", name), width, at);
  task(fmt::format("{}_drop", name),
       Dropout{.tokens = tokens(at),
               .width = width,
               .dtype = activations_,
               .rate = float(spec_.adapters.dropout),
               .first = first,
               .seq_len = chunking_.row_tokens * chunking_.per_sequence,
               .target = target},
       {x, inputs_.args, y}, at);
  record();
  return y;
}

}  // namespace sluice::core
