// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/found_tensor.h"
#include "checkpoint/stacked_experts.h"
#include "checkpoint/store.h"
#include "checkpoint/weights.h"
#include "checkpoint/write.h"
#include "io/directory.h"
#include "io/disk.h"
#include "io/elements.h"
#include "io/file.h"
#include "io/hub_cache.h"
#include "io/model_folder.h"
#include "io/set_aside.h"
#include "model/families/adapter_config.h"
#include "model/families/families.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Pages of mapped files that were read are given back before they are many.
constexpr int64_t kMostResidentBytes = 16 << 20;

// The exported model, and the places of its tensors' bytes.
struct Source {
  fs::path dir;
  ModelSpec spec;
  std::optional<CheckpointInfo> checkpoint;
  TensorFiles files;
  std::vector<std::string> notices;              // of what the files offer
  std::vector<SafeTensorsFile> masters = {};     // where master weights would be
  bool from_masters = false;                     // whether they are, and are read
  std::vector<const SafeTensor*> parts = {};     // by the numbers of StoredPart
  std::map<uint32_t, PackedTensor> packed = {};  // of these, those that are codes, which are read as f32
  // An adapter in `dir` is written by itself (Adapter), or added to its base (Base), whose files are then
  // `files`.
  Held held = Held::Whole;
  std::optional<TensorFiles> adapter = {};
  std::vector<MergedTensor> merged = {};      // in the place of parts
  std::map<uint32_t, size_t> merged_at = {};  // by the numbers of StoredPart
  // Adapters of experts that are written together, each as A or as B, and the newest one's values.
  std::vector<StackedExperts> stacks = {};
  std::map<uint32_t, std::pair<size_t, bool>> stacked_at = {};
  uint32_t stacked = UINT32_MAX;
  std::vector<float> stacked_values = {};
};

// An adapter of a model: its tensors, or both to be added up.
Result<Source> open_adapter(const fs::path& dir, ModelSpec spec, const ExportOptions& options) {
  const fs::path file = dir / kAdapterConfigName;
  SLUICE_ASSIGN(const std::string text, read_file(file, kMostConfigBytes));
  auto config = parse_adapter_config(text);
  if (!config.ok()) return error_at(file.string(), config.error());
  const Status adapted = adapt(spec, std::move(config->adapters), "adapter_config.json");
  if (!adapted.ok()) return error_at(dir.string(), adapted.error());
  SLUICE_ASSIGN(TensorFiles own, TensorFiles::open(dir));
  SLUICE_TRY(check_adapter(spec, own));
  std::optional<CheckpointInfo> checkpoint;
  if (is_there(dir / "checkpoint.json")) {
    SLUICE_ASSIGN(checkpoint, read_checkpoint_info(dir));
  }
  if (!options.merged)
    return Source{.dir = dir,
                  .spec = std::move(spec),
                  .checkpoint = std::move(checkpoint),
                  .files = std::move(own),
                  .notices = {},
                  .held = Held::Adapter};
  std::vector<std::string> notices;
  SLUICE_ASSIGN(TensorFiles base, TensorFiles::open(options.base));
  ModelSpec plain = spec;
  plain.adapters = {};
  SLUICE_TRY(check_offered(plain, base, options.unread, notices));
  if (!own.metadata(kBaseValues).empty()) {
    SLUICE_ASSIGN(const BaseValues values, values_in(spec, options.base, Held::Base));
    SLUICE_TRY(check_base(dir, options.base, values));
  }
  return Source{.dir = dir,
                .spec = std::move(spec),
                .checkpoint = std::move(checkpoint),
                .files = std::move(base),
                .notices = std::move(notices),
                .held = Held::Base,
                .adapter = std::move(own)};
}

Result<Source> open_source(const fs::path& dir, const ExportOptions& options) {
  const bool adapter = !options.base.empty();
  SLUICE_ASSIGN(const ConfigText config, read_model_config(adapter ? options.base : dir));
  auto spec = parse_model_config(config.text);
  if (!spec.ok()) return error_at(config.path.string(), spec.error());
  if (adapter) return open_adapter(dir, std::move(*spec), options);
  const Unread unread = options.unread;
  std::optional<CheckpointInfo> checkpoint;
  if (is_there(dir / "checkpoint.json")) {
    SLUICE_ASSIGN(checkpoint, read_checkpoint_info(dir));
  }
  SLUICE_ASSIGN(TensorFiles files, TensorFiles::open(dir));
  std::vector<std::string> notices;
  SLUICE_TRY(check_offered(*spec, files, unread, notices));
  return Source{dir, std::move(*spec), std::move(checkpoint), std::move(files), std::move(notices)};
}

