# How our own code is compiled: warnings, sanitizers.
#
#   isopool::warnings    the warnings that our code is free of
#   isopool::sanitizers  the flags of ISOPOOL_SANITIZE; empty without it
#
# isopool_apply_build_options(folder), called last, links both to every target below a folder: a
# sanitizer that covers only some objects misses errors, and a forgotten warning flag is silent.

add_library(isopool_warnings INTERFACE)
add_library(isopool::warnings ALIAS isopool_warnings)
# Designated initializers leave out members that have a default; newer GCC takes that for a mistake.
target_compile_options(isopool_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align -Wformat=2 -Wundef
  -Wno-missing-field-initializers)

option(ISOPOOL_WARNINGS_AS_ERRORS "Stop at the first warning in our own code" OFF)
if(ISOPOOL_WARNINGS_AS_ERRORS)
  target_compile_options(isopool_warnings INTERFACE -Werror)
endif()

set(ISOPOOL_SANITIZE "" CACHE STRING "address, thread, undefined or fuzzer; address takes undefined along, fuzzer both")
set_property(CACHE ISOPOOL_SANITIZE PROPERTY STRINGS "" address thread undefined fuzzer)

add_library(isopool_sanitizers INTERFACE)
add_library(isopool::sanitizers ALIAS isopool_sanitizers)
if(ISOPOOL_SANITIZE)
  set(sanitizer_names
    "address=address,undefined" "thread=thread" "undefined=undefined"
    "fuzzer=fuzzer-no-link,address,undefined")
  list(FILTER sanitizer_names INCLUDE REGEX "^${ISOPOOL_SANITIZE}=")
  if(NOT sanitizer_names)
    message(FATAL_ERROR "ISOPOOL_SANITIZE=${ISOPOOL_SANITIZE}: use address, thread, undefined or fuzzer")
  endif()
  string(REGEX REPLACE "^[a-z]+=" "" sanitizer_names "${sanitizer_names}")
  # vptr needs RTTI of torch's classes that libtorch does not export.
  target_compile_options(isopool_sanitizers INTERFACE
    -fsanitize=${sanitizer_names} -fno-sanitize=vptr -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer -g)
  target_link_options(isopool_sanitizers INTERFACE -fsanitize=${sanitizer_names})
  if(ISOPOOL_SANITIZE STREQUAL fuzzer)
    target_compile_options(isopool_sanitizers INTERFACE
      -fprofile-instr-generate -fcoverage-mapping)
    target_link_options(isopool_sanitizers INTERFACE -fprofile-instr-generate)
  endif()
endif()

function(isopool_apply_build_options folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type MATCHES "^(EXECUTABLE|((STATIC|SHARED|MODULE|OBJECT)_LIBRARY))$")
      target_link_libraries(${target} PRIVATE isopool::warnings)
      # Unless a program without sanitizers loads it.
      get_target_property(without ${target} ISOPOOL_WITHOUT_SANITIZERS)
      if(NOT without)
        target_link_libraries(${target} PRIVATE isopool::sanitizers)
      endif()
    endif()
  endforeach()
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS subfolders)
    isopool_apply_build_options(${subfolder})
  endforeach()
endfunction()
