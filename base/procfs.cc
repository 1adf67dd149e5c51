// SPDX-License-Identifier: BSD-3-Clause
#include "base/procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"

namespace isopool::base {

ProcessStatus statusOf(pid_t pid) {
  const Fd file(::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t length = file.valid() ? ::read(file.get(), text, sizeof text - 1) : 0;
  text[length > 0 ? length : 0] = '\0';
  // "pid (name) state parent group session terminal foreground flags ...", then four numbers of
  // page faults, the times in user code and in the kernel, and after four other numbers the
  // threads. The name may contain any character, so the last ')' ends it.
  const char* behindName = std::strrchr(text, ')');
  ProcessStatus status;
  unsigned long inUserCode = 0;
  unsigned long inKernel = 0;
  if (behindName == nullptr ||
      std::sscanf(behindName,
                  ") %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %" SCNu32,
                  &status.state, &status.parent, &status.flags, &inUserCode, &inKernel,
                  &status.threads) != 6) {
    return {};
  }
  const auto ticksPerSecond = static_cast<unsigned long>(::sysconf(_SC_CLK_TCK));
  status.processorTime = std::chrono::milliseconds((inUserCode + inKernel) * 1000 / ticksPerSecond);
  return status;
}

std::span<char> ownArguments() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(std::min(text.rfind(')'), text.size())));
  std::string field;
  // The first is ")", the end of the second field of all; arg_start is the 48th.
  for (int number = 2; number < 48; ++number) fields >> field;
  uintptr_t begin = 0;
  uintptr_t end = 0;
  if (!(fields >> begin >> end) || begin == 0 || end <= begin) return {};
  return {reinterpret_cast<char*>(begin), end - begin};
}

namespace {

// The list is complete only if the calling process is `parent` and reaps its children itself: then
// none disappears while the list is read.
std::optional<std::vector<pid_t>> listedChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  const std::string tasks = "/proc/" + std::to_string(parent) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir(tasks.c_str()), ::closedir);
  if (threads == nullptr) return children;
  while (const dirent* entry = ::readdir(threads.get())) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream list(tasks + "/" + entry->d_name + "/children");
    if (!list) return std::nullopt;
    for (pid_t pid = 0; list >> pid;) children.push_back(pid);
  }
  return children;
}

}  // namespace

std::vector<pid_t> childrenOf(pid_t parent) {
  if (auto listed = listedChildrenOf(parent)) return std::move(*listed);
  // The kernel was built without CONFIG_PROC_CHILDREN.
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), ::closedir);
  if (processes == nullptr) return children;
  while (const dirent* entry = ::readdir(processes.get())) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const pid_t pid = std::atoi(entry->d_name);
    if (statusOf(pid).parent == parent) children.push_back(pid);
  }
  return children;
}

namespace {

// A size in /proc/PID/status, for example "RssAnon:"; nothing if the process is gone.
std::optional<uint64_t> sizeInStatus(pid_t pid, std::string_view name) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name, 0) != 0) continue;
    return std::strtoull(line.c_str() + name.size(), nullptr, 10) << 10;
  }
  return std::nullopt;
}

}  // namespace

uint64_t residentAnonymousBytes(pid_t pid) { return sizeInStatus(pid, "RssAnon:").value_or(0); }

uint64_t privateMemoryLimit(pid_t pid) {
  static_assert(RLIM64_INFINITY == UINT64_MAX);
  rlimit64 limit{};
  return ::prlimit64(pid, RLIMIT_DATA, nullptr, &limit) == 0 ? limit.rlim_cur : UINT64_MAX;
}

uint64_t privateMemoryLeft(pid_t pid) {
  const uint64_t limit = privateMemoryLimit(pid);
  const std::optional<uint64_t> used = sizeInStatus(pid, "VmData:");
  if (!used || limit == UINT64_MAX) return UINT64_MAX;
  return limit > *used ? limit - *used : 0;
}

uint64_t openDescriptors() {
  struct stat folder {};
  if (::stat("/proc/self/fd", &folder) != 0) return 0;
  // Since Linux 6.2 the size of the folder is the number of its entries.
  if (folder.st_size != 0) return static_cast<uint64_t>(folder.st_size);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir("/proc/self/fd"), ::closedir);
  uint64_t count = 0;
  while (entries != nullptr && ::readdir(entries.get()) != nullptr) ++count;
  // Without ".", ".." and the folder's own descriptor.
  return count > 3 ? count - 3 : 0;
}

std::string programOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace isopool::base
