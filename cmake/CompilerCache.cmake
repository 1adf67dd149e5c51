# Rebuilding after a branch switch or in a second build folder costs seconds with ccache.
find_program(ISOPOOL_CCACHE ccache)
mark_as_advanced(ISOPOOL_CCACHE)
if(ISOPOOL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this setting, ccache keeps nothing that uses precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${ISOPOOL_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${ISOPOOL_CCACHE})
endif()
