# Libraries from Debian, each under one target name.
#
#   isopool::asio     Boost.Asio, headers only
#   isopool::msgpack  msgpack for C++, headers only
#   isopool::xxhash   xxHash, compiled into whoever includes it
#   nlohmann_json::nlohmann_json, spdlog::spdlog, CLI11::CLI11, tomlplusplus::tomlplusplus,
#   SQLite3::SQLite3  as they come
#
# A target that sees isopool::torch must not see spdlog::spdlog: torch's include folder holds
# another fmt, which Debian's spdlog does not compile with.

find_package(Threads REQUIRED)

# Boost's own configuration file, in place of CMake's FindBoost, which CMake 3.30 deprecated.
if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)
endif()
find_package(Boost 1.74 REQUIRED)
add_library(isopool::asio INTERFACE IMPORTED)
target_link_libraries(isopool::asio INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(isopool::asio INTERFACE
  BOOST_ASIO_NO_DEPRECATED BOOST_ERROR_CODE_HEADER_ONLY)
if(Boost_VERSION VERSION_LESS 1.75)
  # asio/awaitable.hpp uses std::exchange and includes <utility> nowhere.
  target_compile_options(isopool::asio INTERFACE "SHELL:$<$<COMPILE_LANGUAGE:CXX>:-include utility>")
endif()

find_path(ISOPOOL_MSGPACK_INCLUDE_DIR msgpack.hpp REQUIRED)
mark_as_advanced(ISOPOOL_MSGPACK_INCLUDE_DIR)
add_library(isopool::msgpack INTERFACE IMPORTED)
target_include_directories(isopool::msgpack SYSTEM INTERFACE ${ISOPOOL_MSGPACK_INCLUDE_DIR})
target_compile_definitions(isopool::msgpack INTERFACE MSGPACK_NO_BOOST)

find_path(ISOPOOL_XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
mark_as_advanced(ISOPOOL_XXHASH_INCLUDE_DIR)
add_library(isopool::xxhash INTERFACE IMPORTED)
target_include_directories(isopool::xxhash SYSTEM INTERFACE ${ISOPOOL_XXHASH_INCLUDE_DIR})
target_compile_definitions(isopool::xxhash INTERFACE XXH_INLINE_ALL)

find_package(nlohmann_json 3.11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(SQLite3 REQUIRED)
# Its name since CMake 4.3, which warns of the older one.
if(NOT TARGET SQLite3::SQLite3)
  add_library(SQLite3::SQLite3 ALIAS SQLite::SQLite3)
endif()
