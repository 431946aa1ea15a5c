// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/offered.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include "checkpoint/found_tensor.h"
#include "checkpoint/held.h"
#include "model/weights.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Buffers that files of some versions of transformers have: what follows from config.json, and is not learnt.
struct Buffer {
  std::string_view family, ending;  // of every family; of a whole part of the name
};
constexpr Buffer kBuffers[] = {
    {"", "inv_freq"},
    {"", "cos_cached"},
    {"", "sin_cached"},
    {"", "position_ids"},
    {"", "rope.freqs"},
    {"", "input_scale"},  // of activations, which are not rounded here
    {"gpt2", "attn.bias"},
    {"gpt2", "attn.masked_bias"},
    {"gpt_neox", "attention.bias"},
    {"gpt_neox", "attention.masked_bias"},
};

bool is_buffer(const ModelSpec& spec, std::string_view name) {
  return std::any_of(std::begin(kBuffers), std::end(kBuffers), [&](const Buffer& b) {
    if (!b.family.empty() && b.family != spec.family) return false;
    if (!name.ends_with(b.ending)) return false;
    return name.size() == b.ending.size() || name[name.size() - b.ending.size() - 1] == '.';
  });
}

// Whether it is of layers that predict further tokens, which classes of transformers of these families leave
// out.
bool predicts_further(const ModelSpec& spec, std::string_view name) {
  constexpr std::string_view kFamilies[] = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"};
  return name.starts_with("mtp.") &&
         std::find(std::begin(kFamilies), std::end(kFamilies), spec.family) != std::end(kFamilies);
}

// The number of the layer that a name has; -1: of none.
int64_t layer_in(const ModelSpec& spec, std::string_view name) {
  std::string_view layers = spec.names.layers;
  layers.remove_prefix(layers.find('.') + 1);  // files of models without head lack the first part
  const size_t at = name.find(layers);
  if (at == name.npos) return -1;
  const std::string_view rest = name.substr(std::min(at + layers.size() + 1, name.size()));
  int64_t number = -1;
  std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return number;
}

// Which tensors of the files are read.
std::set<const SafeTensor*> read_tensors(const ModelSpec& spec, const TensorFiles& files) {
  std::set<const SafeTensor*> out;
  for (const Weight& weight : weights_of(spec)) {
    for (const WeightSource& source : weight.sources) {
      const auto found = find_tensor(files, source, weight.matrix);
      if (found.ok() && found->packed) {
        out.insert(found->packed->tensors().begin(), found->packed->tensors().end());
      } else if (const SafeTensor* own = files.find(source.tensor)) {
        out.insert(own);
      } else if (!source.stack.tensor.empty()) {
        out.insert(files.find(source.stack.tensor));
      }
    }
  }
  return out;
}

// Why a model has no place for a tensor of this name; empty: nobody knows.
std::string reason(const ModelSpec& spec, std::string_view name) {
  struct Kind {
    std::string_view part, words;
  };
  constexpr Kind kKinds[] = {
      {"lora_", "tensors of an adapter: merge it into the model (peft, merge_and_unload())"},
      {"base_layer", "tensors of an adapter: merge it into the model (peft, merge_and_unload())"},
      {"mtp", "layers that predict further tokens"},
      {"q_norm", "norms of heads: another model_type has them, such as qwen3 or olmo2"},
      {"k_norm", "norms of heads: another model_type has them, such as qwen3 or olmo2"},
      {"vision", "of a model that sees images"},
      {"visual", "of a model that sees images"},
      {"v_head", "a head of another task"},
      {"score.weight", "a head of another task"},
      {"experts", "experts: config.json says that this layer has none of them"},
  };
  if (const int64_t layer = layer_in(spec, name); layer >= int64_t(spec.layers.size()))
    return fmt::format("num_hidden_layers is {}", spec.layers.size());
  for (const auto& [part, words] : kKinds) {
    if (name.find(part) != name.npos) return std::string(words);
  }
  if (name.ends_with(".bias"))
    return "biases: config.json says that there are none (attention_bias, mlp_bias or what the family calls "
           "them)";
  return {};
}

// Names in which the numbers of layers and experts are stars, each with how many tensors have it.
std::string list_of(std::span<const std::string_view> names) {
  constexpr size_t kMost = 4;
  std::vector<std::pair<std::string, int>> kinds;
  for (const std::string_view name : names) {
    std::string kind;
    for (size_t begin = 0; begin <= name.size();) {
      const size_t end = std::min(name.find('.', begin), name.size());
      const std::string_view part = name.substr(begin, end - begin);
      const bool number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
      kind.append(kind.empty() ? "" : ".").append(number ? "*" : part);
      begin = end + 1;
    }
    const auto at = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == kind; });
    if (at == kinds.end()) {
      kinds.emplace_back(kind, 1);
    } else {
      ++at->second;
    }
  }
  std::string out;
  for (size_t k = 0; k < std::min(kinds.size(), kMost); ++k) {
    const auto& [kind, count] = kinds[k];
    out += fmt::format("{}{}", k == 0 ? "" : ", ", kind);
    if (count > 1) out += fmt::format(" ({} tensors)", count);
  }
  if (kinds.size() > kMost) out += fmt::format(" and {} more kinds", kinds.size() - kMost);
  return out;
}

