// SPDX-License-Identifier: Apache-2.0
// Which Sluice this is.
#pragma once

#include <string_view>

namespace sluice::core {

// As in the changelog: "0.1.0".
std::string_view version();

// The version of the sources. It is a commit as `git describe` names it, with "-dirty" after it if files
// differed from it, or "unknown" where they came without their history and without its name.
std::string_view commit();
// The day of that commit, "2026-11-22"; empty: unknown.
std::string_view commit_date();

}  // namespace sluice::core
