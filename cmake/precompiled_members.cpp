// SPDX-License-Identifier: Apache-2.0
// As the libraries have them: this source alone instantiates what sources with precompiled headers know as
// specializations. Both have one name for the linker.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#define SLUICE_MEMBER template
#define SLUICE_MEMBER_TEMPLATE template
#define SLUICE_FUNCTION template
// One parser for every kind of text.
#define SLUICE_PARSE(Json, Text)                                                                          \
  template <>                                                                                             \
  template <>                                                                                             \
  Json Json::parse(Text text, const parser_callback_t callback, const bool throws, const bool comments) { \
    return parse(text.data(), text.data() + text.size(), callback, throws, comments);                     \
  }
#include "precompiled_members.h"