// Rows as a folder has them: an expert's among those of all experts, if these are one tensor there.
WeightSource in_form_of(const TensorFiles& folder, WeightSource rows) {
  const WeightSource::Stack& stack = rows.stack;
  if (stack.tensor.empty() || folder.find(rows.tensor) != nullptr || folder.find(stack.tensor) == nullptr)
    return rows;
  rows.tensor = stack.tensor;
  rows.stacked = stack.experts;
  rows.first_row = stack.first_row;
  rows.tensor_rows = stack.experts * stack.rows;
  return rows;
}

// Codes are written as numbers of a type.
Status check_codes(const Source& source, const FoundTensor& tensor, const std::optional<TensorType>& type) {
  if (!tensor.packed || type) return {};
  return error(
      "{}: tensor {} has codes, which are written as numbers: --dtype says of which type, such as bf16",
      source.dir.string(), tensor.info().name);
}

// The rows of a tensor that a weight has, from the one of that name in the source. `written`: in the form
// that they get.
Result<StoredTensor> own_tensor(Source& source, const Weight& weight, const WeightSource& part,
                                const WeightSource& written, const std::optional<TensorType>& type) {
  // Weights that were trained whole lie beside the adapters.
  const bool beside = source.held == Held::Base && weight.trainable && weight.learnt.empty();
  SLUICE_ASSIGN(const FoundTensor found,
                find_tensor(beside ? *source.adapter : source.files, part, weight.matrix));
  const SafeTensor* const tensor = found.tensor;
  const TensorType own = found.info().type;
  const ObjectId id(uint32_t(source.parts.size()));
  SLUICE_TRY(check_codes(source, found, type));
  source.parts.push_back(tensor);
  if (found.packed) source.packed.emplace(id.value, *found.packed);
  const int64_t size = size_of(own), elements = part.elements();
  StoredTensor out{
      {name_in(source.held, written.tensor), type.value_or(own), written.shape(weight.matrix)}, {}, own};
  if (part.transposed) out.turned.push_back(part);
  if (part.transposed && !found.packed) {
    out.as_written = true;
    out.parts.push_back({id, 0, int64_t(tensor->bytes.size())});
    return out;
  }
  for (int64_t done = 0; done < elements;) {
    const auto [at, count] = part.stretch(done, elements);
    out.parts.push_back({.object = id,
                         .offset = (found.first + at) * size,
                         .bytes = count * size,
                         .position = 0,
                         .element = part.transposed ? done : written.stretch(done, elements).at});
    done += count;
  }
  return out;
}

// A tensor that an adapter is added to, or whose rows of tokens are another's, whole.
Result<StoredTensor> merged_tensor(Source& source, const Weight& weight, const WeightSource& part,
                                   const std::optional<AdapterOf>& adapter,
                                   const std::optional<TensorType>& type) {
  SLUICE_ASSIGN(FoundTensor base, find_tensor(source.files, part, true));
  SLUICE_TRY(check_codes(source, base, type));
  if (base.info().shape.size() != 2)
    return error(
        "--merged: {} of the base has all experts of a layer; adapters are added to experts' own tensors",
        base.info().name);
  const TensorType to = type.value_or(base.info().type);
  const ObjectId id(uint32_t(source.parts.size()));
  source.parts.push_back(base.tensor);
  const TensorInfo info{part.tensor, to, base.info().shape};
  SLUICE_ASSIGN(
      MergedTensor merged,
      adapter ? MergedTensor::open(std::move(base), part.transposed, module_of(source.spec, part.tensor),
                                   *adapter, source.spec.adapters.dora, *source.adapter, to)
              : MergedTensor::with_rows(std::move(base), weight.learnt, *source.adapter));
  source.merged_at[id.value] = source.merged.size();
  source.merged.push_back(std::move(merged));
  return StoredTensor{info, {{id, 0, info.elements() * size_of(TensorType::F32), 0}}, TensorType::F32};
}

