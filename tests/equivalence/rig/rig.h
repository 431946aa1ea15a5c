// SPDX-License-Identifier: Apache-2.0
// Runs whole programs for tests: plans, memory, state and batches in one place.
//
// What must hold for a test to mean anything is checked by must(), which throws; GoogleTest reports it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "exec/executor.h"
#include "lowering/build.h"
#include "ops/step_args.h"
#include "run/loaded/rows.h"
#include "setup/stages.h"

namespace sluice::core::rig {

inline void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}
template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.message());
  return std::move(*result);
}

// One step's rows, sequence after sequence.
struct Tokens {
  std::vector<int32_t> tokens, targets, positions;
  std::vector<float> weights = {};  // where batches have some

  int64_t counted() const;  // targets that are not ignored
};
// The next token is the target; every eleventh target is ignored. In packed shapes documents of 1 to 1.5
// sequence lengths begin anywhere and a document's last token has no target.
Tokens random_tokens(const StepShape& shape, int64_t vocab, uint64_t seed);

// Link and compute of like speed, no overheads, and the backend's own workspaces (it is borrowed).
Profile profile_of(const Backend& backend);

// The backend under test, for tiny programs, and what it takes. Every test executable links one definition of
// these: sluice_test_rig_cpu, or sluice_test_rig_cuda.
std::unique_ptr<Backend> small_backend();
// The same with several devices; copies go between them directly where they are `joined`. With a network it
// is that of one of several processes.
std::unique_ptr<Backend> small_devices(int count, bool joined, Network* network = nullptr);
bool takes(const Numerics& numerics);

// Fills the arenas with NaNs up to these sizes: whatever a plan forgets to write must not happen to be zero.
void poison(Backend& backend, const BytesByTier& bytes);

ObjectId find(const Program& program, std::string_view name);
std::vector<std::byte> read_bytes(const Executor& executor, ObjectId id);
// Of an f32 or bf16 object.
std::vector<float> read_floats(const Executor& executor, ObjectId id);
void write_floats(Executor& executor, ObjectId id, const std::vector<float>& values);
void write_tokens(Executor& executor, const BuiltProgram& model, const Tokens& tokens);
void write_args(Executor& executor, const BuiltProgram& model, const StepArgs& args, int64_t first_row = 0);

// For optimizer update `step` with the optimizer's betas.
StepArgs args_for(int64_t step, int64_t counted, float learning_rate = 1e-2f);

struct Losses {
  double loss;  // of this process, divided by its counted targets
  float norm, scale;
};
Losses read_losses(const Executor& executor, const BuiltProgram& model, const Tokens& tokens);

// Content of every object of these kinds, by name.
using State = std::map<std::string, std::vector<std::byte>>;
State read_state(const Executor& executor, std::initializer_list<ObjectKind> kinds);

// Programs and plans of a run on one backend.
class Rig {
 public:
  // Takes the backend.
  Rig(const Question& request, Stages stages, std::unique_ptr<Backend>&& backend);
  // Plans within the request's caps.
  Rig(const Question& request, std::unique_ptr<Backend>&& backend);
  explicit Rig(const Question& request) : Rig(request, small_backend()) {}

  const BuiltProgram& model() const { return stages_.main.model; }
  const Plan& plan() const { return stages_.main.plan; }
  const Question& request() const { return request_; }
  Backend& backend() { return *backend_; }
  Executor& training() { return *training_; }
  Arenas arenas() const { return arenas_; }

  float learning_rate = 1e-2f;  // of the steps that follow
  int64_t first_row = 0;        // of this process, among those of all

  // Random weights of the seed, zero state.
  void initialize(uint64_t seed = 1);
  // Optimizer step number `step`, from 1. A deferred update of the step before is applied inside, if still
  // pending. `counted`: targets of all processes; 0: this one's.
  Losses step(int64_t step, const Tokens& tokens, int64_t counted = 0);
  // Applies the deferred update of step `step`, the last one; nothing when none is pending.
  void flush(int64_t step);
  // Loss and norm without an update.
  Losses measure(const Tokens& tokens, std::span<const Amendment> changes = {});
  // Of the last step's targets. REQUIRES: LossForm::log_probs.
  std::vector<float> log_probs() const;

 private:
  Question request_;
  std::unique_ptr<Backend> backend_;
  Stages stages_;
  Arenas arenas_;
  std::unique_ptr<Executor> training_, flush_;
  bool pending_ = false;  // a deferred update
};

// Losses of some steps and the state they end in.
struct History {
  std::vector<double> losses;
  std::vector<float> norms;
  State state;

  bool operator==(const History&) const = default;
};
// Runs `steps` steps from a fresh state, each on tokens of its own, and flushes at the end and after
// `flush_after`.
History run_steps(Rig& rig, int64_t steps, const std::set<int64_t>& flush_after = {});

}  // namespace sluice::core::rig
