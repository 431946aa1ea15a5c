# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, and packages of it: cpack makes a .deb and a .tar.gz.
#
# Components: `program` is what people run, `development` what programs build with.
include(GNUInstallDirs)

install(TARGETS sluice RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)

# The same in Python's package. With the GPU's backend that has none of NVIDIA's libraries: NVIDIA's packages beside it do.
install(TARGETS sluice RUNTIME DESTINATION sluice/bin COMPONENT python EXCLUDE_FROM_ALL)
if(SLUICE_CUDA)
  find_package(CUDAToolkit REQUIRED QUIET)
  # CUDA 13's packages share a folder.
  set(nvidia nvidia/cudnn/lib nvidia/cu${CUDAToolkit_VERSION_MAJOR}/lib nvidia/cublas/lib nvidia/nccl/lib)
  list(TRANSFORM nvidia PREPEND "$ORIGIN/../../" OUTPUT_VARIABLE beside_program)
  set_target_properties(sluice PROPERTIES INSTALL_RPATH "${beside_program}")
endif()

# What cli/CMakeLists.txt has the program write about itself.
set(generated ${PROJECT_BINARY_DIR}/share)
install(FILES ${generated}/man/${SLUICE_MANUAL} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${generated}/bash/sluice DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
install(FILES ${generated}/fish/sluice.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
# Debian's zsh looks below /usr in another folder than below /usr/local. The prefix is known when installing.
install(CODE [[
  set(sluice_zsh site-functions)
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND EXISTS /etc/debian_version)
    set(sluice_zsh vendor-completions)
  endif()]] COMPONENT program)
install(FILES ${generated}/zsh/_sluice DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/\${sluice_zsh}" COMPONENT program)

install(FILES README.md CHANGELOG.md LICENSE cmake/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
# Debian wants a change log in its own form; what changed is in ours.
if(SLUICE_GZIP)
  string(TIMESTAMP date "%a, %d %b %Y 00:00:00 +0000" UTC)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/share/changelog CONTENT
"sluice (${PROJECT_VERSION}) unstable; urgency=medium

  * CHANGELOG.md says what changed.

 -- The Sluice authors <maintainers@sluice.invalid>  ${date}
")
  execute_process(COMMAND ${SLUICE_GZIP} -9nkf ${PROJECT_BINARY_DIR}/share/changelog)
  foreach(package sluice:program libsluice-dev:development)
    string(REPLACE ":" ";" package ${package})
    list(GET package 0 name)
    list(GET package 1 component)
    install(FILES ${PROJECT_BINARY_DIR}/share/changelog.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component})
  endforeach()
endif()
install(FILES cmake/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libsluice-dev COMPONENT development)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
# The quickstart learns the sources beside it, of which the documents are installed.
file(READ ${PROJECT_SOURCE_DIR}/configs/quickstart.toml quickstart)
string(REGEX REPLACE "\npaths = [^\n]*" "\npaths = [\"../docs\", \"../README.md\", \"../CHANGELOG.md\"]" quickstart "${quickstart}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/share/configs/quickstart.toml CONTENT "${quickstart}" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/configs/quickstart.toml)
install(FILES configs/quickstart/config.json configs/quickstart/tokenizer.json
              configs/quickstart/tokenizer_config.json
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/configs/quickstart COMPONENT program)
install(FILES ${PROJECT_BINARY_DIR}/share/configs/quickstart.toml DESTINATION ${CMAKE_INSTALL_DOCDIR}/configs
        COMPONENT program)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME sluice)
set(CPACK_PACKAGE_VENDOR "The Sluice authors")
set(CPACK_PACKAGE_CONTACT "The Sluice authors <maintainers@sluice.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains transformers under hard memory caps")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
    "Given a cap on device memory and one on host memory, Sluice searches for the
fastest schedule of computation, transfers and recomputation that stays under
both, proves it correct, and runs it. The arithmetic is the same under every
cap.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "Headers, archive and CMake package of the library that Sluice is made of,
and two programs that use it.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
get_cmake_property(CPACK_COMPONENTS_ALL COMPONENTS)
list(REMOVE_ITEM CPACK_COMPONENTS_ALL Unspecified python)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME sluice)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libsluice-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libfmt-dev, libpcre2-dev, libutf8proc-dev")
configure_file(cmake/BuildForPackages.cmake.in ${PROJECT_BINARY_DIR}/BuildForPackages.cmake @ONLY)
set(CPACK_INSTALL_SCRIPTS ${PROJECT_BINARY_DIR}/BuildForPackages.cmake)
include(CPack)