// Has the tensors of a weight read from its master, if there is one. `tensors` are those of the weight, and
// `written` its rows in their form.
Status read_from_masters(Source& source, const Weight& weight, std::span<const WeightSource> written,
                         std::span<StoredTensor> tensors) {
  const auto find = [&](size_t part) -> const SafeTensor* {
    const std::string name = name_of_state(kMasterRole, weight, part);
    for (const SafeTensorsFile& file : source.masters) {
      const auto all = file.tensors();
      const auto at = std::ranges::find(all, name, [](const SafeTensor& t) { return t.info.name; });
      if (at != all.end()) return &*at;
    }
    return nullptr;
  };
  const auto not_as_many = [&] {
    return error("{}: the master weights of {} are not as many as its elements, or of several types",
                 source.masters.front().path().string(), weight.sources.front().tensor);
  };
  size_t tensor = 0;
  int64_t left = 0;                // of its rows that are this weight's, in elements
  std::optional<TensorType> type;  // of all parts
  ObjectId parameters;             // where its own elements are
  for (size_t p = 0; const SafeTensor* part = find(p); ++p) {
    const ObjectId id(uint32_t(source.parts.size()));
    source.parts.push_back(part);
    if (part->info.type != type.value_or(part->info.type)) return not_as_many();
    type = part->info.type;
    const int64_t elements = part->info.elements();
    for (int64_t at = 0; at < elements;) {
      if (left == 0) {
        const bool beside =
            *type == TensorType::I8 && tensor < tensors.size() && tensors[tensor].from == TensorType::BF16;
        if (tensor == tensors.size() || (*type != TensorType::F32 && !beside)) return not_as_many();
        parameters = tensors[tensor].parts.front().object;
        if (!beside) {
          tensors[tensor].from = TensorType::F32;
          tensors[tensor].as_written = false;
        }
        if (!tensors[tensor].as_written) tensors[tensor].parts.clear();
        left = written[tensor].elements();
        ++tensor;
      }
      StoredTensor& to = tensors[tensor - 1];
      const WeightSource& own = written[tensor - 1];
      const int64_t all = own.elements();
      const auto [place, follow] =
          own.transposed ? WeightSource::Stretch{all - left, left} : own.stretch(all - left, all);
      const int64_t count = std::min(follow, elements - at);
      if (to.as_written) {
        to.residuals.push_back({.object = id, .offset = at, .bytes = count, .position = 0, .element = place});
      } else if (*type == TensorType::I8) {
        add_joined(parameters, place, id, at, count, place, to);
      } else {
        to.parts.push_back(
            {.object = id, .offset = 4 * at, .bytes = 4 * count, .position = 0, .element = place});
      }
      at += count, left -= count;
    }
  }
  source.from_masters = source.from_masters || tensor > 0;
  if (left == 0 && (tensor == 0 || tensor == tensors.size())) return {};
  return not_as_many();
}

// Rows of one tensor that several weights have become that tensor.
Result<std::vector<StoredTensor>> joined(std::vector<StoredTensor> rows) {
  std::vector<StoredTensor> out;
  std::map<std::string, size_t, std::less<>> known;
  for (StoredTensor& part : rows) {
    const auto [it, fresh] = known.try_emplace(part.info.name, out.size());
    if (fresh) {
      out.push_back(std::move(part));
      continue;
    }
    StoredTensor& whole = out[it->second];
    if (whole.from != part.from) {
      return error("{}: masters of its rows are of several types, or of some of them alone", whole.info.name);
    }
    for (std::vector<StoredPart>* parts : {&part.parts, &part.residuals}) {
      for (StoredPart& own : *parts) own.source = whole.turned.size();
    }
    whole.turned.insert(whole.turned.end(), part.turned.begin(), part.turned.end());
    if (!whole.as_written) whole.parts.insert(whole.parts.end(), part.parts.begin(), part.parts.end());
    whole.residuals.insert(whole.residuals.end(), part.residuals.begin(), part.residuals.end());
  }
  std::ranges::for_each(out, put_in_order);
  return out;
}

