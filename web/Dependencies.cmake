# SPDX-License-Identifier: Apache-2.0
# What the page's program is built with beside emscripten: packages whose headers are all of them, as Debian has them, each by a
# link of its own, so that nothing else of this machine's headers is seen.
set(headers ${CMAKE_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${headers})
function(sluice_header path package)
  string(REGEX REPLACE "/.*" "" top ${path})
  find_path(place_of_${top} ${path} PATHS /usr/local/include /usr/include NO_CMAKE_FIND_ROOT_PATH)
  if(NOT place_of_${top})
    message(FATAL_ERROR "The page needs ${path}. Install it with: apt-get install ${package}")
  endif()
  file(CREATE_LINK ${place_of_${top}}/${top} ${headers}/${top} SYMBOLIC)
endfunction()
sluice_header(fmt/format.h libfmt-dev)
sluice_header(nlohmann/json.hpp nlohmann-json3-dev)
sluice_header(toml++/toml.h libtomlplusplus-dev)
sluice_header(xxhash.h libxxhash-dev)
set(SLUICE_TOML_INCLUDE ${headers})
set(SLUICE_XXHASH_INCLUDE ${headers})

add_library(fmt::fmt INTERFACE IMPORTED)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
add_library(Threads::Threads INTERFACE IMPORTED)

include_directories(SYSTEM ${PROJECT_SOURCE_DIR}/web/compat ${headers})
add_compile_options(-include ${PROJECT_SOURCE_DIR}/web/compat/compat.h -fwasm-exceptions)
