// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/fitness_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "base/blocked_signals.h"
#include "base/fd.h"
#include "base/procfs.h"
#include "ipc/channel/futex.h"
#include "worker/process/crash_log.h"
#include "worker/process/memory_limit.h"
#include "worker/process/process_setup.h"

namespace isopool::worker {

namespace {

constexpr int64_t kPeriod = 100'000'000;  // ns
// Descriptors that must be free: a call needs some for its package, its segments and
// its model's files.
constexpr size_t kDescriptors = 16;
// The size in which Python requests memory from the system.
constexpr size_t kMemoryBytes = size_t{1} << 20;
// If no thread can be started although the worker has fewer tasks than this, other processes of the
// user take them all: the worker is not to blame.
constexpr size_t kOwnTasks = 16;

// By their numbers.
constexpr std::array<const char*, RLIM_NLIMITS> kLimits = [] {
  std::array<const char*, RLIM_NLIMITS> names{};
  names[RLIMIT_CPU] = "RLIMIT_CPU";
  names[RLIMIT_FSIZE] = "RLIMIT_FSIZE";
  names[RLIMIT_DATA] = "RLIMIT_DATA";
  names[RLIMIT_STACK] = "RLIMIT_STACK";
  names[RLIMIT_CORE] = "RLIMIT_CORE";
  names[RLIMIT_RSS] = "RLIMIT_RSS";
  names[RLIMIT_NPROC] = "RLIMIT_NPROC";
  names[RLIMIT_NOFILE] = "RLIMIT_NOFILE";
  names[RLIMIT_MEMLOCK] = "RLIMIT_MEMLOCK";
  names[RLIMIT_AS] = "RLIMIT_AS";
  names[RLIMIT_LOCKS] = "RLIMIT_LOCKS";
  names[RLIMIT_SIGPENDING] = "RLIMIT_SIGPENDING";
  names[RLIMIT_MSGQUEUE] = "RLIMIT_MSGQUEUE";
  names[RLIMIT_NICE] = "RLIMIT_NICE";
  names[RLIMIT_RTPRIO] = "RLIMIT_RTPRIO";
  names[RLIMIT_RTTIME] = "RLIMIT_RTTIME";
  return names;
}();

std::string contentsOf(const std::string& path) {
  std::string text;
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return text;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(file.get(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// nullopt if the kernel has no such field (before 5.9) or the file can't be read.
std::optional<uint64_t> filtersIn(const std::string& status) {
  constexpr std::string_view kField = "Seccomp_filters:";
  const size_t at = status.find(kField);
  if (at == std::string::npos) return std::nullopt;
  return std::strtoull(status.c_str() + at + kField.size(), nullptr, 10);
}

// The sets that limit the capabilities of programs which the process starts.
std::string laterCapabilitiesIn(const std::string& status) {
  std::string sets;
  for (const std::string_view field : {"CapBnd:", "CapAmb:"}) {
    const size_t at = status.find(field);
    if (at != std::string::npos) sets += status.substr(at, status.find('\n', at) - at);
  }
  return sets;
}

// Runs before the other checks, which need memory: for a thread's stack, for example.
std::string failureOfMemory() {
  void* const memory = ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) {
    ::munmap(memory, kMemoryBytes);
    return {};
  }
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit now{};
    if (::getrlimit(resource, &now) != 0 || now.rlim_cur == RLIM_INFINITY) continue;
    return "it has no memory left (" + std::string(kLimits[resource]) + " is " +
           std::to_string(now.rlim_cur) + ")";
  }
  return {};  // the system has none for any process
}

std::string failureOfDescriptors(size_t wanted = kDescriptors) {
  std::vector<base::Fd> opened;
  while (opened.size() < wanted) {
    opened.emplace_back(::fcntl(crashLogFd(), F_DUPFD_CLOEXEC, 0));
    if (opened.back().valid()) continue;
    return "it can open " + std::to_string(opened.size() - 1) + " more descriptors (" +
           ::strerror(errno) + ")";
  }
  return {};
}

// No system call tells a process the rules of Landlock that apply to it. But the kernel forbids a
// process with more rules to examine its parent.
bool seesParent() {
  char target[1];
  const pid_t parent = ::getppid();
  const std::string path = "/proc/" + std::to_string(parent) + "/exe";
  // If it has died, this process ends, too.
  return ::readlink(path.c_str(), target, sizeof target) != -1 || ::getppid() != parent;
}

// Of the calling thread: unshare(), setns() and chroot() change them.
constexpr std::array<const char*, 7> kNamespaces{"cgroup",           "ipc",  "mnt", "net",
                                                 "pid_for_children", "user", "uts"};

std::vector<ino_t> namespaces() {
  std::vector<ino_t> found;
  for (const char* name : kNamespaces) {
    struct stat status {};
    const std::string path = std::string("/proc/thread-self/ns/") + name;
    found.push_back(::stat(path.c_str(), &status) == 0 ? status.st_ino : 0);
  }
  return found;
}

std::pair<dev_t, ino_t> rootFolder() {
  struct stat status {};
  if (::stat("/", &status) != 0) return {0, 0};
  return {status.st_dev, status.st_ino};
}

// The number of threads, and of child processes that were not waited for.
size_t ownTasks() {
  size_t tasks = threadCount();
  const std::string children =
      contentsOf("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  for (const char each : children) tasks += each == ' ' ? 1 : 0;
  return tasks;
}

struct Children {
  size_t living = 0;
  size_t ended = 0;
};

// Also those that clone() started without a signal at their end, which wait() does not see by
// itself. The sandbox hides /proc of other processes.
Children childrenByState() {
  Children children;
  siginfo_t info{};
  constexpr int kLook = WEXITED | WNOHANG | WNOWAIT | __WALL;
  if (::waitid(P_ALL, 0, &info, kLook) == -1 && errno == ECHILD) return children;
  for (const pid_t pid : base::childrenOf(::getpid())) {
    info.si_pid = 0;
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, kLook) == -1) continue;
    ++(info.si_pid == 0 ? children.living : children.ended);
  }
  // The kernel lists no children (CONFIG_PROC_CHILDREN).
  if (children.living + children.ended == 0) children.living = 1;
  return children;
}

// Each has a number of the user's and the machine's, and isopool can't know whether user code will
// wait for it.
std::string failureOfZombies() {
  constexpr size_t kMost = 64;
  const size_t ended = childrenByState().ended;
  if (ended <= kMost) return {};
  return std::to_string(ended) +
         " processes that its code has started have ended, and its code has "
         "not waited for them";
}

// Starts a thread with a stack of this size that does nothing, and waits for its end. The error of
// pthread_create(), or 0.
int errorOfThread(size_t stack) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, stack);
  pthread_t thread{};
  const base::BlockedSignals blocked;
  const int error = ::pthread_create(
      &thread, &attributes, [](void*) -> void* { return nullptr; }, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (error == 0) ::pthread_join(thread, nullptr);
  return error;
}

// How large the stack of a thread must be: the thread-local variables of all libraries are in it
// (250 KB with torch's CUDA build), and what the C library does before and after the thread's
// function needs some room. glibc 2.43 names the stack with snprintf() and then needs several KB:
// a stack that pthread_create() just accepts is too small for that.
size_t stackOfThread() {
  constexpr size_t kRoom = 64 * 1024;
  size_t bytes = kRoom;
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* sum) {
        for (size_t i = 0; i < library->dlpi_phnum; ++i) {
          const auto& segment = library->dlpi_phdr[i];
          if (segment.p_type != PT_TLS) continue;
          *static_cast<size_t*>(sum) += segment.p_memsz + segment.p_align;
        }
        return 0;
      },
      &bytes);
  return bytes;
}

