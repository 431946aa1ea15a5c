// SPDX-License-Identifier: Apache-2.0
#include "backend/testing/recording_backend.h"

#include <fmt/format.h>

namespace sluice::core {

std::string to_text(const RecordedCommand& record) {
  std::string out = fmt::format("step {} #{} {} {} {} bytes", record.step, record.id, record.lane,
                                record.kind, record.bytes);
  if (!record.waits.empty()) out += " waits";
  for (const uint32_t id : record.waits) out += fmt::format(" {}", id);
  return out;
}

Status RecordingBackend::begin(uint32_t commands, bool timed) {
  ++steps_;
  return inner().begin(commands, timed);
}

Status RecordingBackend::submit(const Command& command) {
  RecordedCommand record{
      steps_ - 1, command.id, name_of(lanes()[command.lane]), {command.waits.begin(), command.waits.end()},
      "copy",     0};
  if (const auto* launch = std::get_if<Launch>(&command.work)) {
    record.kind = name_of(*launch->op);
    for (const Buffer& buffer : launch->operands) record.bytes += buffer.bytes;
  } else {
    (void)std::get<Copy>(command.work).for_each_part([&](int64_t, int64_t bytes) -> Status {
      record.bytes += bytes;
      return {};
    });
  }
  records_.push_back(std::move(record));
  return inner().submit(command);
}

}  // namespace sluice::core
