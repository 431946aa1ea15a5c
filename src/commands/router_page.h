// SPDX-License-Identifier: Apache-2.0
// What the routers of a run with experts did, as a page.
#pragma once

#include <string>

#include "pages/page.h"
#include "run/directory/history.h"
#include "sluice/observer.h"

namespace sluice::core {

// Of the steps so far; `last`: what they did in the last of them, of which the page has every layer and how
// full the experts of the worst one are.
Page router_page(const std::string& run, const RouterHistory& steps, int64_t step, const ExpertLoad& last);

}  // namespace sluice::core