std::string failureOfThreads() {
  // As small as possible, because a limit of memory counts it.
  static size_t stack = stackOfThread();
  constexpr size_t kLargestStack = 8 << 20;
  int error = errorOfThread(stack);
  while (error == EINVAL && stack < kLargestStack) {
    stack *= 2;
    error = errorOfThread(stack);
  }
  if (error == 0) return {};
  const size_t tasks = ownTasks();
  if (error == EAGAIN && tasks < kOwnTasks) return {};
  return "it cannot start a thread (" + std::string(::strerror(error)) + "), and has " +
         std::to_string(tasks) + " threads and processes";
}

}  // namespace

FitnessCheck::FitnessCheck(const Sandbox& sandbox, std::initializer_list<int> descriptors)
    : sandbox_(sandbox),
      descriptors_(descriptors),
      credentials_(sandbox.keepsCredentials() ? std::nullopt
                                              : std::optional<Credentials>(std::in_place)),
      filters_(filtersIn(contentsOf("/proc/self/status"))),
      laterCapabilities_(laterCapabilitiesIn(contentsOf("/proc/self/status"))),
      seesParent_(seesParent()),
      root_(rootFolder()),
      namespaces_(namespaces()) {
  for (size_t i = 0; i < limits_.size(); ++i) {
    ::getrlimit(static_cast<__rlimit_resource>(i), &limits_[i]);
  }
}

