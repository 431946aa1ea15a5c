# SPDX-License-Identifier: Apache-2.0
# One static library per source folder, so that the folder graph is the link graph.

# A switch over an enumeration without a default names every value, so that a new one is not forgotten.
set(SLUICE_WARNINGS -Wall -Wextra -Wshadow -Wno-missing-field-initializers -Werror=switch)

add_library(sluice_flags INTERFACE)
target_include_directories(sluice_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(sluice_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${SLUICE_WARNINGS}>)
# One code for programs and for Python's module. Hidden symbols are called and inlined as a program's own.
if(NOT EMSCRIPTEN)
  target_compile_options(sluice_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fPIC> $<$<COMPILE_LANGUAGE:CXX>:-fvisibility=hidden>
                         $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>)
endif()
# GCC collects garbage often while it has less than this many KiB, and spends a tenth of its time there.
target_compile_options(sluice_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=600000>)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SLUICE_SANITIZE}>
                         $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
  # GCC before 14 gives local arrays less alignment in the frames by which it finds uses after return than its own vector
  # stores to them assume: kernels for AVX-512 crash.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14
     AND SLUICE_SANITIZE MATCHES address)
    target_compile_options(sluice_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=asan-use-after-return=0>)
  endif()
endif()

if(SLUICE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "libFuzzer comes with clang. Install it with: apt-get install clang, "
                        "and configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  target_compile_options(sluice_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>
                         $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
endif()

# What nearly every source includes, compiled once. Sources still include what they use: builds without this, such as
# those with sanitizers, hold them to it.
set(use_pch ON)
if(SLUICE_SANITIZE)
  set(use_pch OFF)
endif()
option(SLUICE_PCH "Precompile standard headers, so that builds take less time" ${use_pch})
if(SLUICE_PCH)
  file(CONFIGURE OUTPUT pch.cpp CONTENT "// Precompiled headers want a source.\n")
  add_library(sluice_pch OBJECT ${CMAKE_CURRENT_BINARY_DIR}/pch.cpp)
  target_link_libraries(sluice_pch PRIVATE sluice_flags fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)
  set(sluice_precompiled <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <cstdint> <cstring> <filesystem>
    <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <ranges> <set> <span> <string> <string_view>
    <thread> <tuple> <unordered_map> <utility> <variant> <vector> ${PROJECT_SOURCE_DIR}/cmake/precompiled.h)
  target_precompile_headers(sluice_pch PRIVATE ${sluice_precompiled})
endif()

# Sources of a folder are compiled some at a time, as one: most of a source's time goes into what it includes. Whoever
# changes the code builds without, and then compiles only what changed.
option(SLUICE_UNITY "Compile the sources of a folder some at a time, so that builds take less time" ${SLUICE_PCH})

# sluice_precompile(TARGET PCH): as SLUICE_PCH says, with the headers that target PCH precompiles.
function(sluice_precompile target pch)
  if(SLUICE_PCH)
    target_precompile_headers(${target} REUSE_FROM ${pch})
  endif()
endfunction()

# sluice_compile_fast(TARGET PCH): that, and several sources as one, as SLUICE_UNITY says.
function(sluice_compile_fast target pch)
  sluice_precompile(${target} ${pch})
  if(SLUICE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    # GCC takes the sources that it includes there for headers, whose classes others would see.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# sluice_library(NAME DEPS...): the library sluice_NAME from every .cpp in the current folder.
function(sluice_library name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(sluice_${name} STATIC ${sources})
  target_link_libraries(sluice_${name} PUBLIC sluice_flags ${ARGN})
  sluice_compile_fast(sluice_${name} sluice_pch)
endfunction()

# For code whose results are the same on every machine: no multiplication and addition become one.
function(sluice_exact_arithmetic target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
endfunction()

# GCC 13 and later read a precompiled header only where loops of x86-64 are unrolled as they are at its -O3.
set(sluice_as_precompiled "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13 AND
   CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(sluice_as_precompiled -munroll-only-small-loops)
endif()

# For code of branches and containers, which -O3 makes larger and not faster.
function(sluice_optimize_branches target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT EMSCRIPTEN)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-O2> $<$<COMPILE_LANGUAGE:CXX>:${sluice_as_precompiled}>)
  endif()
endfunction()

# For code that talks to people and files, which takes longer to optimise than to run.
function(sluice_optimize_little target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-O1> $<$<COMPILE_LANGUAGE:CXX>:${sluice_as_precompiled}>)
  endif()
endfunction()

# For code of which nearly all runs once in a command.
function(sluice_optimize_least target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:$<IF:$<BOOL:${EMSCRIPTEN}>,-O1,-Og>> $<$<COMPILE_LANGUAGE:CXX>:${sluice_as_precompiled}>)
  endif()
endfunction()
