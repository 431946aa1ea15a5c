// SPDX-License-Identifier: Apache-2.0
// Plans and shapes that were searched for before, in a folder: a search takes seconds, reading takes
// milliseconds.
//
// Found by content: everything that the search sees, and the program that searches. What is read is proved
// like what was searched, so a file can be lost, cut short or changed without harm. Several processes may
// share a folder.
#pragma once

#include <filesystem>
#include <optional>

#include "planner/shape.h"
#include "run/stages.h"

namespace sluice::core {

class PlanCache {
 public:
  // The newest `most` files are kept.
  explicit PlanCache(std::filesystem::path folder, size_t most = 64)
      : folder_(std::move(folder)), most_(most) {}

  // The plans of `stages`, whose programs are given, as they were kept for the same request on the same
  // profile. False, and nothing changed, if there are none or if they do not prove.
  bool find(const StageRequest& request, const Profile& profile, Stages& stages) const;
  // Keeps them. A folder that cannot be written to costs the next search its time and is no error.
  void keep(const StageRequest& request, const Profile& profile, const Stages& stages) const;

  // The same for a shape.
  std::optional<ShapeChoice> find(const ShapeSubject& subject, const ShapeRequest& request,
                                  const Profile& profile) const;
  void keep(const ShapeSubject& subject, const ShapeRequest& request, const Profile& profile,
            const ShapeChoice& choice) const;

 private:
  void write(const std::filesystem::path& name, std::string_view content) const;

  const std::filesystem::path folder_;
  const size_t most_;
};

}  // namespace sluice::core
