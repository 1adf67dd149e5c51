// SPDX-License-Identifier: BSD-3-Clause
#include "base/procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/fd.h"

namespace isopool::base {

ProcessStatus statusOf(pid_t pid) {
  const Fd file(::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t length = file.valid() ? ::read(file.get(), text, sizeof text - 1) : 0;
  text[length > 0 ? length : 0] = '\0';
  // "pid (name) state parent group session terminal foreground flags ...". The name may contain any
  // character, so the last ')' ends it.
  const char* behindName = std::strrchr(text, ')');
  ProcessStatus status;
  if (behindName == nullptr || std::sscanf(behindName, ") %c %d %*d %*d %*d %*d %u", &status.state,
                                           &status.parent, &status.flags) != 3) {
    return {};
  }
  return status;
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

uint64_t residentAnonymousBytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssAnon:", 0) == 0) return std::strtoull(line.c_str() + 8, nullptr, 10) << 10;
  }
  return 0;
}

std::string programOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace isopool::base
