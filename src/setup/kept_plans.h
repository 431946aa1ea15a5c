// SPDX-License-Identifier: Apache-2.0
// What a file of kept plans or of a kept shape holds, and what is asked of it before it is used. Its checksum
// and its request may be right, and it a stranger's all the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "setup/stages.h"

namespace sluice::core {

// The plans of the stages.
std::string plans_as_bytes(const Stages& stages, const Profile& profile);
// The same back, in the order of for_each_stage(), less optional ones that were left out. They are for this
// profile, within the question's caps, and proved, each by itself and beside the first. The bytes may be
// anything. NotFound: they are good, but for a process that holds more or less on the host than this one.
Result<std::vector<Plan>> plans_in(std::string_view bytes, const Stages& stages, const Question& question,
                                   const Profile& profile);

std::string shape_as_text(const ShapeChoice& choice, const Profile& profile);
// The same back: of the tokens and sequences that are asked for. Otherwise as plans_in().
Result<ShapeChoice> shape_in(std::string_view text, const Question& question, const Profile& profile);

}  // namespace sluice::core
