# One static library per source folder, so that the folder graph is the link graph.

set(SLUICE_WARNINGS -Wall -Wextra -Wshadow -Wno-missing-field-initializers)

add_library(sluice_flags INTERFACE)
target_include_directories(sluice_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(sluice_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${SLUICE_WARNINGS}>)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SLUICE_SANITIZE}>
                         $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()

# sluice_library(NAME DEPS...): the library sluice_NAME from every .cpp in the current folder.
function(sluice_library name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(sluice_${name} STATIC ${sources})
  target_link_libraries(sluice_${name} PUBLIC sluice_flags ${ARGN})
endfunction()