// Pages that were compared are given back before they are many: a host cap counts them.
bool same_bytes(const SafeTensor& a, const SafeTensor& b, const TensorFiles& files) {
  constexpr size_t kPieceBytes = size_t{8} << 20;
  if (a.info.type != b.info.type || a.info.shape != b.info.shape) return false;
  for (size_t at = 0; at < a.bytes.size(); at += kPieceBytes) {
    const size_t count = std::min(kPieceBytes, a.bytes.size() - at);
    if (std::memcmp(a.bytes.data() + at, b.bytes.data() + at, count) != 0) return false;
    files.release();
  }
  return true;
}

void say_once(std::vector<std::string>& notices, std::string notice) {
  if (std::find(notices.begin(), notices.end(), notice) == notices.end())
    notices.push_back(std::move(notice));
}

}  // namespace

bool is_idle(const ModelSpec& spec, std::string_view name) {
  const int64_t number = layer_in(spec, name);
  if (number < 0 || number >= int64_t(spec.layers.size())) return false;
  const Attention* const a = spec.layers[size_t(number)].attention();
  if (a == nullptr || a->keys_of < 0) return false;
  const TensorNames& names = spec.names;
  return std::ranges::any_of(std::array{names.k, names.v, names.k_norm}, [&](const char* part) {
    return name.find(fmt::format(".{}.", part)) != name.npos;
  });
}

namespace {

constexpr std::string_view kWayOut = "model.unread = drop (sluice export --drop-unread) goes on without";

}  // namespace

Status check_offered(const ModelSpec& spec, const TensorFiles& files, Unread unread,
                     std::vector<std::string>& notices) {
  const std::string where = files.path().string();
  if (const auto& over = files.passed_over(); !over.empty()) {
    constexpr size_t kMost = 3;
    const std::span<const std::string> shown(over.data(), std::min(over.size(), kMost));
    say_once(notices,
             fmt::format("{}: passed over, as transformers does: {}{}", where, fmt::join(shown, ", "),
                         over.size() > kMost ? fmt::format(" and {} more", over.size() - kMost) : ""));
  }
  const std::set<const SafeTensor*> read = read_tensors(spec, files);
  const bool wrapped = std::any_of(read.begin(), read.end(), [](const SafeTensor* tensor) {
    return tensor != nullptr && is_of_text(tensor->info.name);
  });
  const std::string head = std::string(spec.names.head) + ".weight";
  const SafeTensor* const tied_head = spec.tied_embeddings ? files.find(head) : nullptr;
  std::vector<std::string_view> others, further;
  for (const std::string_view name : files.names()) {
    const SafeTensor* const tensor = files.find(name);
    const bool of_whole = wrapped && !is_of_text(name);
    if (!read.contains(tensor) && tensor != tied_head && !of_whole && !is_buffer(spec, name) &&
        !is_idle(spec, name))
      (predicts_further(spec, name) ? further : others).push_back(name);
  }
  if (!further.empty())
    say_once(notices,
             fmt::format("{}: passed over, as transformers does: {}, layers that predict further tokens",
                         where, list_of(further)));
  std::error_code ignored;
  const bool adapter = fs::exists(files.path() / "adapter_config.json", ignored);
  const SafeTensor* const embedding = files.find(std::string(spec.names.embedding) + ".weight");
  const bool other_head =
      tied_head != nullptr && embedding != nullptr && !same_bytes(*tied_head, *embedding, files);
  if (unread == Unread::Drop) {
    if (!others.empty())
      say_once(notices, fmt::format("model.unread = drop: not read of {} {}", where, list_of(others)));
    if (other_head)
      say_once(notices, fmt::format("model.unread = drop: {} of {} is not read; the embedding is the head",
                                    head, where));
    if (adapter) say_once(notices, fmt::format("model.unread = drop: the adapter in {} is not read", where));
    return {};
  }
  if (!others.empty()) {
    const std::string why = reason(spec, others.front());
    return error("{}: no weight of this {} model reads {}{}. Mend config.json if it is wrong; {} them", where,
                 spec.family, list_of(others), why.empty() ? "" : fmt::format(": {}", why), kWayOut);
  }
  if (other_head)
    return error(
        "{}: {} differs from {}.weight, and config.json ties them (tie_word_embeddings; left out, it is what "
        "{} models have). Write \"tie_word_embeddings\": false in config.json for a head of its own, as "
        "transformers 5 reads it; {} it",
        where, head, spec.names.embedding, spec.family, kWayOut);
  if (adapter)
    return error(
        "{}: adapter_config.json lies beside the weights, and transformers would add that adapter to them. "
        "Merge it (peft, merge_and_unload()) or move it away; {} it",
        where, kWayOut);
  return {};
}

Status check_adapter(const ModelSpec& spec, const TensorFiles& files) {
  std::set<std::string_view> left;
  for (const std::string_view name : files.names()) left.insert(name);
  for (const Weight& weight : weights_of(spec)) {
    if (!holds(Held::Adapter, weight)) continue;
    for (const auto& [first, rows] : rows_in(Held::Adapter, weight)) {
      const auto found = find_tensor(files, *rows, weight.matrix);
      if (!found.ok())
        return error(
            "{}; adapter.rank, adapter.targets and the like, or adapter_config.json, say what is there",
            found.message());
      left.erase(found->tensor->info.name);
    }
  }
  if (left.empty()) return {};
  const std::vector<std::string_view> others(left.begin(), left.end());
  return error("{}: no adapter of this {} model reads {}", files.path().string(), spec.family,
               list_of(others));
}

}  // namespace sluice::core
