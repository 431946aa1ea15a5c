// SPDX-License-Identifier: Apache-2.0
// What a change of the caps or of the step would do to the speed.
#pragma once

#include <string>
#include <vector>

#include "report/report.h"
#include "run/prepare/prepare.h"
#include "what_if/outlook.h"

namespace sluice::core {

// Plans the neighbours of a plan on its machine: more of each capped memory, half of the device memory, and
// twice the tokens per step. Deterministic. Neighbours that cannot be planned for another reason than memory
// are left out, and so are those that a stop leaves out.
std::vector<WhatIf> what_ifs(const Prepared& prepared, const StudyWatch& watch = {});

// The price of run.exact in a sentence: the step beside one that is planned alike without it. Empty: it is
// not set, or a stop came first.
std::string price_of_exact(const Prepared& prepared, const StudyWatch& watch = {});

// Whether what_ifs() takes a second or so, not minutes.
bool what_ifs_are_cheap(const Prepared& prepared);

}  // namespace sluice::core