// A and B of all experts of a layer, beside which those of one are not written. Of two parameters of a module
// the first is within the second in PEFT.
Result<std::vector<StoredTensor>> stacked_tensors(Source& source, const std::optional<TensorType>& type) {
  SLUICE_ASSIGN(source.stacks, stacked_experts(source.spec));
  std::vector<StoredTensor> out;
  for (size_t s = 0; s < source.stacks.size(); ++s) {
    const StackedExperts& stack = source.stacks[s];
    const bool within = std::ranges::any_of(source.stacks, [&](const StackedExperts& other) {
      return other.module == stack.module && other.parameter != stack.parameter &&
             stack.parameter == source.spec.names.gate_up_in_one;
    });
    for (const bool b : {false, true}) {
      const std::string end = b ? ".lora_B.weight" : ".lora_A.weight";
      SLUICE_ASSIGN(const SafeTensor* const one, source.files.get(stack.modules.front() + end));
      const ObjectId id(uint32_t(source.parts.size()));
      for (const std::string& module : stack.modules) {
        SLUICE_ASSIGN(const SafeTensor* const own, source.files.get(module + end));
        source.parts.push_back(own);
      }
      source.stacked_at[id.value] = {s, b};
      const TensorInfo info{name_in(source.held, stack.module + (within ? ".base_layer" : "") + end),
                            type.value_or(one->info.type), stack.shape(b)};
      out.push_back({info, {{id, 0, info.elements() * size_of(TensorType::F32), 0}}, TensorType::F32});
    }
  }
  return out;
}

// In the form of `folder`.
Result<std::vector<StoredTensor>> tensors_of(Source& source, const TensorFiles& folder,
                                             const std::optional<TensorType>& type) {
  const bool masters_apart =
      source.checkpoint && source.checkpoint->has_state() && !source.checkpoint->f32_weights;
  std::vector<StoredTensor> out;
  std::set<std::string_view> merged;  // of several weights, some
  const std::vector<Weight> weights = weights_of(source.spec);
  for (const Weight& weight : weights) {
    if (!holds(source.held, weight)) continue;
    if (!source.stacks.empty() && is_of_experts(source.spec, weight)) continue;
    const size_t first = out.size();
    std::vector<WeightSource> written;
    for (const auto& [at, rows] : rows_in(source.held, weight)) {
      const WeightSource& part = *rows;
      written.push_back(in_form_of(folder, part));
      const auto adapter = source.adapter ? adapter_of(source.spec, weight, part.tensor) : std::nullopt;
      if (adapter && !merged.insert(part.tensor).second) continue;
      const bool replaces = source.adapter && !weight.learnt.empty();
      SLUICE_ASSIGN(StoredTensor tensor, adapter || replaces
                                             ? merged_tensor(source, weight, part, adapter, type)
                                             : own_tensor(source, weight, part, written.back(), type));
      out.push_back(std::move(tensor));
    }
    if (source.adapter || !masters_apart || !type || out[first].from == *type) continue;
    const std::vector<std::string> names = source.checkpoint->state_files();
    while (source.masters.size() < names.size()) {
      SLUICE_ASSIGN(SafeTensorsFile file, SafeTensorsFile::open(source.dir / names[source.masters.size()]));
      source.masters.push_back(std::move(file));
    }
    SLUICE_TRY(read_from_masters(source, weight, written, std::span(out).subspan(first)));
  }
  return joined(std::move(out));
}

// Whether the files of a checkpoint that are read are those that were saved.
Status check_checkpoint(const Source& source, bool with_masters, const ExportProgress& progress) {
  std::vector<std::string> names;
  int64_t total = 0, done = 0;
  for (const auto& [name, sum] : source.checkpoint->files) {
    if (is_state_file(name) && !with_masters) continue;
    names.push_back(name);
    total += sum.bytes;
  }
  for (const std::string& name : names) {
    SLUICE_TRY(check_file(*source.checkpoint, source.dir / name,
                          [&](int64_t bytes) { return progress("checking", done += bytes, total); }));
  }
  return {};
}

Status check_target(const fs::path& to, int64_t bytes) {
  fs::path temporary = to.has_filename() ? to : to.parent_path();
  temporary += ".tmp";
  if (is_there(temporary)) {
    return error(
        ErrorKind::Io,
        "{}: it is there already, and nothing is overwritten; if an export that was stopped left it, "
        "remove it",
        temporary.string());
  }
  SLUICE_ASSIGN(const int64_t free, free_disk_bytes(to));
  if (free >= bytes) return {};
  return error(ErrorKind::Io, "{}: the export needs {}, {} are free there", to.string(),
               format_bytes_up(bytes), format_bytes(free));
}

