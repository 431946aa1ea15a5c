// SPDX-License-Identifier: Apache-2.0
// What the library tells while it works, for people: on standard error, where it does not mix with results.
#pragma once

#include <optional>
#include <string>

#include "commands/working.h"
#include "sluice/observer.h"

namespace sluice::core {

class Console : public Observer {
 public:
  void progress(const Progress& progress) override;
  void warned(const std::string& message) override;
  // Nothing is shown from here until the next progress, so that results can follow.
  void stop() { working_.reset(); }

 private:
  std::optional<Working> working_;
};

}  // namespace sluice::core
