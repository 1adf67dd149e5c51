// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

/// The check macros of multipy. Both throw std::runtime_error; the text names the failed condition,
/// the function, the file and the line, and ends with the message if there is one.
namespace isopool::compat {

/// A condition that was false, and its place in the source.
class CheckFailure {
 public:
  CheckFailure(const char* condition, const char* function, const char* file, int line)
      : condition_(condition), function_(function), file_(file), line_(line) {}

  /// Throws the error. `advice` ends the first line; `message`, if given, is the second line.
  template <typename... Message>
  [[noreturn]] void raise(const char* kind, const char* advice, const Message&... message) const {
    std::ostringstream text;
    text << kind << ": (" << condition_ << "), function " << function_ << ", file " << file_
         << ", line " << line_ << "." << advice << "\n";
    (static_cast<void>(text << message << "\n"), ...);
    throw std::runtime_error(text.str());
  }

 private:
  const char* condition_;
  const char* function_;
  const char* file_;
  int line_;
};

}  // namespace isopool::compat

// NOLINTBEGIN(cppcoreguidelines-macro-usage): the names are multipy's.

/// MULTIPY_CHECK(condition) and MULTIPY_CHECK(condition, message): checks what a caller passes in.
#define MULTIPY_CHECK(...)                                                                   \
  ISOPOOL_COMPAT_CHOOSE(__VA_ARGS__, MULTIPY_CHECK_WITH_MESSAGE, MULTIPY_CHECK_NO_MESSAGE, ) \
  (__VA_ARGS__)
#define MULTIPY_CHECK_WITH_MESSAGE(condition, message) \
  ISOPOOL_COMPAT_CHECK(condition, #condition, "Check failed", "", message)
#define MULTIPY_CHECK_NO_MESSAGE(condition) \
  ISOPOOL_COMPAT_CHECK(condition, #condition, "Check failed", "")

/// The same, for a condition that only a bug in the program itself makes false.
#define MULTIPY_INTERNAL_ASSERT(...)                                       \
  ISOPOOL_COMPAT_CHOOSE(__VA_ARGS__, MULTIPY_INTERNAL_ASSERT_WITH_MESSAGE, \
                        MULTIPY_INTERNAL_ASSERT_NO_MESSAGE, )              \
  (__VA_ARGS__)
#define MULTIPY_INTERNAL_ASSERT_WITH_MESSAGE(condition, message)                                  \
  ISOPOOL_COMPAT_CHECK(condition, #condition, "Internal Assertion failed", ISOPOOL_COMPAT_ADVICE, \
                       message)
#define MULTIPY_INTERNAL_ASSERT_NO_MESSAGE(condition) \
  ISOPOOL_COMPAT_CHECK(condition, #condition, "Internal Assertion failed", ISOPOOL_COMPAT_ADVICE)

#define ISOPOOL_COMPAT_ADVICE " Please report bug to isopool."
// The third argument: the first macro if there are two before it, the second if there is one.
#define ISOPOOL_COMPAT_CHOOSE(first, second, chosen, ...) chosen
#define ISOPOOL_COMPAT_CHECK(condition, text, ...)                                                \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      ::isopool::compat::CheckFailure(text, __FUNCTION__, __FILE__, __LINE__).raise(__VA_ARGS__); \
    }                                                                                             \
  } while (false)
// NOLINTEND(cppcoreguidelines-macro-usage)
