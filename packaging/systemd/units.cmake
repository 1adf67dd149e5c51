# Writes the systemd units with the paths of one installation:
#
#   cmake -DPROGRAM=/usr/libexec/isopool/isopoold -DCOMMAND=/usr/bin/isopool -DDATA_FOLDER=/usr/share/isopool
#     -DFOLDER=OUTPUT -P units.cmake

foreach(needed IN ITEMS PROGRAM COMMAND DATA_FOLDER FOLDER)
  if(NOT DEFINED ${needed})
    message(FATAL_ERROR "units.cmake: -D${needed}= is missing")
  endif()
endforeach()
foreach(unit IN ITEMS isopoold.service isopoold.socket isopool-metrics.service)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${unit}.in ${FOLDER}/${unit} @ONLY)
endforeach()
