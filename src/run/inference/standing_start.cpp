// SPDX-License-Identifier: Apache-2.0
#include "run/inference/standing_start.h"

#include "exec/host_parts.h"
#include "state/weights.h"

namespace sluice::core {

Result<Arenas> take_memory(Backend& backend, const Plan& plan, const BytesByTier& bytes, Observer& observer) {
  observer.progress({"taking memory", 0, sum(bytes), sluice::Progress::Unit::Bytes});
  backend.set_host_parts(host_parts(plan));
  return backend.reserve(bytes);
}

Status make_ready(Backend& backend, const Model& model, Executor& executor,
                  const std::filesystem::path& weights, uint64_t seed, Observer& observer) {
  if (weights.empty()) {
    SLUICE_TRY(initialize(model, seed, executor, [&](int64_t done, int64_t total) {
      observer.progress({"making random weights", done, total, sluice::Progress::Unit::Bytes});
    }));
  } else {
    observer.progress({"loading the weights"});
    SLUICE_TRY(write_constants(model, executor));
    SLUICE_TRY(load_weights(model, weights, executor));
  }
  SLUICE_TRY(backend.begin(0, false));
  if (const auto fault = backend.finish(nullptr)) return fault->error;
  return {};
}

}  // namespace sluice::core
