// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/kept_attributes.h"

#include <limits.h>
#include <locale.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace isopool::worker {

namespace {

bool folderIs(const std::string& folder) noexcept {
  char now[PATH_MAX];
  return ::getcwd(now, sizeof now) != nullptr && folder == now;
}

}  // namespace

KeptAttributes::KeptAttributes() : umask_(::umask(0)), timerSlack_(::prctl(PR_GET_TIMERSLACK)) {
  ::umask(umask_);
  char folder[PATH_MAX];
  if (::getcwd(folder, sizeof folder) != nullptr) folder_ = folder;
  if (const char* const locale = ::setlocale(LC_ALL, nullptr)) locale_ = locale;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked_);
  ::sched_getaffinity(0, sizeof processors_, &processors_);
}

std::string KeptAttributes::restore() const noexcept {
  ::umask(umask_);
  ::pthread_sigmask(SIG_SETMASK, &blocked_, nullptr);
  if (timerSlack_ > 0 && ::prctl(PR_GET_TIMERSLACK) != timerSlack_) {
    ::prctl(PR_SET_TIMERSLACK, timerSlack_);
  }
  cpu_set_t processors{};
  if (::sched_getaffinity(0, sizeof processors, &processors) == 0 &&
      std::memcmp(&processors, &processors_, sizeof processors) != 0 &&
      ::sched_setaffinity(0, sizeof processors_, &processors_) != 0) {
    return "its processors";
  }
  const char* const locale = ::setlocale(LC_ALL, nullptr);
  if (locale != nullptr && locale_ != locale && ::setlocale(LC_ALL, locale_.c_str()) == nullptr) {
    return "its locale";
  }
  if (folder_.empty() || folderIs(folder_) || ::chdir(folder_.c_str()) == 0) return {};
  return "its working folder";
}

}  // namespace isopool::worker
