// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "ipc/fd.h"

namespace isopool::supervisor {

namespace {

pid_t parentOf(const char* pid) {
  const ipc::Fd stat(::open(("/proc/" + std::string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t length = stat.valid() ? ::read(stat.get(), text, sizeof text - 1) : 0;
  text[length > 0 ? length : 0] = '\0';
  // "pid (name) state ppid ...", and the name may hold anything.
  const char* behindName = std::strrchr(text, ')');
  int parent = 0;
  if (behindName != nullptr && std::sscanf(behindName, ") %*c %d", &parent) != 1) return 0;
  return parent;
}

}  // namespace

std::vector<pid_t> childrenOf(pid_t parent) {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), ::closedir);
  if (processes == nullptr) return children;
  while (const dirent* entry = ::readdir(processes.get())) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    if (parentOf(entry->d_name) == parent) children.push_back(std::atoi(entry->d_name));
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

}  // namespace isopool::supervisor
