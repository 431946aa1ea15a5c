// SPDX-License-Identifier: Apache-2.0
// fmt and nlohmann's JSON for precompiled headers. What precompiled_members.h lists is compiled once, in
// precompiled_members.cpp, instead of in every source that uses it.
#pragma once

// Its literal is an inline function that instantiates the parser; here it becomes a template that nobody
// instantiates.
#define _json(text, size) \
  _json(text, size);      \
  template <class>        \
  nlohmann::json literal_that_nobody_uses(text, size)
#include <nlohmann/json.hpp>
#undef _json
#include <fmt/format.h>
#include <fmt/ranges.h>

// Specializations that are declared, so that no source instantiates them.
#define SLUICE_MEMBER template <>
#define SLUICE_MEMBER_TEMPLATE \
  template <>                  \
  template <>
#define SLUICE_FUNCTION extern template
#define SLUICE_PARSE(Json, Text) \
  SLUICE_MEMBER_TEMPLATE Json Json::parse(Text, const Json::parser_callback_t, const bool, const bool);
#include "precompiled_members.h"
#undef SLUICE_MEMBER
#undef SLUICE_MEMBER_TEMPLATE
#undef SLUICE_FUNCTION
#undef SLUICE_PARSE
