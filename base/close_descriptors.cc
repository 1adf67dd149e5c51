// SPDX-License-Identifier: BSD-3-Clause
#include "base/close_descriptors.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/system_call.h"

namespace isopool::base {

namespace {

constexpr int kLast = std::numeric_limits<int>::max();

// Closes only the numbers that /proc lists: the limit for a loop over all may be a billion.
void closeNamed(int first, int last) {
  constexpr const char* kFolder = "/proc/self/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(kFolder), &::closedir);
  if (!folder) throw SystemCallError("opendir", kFolder, errno);
  std::vector<int> named;
  while (const dirent* entry = ::readdir(folder.get())) {
    int number = -1;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, end, number).ptr != end) continue;
    if (number >= first && number <= last && number != ::dirfd(folder.get())) {
      named.push_back(number);
    }
  }
  for (const int number : named) ::close(number);
}

void closeFrom(int first, int last) {
  if (first > last) return;
  if (::close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0) == 0) return;
  closeNamed(first, last);
}

}  // namespace

void closeDescriptorsBut(std::span<const int> kept, int first) {
  std::vector<int> sorted(kept.begin(), kept.end());
  std::sort(sorted.begin(), sorted.end());
  for (const int number : sorted) {
    if (number < first) continue;
    closeFrom(first, number - 1);
    first = number + 1;
  }
  closeFrom(first, kLast);
}

}  // namespace isopool::base
