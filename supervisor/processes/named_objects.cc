// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/named_objects.h"

#include <dirent.h>
#include <unistd.h>

#include <string_view>

namespace isopool::supervisor {

namespace {

// The folder in which libc keeps them: libc has functions to remove them, but none to list them.
constexpr const char* kFolder = "/dev/shm";
constexpr std::string_view kSemaphore = "sem.";

}  // namespace

void removeNamedObjects(const std::string& prefix) noexcept {
  DIR* entries = ::opendir(kFolder);
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    std::string_view name = entry->d_name;
    if (name.starts_with(kSemaphore)) name.remove_prefix(kSemaphore.size());
    if (name.starts_with(prefix)) ::unlinkat(::dirfd(entries), entry->d_name, 0);
  }
  ::closedir(entries);
}

}  // namespace isopool::supervisor
