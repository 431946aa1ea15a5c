// SPDX-License-Identifier: Apache-2.0
// Weights and optimizer state: made, loaded from tensors, saved to them. Everything goes through an Executor
// object by object, so that no copy of the state is ever whole outside the arenas. What there is to make,
// load and save follows from the model's table of weights.
#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/checksum.h"
#include "checkpoint/held.h"
#include "exec/executor.h"
#include "io/safetensors.h"
#include "lowering/build.h"

namespace sluice::core {

// Called with (bytes done, bytes in total).
using ByteProgress = std::function<void(int64_t, int64_t)>;

// Weights as the table says, random ones keyed by the seed; zero optimizer state; and the program's
// constants.
Status initialize(const BuiltProgram& model, uint64_t seed, Executor& executor, const ByteProgress& progress);

// `count` elements of a weight from `first` on, as initialize() makes them.
void random_values(const Weight& weight, uint64_t seed, int64_t first, int64_t count,
                   std::vector<float>& values);

// The program's constants alone.
Status write_constants(const BuiltProgram& model, Executor& executor);

// Checksums of a base's values: as f32, tensor after tensor in the order of their names, each in the model's
// own order. Those of embedding and tables are apart, as programs that generate have no more than rows of
// them, and as older adapters do not name them.
struct BaseValues {
  Checksum products;
  std::optional<Checksum> tables;  // nothing: nobody asked
};

// Replaces the weights that a checkpoint has (F32, BF16 or F16 tensors with Hugging Face names), and master
// weights with them. Errors name a missing tensor, one of another shape, or one with a value that is not
// finite. `sums`: gets the checksums of what is read.
Status load_weights(const BuiltProgram& model, const std::filesystem::path& checkpoint, Executor& executor,
                    Held held = Held::Whole, BaseValues* sums = nullptr);

// The same checksums, of a folder's weights that a model has.
Result<BaseValues> values_in(const ModelSpec& spec, const std::filesystem::path& folder, Held held);

// Where the values of a model are: in a folder, and of one with adapters in two. Empty: they are made, random
// ones by the seed.
struct WeightsFrom {
  std::filesystem::path folder, adapter;
  uint64_t seed = 1;

  template <std::convertible_to<std::filesystem::path> Path>
  WeightsFrom(Path&& all) : folder(std::forward<Path>(all)) {}  // NOLINT: a folder is such a place
  WeightsFrom(std::filesystem::path base, std::filesystem::path beside, uint64_t made_by = 1)
      : folder(std::move(base)), adapter(std::move(beside)), seed(made_by) {}
  const std::filesystem::path& of(const Weight& weight) const {
    const bool beside = !adapter.empty() && holds(Held::Adapter, weight) && weight.learnt.empty();
    return beside ? adapter : folder;
  }
};
// Replaces what these have, and returns the checksums of the base of a model with adapters. An adapter that
// was made by a run beside a base with other values is refused. Magnitudes that no adapter's folder has
// become the norms of their rows.
Result<std::optional<BaseValues>> load_model(const BuiltProgram& model, const WeightsFrom& from,
                                             Executor& executor);

// In the metadata of an adapter's file: the checksums of its base.
constexpr const char* kBaseValues = "sluice.base_values";
constexpr const char* kBaseTables = "sluice.base_tables";
// Whether an adapter goes with a base of these values; nothing: nobody knows them. `base` is where they are
// from. An adapter that cannot be read says nothing.
Status check_base(const std::filesystem::path& adapter, const std::filesystem::path& base,
                  const std::optional<BaseValues>& values);

// Where the elements of a tensor with a Hugging Face name lie, as source->stretch() orders them.
struct WeightPlace {
  size_t weight;  // in the model's table
  const WeightSource* source;
  int64_t first;  // of the weight's elements
};
// By the names of tensors. Borrows the model.
std::map<std::string, std::vector<WeightPlace>, std::less<>> weight_places(const BuiltProgram& model,
                                                                           Held held = Held::Whole);

// Errors name a tensor of another shape or type than load_weights() takes; `path` says where it is.
Status check_weight(const BuiltProgram& model, const WeightPlace& place, const TensorInfo& tensor,
                    const std::filesystem::path& path);

// Replaces elements of weights, and of their masters: those of a tensor from byte `offset` on, whole ones.
// The tensor passed check_weight(). An error if one is not finite.
Status write_weight(const BuiltProgram& model, std::span<const WeightPlace> places, const TensorInfo& tensor,
                    int64_t offset, std::span<const std::byte> bytes, Executor& executor);

// Whether a part has masters of 24 bits (ops/master.h): its master's object is what the parameter lacks.
bool has_residuals(const Program& program, const ParamObjects::Part& part);
// Masters of 24 bits: elements of a bf16 parameter from `first` on, and the residuals beside them.
Status read_joined(const Executor& executor, ObjectId parameter, int64_t first,
                   std::span<const std::byte> residuals, std::vector<float>& values);
// Replaces elements of a weight from `first` on, and of its master, by values that are finite.
Status write_values(const ParamObjects& objects, int64_t first, std::span<const float> values,
                    Executor& executor);

// Writes the weights alone, with Hugging Face names and in their own type.
Status save_weights(const BuiltProgram& model, const std::filesystem::path& path, const Executor& executor);

}  // namespace sluice::core
