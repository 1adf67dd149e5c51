// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

/// The checks that programs written for multipy use. Both throw std::runtime_error with the failed
/// condition, the function, the place, and the message if one is given.
namespace isopool::compat {

template <typename... Message>
[[noreturn]] void throwCheckFailed(const char* kind, const char* condition, const char* function,
                                   const char* file, int line, const char* advice,
                                   const Message&... message) {
  std::ostringstream text;
  text << kind << ": (" << condition << "), function " << function << ", file " << file << ", line "
       << line << "." << advice << "\n";
  (static_cast<void>(text << message), ...);
  if (sizeof...(Message) > 0) text << "\n";
  throw std::runtime_error(text.str());
}

}  // namespace isopool::compat

// NOLINTBEGIN(cppcoreguidelines-macro-usage): the names are multipy's.
#define MULTIPY_CHECK(condition, ...)                                                         \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      ::isopool::compat::throwCheckFailed("Check failed", #condition, __FUNCTION__, __FILE__, \
                                          __LINE__, "" __VA_OPT__(, ) __VA_ARGS__);           \
    }                                                                                         \
  } while (false)

#define MULTIPY_INTERNAL_ASSERT(condition, ...)                                      \
  do {                                                                               \
    if (!(condition)) {                                                              \
      ::isopool::compat::throwCheckFailed(                                           \
          "Internal Assertion failed", #condition, __FUNCTION__, __FILE__, __LINE__, \
          " Please report bug to isopool." __VA_OPT__(, ) __VA_ARGS__);              \
    }                                                                                \
  } while (false)
// NOLINTEND(cppcoreguidelines-macro-usage)
