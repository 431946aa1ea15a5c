# SPDX-License-Identifier: Apache-2.0
# Every third-party package, found once, with what to install when it is missing.

# Finds NAME or stops with the package to install on Debian and Ubuntu.
macro(sluice_require name package)
  find_package(${name} ${ARGN} QUIET)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "Sluice needs ${name}. Install it with: apt-get install ${package}")
  endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
sluice_require(Threads libc6-dev)
sluice_require(fmt libfmt-dev)
sluice_require(CLI11 libcli11-dev)
sluice_require(nlohmann_json nlohmann-json3-dev)
# By its header: Debian's CMake package of toml++ is for its shared library, which one source does without.
find_path(SLUICE_TOML_INCLUDE toml++/toml.h)
if(NOT SLUICE_TOML_INCLUDE)
  message(FATAL_ERROR "Sluice needs toml++. Install it with: apt-get install libtomlplusplus-dev")
endif()
# By its header, which is compiled in.
find_path(SLUICE_XXHASH_INCLUDE xxhash.h)
if(NOT SLUICE_XXHASH_INCLUDE)
  message(FATAL_ERROR "Sluice needs xxHash. Install it with: apt-get install libxxhash-dev")
endif()
# By header and library, as neither has a CMake package on Debian: patterns and the normal form of tokenizers.
find_path(SLUICE_PCRE2_INCLUDE pcre2.h)
find_library(SLUICE_PCRE2 pcre2-8)
if(NOT SLUICE_PCRE2_INCLUDE OR NOT SLUICE_PCRE2)
  message(FATAL_ERROR "Sluice needs PCRE2. Install it with: apt-get install libpcre2-dev")
endif()
find_path(SLUICE_UTF8PROC_INCLUDE utf8proc.h)
find_library(SLUICE_UTF8PROC utf8proc)
if(NOT SLUICE_UTF8PROC_INCLUDE OR NOT SLUICE_UTF8PROC)
  message(FATAL_ERROR "Sluice needs utf8proc. Install it with: apt-get install libutf8proc-dev")
endif()
# For data that is compressed; without them it is refused with what to install.
find_path(SLUICE_ZLIB_INCLUDE zlib.h)
find_library(SLUICE_ZLIB z)
find_path(SLUICE_ZSTD_INCLUDE zstd.h)
find_library(SLUICE_ZSTD zstd)
if(SLUICE_TESTS)
  sluice_require(GTest libgtest-dev)
endif()

# Processes of one job; without it, starting several together is refused with what to install.
set(SLUICE_MPI "auto" CACHE STRING "processes of one job by MPI: auto (where it is installed), on or off")
set_property(CACHE SLUICE_MPI PROPERTY STRINGS auto on off)
set(SLUICE_MPI_USED OFF)
if(NOT SLUICE_MPI STREQUAL "off")
  set(MPI_CXX_SKIP_MPICXX ON)  # its functions of C
  find_package(MPI QUIET COMPONENTS CXX)
  set(SLUICE_MPI_USED ${MPI_CXX_FOUND})
  if(SLUICE_MPI STREQUAL "on" AND NOT MPI_CXX_FOUND)
    message(FATAL_ERROR "SLUICE_MPI=on needs MPI. Install it with: apt-get install libopenmpi-dev openmpi-bin")
  endif()
endif()
if(SLUICE_MPI_USED)
  message(STATUS "MPI: yes")
else()
  message(STATUS "MPI: no (processes of one job need: apt-get install libopenmpi-dev openmpi-bin)")
endif()
