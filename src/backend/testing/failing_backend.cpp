// SPDX-License-Identifier: Apache-2.0
#include "backend/testing/failing_backend.h"

namespace sluice::core {

Status FailingBackend::count() {
  if (const int64_t call = ++calls_; call == fail_at_)
    return error(ErrorKind::Device, "injected failure at call {}", call);
  return {};
}

Result<Arenas> FailingBackend::reserve(const BytesByTier& bytes) {
  SLUICE_TRY(count());
  return inner().reserve(bytes);
}

Status FailingBackend::prepare(std::span<const SharedOp> ops) {
  SLUICE_TRY(count());
  return inner().prepare(ops);
}

Status FailingBackend::begin(uint32_t commands, bool timed) {
  SLUICE_TRY(count());
  fault_.reset();
  return inner().begin(commands, timed);
}

Status FailingBackend::submit(const Command& command) {
  if (Status failure = count(); !failure.ok()) fault_ = Fault{command.id, failure.error()};
  if (!fault_) return inner().submit(command);
  if (mode_ == Mode::Asynchronous) return {};
  return fault_->error;
}

Status FailingBackend::wait(uint32_t command) {
  SLUICE_TRY(count());
  if (fault_) return fault_->error;
  return inner().wait(command);
}

std::optional<Fault> FailingBackend::finish(std::vector<Interval>* timeline) {
  const Status failure = count();
  // Whatever fails, nothing may be left in flight.
  std::optional<Fault> inner_fault = inner().finish(timeline);
  if (!failure.ok()) return Fault{std::nullopt, failure.error()};
  return fault_ ? fault_ : inner_fault;
}

}  // namespace sluice::core
