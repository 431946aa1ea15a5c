// SPDX-License-Identifier: Apache-2.0
// nlohmann's JSON for precompiled headers. Its parser and its writer are compiled once, in
// precompiled_json.cpp, instead of in every source that parses or writes.
#pragma once

// Its literal is an inline function that instantiates the parser; here it becomes a template that nobody
// instantiates.
#define _json(text, size) \
  _json(text, size);      \
  template <class>        \
  nlohmann::json literal_that_nobody_uses(text, size)
#include <nlohmann/json.hpp>
#undef _json

// Versions whose parse() and dump() are these.
#if NLOHMANN_JSON_VERSION_MAJOR == 3 && NLOHMANN_JSON_VERSION_MINOR >= 10 && NLOHMANN_JSON_VERSION_MINOR <= 11
namespace nlohmann {

#define SLUICE_PARSE(Json, Text)                                                         \
  template <>                                                                            \
  template <>                                                                            \
  Json Json::parse(Text text, const Json::parser_callback_t callback, const bool throws, \
                   const bool comments)
#define SLUICE_DUMP(Json)                                                                                    \
  template <>                                                                                                \
  std::string Json::dump(const int indent, const char fill, const bool ascii, const error_handler_t invalid) \
      const

SLUICE_PARSE(json, std::string&&);
SLUICE_PARSE(json, std::string&);
SLUICE_PARSE(json, const std::string&);
SLUICE_PARSE(json, std::string_view&);
SLUICE_PARSE(json, const std::string_view&);
SLUICE_PARSE(ordered_json, std::string&&);
SLUICE_PARSE(ordered_json, std::string&);
SLUICE_PARSE(ordered_json, const std::string&);
SLUICE_PARSE(ordered_json, std::string_view&);
SLUICE_PARSE(ordered_json, const std::string_view&);
SLUICE_DUMP(json);
SLUICE_DUMP(ordered_json);

}  // namespace nlohmann
#endif
