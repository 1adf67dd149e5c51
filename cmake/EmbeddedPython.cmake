# The Python that workers embed, described by that interpreter itself: its own sysconfig names the
# headers and libpython, its own import path holds torch. A FindPython of CMake's could silently
# mix the headers of one interpreter with the packages of another.
#
#   ISOPOOL_PYTHON_EXECUTABLE  (cache) interpreter with torch; .venv/bin/python when there is one
#   ISOPOOL_PYTHON_VERSION     e.g. 3.11
#   ISOPOOL_PYTHON_EXTENSION_SUFFIX  how that Python's extension modules are named
#   ISOPOOL_TORCH_ROOT         (cache) folder of the torch package: include/, lib/, share/cmake/
#   ISOPOOL_LIBRARY_FOLDERS    of torch and of a shared libpython, where isopool runs
#   ISOPOOL_WORKER_PYTHON      the interpreter that workers use if no setting names one
#   isopool::python            headers, for a module that an interpreter loads
#   isopool::libpython         the above and libpython, for a program that embeds the interpreter

# Writes OUTPUT, a C++ file with the texts of SOURCES: see embed_python.cmake.
function(isopool_embed_python output header namespace sources)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D OUTPUT=${output} -D "SOURCES=${sources}" -D HEADER=${header}
            -D NAMESPACE=${namespace} -P ${PROJECT_SOURCE_DIR}/cmake/embed_python.cmake
    DEPENDS ${PROJECT_SOURCE_DIR}/cmake/embed_python.cmake ${sources}
    VERBATIM
  )
endfunction()

set(default_python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
if(NOT EXISTS ${default_python})
  find_program(default_python_on_path python3)
  set(default_python ${default_python_on_path})
  unset(default_python_on_path CACHE)
endif()
set(ISOPOOL_PYTHON_EXECUTABLE ${default_python} CACHE FILEPATH
    "Python interpreter (3.11 or newer, with torch 2.11 or newer) that workers embed")

# For another processor (cmake/arm64.cmake) the interpreter runs in the system that is compiled for,
# and its paths are those in there; natively CMAKE_SYSROOT is empty.
set(interpreter ${ISOPOOL_PYTHON_EXECUTABLE})
if(CMAKE_CROSSCOMPILING)
  list(PREPEND interpreter chroot ${CMAKE_SYSROOT})
endif()
set(known_torch_root "")
if(ISOPOOL_WHEEL)
  # pip builds in an environment in which the torch of the user's is not found.
  set(known_torch_root ${ISOPOOL_TORCH_ROOT})
endif()
execute_process(
  COMMAND ${interpreter} - ${known_torch_root} INPUT_FILE ${CMAKE_CURRENT_LIST_DIR}/describe_python.py
  OUTPUT_VARIABLE python_description ERROR_VARIABLE python_error RESULT_VARIABLE python_result
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
if(NOT python_result EQUAL 0)
  message(FATAL_ERROR "ISOPOOL_PYTHON_EXECUTABLE=${ISOPOOL_PYTHON_EXECUTABLE}: "
                      "${python_result}\n${python_error}")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${CMAKE_CURRENT_LIST_DIR}/describe_python.py)

# A newer one is tried with a warning: its interfaces may differ (base/python_version.h).
set(newest_known_python 3.14)

foreach(field IN ITEMS version extension_suffix include_dir library kind link_libraries torch_root)
  string(JSON python_${field} GET "${python_description}" ${field})
endforeach()
set(ISOPOOL_PYTHON_VERSION ${python_version})
set(ISOPOOL_PYTHON_EXTENSION_SUFFIX ${python_extension_suffix})
if(python_version VERSION_GREATER newest_known_python)
  message(WARNING "Python ${python_version} is newer than ${newest_known_python}, the newest that \
isopool was tried with (docs/support.md)")
endif()

# The torch found last time is forgotten when the interpreter changes.
if(NOT ISOPOOL_PYTHON_EXECUTABLE STREQUAL ISOPOOL_TORCH_ROOT_OF)
  set(ISOPOOL_TORCH_ROOT ${CMAKE_SYSROOT}${python_torch_root} CACHE PATH "Folder of the torch package" FORCE)
  set(ISOPOOL_TORCH_ROOT_OF ${ISOPOOL_PYTHON_EXECUTABLE} CACHE INTERNAL "")
endif()

find_package(Threads REQUIRED)
add_library(isopool::python INTERFACE IMPORTED)
target_include_directories(isopool::python SYSTEM INTERFACE ${CMAKE_SYSROOT}${python_include_dir})
target_link_libraries(isopool::python INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

string(REPLACE "${CMAKE_SYSROOT}/" "/" ISOPOOL_LIBRARY_FOLDERS ${ISOPOOL_TORCH_ROOT}/lib)
set(ISOPOOL_WORKER_PYTHON ${ISOPOOL_PYTHON_EXECUTABLE})
if(ISOPOOL_WHEEL)
  # What lies in site-packages/isopool, .../isopool/lib and .../isopool/libexec/isopool finds torch
  # beside isopool.
  set(ISOPOOL_LIBRARY_FOLDERS
    "$ORIGIN/../torch/lib" "$ORIGIN/../../torch/lib" "$ORIGIN/../../../torch/lib")
  set(ISOPOOL_WORKER_PYTHON python${python_version})
else()
  if(python_kind STREQUAL "none")
    message(FATAL_ERROR "ISOPOOL_PYTHON_EXECUTABLE=${ISOPOOL_PYTHON_EXECUTABLE}: no libpython for "
                        "Python ${python_version} (Debian: apt install python3-dev)")
  endif()
  add_library(isopool::libpython INTERFACE IMPORTED)
  target_link_libraries(isopool::libpython INTERFACE isopool::python)
  target_link_options(isopool::libpython INTERFACE LINKER:--export-dynamic)
  if(python_kind STREQUAL "static")
    # Extension modules look their symbols up in the program, so all of libpython has to be in it.
    target_link_options(isopool::libpython INTERFACE
      "LINKER:--whole-archive,${CMAKE_SYSROOT}${python_library},--no-whole-archive")
  else()
    target_link_libraries(isopool::libpython INTERFACE ${CMAKE_SYSROOT}${python_library})
    cmake_path(GET python_library PARENT_PATH python_library_folder)
    list(APPEND ISOPOOL_LIBRARY_FOLDERS ${python_library_folder})
  endif()
  target_link_libraries(isopool::libpython INTERFACE ${python_link_libraries})
endif()

message(STATUS "isopool: Python ${python_version} (${python_library}), "
               "torch in ${ISOPOOL_TORCH_ROOT}")
