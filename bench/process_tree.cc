// SPDX-License-Identifier: BSD-3-Clause
#include "bench/process_tree.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace bench {

namespace {

std::string procFile(pid_t process, const char* name) {
  return "/proc/" + std::to_string(process) + "/" + name;
}

Activity activityIn(const std::filesystem::path& thread) {
  Activity activity;
  double nanoseconds = 0;
  std::ifstream scheduler(thread / "schedstat");
  if (!(scheduler >> nanoseconds)) {
    throw std::runtime_error("the kernel tells nothing about the time of " + thread.string());
  }
  activity.processorSeconds = nanoseconds / 1e9;
  std::ifstream status(thread / "status");
  for (std::string word; status >> word;) {
    if (word == "voluntary_ctxt_switches:") status >> activity.voluntarySwitches;
  }
  return activity;
}

// The value of a line "name   12 kB", in bytes.
uint64_t bytesIn(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    uint64_t kibibytes = 0;
    if (word == name && file >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

}  // namespace

Memory memoryOf(pid_t process) {
  std::ifstream file(procFile(process, "smaps_rollup"));
  std::string line, name;
  std::getline(file, line);  // skips the address range
  Memory memory;
  double kibibytes = 0;
  while (file >> name >> kibibytes && std::getline(file, line)) {
    const double megabytes = kibibytes * 1024 / 1e6;
    if (name == "Pss:") memory.proportional = megabytes;
    if (name == "Private_Clean:" || name == "Private_Dirty:") memory.own += megabytes;
  }
  if (memory.proportional == 0) {
    throw std::runtime_error("the kernel tells nothing about the memory of process " +
                             std::to_string(process));
  }
  return memory;
}

Memory memoryOf(const std::vector<pid_t>& processes) {
  Memory sum;
  for (const pid_t process : processes) {
    const Memory one = memoryOf(process);
    sum.proportional += one.proportional;
    sum.own += one.own;
  }
  return sum;
}

uint64_t residentBytesOf(pid_t process) { return bytesIn(procFile(process, "status"), "VmRSS:"); }

uint64_t systemSharedBytes() { return bytesIn("/proc/meminfo", "Shmem:"); }

size_t descriptorsOf(pid_t process) {
  std::error_code gone;
  size_t count = 0;
  for (std::filesystem::directory_iterator entry(procFile(process, "fd"), gone), end; entry != end;
       entry.increment(gone)) {
    ++count;
  }
  return count;
}

Activity& Activity::operator+=(const Activity& other) {
  processorSeconds += other.processorSeconds;
  voluntarySwitches += other.voluntarySwitches;
  return *this;
}

Activity& Activity::operator-=(const Activity& other) {
  processorSeconds -= other.processorSeconds;
  voluntarySwitches -= other.voluntarySwitches;
  return *this;
}

Activity activityOf(const std::vector<pid_t>& processes) {
  Activity all;
  for (const pid_t process : processes) {
    for (const auto& thread : std::filesystem::directory_iterator(procFile(process, "task"))) {
      all += activityIn(thread.path());
    }
  }
  return all;
}

Activity activityOfThread(pid_t process) {
  return activityIn(procFile(process, "task") + "/" + std::to_string(process));
}

pid_t parentOf(pid_t process) {
  std::ifstream file(procFile(process, "status"));
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("PPid:", 0) == 0) return std::stoi(line.substr(5));
  }
  throw std::runtime_error("no process " + std::to_string(process));
}

std::vector<pid_t> childrenOf(pid_t process) {
  const std::string pid = std::to_string(process);
  std::ifstream file(procFile(process, ("task/" + pid + "/children").c_str()));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

std::vector<pid_t> descendantsOf(pid_t process) {
  std::vector<pid_t> all = childrenOf(process);
  for (size_t i = 0; i < all.size(); ++i) {
    for (const pid_t child : childrenOf(all[i])) all.push_back(child);
  }
  return all;
}

}  // namespace bench
