// SPDX-License-Identifier: Apache-2.0
#include "run/inference/standing_start.h"

#include "checkpoint/weights.h"

namespace sluice::core {

Result<Loaded> load(const Machine& machine, const Stages& stages, const BytesByTier& caps,
                    const WeightsFrom& weights, Observer& observer) {
  SLUICE_ASSIGN(auto backend, machine.make());
  SLUICE_ASSIGN(Loaded out, Loaded::reserve(std::move(backend), stages, caps, observer));
  SLUICE_TRY(out.prepare());
  const BuiltProgram& model = stages.main.model;
  const bool adapter_is_made = has_adapters(model.weights) && weights.adapter.empty();
  if (weights.folder.empty() || adapter_is_made) {
    SLUICE_TRY(initialize(model, weights.seed, out.main(), [&](int64_t done, int64_t total) {
      observer.progress({"making random weights", done, total, sluice::Progress::Unit::Bytes});
    }));
  } else {
    observer.progress({"loading the weights"});
    SLUICE_TRY(write_constants(model, out.main()));
  }
  SLUICE_TRY(load_model(model, weights, out.main()));
  SLUICE_TRY(out.settle());
  SLUICE_TRY(out.check_caps());
  return out;
}

}  // namespace sluice::core
