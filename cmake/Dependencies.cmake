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
if(SLUICE_TESTS)
  sluice_require(GTest libgtest-dev)
endif()

# Matrix products on the CPU: oneDNN where the machine has it, OpenBLAS otherwise, or a plain loop on a
# machine whose work is done by a GPU and that ships neither. Both are looked for by header and library: oneDNN's own
# CMake package on Debian insists on OpenCL's headers, which the CPU engine does not use.
find_path(SLUICE_DNNL_INCLUDE dnnl.hpp)
find_library(SLUICE_DNNL dnnl)
find_path(SLUICE_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread x86_64-linux-gnu)
find_library(SLUICE_OPENBLAS openblas)
set(SLUICE_GEMM "auto" CACHE STRING "CPU matrix products: auto, onednn, openblas or builtin")
set_property(CACHE SLUICE_GEMM PROPERTY STRINGS auto onednn openblas builtin)
if(SLUICE_GEMM STREQUAL "auto")
  if(SLUICE_DNNL_INCLUDE AND SLUICE_DNNL)
    set(SLUICE_GEMM_USED onednn)
  elseif(SLUICE_CBLAS_INCLUDE AND SLUICE_OPENBLAS)
    set(SLUICE_GEMM_USED openblas)
  elseif(SLUICE_CUDA)
    set(SLUICE_GEMM_USED builtin)
  else()
    message(FATAL_ERROR "Sluice needs oneDNN or OpenBLAS. Install one with: apt-get install libdnnl-dev "
                        "(or libopenblas-dev)")
  endif()
else()
  set(SLUICE_GEMM_USED ${SLUICE_GEMM})
endif()
if(SLUICE_GEMM_USED STREQUAL "onednn" AND NOT (SLUICE_DNNL_INCLUDE AND SLUICE_DNNL))
  message(FATAL_ERROR "Sluice needs oneDNN. Install it with: apt-get install libdnnl-dev")
endif()
if(SLUICE_GEMM_USED STREQUAL "openblas" AND NOT (SLUICE_CBLAS_INCLUDE AND SLUICE_OPENBLAS))
  message(FATAL_ERROR "Sluice needs OpenBLAS. Install it with: apt-get install libopenblas-dev")
endif()
message(STATUS "CPU matrix products: ${SLUICE_GEMM_USED}")
