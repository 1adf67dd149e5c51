# libtorch as the installed `torch` package has it. Used by isopool's own build and, installed
# beside isopool-config.cmake, by programs that link isopool.
#
# Not find_package(Torch): a torch built for CUDA makes that fail on a machine without the CUDA
# toolkit, and isopool names no CUDA symbol. The two get along in one program.
#
# Reads    ISOPOOL_TORCH_ROOT     folder of the torch package
# Defines  ISOPOOL_TORCH_VERSION  e.g. 2.13.0
#          ISOPOOL_TORCH_SERIES   e.g. 2.13: a build works with all versions of a series
#          ISOPOOL_TORCH_CXX_STANDARD  the C++ that torch's headers need: 17, from torch 2.15 on 20
#          isopool::torch         ATen, c10 and the C++ API: libtorch_cpu, libc10
#          isopool::torch_python  the above and libtorch_python, for a process that embeds Python

set(ISOPOOL_TORCH_VERSION "")
if(EXISTS ${ISOPOOL_TORCH_ROOT}/share/cmake/Torch/TorchConfigVersion.cmake)
  file(STRINGS ${ISOPOOL_TORCH_ROOT}/share/cmake/Torch/TorchConfigVersion.cmake version_line
       REGEX "^set\\(PACKAGE_VERSION " LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" ISOPOOL_TORCH_VERSION "${version_line}")
endif()
if(NOT ISOPOOL_TORCH_VERSION)
  message(FATAL_ERROR "ISOPOOL_TORCH_ROOT=${ISOPOOL_TORCH_ROOT}: no torch with C++ headers there")
elseif(ISOPOOL_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${ISOPOOL_TORCH_VERSION} in ${ISOPOOL_TORCH_ROOT} is too old: "
                      "isopool needs 2.11 or newer")
endif()

string(REGEX MATCH "^[0-9]+\\.[0-9]+" ISOPOOL_TORCH_SERIES ${ISOPOOL_TORCH_VERSION})

# All that differs between versions of torch.
set(ISOPOOL_TORCH_CXX_STANDARD 17)
if(ISOPOOL_TORCH_VERSION VERSION_GREATER_EQUAL 2.15)
  set(ISOPOOL_TORCH_CXX_STANDARD 20)
endif()

if(NOT TARGET isopool::torch)
  foreach(library IN ITEMS c10 torch_cpu torch_python)
    set(library_file ${ISOPOOL_TORCH_ROOT}/lib/lib${library}.so)
    # A libtorch without Python has no libtorch_python; only workers need that one.
    if(EXISTS ${library_file})
      add_library(isopool::lib${library} SHARED IMPORTED)
      set_target_properties(isopool::lib${library} PROPERTIES IMPORTED_LOCATION ${library_file})
    endif()
  endforeach()

  add_library(isopool::torch INTERFACE IMPORTED)
  target_include_directories(isopool::torch SYSTEM INTERFACE
    ${ISOPOOL_TORCH_ROOT}/include
    ${ISOPOOL_TORCH_ROOT}/include/torch/csrc/api/include)
  # A target that asks for an older C++ and links this one is compiled as this C++.
  target_compile_features(isopool::torch INTERFACE cxx_std_${ISOPOOL_TORCH_CXX_STANDARD})
  target_link_libraries(isopool::torch INTERFACE isopool::libtorch_cpu isopool::libc10)

  if(TARGET isopool::libtorch_python)
    add_library(isopool::torch_python INTERFACE IMPORTED)
    target_link_libraries(isopool::torch_python INTERFACE isopool::libtorch_python isopool::torch)
  endif()
endif()
