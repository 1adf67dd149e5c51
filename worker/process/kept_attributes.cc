// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/kept_attributes.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

// Of later kernels than some C libraries know.
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif

namespace isopool::worker {

namespace {

constexpr int kOwnThread = 1;  // IOPRIO_WHO_PROCESS: with 0, this thread
constexpr unsigned long kPersonalityNow = 0xffffffff;

/// An attribute that is a number. `read` returns nullopt if the kernel does not tell it; `write`
/// returns false if the kernel does not set it.
struct Number {
  const char* name;  ///< with "its" before it
  std::optional<long> (*read)();
  bool (*write)(long);
};

template <int kRead>
std::optional<long> readControl() {
  const int value = ::prctl(kRead, 0, 0, 0, 0);
  return value < 0 ? std::nullopt : std::optional<long>(value);
}

template <int kRead>
std::optional<long> readControlInto() {
  int value = 0;
  return ::prctl(kRead, &value, 0, 0, 0) != 0 ? std::nullopt : std::optional<long>(value);
}

template <int kWrite>
bool writeControl(long value) {
  return ::prctl(kWrite, value, 0, 0, 0) == 0;
}

std::optional<long> readUmask() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return mask;
}

std::optional<long> readPriority() {
  errno = 0;
  const int priority = ::getpriority(PRIO_PROCESS, 0);
  return errno != 0 ? std::nullopt : std::optional<long>(priority);
}

std::optional<long> readIoPriority() {
  const long priority = ::syscall(SYS_ioprio_get, kOwnThread, 0);
  return priority < 0 ? std::nullopt : std::optional<long>(priority);
}

template <auto kGet>
std::optional<long> readOfNewThreads() {
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return std::nullopt;
  size_t bytes = 0;
  kGet(&attributes, &bytes);
  ::pthread_attr_destroy(&attributes);
  return static_cast<long>(bytes);
}

template <auto kSet>
bool writeOfNewThreads(long bytes) {
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return false;
  const bool done = kSet(&attributes, static_cast<size_t>(bytes)) == 0 &&
                    ::pthread_setattr_default_np(&attributes) == 0;
  ::pthread_attr_destroy(&attributes);
  return done;
}

// Some can only be turned on.
constexpr std::array kNumberTable{
    Number{"umask", &readUmask,
           [](long mask) {
             ::umask(static_cast<mode_t>(mask));
             return true;
           }},
    // No system calls.
    Number{"stack size of new threads", &readOfNewThreads<&::pthread_attr_getstacksize>,
           &writeOfNewThreads<&::pthread_attr_setstacksize>},
    Number{"guard size of new threads", &readOfNewThreads<&::pthread_attr_getguardsize>,
           &writeOfNewThreads<&::pthread_attr_setguardsize>},
    Number{"timer slack", &readControl<PR_GET_TIMERSLACK>, &writeControl<PR_SET_TIMERSLACK>},
    Number{"priority", &readPriority,
           [](long value) { return ::setpriority(PRIO_PROCESS, 0, static_cast<int>(value)) == 0; }},
    Number{"I/O priority", &readIoPriority,
           [](long value) { return ::syscall(SYS_ioprio_set, kOwnThread, 0, value) == 0; }},
    Number{"personality", [] { return std::optional<long>(::personality(kPersonalityNow)); },
           [](long value) { return ::personality(static_cast<unsigned long>(value)) != -1; }},
    Number{"parent death signal", &readControlInto<PR_GET_PDEATHSIG>,
           &writeControl<PR_SET_PDEATHSIG>},
    Number{"attribute dumpable", &readControl<PR_GET_DUMPABLE>, &writeControl<PR_SET_DUMPABLE>},
    Number{"role for orphaned processes", &readControlInto<PR_GET_CHILD_SUBREAPER>,
           &writeControl<PR_SET_CHILD_SUBREAPER>},
    Number{"use of huge pages", &readControl<PR_GET_THP_DISABLE>,
           &writeControl<PR_SET_THP_DISABLE>},
    Number{"time-stamp counter", &readControlInto<PR_GET_TSC>, &writeControl<PR_SET_TSC>},
    Number{"refusal of executable memory (PR_SET_MDWE)", &readControl<PR_GET_MDWE>,
           &writeControl<PR_SET_MDWE>},
    Number{"attribute no_new_privs", &readControl<PR_GET_NO_NEW_PRIVS>,
           &writeControl<PR_SET_NO_NEW_PRIVS>},
    Number{"treatment of capabilities (PR_SET_SECUREBITS)", &readControl<PR_GET_SECUREBITS>,
           &writeControl<PR_SET_SECUREBITS>},
};

// Signals that a thread has blocked and that wait would come when they are not blocked any more: in
// another program's call.
void forgetPendingSignals(const sigset_t& willBeBlocked) noexcept {
  sigset_t blocked{};
  sigset_t pending{};
  if (::pthread_sigmask(SIG_SETMASK, nullptr, &blocked) != 0 || ::sigpending(&pending) != 0) return;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (::sigismember(&pending, signal) != 1 || ::sigismember(&blocked, signal) != 1 ||
        ::sigismember(&willBeBlocked, signal) == 1) {
      continue;
    }
    sigset_t one{};
    ::sigaddset(&one, signal);
    constexpr timespec kNow{};
    while (::sigtimedwait(&one, nullptr, &kNow) == signal) {
    }
  }
}

