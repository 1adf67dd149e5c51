// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/creation_failure.h"

#include <cerrno>

namespace isopool::ipc {

namespace {

std::string remedy(int errorNumber, const std::string& process) {
  switch (errorNumber) {
    case EMFILE:
      return process +
             " has no free file descriptor: close files, or raise its limit (ulimit -n, "
             "RLIMIT_NOFILE)";
    case ENFILE:
      return "the system has no free file descriptor: close files, or raise fs.file-max";
    case ENOSYS:
    case EPERM:
    case EACCES:
      return "the system refuses this call to " + process +
             ", probably by a seccomp filter or a security module: allow it, isopool needs it";
    case EFBIG:
      return "files of " + process +
             " may not be so large: raise its limit (ulimit -f, RLIMIT_FSIZE)";
    case ENOMEM:
    case ENOSPC:
      return "the system has no memory for it: release memory, or raise the memory limit of " +
             process + ", its container or its address space";
    default:
      return "see errno in the manual page of this call";
  }
}

}  // namespace

std::string creationFailureInWords(const base::SystemCallError& error, const char* process) {
  return std::string(error.what()) + " (errno " + std::to_string(error.errorNumber()) +
         "): " + remedy(error.errorNumber(), process);
}

}  // namespace isopool::ipc
