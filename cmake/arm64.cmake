# Toolchain file of the preset arm64: compiles for arm64 on another processor, with Debian's
# g++-aarch64-linux-gnu, against the root folder of an arm64 Debian that has isopool's packages and a
# Python with torch.
#
#   ISOPOOL_ARM64_ROOT  (environment) that root folder
#
# Programs that the build starts run there by qemu-user-static, Python by chroot, which only root may
# do. docs/support.md shows how to make such a folder.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
if(NOT CMAKE_SYSROOT)
  if(NOT EXISTS "$ENV{ISOPOOL_ARM64_ROOT}/usr/lib/aarch64-linux-gnu")
    message(FATAL_ERROR "ISOPOOL_ARM64_ROOT=$ENV{ISOPOOL_ARM64_ROOT}: not the root folder of an arm64 Debian")
  endif()
  set(CMAKE_SYSROOT $ENV{ISOPOOL_ARM64_ROOT})
endif()

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-L;${CMAKE_SYSROOT})

set(CMAKE_FIND_ROOT_PATH ${CMAKE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