std::string FitnessCheck::failureBefore(uint64_t client) {
  const uint64_t served = std::exchange(lastServed_, client);
  if (served != 0 && served != client) {
    if (std::string found = failureOfEachChange(); !found.empty()) return found;
  }
  const bool ranOther = servedOthers_ || (servedSinceCheck_ != 0 && servedSinceCheck_ != client);
  servedSinceCheck_ = client;
  if (!ranOther) return {};
  servedOthers_ = true;
  const int64_t now = ipc::monotonicNow();
  // Until the sandbox is closed, checks at each change of the client: closing it may fail, and then
  // the call fails without a retry. This phase is short.
  if (now - checkedAt_ < kPeriod && !sandbox_.filtersLater()) return {};
  checkedAt_ = now;
  servedOthers_ = false;
  return failure();
}

std::string FitnessCheck::failureOfEachChange() {
  if (std::string found = failureOfProcesses(); !found.empty()) return found;
  if (!descriptors_.areThere()) return "user code closed descriptors that are not its own";
  if (!streams_.restore()) return "user code closed its standard streams";
  if (const std::string what = attributes_.restore(); !what.empty()) {
    return "user code changed its " + what + ", and the kernel does not set it back";
  }
  if (credentials_ && !credentials_->areTheSame()) {
    return "user code changed this process's user, groups or capabilities";
  }
  if (seesParent_ && !seesParent()) {
    return "user code restricted what this process may access (a Landlock rule set)";
  }
  if (rootFolder() != root_) return "user code changed its root folder";
  if (std::string found = failureOfLimits(); !found.empty()) return found;
  if (std::string found = failureOfDescriptors(1); !found.empty()) return found;
  return interpreter_.lacksNames() ? interpreter_.failure() : std::string();
}

// Processes that still run are of the client that was served last: before a call of another client
// the worker would have exited.
std::string FitnessCheck::failureAfter(uint64_t client) {
  return client == lastServed_ ? failureOfProcesses() : std::string();
}

std::string FitnessCheck::failureOfProcesses() {
  if (!sandbox_.adoptsOrphans() || noProcesses_) return {};
  const Children children = childrenByState();
  if (children.living == 0) {
    noProcesses_ = children.ended == 0 && sandbox_.processStartsForbidden();
    return {};
  }
  return children.living == 1
             ? "a process that its code has started still runs"
             : std::to_string(children.living) + " processes that its code has started still run";
}

std::string FitnessCheck::failureOfLimits() const {
  for (size_t i = 0; i < limits_.size(); ++i) {
    rlimit now{};
    ::getrlimit(static_cast<__rlimit_resource>(i), &now);
    const bool hard = now.rlim_max < limits_[i].rlim_max;
    // If there is a cap on memory, the runtime itself changes the soft RLIMIT_DATA (MemoryRoom).
    const bool soft =
        now.rlim_cur < limits_[i].rlim_cur && (i != RLIMIT_DATA || memoryLimitInWords().empty());
    if (!hard && !soft) continue;
    return std::string("user code lowered ") + (soft ? "" : "the hard limit ") +
           (kLimits[i] != nullptr ? kLimits[i] : "of a resource") + " to " +
           std::to_string(soft ? now.rlim_cur : now.rlim_max);
  }
  return {};
}

std::string FitnessCheck::failure() const {
  ::munlockall();  // of user code: it would refuse memory to others
  if (std::string found = failureOfLimits(); !found.empty()) return found;
  if (std::string found = failureOfMemory(); !found.empty()) return found;
  if (std::string found = failureOfDescriptors(); !found.empty()) return found;
  for (const auto& check : {&failureOfThreads, &failureOfZombies}) {
    if (std::string found = check(); !found.empty()) return found;
  }
  if (std::string found = interpreter_.failure(); !found.empty()) return found;
  if (namespaces() != namespaces_) return "user code changed its namespaces";
  return failureOfFilters();
}

std::string FitnessCheck::failureOfFilters() const {
  const std::string status = contentsOf("/proc/self/status");
  if (laterCapabilitiesIn(status) != laterCapabilities_) {
    return "user code changed the capabilities of programs that it starts";
  }
  if (!filters_) return {};
  const std::optional<uint64_t> now = filtersIn(status);
  if (!now) return "it cannot read /proc/self/status any more";
  if (*now > *filters_ + sandbox_.filtersOfCalls()) {
    return "user code installed a system call filter";
  }
  if (!sandbox_.filtersLater() || threadCount() == 1) return {};
  // The sandbox's second filter is installed for all threads at once; the kernel refuses this if
  // one of them has a filter that the calling thread lacks.
  const std::string folder = "/proc/self/task/";
  DIR* tasks = ::opendir(folder.c_str());
  if (tasks == nullptr) return {};
  std::string found;
  while (const dirent* entry = ::readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    const auto filters = filtersIn(contentsOf(folder + entry->d_name + "/status"));
    if (!filters || *filters <= *now) continue;
    found = "a thread of user code has a system call filter, so the sandbox cannot be closed";
    break;
  }
  ::closedir(tasks);
  return found;
}

}  // namespace isopool::worker
