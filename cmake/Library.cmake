# SPDX-License-Identifier: Apache-2.0
# The library that is installed: one archive, libsluice.a, of what the public headers need, and a CMake package to find it.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Sets `objects` and `others` to what a target of this project links, in the end: its own objects and those of other
# targets of this project, and libraries from outside.
function(sluice_closure target objects_out others_out)
  set(todo ${target})
  set(seen)
  set(objects)
  set(others)
  while(todo)
    list(POP_FRONT todo item)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" item "${item}")
    if(item IN_LIST seen OR item STREQUAL "")
      continue()
    endif()
    list(APPEND seen ${item})
    if(NOT item MATCHES "^sluice_")
      list(APPEND others ${item})
      continue()
    endif()
    get_target_property(type ${item} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      # An object library's objects are sources there, which are no objects of the target's own.
      get_target_property(sources ${item} SOURCES)
      list(FILTER sources INCLUDE REGEX "^\\$<TARGET_OBJECTS:")
      list(APPEND objects $<TARGET_OBJECTS:${item}> ${sources})
      get_target_property(links ${item} LINK_LIBRARIES)
    else()
      get_target_property(links ${item} INTERFACE_LINK_LIBRARIES)
    endif()
    if(links)
      list(APPEND todo ${links})
    endif()
  endwhile()
  set(${objects_out} ${objects} PARENT_SCOPE)
  set(${others_out} ${others} PARENT_SCOPE)
endfunction()

sluice_closure(sluice_api objects others)
add_library(sluice_archive STATIC ${objects})
set_target_properties(sluice_archive PROPERTIES OUTPUT_NAME sluice EXPORT_NAME sluice LINKER_LANGUAGE CXX)
target_compile_features(sluice_archive INTERFACE cxx_std_20)
target_include_directories(sluice_archive INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                                                    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
# Headers of nlohmann_json are compiled in.
list(REMOVE_ITEM others nlohmann_json::nlohmann_json)

install(TARGETS sluice_archive EXPORT sluice ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY include/sluice DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
install(EXPORT sluice NAMESPACE sluice:: FILE sluice-targets.cmake DESTINATION ${package} COMPONENT development)
export(EXPORT sluice NAMESPACE sluice:: FILE ${PROJECT_BINARY_DIR}/sluice-targets.cmake)  # a build's folder is a package, too
# What the targets name is found when the package is.
set(SLUICE_FINDS)
foreach(namespace Threads fmt CUDA)
  if(others MATCHES "(^|;)${namespace}::")
    set(found ${namespace})
    if(namespace STREQUAL "CUDA")
      set(found CUDAToolkit)
    endif()
    string(APPEND SLUICE_FINDS "find_dependency(${found})\n")
    find_package(${found} REQUIRED QUIET)  # here, too: its targets are known in the folder that asked for them
  endif()
endforeach()
target_link_libraries(sluice_archive INTERFACE ${others})
configure_package_config_file(cmake/sluice-config.cmake.in ${PROJECT_BINARY_DIR}/sluice-config.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sluice-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sluice-config.cmake ${PROJECT_BINARY_DIR}/sluice-config-version.cmake
        DESTINATION ${package} COMPONENT development)
install(DIRECTORY examples/library DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT development)
