// SPDX-License-Identifier: Apache-2.0
// Weights, gradients and optimizer state by the names that a folder has for the model's tensors, in f32,
// whatever they are held in. Between steps, where they are at home. Values are written rounded to nearest; of
// compact state the numbers of another tensor that share a group of 32 with them may be rounded anew.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/executor.h"
#include "lowering/build.h"

namespace sluice::core {

// Which numbers of a tensor are meant. A slot of the state is a role of UpdateRule::state, or kMasterRole.
// One may have a number for each row or column of the matrix that is updated, in the order of the tensor's.
// If a tensor has a row for each input, as GPT-2's, its rows are the matrix's columns.
struct TensorKind {
  enum Of : uint8_t { Weight, Gradient, State } of = Weight;
  std::string_view slot = {};
};
// The slots of the state that any of the model's trained weights has.
std::vector<std::string_view> state_slots(const BuiltProgram& model);
// Those of one tensor: none of one that is not trained.
Result<std::vector<std::string_view>> state_slots_of(const BuiltProgram& model, std::string_view name);

// Errors: another name (NotFound) or slot, a tensor that is not trained and so has neither gradient nor
// state.
Status check_tensor(const BuiltProgram& model, TensorKind kind, std::string_view name);
Result<std::vector<float>> read_tensor(const BuiltProgram& model, TensorKind kind, std::string_view name,
                                       const Executor& executor);
// Whether write_tensor() may: the errors of read_tensor(), another number of values, one that is not finite
// in the tensor's format, or is negative where squares are summed. Also masters, which are written with their
// weights, not alone.
Status check_write(const BuiltProgram& model, TensorKind kind, std::string_view name,
                   std::span<const float> values);
// REQUIRES: check_write() allows it.
Status write_tensor(const BuiltProgram& model, TensorKind kind, std::string_view name,
                    std::span<const float> values, Executor& executor);

// The sums of squares of all gradients, by slot (norm_slots()), in f64: of those that are not trained 0.
Result<std::vector<double>> gradient_squares(const BuiltProgram& model, const Executor& executor);

}  // namespace sluice::core