Metadata metadata_of(const Source& source) {
  Metadata out;
  for (const char* name : {kBaseValues, kBaseTables}) {
    const std::string base = source.held == Held::Adapter ? source.files.metadata(name) : "";
    if (!base.empty()) out[name] = base;
  }
  return out;
}

PartReader reader_of(Source& source) {
  auto read_bytes = std::make_shared<int64_t>(0);
  auto values = std::make_shared<std::vector<float>>();
  return [&source, read_bytes, values](const StoredPart& part, int64_t offset,
                                       int64_t bytes) -> Result<std::span<const std::byte>> {
    if ((*read_bytes += bytes) > kMostResidentBytes) {
      *read_bytes = bytes;
      source.files.release();
      if (source.adapter) source.adapter->release();
      for (const SafeTensorsFile& file : source.masters) file.release();
    }
    if (const auto at = source.merged_at.find(part.object.value); at != source.merged_at.end()) {
      const int64_t size = size_of(TensorType::F32);
      SLUICE_ASSIGN(const std::span<const float> sum,
                    source.merged[at->second].read((part.offset + offset) / size, bytes / size));
      return std::as_bytes(sum);
    }
    if (const auto at = source.stacked_at.find(part.object.value); at != source.stacked_at.end()) {
      const auto [stack, b] = at->second;
      if (source.stacked != at->first) {
        SLUICE_ASSIGN(source.stacked_values, source.stacks[stack].read(source.files, b));
        source.stacked = at->first;
      }
      return std::as_bytes(std::span<const float>(source.stacked_values))
          .subspan(size_t(part.offset + offset), size_t(bytes));
    }
    if (const auto at = source.packed.find(part.object.value); at != source.packed.end()) {
      const int64_t size = size_of(TensorType::F32);
      values->resize(size_t(bytes / size));
      SLUICE_TRY(at->second.read((part.offset + offset) / size, *values));
      return std::as_bytes(std::span<const float>(*values));
    }
    return source.parts[part.object.value]->bytes.subspan(size_t(part.offset + offset), size_t(bytes));
  };
}

// The head that predicts further tokens, in folders of models that have one.
constexpr std::string_view kFurtherTokens = "mtp";

std::string_view first_part(std::string_view name) {
  return name.substr(0, name.find('.'));
}

// Makes of the tensors of a text model those of the one that wraps it, which lies in `files`, but for those
// whose names begin with `without`.
Status wrap(Source& source, const TensorFiles& files, const std::string& without,
            std::vector<StoredTensor>& tensors) {
  std::set<std::string_view> own;
  for (StoredTensor& tensor : tensors) {
    SLUICE_ASSIGN(const SafeTensor* there, files.get(tensor.info.name));
    tensor.info.name = there->info.name;
    own.insert(there->info.name);
    if (there->info.shape != tensor.info.shape)
      return error("{}: tensor {} has shape [{}], the model's has [{}]", files.path().string(),
                   tensor.info.name, fmt::join(there->info.shape, ", "), fmt::join(tensor.info.shape, ", "));
  }
  std::set<std::string_view> others;
  for (const std::string_view name : files.names()) {
    if ((is_of_text(name) && !is_idle(source.spec, name)) || own.contains(name)) continue;
    others.insert(first_part(name));
    if (first_part(name) == without) continue;
    const SafeTensor* const other = files.find(name);
    const ObjectId id(uint32_t(source.parts.size()));
    source.parts.push_back(other);
    tensors.push_back({other->info, {{id, 0, int64_t(other->bytes.size())}}, other->info.type});
  }
  if (!without.empty() && !others.contains(without))
    return error("--without {}: {} has no such tensors beside its text model; allowed are {}", without,
                 files.path().string(), fmt::join(others, ", "));
  if (source.checkpoint && others.contains(kFurtherTokens) && without != kFurtherTokens)
    source.notices.push_back(
        fmt::format("{0}.* was made for the weights before training, and predicts worse with these; "
                    "--without {0} leaves it out",
                    kFurtherTokens));
  return {};
}

