// SPDX-License-Identifier: Apache-2.0
// Plans and shapes that were searched for before, in a folder: a search takes seconds, reading takes
// milliseconds.
//
// Found by content: everything that the search sees, and the program that searches. Who else wrote to the
// folder is not known, so nothing of it is believed (io/sealed.h). A file that is damaged or was made for
// something else is not used. One that is neither is proved like what was searched, against the caps, too.
// Several processes may share a folder.
//
// The host memory of a process beside its arenas differs by pages from start to start and is no part of a
// request. Plans for up to kOverheadGrain more are found, so that the plan that one start shows is the plan
// that the next one runs.
#pragma once

#include <filesystem>
#include <optional>

#include "io/sealed.h"
#include "setup/stages.h"
#include "sluice/observer.h"

namespace sluice::core {

class PlanCache {
 public:
  // The newest `most` files are kept; where the folder has no name, nothing is. What it lacks is looked for
  // in the `shared` folder, which gets what is kept, too. Without a name there is none.
  explicit PlanCache(std::filesystem::path folder, size_t most = 64, std::filesystem::path shared = {})
      : folder_(std::move(folder)), most_(most), shared_(std::move(shared)) {}

  // The plans of `stages`, whose programs are given, as they were kept for the same request on the same
  // profile. False, and nothing changed, if there are none. If there are and they are not believed, the
  // observer is told why.
  bool find(const Question& question, const Profile& profile, Stages& stages,
            Observer& observer = silent_observer()) const;
  // Keeps them. A folder that cannot be written to costs the next search its time and is no error.
  void keep(const Question& question, const Profile& profile, const Stages& stages) const;

  // The same for a shape.
  std::optional<ShapeChoice> find(const ShapeSubject& subject, const Question& question,
                                  const Profile& profile, Observer& observer = silent_observer()) const;
  void keep(const ShapeSubject& subject, const Question& question, const Profile& profile,
            const ShapeChoice& choice) const;

  // The same for text that others make. They name made_by() in the request, and believe nothing of what comes
  // back but that it is what was kept.
  Result<std::string> find(const SealedRequest& request) const;
  void keep(const SealedRequest& request, std::string_view content) const;

 private:
  std::filesystem::path path_of(const SealedRequest& request) const;

  const std::filesystem::path folder_;
  const size_t most_;
  const std::filesystem::path shared_;
};

// A planner that was changed makes other plans: the checksum of the file that has this code, a program or a
// library that an interpreter loaded. Empty: unknown, then nothing is kept.
const std::string& made_by();

// As make_stages(); with a cache, what it has is not searched for again.
Result<Stages> make_stages(const Question& question, const Profile& profile, const PlanCache* cache,
                           Observer& observer = silent_observer());

}  // namespace sluice::core
