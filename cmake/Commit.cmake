# SPDX-License-Identifier: Apache-2.0
# Writes a header that names the commit of the sources: cmake -D SOURCE=DIR -D OUTPUT=FILE -P Commit.cmake
#
# The name comes from git, or in a tarball that git made from cmake/commit.txt, which git fills in then.
cmake_minimum_required(VERSION 3.22)

set(commit unknown)
set(date "")
if(EXISTS ${SOURCE}/.git)
  find_program(git git)
  if(git)
    execute_process(COMMAND ${git} -C ${SOURCE} describe --always --dirty --tags OUTPUT_VARIABLE described
                    RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${git} -C ${SOURCE} log -1 --format=%cs OUTPUT_VARIABLE day ERROR_QUIET
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed)
      set(commit ${described})
      set(date ${day})
    endif()
  endif()
else()
  file(STRINGS ${SOURCE}/cmake/commit.txt lines)
  list(GET lines 0 archived)
  if(archived MATCHES "^([0-9a-f]+) ([-0-9]+)$")
    set(commit ${CMAKE_MATCH_1})
    set(date ${CMAKE_MATCH_2})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define SLUICE_COMMIT \"${commit}\"\n#define SLUICE_COMMIT_DATE \"${date}\"\n")