Exported summary_of(const Source& source, std::span<const StoredTensor> tensors) {
  Exported out;
  out.from = source.dir;
  std::set<TensorType> types;
  for (const StoredTensor& tensor : tensors) {
    out.parameters += tensor.info.elements();
    out.bytes += tensor.info.bytes();
    types.insert(tensor.info.type);
  }
  std::set<std::string_view> read;
  for (const SafeTensor* part : source.parts) read.insert(part->info.name);
  for (const auto& [id, packed] : source.packed) {
    for (const SafeTensor* part : packed.tensors()) read.insert(part->info.name);
  }
  out.types.assign(types.begin(), types.end());
  out.from_masters = source.from_masters;
  for (const std::string_view name : source.files.names()) {
    if (!read.contains(name) && source.held != Held::Base) out.left_out.emplace_back(name);
  }
  return out;
}

// A model of the family with as many layers, as transformers' class has it by default.
ModelSpec usual_of(const ModelSpec& spec) {
  const std::string type = fmt::format(R"({{"model_type": "{}")", spec.family);
  Result<ModelSpec> model =
      parse_model_config(fmt::format(R"({}, "num_hidden_layers": {}}})", type, spec.layers.size()));
  if (!model.ok()) model = parse_model_config(type + "}");
  SLUICE_CHECK(model.ok(), "{}", model.message());
  return *std::move(model);
}

// Notices of values that config.json leaves out, and of those that llama.cpp or transformers 4 compute
// otherwise, without a word. The families were tried with the versions of docs/models.md.
std::vector<std::string> notices_of(const ModelSpec& spec, std::span<const std::string> files) {
  std::vector<std::string> out = spec.notices;
  const auto any = [&](auto&& is) { return std::any_of(spec.layers.begin(), spec.layers.end(), is); };
  const std::vector<FamilyFacts> families = family_facts();
  const LlamaCpp does = std::ranges::find(families, spec.family, &FamilyFacts::model_type)->about.llama_cpp;
  const bool tried = does != LlamaCpp::NotTried;
  const ModelSpec usual = usual_of(spec);
  const auto as_usual = [&](auto&& part) {
    for (size_t l = 0; l < spec.layers.size(); ++l) {
      if (part(spec.layers[l]) != part(usual.layers[l % usual.layers.size()])) return false;
    }
    return true;
  };
  const auto has_window = [](const LayerSpec& layer) {
    return layer.attention() != nullptr && layer.attention()->window > 0;
  };
  if (does == LlamaCpp::PassesWindowsOver && any(has_window))
    out.emplace_back(
        "llama.cpp passes the window over (sliding_window): longer texts get other logits there");
  if (does == LlamaCpp::HeedsWindows && !as_usual(has_window))
    out.push_back(fmt::format(
        "llama.cpp takes the layers of {} to have windows where they have them usually, which is not so in "
        "this model: longer texts get other logits there",
        spec.family));
  const auto rotated = [](const LayerSpec& layer) {
    return layer.attention() == nullptr || layer.attention()->rotated;
  };
  if (tried && !as_usual(rotated))
    out.emplace_back(
        "llama.cpp takes the layers that are not rotated to be where the family has them usually, which is "
        "not so "
        "in this model: other logits");
  if (tried && spec.rope.kind == RopeScaling::Dynamic) {
    out.push_back(fmt::format(
        "llama.cpp passes rope_type dynamic over: texts of more than {} tokens get other logits there",
        spec.rope.original_context));
  }
  if (tried && !as_usual([](const LayerSpec& layer) { return layer.mlp().activation; }))
    out.push_back(
        fmt::format("llama.cpp takes the activations of this family to be {}, which are {} here "
                    "(hidden_act): other logits",
                    name_of(usual.layers[0].mlp().activation), name_of(spec.layers[0].mlp().activation)));
  const auto has = [&](std::string_view name) {
    return std::find(files.begin(), files.end(), name) != files.end();
  };
  if (has("tokenizer.json") && !has("tokenizer_config.json"))
    out.emplace_back(
        "there is no tokenizer_config.json beside tokenizer.json: transformers 4 then takes its own class "
        "for the "
        "family and may add tokens. {\"tokenizer_class\": \"PreTrainedTokenizerFast\"} in that file heals "
        "it");
  return out;
}

}  // namespace

