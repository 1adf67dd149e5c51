// SPDX-License-Identifier: BSD-3-Clause
#include "base/process_tree.h"

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/procfs.h"

namespace isopool::base {

namespace {

// The sum of the lines that begin with one of these names ("RssAnon:"), of a file of the process
// that has sizes in kB. Nothing if the file can't be read or has none of them.
std::optional<uint64_t> sumOf(pid_t pid, const char* name,
                              std::initializer_list<std::string_view> fields) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name);
  std::optional<uint64_t> sum;
  for (std::string line; std::getline(file, line);) {
    for (const std::string_view field : fields) {
      if (!line.starts_with(field)) continue;
      sum = sum.value_or(0) + (std::strtoull(line.c_str() + field.size(), nullptr, 10) << 10);
    }
  }
  return sum;
}

// The page tables of memory that is used densely take 1/512 of it: more than twice as much is
// memory that a process takes by using addresses that are far from each other.
uint64_t needlessPageTables(pid_t pid) {
  const uint64_t tables = sumOf(pid, "status", {"VmPTE:"}).value_or(0);
  const uint64_t needed = sumOf(pid, "status", {"VmRSS:", "VmSwap:"}).value_or(0) / 256;
  return tables > needed ? tables - needed : 0;
}

}  // namespace

Descendants descendantsOf(std::span<const pid_t> roots, pid_t except, size_t most) {
  Descendants found;
  std::vector<pid_t> line(roots.begin(), roots.end());
  std::unordered_set<pid_t> seen(roots.begin(), roots.end());
  for (size_t next = 0; next < line.size(); ++next) {
    const pid_t pid = line[next];
    if (pid != except) {
      const char state = statusOf(pid).state;
      if (state == 'Z' || state == 'X') ++found.ended;
      if (state == 0 || state == 'Z' || state == 'X') continue;
      if (found.living.size() < most) {
        found.living.push_back(pid);
      } else {
        ++found.further;
      }
    }
    // A process may move to another parent while the list is read.
    for (const pid_t child : childrenOf(pid)) {
      if (seen.insert(child).second) line.push_back(child);
    }
  }
  return found;
}

uint64_t privateBytes(pid_t pid) {
  const auto pages = sumOf(pid, "smaps_rollup", {"Pss_Anon:", "SwapPss:"});
  if (!pages) return privateBytesAtMost(pid);
  return *pages + needlessPageTables(pid);
}

uint64_t privateBytesAtMost(pid_t pid) {
  return sumOf(pid, "status", {"RssAnon:", "VmSwap:"}).value_or(0) + needlessPageTables(pid);
}

}  // namespace isopool::base
