// SPDX-License-Identifier: Apache-2.0
#include "precompiled_json.h"

#include <algorithm>

#ifdef SLUICE_PARSE
namespace nlohmann {
namespace {

template <class Json>
Json parsed(std::string_view text, const typename Json::parser_callback_t& callback, bool throws,
            bool comments) {
  return Json::parse(text.data(), text.data() + text.size(), callback, throws, comments);
}

template <class Json>
std::string dumped(const Json& json, int indent, char fill, bool ascii, detail::error_handler_t invalid) {
  std::string out;
  detail::serializer<Json> writer(detail::output_adapter<char>(out), fill, invalid);
  writer.dump(json, indent >= 0, ascii, unsigned(std::max(indent, 0)));
  return out;
}

}  // namespace

#define SLUICE_DEFINE_PARSE(Json, Text)                    \
  SLUICE_PARSE(Json, Text) {                               \
    return parsed<Json>(text, callback, throws, comments); \
  }
#define SLUICE_DEFINE_DUMP(Json)                        \
  SLUICE_DUMP(Json) {                                   \
    return dumped(*this, indent, fill, ascii, invalid); \
  }

SLUICE_DEFINE_PARSE(json, std::string&&)
SLUICE_DEFINE_PARSE(json, std::string&)
SLUICE_DEFINE_PARSE(json, const std::string&)
SLUICE_DEFINE_PARSE(json, std::string_view&)
SLUICE_DEFINE_PARSE(json, const std::string_view&)
SLUICE_DEFINE_PARSE(ordered_json, std::string&&)
SLUICE_DEFINE_PARSE(ordered_json, std::string&)
SLUICE_DEFINE_PARSE(ordered_json, const std::string&)
SLUICE_DEFINE_PARSE(ordered_json, std::string_view&)
SLUICE_DEFINE_PARSE(ordered_json, const std::string_view&)
SLUICE_DEFINE_DUMP(json)
SLUICE_DEFINE_DUMP(ordered_json)

}  // namespace nlohmann
#endif
