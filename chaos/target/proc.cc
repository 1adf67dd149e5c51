// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/target/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/fd.h"

namespace chaos {

namespace {

constexpr uint64_t kForkedNoExec = 0x40;  // PF_FORKNOEXEC of the kernel

std::string procFile(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

// The content of a file in /proc; incomplete or empty if the process ends meanwhile. A stream would
// take twice as long: chaos reads some hundred of these files for each attack.
std::string contentsOf(const std::string& path) {
  std::string text;
  const isopool::base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got <= 0) return text;
    text.append(part.data(), static_cast<size_t>(got));
  }
}

std::vector<pid_t> numbersIn(const std::string& folder) {
  std::vector<pid_t> numbers;
  DIR* entries = ::opendir(folder.c_str());
  if (entries == nullptr) return numbers;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      numbers.push_back(std::stoi(name));
    }
  }
  ::closedir(entries);
  return numbers;
}

// "/memfd:isopool:output (deleted)" -> "isopool:output"; nothing for another file.
std::string labelOf(const std::string& path) {
  const size_t begin = path.find("/memfd:isopool:");
  if (begin == std::string::npos) return {};
  const std::string label = path.substr(begin + 7);
  return label.substr(0, label.find(' '));
}

// "socket:[4711]" -> "socket"; another link is its own kind.
std::string kindOf(const std::string& link) {
  const size_t number = link.find(":[");
  const bool numbered = number != std::string::npos &&
                        std::isdigit(static_cast<unsigned char>(link[number + 2])) != 0;
  return numbered ? link.substr(0, number) : link;
}

void addDescriptors(pid_t pid, Holdings& holdings) {
  const std::string folder = procFile(pid, "fd/");
  for (const pid_t number : numbersIn(folder)) {
    const std::string path = folder + std::to_string(number);
    std::array<char, 256> link{};
    if (::readlink(path.c_str(), link.data(), link.size() - 1) <= 0) continue;
    const std::string label = labelOf(link.data());
    struct stat status {};
    if (label.empty()) {
      ++holdings.otherDescriptors[kindOf(link.data())];
    } else if (::stat(path.c_str(), &status) == 0) {
      holdings.objects[status.st_ino] = {label, static_cast<uint64_t>(status.st_blocks) * 512};
    }
  }
}

void addMappings(pid_t pid, Holdings& holdings) {
  std::ifstream maps(procFile(pid, "maps"));
  for (std::string line; std::getline(maps, line);) {
    const std::string label = labelOf(line);
    if (label.empty()) continue;
    std::istringstream fields(line);
    uint64_t begin = 0, end = 0, inode = 0;
    char dash = 0;
    std::string access, offset, device;
    fields >> std::hex >> begin >> dash >> end >> access >> offset >> device >> std::dec >> inode;
    // A mapping shows at least so many bytes. A descriptor of the same object shows the exact size.
    MemoryObject& object = holdings.objects[inode];
    if (object.label.empty()) object.label = label;
    object.bytes = std::max(object.bytes, end - begin);
  }
}

}  // namespace

ProcessStatus statusOf(pid_t pid) {
  ProcessStatus status;
  const std::string stat = contentsOf(procFile(pid, "stat"));
  const size_t nameBegin = stat.find('(');
  const size_t nameEnd = stat.rfind(')');
  if (nameBegin == std::string::npos || nameEnd == std::string::npos) return status;
  status.name = stat.substr(nameBegin + 1, nameEnd - nameBegin - 1);
  std::istringstream fields(stat.substr(nameEnd + 1));
  std::string field;
  fields >> status.state;
  for (int i = 4; i <= 22 && fields >> field; ++i) {
    if (i == 9) status.forkedOnly = (std::stoull(field) & kForkedNoExec) != 0;
    if (i == 22) status.startTime = std::stoull(field);
  }
  return status;
}

std::vector<pid_t> childrenOf(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t thread : threadsOf(pid)) {
    const std::string list =
        contentsOf(procFile(pid, "task/") + std::to_string(thread) + "/children");
    char* rest = nullptr;
    for (const char* at = list.c_str();; at = rest) {
      const long child = std::strtol(at, &rest, 10);
      if (rest == at) break;
      children.push_back(static_cast<pid_t>(child));
    }
  }
  return children;
}

std::vector<pid_t> threadsOf(pid_t pid) { return numbersIn(procFile(pid, "task")); }

bool hasVariable(pid_t pid, const std::string& assignment) {
  return contentsOf(procFile(pid, "environ")).find(assignment + '\0') != std::string::npos;
}

uint64_t virtualBytes(pid_t pid) {
  uint64_t pages = 0;
  std::ifstream(procFile(pid, "statm")) >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

bool handlesInterruptions(pid_t pid) {
  std::ifstream file(procFile(pid, "status"));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("SigCgt:", 0) != 0) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> (SIGUSR1 - 1) & 1) != 0;
  }
  return false;
}

Holdings holdingsOf(pid_t pid) {
  Holdings holdings;
  addMappings(pid, holdings);
  addDescriptors(pid, holdings);
  return holdings;
}

uint64_t systemSharedBytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;) {
    uint64_t kibibytes = 0;
    if (word == "Shmem:" && info >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

}  // namespace chaos
