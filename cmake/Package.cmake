# What `cmake --install` puts where, and find_package(isopool) from the install or the build tree.
# In a wheel (ISOPOOL_WHEEL) the prefix is site-packages/isopool.
#
# Components: runtime (what programs and operators need), development (what compilers need), python
# (the Python packages). `cmake --install` without --component installs all of them;
# cmake/DebianPackages.cmake makes a package of each of the first two.

include(CMakePackageConfigHelpers)

# The torch::deploy headers are an include root of their own, named apart from isopool's, because
# <torch/deploy.h> and <multipy/...> must be found only by programs that ask for them.
add_library(isopool_compat INTERFACE)
add_library(isopool::compat ALIAS isopool_compat)
set_target_properties(isopool_compat PROPERTIES EXPORT_NAME compat)
target_include_directories(isopool_compat INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include/compat>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/isopool-compat>)

foreach(program IN ITEMS isopoold isopool-worker)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/isopool
            COMPONENT runtime)
  endif()
endforeach()

if(ISOPOOL_WHEEL)
  install(TARGETS isopool_worker_module LIBRARY DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/isopool
          COMPONENT runtime)
  foreach(command IN ITEMS isopool isopoold)
    install(PROGRAMS ${PROJECT_SOURCE_DIR}/packaging/wheel/command.py
            DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME ${command} COMPONENT runtime)
  endforeach()
else()
  # An operator types isopoold, a library looks for it where the worker program is.
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  file(CREATE_LINK ../libexec/isopool/isopoold ${PROJECT_BINARY_DIR}/bin/isopoold SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/bin/isopoold DESTINATION ${CMAKE_INSTALL_BINDIR}
          COMPONENT runtime)

  # What an operator needs for a shared supervisor. Units name paths below the prefix, which is known
  # when they are installed.
  set(units_folder ${PROJECT_BINARY_DIR}/CMakeFiles/installed/systemd)
  install(CODE "
    set(PROGRAM \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBEXECDIR}/isopool/isopoold\")
    set(COMMAND \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/isopool\")
    set(DATA_FOLDER \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/isopool\")
    set(FOLDER \"${units_folder}\")
    include(\"${PROJECT_SOURCE_DIR}/packaging/systemd/units.cmake\")" COMPONENT runtime)
  install(FILES ${units_folder}/isopoold.service ${units_folder}/isopoold.socket
                ${units_folder}/isopool-metrics.service DESTINATION lib/systemd/system
          COMPONENT runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/systemd/isopool.sysusers
          DESTINATION lib/sysusers.d RENAME isopool.conf COMPONENT runtime)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/packaging/isopool.toml
              ${PROJECT_SOURCE_DIR}/packaging/prometheus/isopool.rules.yml
              ${PROJECT_SOURCE_DIR}/packaging/grafana/isopool-dashboard.json
        DESTINATION ${CMAKE_INSTALL_DATADIR}/isopool COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/logrotate/isopool
        DESTINATION ${CMAKE_INSTALL_DATADIR}/isopool RENAME isopool.logrotate COMPONENT runtime)

if(EXISTS ${PROJECT_SOURCE_DIR}/include/isopool)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/isopool DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          COMPONENT development FILES_MATCHING PATTERN "*.h")
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/include/compat)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/compat/
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/isopool-compat
          COMPONENT development FILES_MATCHING PATTERN "*.h")
endif()

if(TARGET isopool)
  target_link_libraries(isopool_compat INTERFACE isopool)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/isopool)
  # A wheel keeps no symbolic links.
  set(library_file libisopool.so)
  set(namelink NAMELINK_COMPONENT development)
  set(installed_torch_root ${ISOPOOL_TORCH_ROOT})
  if(ISOPOOL_WHEEL)
    get_target_property(version isopool SOVERSION)
    set_target_properties(isopool PROPERTIES VERSION ${version})
    set(library_file libisopool.so.${version})
    set(namelink NAMELINK_SKIP)
    set(installed_torch_root "\${PACKAGE_PREFIX_DIR}/../torch")
  endif()
  if(ISOPOOL_WHEEL)
    set_target_properties(isopool_batch PROPERTIES VERSION ${version})
  endif()
  install(TARGETS isopool isopool_batch isopool_compat EXPORT isopool-targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime ${namelink})
  install(EXPORT isopool-targets NAMESPACE isopool:: DESTINATION ${package_dir}
          COMPONENT development)

  configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/isopool-config.cmake.in isopool-config.cmake
    INSTALL_DESTINATION ${package_dir}
    NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(isopool-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES
    ${PROJECT_BINARY_DIR}/isopool-config.cmake
    ${PROJECT_BINARY_DIR}/isopool-config-version.cmake
    ${PROJECT_SOURCE_DIR}/cmake/isopool-torch.cmake
    DESTINATION ${package_dir} COMPONENT development)

  # Projects with multipy's CMake take this folder for multipy's. Libraries are in lib/ of the build
  # tree and may be elsewhere below a prefix.
  set(multipy_folder share/isopool/multipy/multipy/runtime)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/multipy/utils.cmake
                 ${PROJECT_BINARY_DIR}/${multipy_folder}/utils.cmake COPYONLY)
  set(library_folder lib)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/multipy/libtorch_deploy.a.in
                 ${PROJECT_BINARY_DIR}/${multipy_folder}/build/libtorch_deploy.a @ONLY)
  set(library_folder ${CMAKE_INSTALL_LIBDIR})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/multipy/libtorch_deploy.a.in
                 ${PROJECT_BINARY_DIR}/CMakeFiles/installed/libtorch_deploy.a @ONLY)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/multipy/utils.cmake DESTINATION ${multipy_folder}
          COMPONENT development)
  install(FILES ${PROJECT_BINARY_DIR}/CMakeFiles/installed/libtorch_deploy.a
          DESTINATION ${multipy_folder}/build COMPONENT development)

  # The build tree answers find_package too (-Disopool_DIR=build/release).
  export(EXPORT isopool-targets NAMESPACE isopool:: FILE isopool-targets.cmake)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/isopool-torch.cmake isopool-torch.cmake COPYONLY)
endif()
