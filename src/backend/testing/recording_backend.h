// SPDX-License-Identifier: Apache-2.0
// A backend that notes what it is told to do.
#pragma once

#include <string>
#include <vector>

#include "backend/testing/forwarding.h"

namespace sluice::core {

struct RecordedCommand {
  uint32_t step;  // counts calls of begin() from 0
  uint32_t id;
  std::string lane;
  std::vector<uint32_t> waits;
  std::string_view kind;  // name of the op, or "copy"
  int64_t bytes;          // copied; of a launch, in its operands

  bool operator==(const RecordedCommand&) const = default;
};

// "step 0 #3 compute linear 4096 bytes waits 1 2"
std::string to_text(const RecordedCommand& record);

// Every submit() is recorded, also when it fails.
class RecordingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  const std::vector<RecordedCommand>& records() const { return records_; }

  Status begin(uint32_t commands, bool timed) override;
  Status submit(const Command& command) override;

 private:
  std::vector<RecordedCommand> records_;
  uint32_t steps_ = 0;
};

}  // namespace sluice::core
