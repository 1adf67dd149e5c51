// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/worker_folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <random>
#include <string_view>
#include <thread>

#include "ipc/named_objects.h"
#include "ipc/system_call.h"
#include "supervisor/named_objects.h"

namespace isopool::supervisor {

using ipc::checkSystemCall;

namespace {

constexpr std::string_view kPrefix = "isopool-workers-";
// Of folders in folders, each of which holds a descriptor open while it is emptied.
constexpr int kDeepest = 200;

std::string systemsFolder() {
  const char* chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen == '/' ? chosen : "/tmp";
}

int openFolder(int parent, const char* name) {
  constexpr int kHow = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const int opened = ::openat(parent, name, kHow);
  if (opened != -1 || errno != EACCES) return opened;
  // Who made it unreadable may have been user code. fchmodat() would follow a link that comes there.
  const ipc::Fd place(::openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!place.valid()) return -1;
  ::chmod(("/proc/self/fd/" + std::to_string(place.get())).c_str(), S_IRWXU);
  return ::openat(parent, name, kHow);
}

bool isDots(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

void removeEntry(int parent, const char* name, int depth) {
  if (::unlinkat(parent, name, 0) == 0 || (errno != EISDIR && errno != EPERM)) return;
  const int folder = depth < kDeepest ? openFolder(parent, name) : -1;
  if (folder == -1) return;
  ::fchmod(folder, S_IRWXU);
  if (DIR* entries = ::fdopendir(folder)) {
    while (const dirent* entry = ::readdir(entries)) {
      if (!isDots(entry->d_name)) removeEntry(folder, entry->d_name, depth + 1);
    }
    ::closedir(entries);
  } else {
    ::close(folder);
  }
  ::unlinkat(parent, name, AT_REMOVEDIR);
}

// Whoever uses one holds its lock. Others' folders we can't open.
void removeAbandoned(const std::string& where) {
  DIR* entries = ::opendir(where.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    if (std::string_view(entry->d_name).substr(0, kPrefix.size()) != kPrefix) continue;
    const ipc::Fd folder(
        ::openat(::dirfd(entries), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!folder.valid() || ::fstat(folder.get(), &status) != 0) continue;
    if (status.st_uid != ::geteuid() || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) continue;
    removeTree(where + "/" + entry->d_name);
  }
  ::closedir(entries);
}

}  // namespace

std::string reserveWorkerFolders() {
  std::random_device random;
  char name[32];
  std::snprintf(name, sizeof name, "%08x%08x", random(), random());
  return systemsFolder() + "/" + std::string(kPrefix) + name;
}

WorkerFolders::WorkerFolders(const std::string& path) {
  removeAbandoned(path.substr(0, path.rfind('/')));
  checkSystemCall(::mkdir(path.c_str(), S_IRWXU), "mkdir", path);
  lock_ = ipc::Fd(checkSystemCall(
      ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), "open", path));
  // Another supervisor may look at it just now, and take it for abandoned.
  checkSystemCall(::flock(lock_.get(), LOCK_EX), "flock", path);
  struct stat status {};
  checkSystemCall(::stat(path.c_str(), &status), "stat", path);
}

void removeLeftoversSoon(const std::string& folders, ipc::Epoch worker) noexcept {
  if (folders.empty()) return;
  try {
    std::string path = folders + "/" + std::to_string(worker.value);
    std::string objects = ipc::namedObjectsOf(folders, worker);
    // They may be large, and the supervisor has others to serve.
    std::thread([path = std::move(path), objects = std::move(objects)] {
      removeTree(path);
      removeNamedObjects(objects);
    }).detach();
  } catch (const std::exception&) {
    // The guardian will.
  }
}

void removeLeftovers(const std::string& folders) noexcept {
  if (folders.empty()) return;
  removeTree(folders);
  removeNamedObjects(ipc::namedObjectsOf(folders));
}

void removeTree(const std::string& path) noexcept { removeEntry(AT_FDCWD, path.c_str(), 0); }

}  // namespace isopool::supervisor
