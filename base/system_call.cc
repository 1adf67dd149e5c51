// SPDX-License-Identifier: BSD-3-Clause
#include "base/system_call.h"

#include <cerrno>
#include <cstring>

namespace isopool::base {

namespace {

std::string describe(std::string_view call, std::string_view subject, int errorNumber) {
  std::string text(call);
  if (!subject.empty()) text.append(" on ").append(subject);
  char buffer[128];
  text.append(" failed: ").append(strerror_r(errorNumber, buffer, sizeof buffer));
  return text;
}

}  // namespace

SystemCallError::SystemCallError(std::string_view call, std::string_view subject, int errorNumber)
    : std::runtime_error(describe(call, subject, errorNumber)), errorNumber_(errorNumber) {}

int checkSystemCall(int result, const char* call, std::string_view subject) {
  if (result == -1) throw SystemCallError(call, subject, errno);
  return result;
}

int checkSystemCall(int result, const char* call, long long subject) {
  if (result == -1) throw SystemCallError(call, std::to_string(subject), errno);
  return result;
}

}  // namespace isopool::base
