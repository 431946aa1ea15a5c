// SPDX-License-Identifier: Apache-2.0
// Members of fmt's and nlohmann's templates, for precompiled.h and precompiled_members.cpp, which say what
// becomes of them.

// Versions that have them in this form.
#if NLOHMANN_JSON_VERSION_MAJOR == 3 && NLOHMANN_JSON_VERSION_MINOR == 11
namespace nlohmann {

#define SLUICE_CREATE(Error, Context) SLUICE_MEMBER Error Error::create(int, const std::string&, Context);
// Strings out of literals, whose lengths are in their types.
#define SLUICE_STRING(Json, size) \
  SLUICE_MEMBER_TEMPLATE std::string* Json::create<std::string>(const char(&)[size]);
// clang-format off
#define SLUICE_STRINGS(Json)                                                                       \
  SLUICE_STRING(Json, 2) SLUICE_STRING(Json, 3) SLUICE_STRING(Json, 4) SLUICE_STRING(Json, 5)      \
  SLUICE_STRING(Json, 6) SLUICE_STRING(Json, 7) SLUICE_STRING(Json, 8) SLUICE_STRING(Json, 9)      \
  SLUICE_STRING(Json, 10) SLUICE_STRING(Json, 11) SLUICE_STRING(Json, 12) SLUICE_STRING(Json, 13)  \
  SLUICE_STRING(Json, 14) SLUICE_STRING(Json, 15) SLUICE_STRING(Json, 16) SLUICE_STRING(Json, 17)  \
  SLUICE_STRING(Json, 18) SLUICE_STRING(Json, 19) SLUICE_STRING(Json, 20) SLUICE_STRING(Json, 21)  \
  SLUICE_STRING(Json, 22) SLUICE_STRING(Json, 23) SLUICE_STRING(Json, 24) SLUICE_STRING(Json, 25)
// clang-format on
// What parsers share, whatever becomes of what they read.
#define SLUICE_TEXT detail::iterator_input_adapter<const char*>
#define SLUICE_PARSER(Json)                                                                            \
  SLUICE_MEMBER detail::lexer<Json, SLUICE_TEXT>::token_type detail::lexer<Json, SLUICE_TEXT>::scan(); \
  SLUICE_MEMBER std::string detail::lexer<Json, SLUICE_TEXT>::get_token_string() const;                \
  SLUICE_MEMBER std::string detail::parser<Json, SLUICE_TEXT>::exception_message(                      \
      const detail::lexer<Json, SLUICE_TEXT>::token_type, const std::string&);
#define SLUICE_JSON(Json)                                                                               \
  SLUICE_PARSER(Json)                                                                                   \
  SLUICE_PARSE(Json, std::string&&)                                                                     \
  SLUICE_PARSE(Json, std::string&)                                                                      \
  SLUICE_PARSE(Json, const std::string&)                                                                \
  SLUICE_PARSE(Json, std::string_view&&)                                                                \
  SLUICE_PARSE(Json, std::string_view&)                                                                 \
  SLUICE_PARSE(Json, const std::string_view&)                                                           \
  SLUICE_MEMBER std::string Json::dump(const int, const char, const bool, const error_handler_t) const; \
  SLUICE_MEMBER Json::basic_json(std::initializer_list<detail::json_ref<Json>>, bool, detail::value_t); \
  SLUICE_MEMBER Json::basic_json(const Json&);                                                          \
  SLUICE_MEMBER Json::json_value::json_value(detail::value_t);                                          \
  SLUICE_MEMBER Json::json_value::json_value(const std::string&);                                       \
  SLUICE_MEMBER Json::json_value::json_value(std::string&&);                                            \
  SLUICE_MEMBER void Json::json_value::destroy(detail::value_t);                                        \
  SLUICE_MEMBER Json& Json::operator[](std::string);                                                    \
  SLUICE_MEMBER const Json& Json::operator[](const std::string&) const;                                 \
  SLUICE_MEMBER_TEMPLATE Json& Json::operator[](const char*);                                           \
  SLUICE_MEMBER_TEMPLATE const Json& Json::operator[](const char*) const;                               \
  SLUICE_MEMBER void Json::push_back(Json&&);                                                           \
  SLUICE_MEMBER void Json::push_back(const Json&);                                                      \
  SLUICE_STRINGS(Json)                                                                                  \
  SLUICE_CREATE(detail::type_error, Json*)                                                              \
  SLUICE_CREATE(detail::type_error, const Json*)                                                        \
  SLUICE_CREATE(detail::invalid_iterator, Json*)                                                        \
  SLUICE_CREATE(detail::invalid_iterator, const Json*)                                                  \
  SLUICE_CREATE(detail::out_of_range, Json*)                                                            \
  SLUICE_CREATE(detail::out_of_range, const Json*)

SLUICE_MEMBER detail::parse_error detail::parse_error::create(int, const detail::position_t&,
                                                              const std::string&, std::nullptr_t);
SLUICE_CREATE(detail::type_error, std::nullptr_t)
SLUICE_CREATE(detail::out_of_range, std::nullptr_t)
SLUICE_JSON(json)
SLUICE_JSON(ordered_json)

#undef SLUICE_CREATE
#undef SLUICE_STRING
#undef SLUICE_STRINGS
#undef SLUICE_TEXT
#undef SLUICE_PARSER
#undef SLUICE_JSON

}  // namespace nlohmann
#endif
#if FMT_VERSION / 10000 == 9
namespace fmt {

// How a string of a range is written.
SLUICE_MEMBER_TEMPLATE format_parse_context::iterator formatter<string_view>::parse(format_parse_context&);
SLUICE_MEMBER_TEMPLATE format_context::iterator formatter<string_view>::format(const string_view&,
                                                                               format_context&) const;
// How the numbers of a range are, and one with its digits in groups.
#define SLUICE_NUMBER(Number)                                                                               \
  SLUICE_MEMBER_TEMPLATE format_context::iterator formatter<Number>::format(const Number&, format_context&) \
      const;
SLUICE_NUMBER(int)
SLUICE_NUMBER(unsigned)
SLUICE_NUMBER(long long)
SLUICE_NUMBER(unsigned long long)
SLUICE_NUMBER(float)
SLUICE_NUMBER(double)
#undef SLUICE_NUMBER
SLUICE_MEMBER_TEMPLATE format_context::iterator formatter<group_digits_view<int64_t>>::format(
    group_digits_view<int64_t>, format_context&);
SLUICE_FUNCTION void detail::vformat_to(detail::buffer<char>&, string_view,
                                        basic_format_args<FMT_BUFFER_CONTEXT(char)>, detail::locale_ref);

}  // namespace fmt
#endif
