// SPDX-License-Identifier: Apache-2.0
#include "run/passes/loaded.h"

#include "exec/host_parts.h"
#include "run/passes/caps.h"

namespace sluice::core {

Result<Loaded> Loaded::reserve(std::unique_ptr<Backend> backend, const Stages& stages,
                               const BytesByTier& caps, Observer& observer) {
  Loaded out(std::move(backend), stages, caps);
  const BytesByTier bytes = stages.arena_bytes();
  observer.progress({"taking memory", 0, sum(bytes), sluice::Progress::Unit::Bytes});
  out.backend_->set_host_parts(host_parts(stages.main.plan));
  SLUICE_ASSIGN(out.arenas_, out.backend_->reserve(bytes));
  return out;
}

Status Loaded::prepare() {
  SLUICE_TRY(backend_->prepare(all_ops(*stages_)));
  const auto executor = [&](const Stage& stage) {
    return std::make_unique<Executor>(stage.model.program, stage.plan, *backend_, arenas_);
  };
  main_ = executor(stages_->main);
  for (const Stage& stage : stages_->beside) beside_.push_back(executor(stage));
  return {};
}

Status Loaded::settle() {
  // An empty step.
  SLUICE_TRY(backend_->begin(0, false));
  if (const auto fault = backend_->finish(nullptr)) return fault->error;
  return {};
}

Executor& Loaded::at(std::string_view name) const {
  return *beside_[size_t(&stages_->at(name) - stages_->beside.data())];
}

void Loaded::annotate() {
  main_->annotate();
  for (const auto& executor : beside_) executor->annotate();
}

const MemoryReport& Loaded::memory() {
  memory_.bytes = backend_->memory();
  raise_to(memory_.bytes, memory_.peak_bytes);
  return memory_;
}

Status Loaded::check_caps() {
  return sluice::core::check_caps(*backend_, memory().bytes, caps_);
}

}  // namespace sluice::core
