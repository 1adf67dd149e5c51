# `cpack -G DEB` makes two packages for the Debian that it runs on: isopool (library, programs, units)
# and isopool-dev (headers, CMake package). scripts/package does so in the way that users need.
#
# torch is not in Debian in a version that isopool supports, and is not copied: the packages use the
# interpreter that isopool was built with, which packaging/debian/README.Debian.in explains.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME isopool)
set(CPACK_PACKAGE_VENDOR isopool)
set(CPACK_PACKAGE_CONTACT "The isopool authors <isopool@example.org>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
# Units and CMake files hold absolute paths: those of the prefix and not of a folder of cpack's.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# isopool-dev's programs link the libraries of isopool, which is not installed where the packages are made.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
# Which package has the libraries.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)

set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE "")

set(folder ${PROJECT_SOURCE_DIR}/packaging/debian)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME isopool)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
# python3: what the interpreter with torch is made with.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "python3, python3-venv")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "systemd")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
    ${folder}/postinst ${folder}/prerm ${folder}/postrm ${folder}/conffiles ${folder}/triggers)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
"PyTorch models in Python, called from C++ on isolated processes
 The library libisopool, the supervisor isopoold with its units, the worker
 program and the command isopool. Each worker is a process with its own Python
 interpreter: models run in parallel, and a crash ends one worker only.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME isopool-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "isopool (= ${PROJECT_VERSION}-1)")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
"PyTorch models in Python, called from C++ (headers)
 Headers of isopool, of torch::deploy and of multipy, the CMake package, and
 the programs that multipy gave developers.")

install(FILES ${folder}/copyright DESTINATION share/doc/isopool COMPONENT runtime)
install(FILES ${folder}/copyright DESTINATION share/doc/isopool-dev COMPONENT development)
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  # Settings of the unit, which the administrator changes. Elsewhere scripts/install explains them. The group
  # is the one that isopoold.socket names: without the setting isopoold would refuse its members.
  set(group "socket_group = \"isopool\"")
  file(READ ${PROJECT_SOURCE_DIR}/packaging/isopool.toml settings)
  string(REPLACE "#${group}" "${group}" settings_of_the_unit "${settings}")
  if(settings_of_the_unit STREQUAL settings)
    message(FATAL_ERROR "packaging/isopool.toml has no line #${group}")
  endif()
  set(installed ${PROJECT_BINARY_DIR}/CMakeFiles/installed)
  file(WRITE ${installed}/isopool.toml "${settings_of_the_unit}")
  install(FILES ${installed}/isopool.toml DESTINATION /etc/isopool COMPONENT runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/logrotate/isopool DESTINATION /etc/logrotate.d
          COMPONENT runtime)
  cmake_path(GET ISOPOOL_PYTHON_EXECUTABLE PARENT_PATH environment)
  cmake_path(GET environment PARENT_PATH environment)
  configure_file(${folder}/README.Debian.in ${installed}/README.Debian @ONLY)
  install(FILES ${installed}/README.Debian DESTINATION share/doc/isopool COMPONENT runtime)
  # The packages have a revision, so Debian's changelog is beside the project's own.
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  configure_file(${folder}/changelog.in ${installed}/changelog.Debian @ONLY)
  configure_file(${PROJECT_SOURCE_DIR}/CHANGELOG.md ${installed}/changelog COPYONLY)
  find_program(gzip_program gzip REQUIRED)
  foreach(changelog IN ITEMS ${installed}/changelog ${installed}/changelog.Debian)
    add_custom_command(OUTPUT ${changelog}.gz
      COMMAND ${gzip_program} -9nc ${changelog} > ${changelog}.gz DEPENDS ${changelog} VERBATIM)
    list(APPEND changelogs ${changelog}.gz)
  endforeach()
  add_custom_target(isopool_changelogs ALL DEPENDS ${changelogs})
  install(FILES ${changelogs} DESTINATION share/doc/isopool COMPONENT runtime)
  install(FILES ${changelogs} DESTINATION share/doc/isopool-dev COMPONENT development)
  install(FILES ${folder}/isopool.lintian-overrides DESTINATION share/lintian/overrides
          RENAME isopool COMPONENT runtime)
  install(FILES ${folder}/isopool-dev.lintian-overrides DESTINATION share/lintian/overrides
          RENAME isopool-dev COMPONENT development)
endif()

include(CPack)
