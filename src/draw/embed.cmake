# SPDX-License-Identifier: Apache-2.0
# Writes OUT, a C++ source that defines the rules of CSS as a string.
file(READ ${CSS} css)
set(code "#include \"draw/palette.h\"\n\nnamespace sluice::core {\n\n")
string(APPEND code "const std::string_view kPageRules = R\"sluice_page(${css})sluice_page\";\n\n")
string(APPEND code "}  // namespace sluice::core\n")
file(WRITE ${OUT} "${code}")