Result<Exported> export_model(const fs::path& from, const fs::path& to, const ExportOptions& options,
                              const ExportProgress& progress) {
  SLUICE_ASSIGN(const fs::path dir, folder_to_read(from, options.best));
  if (options.base.empty() && options.merged)
    return error("--merged: {} has no adapter, which is what is added to its base", dir.string());
  SLUICE_ASSIGN(Source source, open_source(dir, options));
  const fs::path& folder = options.base.empty() ? dir : options.base;
  const fs::path around = !options.around.empty() ? options.around : folder;
  SLUICE_ASSIGN(const ConfigText config_around, read_model_config(around));
  const std::string& whole = config_around.text;
  std::optional<TensorFiles> wrapping;
  if (wraps_text(whole) && source.held != Held::Adapter) {
    SLUICE_ASSIGN(wrapping, TensorFiles::open(around));
  }
  std::vector<StoredTensor> stacked;
  if (options.experts_in_one) {
    if (source.held != Held::Adapter)
      return error("--layout peft5: it is of adapters that are written by themselves, which {} is not",
                   options.merged ? "--merged" : dir.string());
    SLUICE_ASSIGN(stacked, stacked_tensors(source, options.type));
    if (stacked.empty())
      return error("--layout peft5: the adapter in {} is of no experts, and is as PEFT has it anyway",
                   dir.string());
  }
  SLUICE_ASSIGN(std::vector<StoredTensor> tensors,
                tensors_of(source, wrapping ? *wrapping : source.files, options.type));
  std::ranges::move(stacked, std::back_inserter(tensors));
  if (wrapping) {
    SLUICE_TRY(wrap(source, *wrapping, options.without, tensors));
    source.spec.config = whole;
    // That its text part alone is read is not so of what is written.
    if (options.around.empty()) source.spec.notices.pop_back();
  } else if (!options.without.empty()) {
    return error("--without {}: {} wraps no text model, so that all of its tensors are the model's",
                 options.without, config_around.path.string());
  } else if (!options.around.empty()) {
    return error("{}: its model wraps no text model; allowed are the types {}", config_around.path.string(),
                 wrapper_names());
  }
  const fs::path folders[] = {dir, folder};
  SLUICE_ASSIGN(ModelFiles files, ModelFiles::open(std::span(folders, source.held == Held::Base ? 2 : 1)));
  if (wrapping) SLUICE_TRY(files.add_of_whole(around));
  if (options.texts) {
    SLUICE_ASSIGN(const auto texts, options.texts(dir));
    files.replace(texts);
  }
  Exported out = summary_of(source, tensors);
  CheckpointLayout layout;
  layout.weights = tensors;
  layout.shard_bytes = options.shard_bytes;
  layout.held = source.held;
  SLUICE_TRY(check_target(to, out.bytes + files.bytes() + layout.other_bytes()));
  SLUICE_ASSIGN(AtomicDirectory fresh, AtomicDirectory::create(to));
  if (source.checkpoint) SLUICE_TRY(check_checkpoint(source, out.from_masters, progress));

  int64_t total = 0, done = 0;
  for (const StoredTensor& tensor : tensors) {
    for (const StoredPart& part : tensor.parts) total += part.bytes;
    for (const StoredPart& residual : tensor.residuals) total += residual.bytes;
  }
  SLUICE_ASSIGN(const FileSums weights,
                write_weights(layout, fresh.temporary(), metadata_of(source), reader_of(source),
                              [&](int64_t bytes) { return progress("writing", done += bytes, total); }));
  for (const auto& [name, sum] : weights) out.weights.push_back(name);
  // `context` is of models that were not read.
  const std::string config =
      source.held == Held::Adapter
          ? adapter_config(source.spec, base_name(options.base), options.experts_in_one)
      : options.type ? config_beside_weights(source.spec, type_in_config(*options.type), 0)
                     : source.spec.config;
  out.config = source.held == Held::Adapter ? kAdapterConfigName : kConfigName;
  SLUICE_TRY(write_file(fresh.temporary() / out.config, config));
  if (const auto copied = files.copy_to(fresh.temporary()); !copied.ok()) return copied.error();
  out.others = files.names();
  if (source.adapter) out.merge = loss_of(source.merged);
  if (source.held != Held::Adapter) out.notices = notices_of(source.spec, out.others);
  out.notices.insert(out.notices.begin(), source.notices.begin(), source.notices.end());
  SLUICE_TRY(fresh.commit());
  return out;
}

}  // namespace sluice::core
