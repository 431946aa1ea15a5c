// SPDX-License-Identifier: Apache-2.0
// nlohmann's JSON for precompiled headers. Its literal is an inline function, for which every source would
// instantiate the parser again; here it becomes a template that nobody instantiates.
#pragma once

#define _json(text, size) \
  _json(text, size);      \
  template <class>        \
  nlohmann::json literal_that_nobody_uses(text, size)
#include <nlohmann/json.hpp>
#undef _json
