# Writes OUT, a C++ source that defines the parts of the page as strings.
set(code "#include \"report/page/page.h\"\n\nnamespace sluice::page {\n\n")
foreach(part Html Css Js)
  string(TOLOWER ${part} extension)
  file(READ ${DIR}/page.${extension} content)
  string(APPEND code "const std::string_view k${part} = R\"sluice_page(${content})sluice_page\";\n\n")
endforeach()
string(APPEND code "}  // namespace sluice::page\n")
file(WRITE ${OUT} "${code}")
