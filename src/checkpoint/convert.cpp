// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"

#include <algorithm>
#include <map>

#include "checkpoint/compact.h"
#include "checkpoint/layout.h"
#include "checkpoint/weights.h"
#include "checkpoint/write.h"
#include "io/elements.h"
#include "io/safetensors.h"
#include "ops/compact_format.h"

namespace sluice::core {
namespace {

// Elements at a time: whole groups.
constexpr int64_t kConvertedElements = 1 << 18;
static_assert(kConvertedElements % kCompactGroup == 0);

class SavedState {
 public:
  // REQUIRES: there are files, of one checkpoint.
  static Result<SavedState> open(std::span<const std::filesystem::path> paths) {
    SavedState out;
    for (const std::filesystem::path& path : paths) {
      SLUICE_ASSIGN(SafeTensorsFile file, SafeTensorsFile::open(path));
      out.files_.push_back(std::move(file));
    }
    for (const SafeTensorsFile& file : out.files_) {
      for (const SafeTensor& tensor : file.tensors()) out.by_name_[tensor.info.name] = &tensor;
    }
    return out;
  }

  // Null: there is none.
  const SafeTensor* find(const std::string& name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }
  // Pages of the files that were read are given back before they are many: a host cap counts them.
  void was_read(int64_t bytes) {
    constexpr int64_t kMostResidentBytes = 8 << 20;
    if ((resident_ += bytes) < kMostResidentBytes) return;
    resident_ = 0;
    for (const SafeTensorsFile& file : files_) file.release();
  }
  // The file, or the folder that has them.
  std::string path() const {
    const std::filesystem::path& first = files_.front().path();
    return (files_.size() == 1 ? first : first.parent_path()).string();
  }

 private:
  SavedState() = default;

  std::vector<SafeTensorsFile> files_;
  int64_t resident_ = 0;
  std::map<std::string, const SafeTensor*, std::less<>> by_name_;
};

// A tensor of the file, with its scales where it has any.
struct Saved {
  const SafeTensor* tensor;
  const SafeTensor* scales;
  bool squares;
};

// The one of an object that has `elements`. Nothing: there is none of that name.
Result<std::optional<Saved>> saved_as(const SavedState& source, const std::string& name, int64_t elements,
                                      bool squares) {
  const SafeTensor* tensor = source.find(name);
  if (tensor == nullptr) return std::optional<Saved>();
  const SafeTensor* scales = source.find(name + std::string(kScaleSuffix));
  const TensorType type = tensor->info.type;
  const int64_t there = tensor->info.elements(), padded = compact_format(squares).padded(elements);
  const bool compact = scales != nullptr && type == tensor_type(compact_format(squares).type) &&
                       scales->info.type == TensorType::F32 && there == padded &&
                       scales->info.elements() == padded / kCompactGroup;
  const bool plain = scales == nullptr && is_weight_type(type) && there == elements;
  if (compact || plain) return std::optional<Saved>({tensor, scales, squares});
  return error("{}: {} has {} elements of {}, which is no state of {} elements", source.path(), name, there,
               name_of(type), elements);
}

// Elements [first, first + count) as numbers; first is that of a group.
Status read(const Saved& from, int64_t first, int64_t count, std::vector<float>& values) {
  const TensorInfo& info = from.tensor->info;
  if (from.scales == nullptr) {
    const int64_t size = size_of(info.type);
    read_elements(info.type, from.tensor->bytes.subspan(size_t(size * first), size_t(size * count)), values);
  } else {
    const NumberFormat format = compact_format(from.squares);
    const int64_t padded = format.padded(count), size = size_of(format.scale);
    const auto elements = from.tensor->bytes.subspan(size_t(first), size_t(padded));
    const auto scales = from.scales->bytes.subspan(size_t(size * (first / kCompactGroup)),
                                                   size_t(size * (padded / kCompactGroup)));
    std::vector<std::byte> object(elements.begin(), elements.end());
    object.insert(object.end(), scales.begin(), scales.end());
    values = expand(format, object);
    values.resize(size_t(count));
  }
  const TensorInfo as_floats{info.name, TensorType::F32, info.shape};
  return check_values(as_floats, from.squares, first, std::as_bytes(std::span(values)));
}

// Elements of an object from `first` on, that of a group, become `values`.
Status write(Executor& executor, ObjectId id, int64_t first, std::span<const float> values) {
  const Object& object = executor.program().object(id);
  const NumberFormat& format = object.format;
  std::vector<std::byte> bytes;
  if (format.block == 0) {
    const int64_t bad = round_elements(tensor_type(format.type), values, bytes);
    if (bad >= 0)
      return error("{}: element {} is too large for {}", object.name, first + bad, to_text(format));
    return executor.write(id, bytes, format.bytes(first));
  }
  const int64_t padded = format.padded(int64_t(values.size()));
  bytes.assign(size_t(format.bytes(padded)), std::byte{0});
  put(format, bytes, 0, values);
  const std::span<const std::byte> all(bytes);
  SLUICE_TRY(executor.write(id, all.first(size_t(padded)), first));
  const int64_t scales = object.elements() + size_of(format.scale) * (first / format.block);
  return executor.write(id, all.subspan(size_t(padded)), scales);
}

class Conversion {
 public:
  Conversion(const BuiltProgram& model, SavedState& source, Executor& executor, bool others_trained)
      : model_(model), source_(source), executor_(executor), others_trained_(others_trained) {}

