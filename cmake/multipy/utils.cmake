# For projects written for multipy, whose CMakeLists.txt say
#
#   include(${MULTIPY_PATH}/multipy/runtime/utils.cmake)
#   add_library(multipy_internal STATIC IMPORTED)
#   set_target_properties(multipy_internal PROPERTIES
#     IMPORTED_LOCATION ${MULTIPY_PATH}/multipy/runtime/build/libtorch_deploy.a)
#   caffe2_interface_library(multipy_internal multipy)
#   target_link_libraries(... multipy c10 torch_cpu)
#
# MULTIPY_PATH is then <prefix>/share/isopool/multipy. Programs find their libraries without
# LD_LIBRARY_PATH. New projects write find_package(isopool) and link isopool::compat.

# From an install tree or a build tree, which look alike from here.
get_filename_component(isopool_prefix ${CMAKE_CURRENT_LIST_DIR}/../../../../.. ABSOLUTE)
find_package(isopool CONFIG REQUIRED PATHS ${isopool_prefix} NO_DEFAULT_PATH)
unset(isopool_prefix)

# What such projects use without saying where it is: torch's folder, headers, -lc10 and -ltorch_cpu.
get_filename_component(PYTORCH_ROOT ${ISOPOOL_TORCH_ROOT} DIRECTORY)
foreach(isopool_library IN ITEMS isopool::compat isopool::isopool isopool::torch)
  get_target_property(isopool_folders ${isopool_library} INTERFACE_INCLUDE_DIRECTORIES)
  include_directories(SYSTEM ${isopool_folders})
endforeach()
unset(isopool_library)
unset(isopool_folders)
link_directories(${ISOPOOL_TORCH_ROOT}/lib)

# A macro, to mend flags where it is called.
macro(caffe2_interface_library SRC DST)
  if("${CMAKE_CXX_FLAGS}" MATCHES "-D_GLIBCXX_USE_CXX11_ABI=0")
    message(STATUS "isopool: torch ${ISOPOOL_TORCH_VERSION} has C++11's strings: "
                   "-D_GLIBCXX_USE_CXX11_ABI=0 is taken out of CMAKE_CXX_FLAGS")
    string(REPLACE "-D_GLIBCXX_USE_CXX11_ABI=0" "" CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS}")
  endif()
  add_library(${DST} INTERFACE)
  target_link_libraries(${DST} INTERFACE ${SRC} isopool::compat)
endmacro()