bool folderIs(const std::string& folder) noexcept {
  char now[PATH_MAX];
  return ::getcwd(now, sizeof now) != nullptr && folder == now;
}

}  // namespace

KeptAttributes::KeptAttributes() : memoryPolicy_(memoryPolicy()) {
  static_assert(kNumberTable.size() == kNumbers);
  for (size_t i = 0; i < kNumbers; ++i) numbers_[i] = kNumberTable[i].read();
  char folder[PATH_MAX];
  if (::getcwd(folder, sizeof folder) != nullptr) folder_ = folder;
  if (const char* const locale = ::setlocale(LC_ALL, nullptr)) locale_ = locale;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked_);
  ::sched_getaffinity(0, sizeof processors_, &processors_);
  policy_ = ::sched_getscheduler(0);
  ::sched_getparam(0, &parameters_);
}

std::optional<KeptAttributes::MemoryPolicy> KeptAttributes::memoryPolicy() noexcept {
  MemoryPolicy policy;
  if (::syscall(SYS_get_mempolicy, &policy.mode, policy.nodes.data(), kNodes, nullptr, 0) != 0) {
    return std::nullopt;
  }
  return policy;
}

std::string KeptAttributes::restore() const noexcept {
  const char* failed = restoreNumbers();
  if (failed == nullptr) failed = restoreThread();
  if (failed != nullptr) return failed;
  ::uselocale(LC_GLOBAL_LOCALE);  // of this thread; it has none of its own at first
  const char* const locale = ::setlocale(LC_ALL, nullptr);
  if (locale != nullptr && locale_ != locale && ::setlocale(LC_ALL, locale_.c_str()) == nullptr) {
    return "locale";
  }
  if (folder_.empty() || folderIs(folder_) || ::chdir(folder_.c_str()) == 0) return {};
  return "working folder";
}

// Null, or the name of one that could not be set.
const char* KeptAttributes::restoreNumbers() const noexcept {
  for (size_t i = 0; i < kNumbers; ++i) {
    if (!numbers_[i] || kNumberTable[i].read() == numbers_[i]) continue;
    if (!kNumberTable[i].write(*numbers_[i])) return kNumberTable[i].name;
  }
  return nullptr;
}

const char* KeptAttributes::restoreThread() const noexcept {
  forgetPendingSignals(blocked_);
  ::pthread_sigmask(SIG_SETMASK, &blocked_, nullptr);
  cpu_set_t processors{};
  if (::sched_getaffinity(0, sizeof processors, &processors) == 0 &&
      std::memcmp(&processors, &processors_, sizeof processors) != 0 &&
      ::sched_setaffinity(0, sizeof processors_, &processors_) != 0) {
    return "processors";
  }
  sched_param parameters{};
  if (policy_ >= 0 &&
      (::sched_getscheduler(0) != policy_ ||
       (::sched_getparam(0, &parameters) == 0 &&
        parameters.sched_priority != parameters_.sched_priority)) &&
      ::sched_setscheduler(0, policy_, &parameters_) != 0) {
    return "scheduling policy";
  }
  if (memoryPolicy_ && memoryPolicy() != memoryPolicy_ &&
      ::syscall(SYS_set_mempolicy, memoryPolicy_->mode,
                memoryPolicy_->mode == 0 ? nullptr : memoryPolicy_->nodes.data(), kNodes) != 0) {
    return "memory policy";
  }
  return nullptr;
}

}  // namespace isopool::worker
