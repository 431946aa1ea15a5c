// SPDX-License-Identifier: Apache-2.0
#include "backend/testing/losing_backend.h"

#include <algorithm>

namespace sluice::core {
namespace {

Error injected_loss() {
  return error(ErrorKind::Device, "injected loss");
}

}  // namespace

Loss Loss::of_device(const LaneTable& lanes, Tier device, int64_t at) {
  Loss loss{{}, device, at};
  for (const Lane lane : lanes) {
    if (lanes[lane].from == device || lanes[lane].to == device) loss.lanes.push_back(lane);
  }
  return loss;
}

Status LosingBackend::reach(Tier tier) {
  return lost() && tier == loss_.device ? Status(injected_loss()) : Status();
}

Status LosingBackend::begin(uint32_t commands, bool timed) {
  if (loss_.device) SLUICE_TRY(reach(*loss_.device));
  down_.clear();
  inner_id_.clear();
  outer_id_.clear();
  failed_.reset();
  return inner().begin(commands, timed);
}

bool LosingBackend::runs(const Command& command) {
  if (std::ranges::count(loss_.lanes, command.lane) > 0 && ++seen_ >= loss_.at) {
    if (!failed_) failed_ = command.id;
    return false;
  }
  return !down_.contains(command.lane) &&
         std::ranges::none_of(command.waits, [&](uint32_t id) { return inner_id_[id] == kNever; });
}

Status LosingBackend::submit(const Command& command) {
  if (!runs(command)) {
    down_.insert(command.lane);
    inner_id_.push_back(kNever);
    return {};
  }
  std::vector<uint32_t> waits;
  for (const uint32_t id : command.waits) waits.push_back(inner_id_[id]);
  Command passed = command;
  passed.id = uint32_t(outer_id_.size());
  passed.waits = waits;
  inner_id_.push_back(passed.id);
  outer_id_.push_back(command.id);
  return inner().submit(passed);
}

Status LosingBackend::wait(uint32_t command) {
  if (inner_id_[command] == kNever) return injected_loss();
  return inner().wait(inner_id_[command]);
}

std::optional<Fault> LosingBackend::finish(std::vector<Interval>* timeline) {
  std::optional<Fault> fault = inner().finish(timeline);
  if (failed_) return Fault{failed_, injected_loss()};
  if (fault && fault->command) fault->command = outer_id_[*fault->command];
  return fault;
}

}  // namespace sluice::core