  Status run() {
    for (size_t w = 0; w < model_.weights.size(); ++w) {
      const ParamObjects& objects = model_.params[w];
      for (size_t p = 0; p < objects.parts.size(); ++p) {
        const ParamObjects::Part& part = objects.parts[p];
        for (size_t s = 0; s < part.state.size(); ++s) {
          const StateSlot& slot = objects.rule->state[s];
          SLUICE_TRY(state(part.state[s], slot.numbers(part), slot.squares));
        }
        if (objects.parts[p].master.valid()) SLUICE_TRY(master(w, p));
      }
    }
    return {};
  }

 private:
  Status state(ObjectId id, int64_t elements, bool squares) {
    const std::string& name = model_.program.object(id).name;
    SLUICE_ASSIGN(const std::optional<Saved> saved, saved_as(source_, name, elements, squares));
    if (!saved) return others_trained_ ? executor_.clear(id) : missing(name);
    std::vector<float> values;
    for (int64_t first = 0; first < elements; first += kConvertedElements) {
      SLUICE_TRY(read(*saved, first, std::min(kConvertedElements, elements - first), values));
      SLUICE_TRY(write(executor_, id, first, values));
      source_.was_read(int64_t(values.size()) * 4);
    }
    return {};
  }

  Status master(size_t weight, size_t index) {
    const ParamObjects::Part& part = model_.params[weight].parts[index];
    const std::string name = name_of_state(kMasterRole, model_.weights[weight], part.number);
    const SafeTensor* tensor = source_.find(name);
    if (tensor == nullptr) return {};  // it came with the weight
    const TensorType type = tensor->info.type;
    if ((type != TensorType::F32 && type != TensorType::I8) || tensor->info.elements() != part.elements())
      return error("{}: {} has {} elements of {}, which are no master weights of {} elements", source_.path(),
                   name, tensor->info.elements(), name_of(type), part.elements());
    std::vector<float> values;
    for (int64_t first = 0; first < part.elements(); first += kConvertedElements) {
      const int64_t count = std::min(kConvertedElements, part.elements() - first);
      if (type == TensorType::F32) {
        SLUICE_TRY(read({tensor, nullptr, false}, first, count, values));
      } else {
        const auto residuals = tensor->bytes.subspan(size_t(first), size_t(count));
        SLUICE_TRY(
            read_joined(executor_, model_.params[weight].param, part.first + first, residuals, values));
        const TensorInfo joined{name, TensorType::F32, tensor->info.shape};
        SLUICE_TRY(check_values(joined, false, first, std::as_bytes(std::span(values))));
      }
      source_.was_read(count * size_of(type));
      SLUICE_TRY(write_values(model_.params[weight], part.first + first, values, executor_));
    }
    return {};
  }

  Error missing(const std::string& name) const {
    return error(ErrorKind::NotFound, "{}: no tensor '{}', which this model has", source_.path(), name);
  }

  const BuiltProgram& model_;
  SavedState& source_;
  Executor& executor_;
  bool others_trained_;
};

}  // namespace

Status load_state_in_other_formats(const BuiltProgram& model, std::span<const std::filesystem::path> files,
                                   Executor& executor, bool others_trained) {
  SLUICE_ASSIGN(SavedState source, SavedState::open(files));
  return Conversion(model, source, executor, others_trained).run();
}

}  // namespace sluice::core
