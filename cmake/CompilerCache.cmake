# Rebuilding after a branch switch or in a second build folder costs seconds with ccache.
find_program(ISOPOOL_CCACHE ccache)
mark_as_advanced(ISOPOOL_CCACHE)
if(ISOPOOL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${ISOPOOL_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ISOPOOL_CCACHE})
endif()
