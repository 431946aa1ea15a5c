// SPDX-License-Identifier: Apache-2.0
// What the routers of a run with experts did, as a page.
#pragma once

#include <string>

#include "pages/page.h"
#include "run/directory/history.h"
#include "sluice/observer.h"

namespace sluice::core {

// A page of all steps so far. `last` is the last of them: the page has each of its layers, and the load of
// the experts of the worst one.
Page router_page(const std::string& run, const RouterHistory& steps, int64_t step, const ExpertLoad& last);

}  // namespace sluice::core
