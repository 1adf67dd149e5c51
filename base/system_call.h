// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace isopool::base {

/// A system call failed. The text names the call, its subject and the reason.
class SystemCallError : public std::runtime_error {
 public:
  SystemCallError(std::string_view call, std::string_view subject, int errorNumber);
  /// The value of errno after the call.
  int errorNumber() const { return errorNumber_; }

 private:
  int errorNumber_;
};

/// Returns `result`. If it is -1, throws SystemCallError with errno.
int checkSystemCall(int result, const char* call, std::string_view subject = {});
int checkSystemCall(int result, const char* call, long long subject);

}  // namespace isopool::base
