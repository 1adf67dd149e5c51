// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/worker_folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <random>
#include <string_view>
#include <thread>

#include "base/system_call.h"
#include "ipc/named_objects.h"
#include "supervisor/processes/named_objects.h"

namespace isopool::supervisor {

using base::checkSystemCall;

namespace {

constexpr std::string_view kPrefix = "isopool-workers-";

std::string systemsFolder() {
  const char* chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen == '/' ? chosen : "/tmp";
}

int openFolder(int parent, const char* name) {
  constexpr int kHow = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const int opened = ::openat(parent, name, kHow);
  if (opened != -1 || errno != EACCES) return opened;
  // User code may have made the folder unreadable. fchmodat() would follow a link that replaces the
  // folder meanwhile.
  const base::Fd place(::openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!place.valid()) return -1;
  ::chmod(("/proc/self/fd/" + std::to_string(place.get())).c_str(), S_IRWXU);
  return ::openat(parent, name, kHow);
}

bool isDots(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

/// Opens a folder and gives its owner all permissions. Null if it is not a folder, or not ours.
Folder takeFolder(int parent, const char* name) {
  base::Fd opened(openFolder(parent, name));
  if (!opened.valid()) return nullptr;
  ::fchmod(opened.get(), S_IRWXU);
  Folder folder(::fdopendir(opened.get()));
  if (folder) opened.release();
  return folder;
}

/// Empties a folder of any depth with three descriptors: moves inner folders up, into the top one.
class Emptying {
 public:
  explicit Emptying(DIR* top) : top_(top) {}

  void run() {
    // Each round but the last removes something, so the loop ends.
    do {
      removed_ = 0;
      ::rewinddir(top_);
      forEach(top_, [this](const char* name) { removeFromTop(name); });
    } while (removed_ > 0);
  }

 private:
  template <typename Act>
  static void forEach(DIR* folder, Act act) {
    while (const dirent* entry = ::readdir(folder)) {
      if (!isDots(entry->d_name)) act(entry->d_name);
    }
  }

  void removeFromTop(const char* name) {
    if (isNoFolder(::dirfd(top_), name)) return;
    if (const Folder folder = takeFolder(::dirfd(top_), name)) {
      forEach(folder.get(), [&](const char* inner) {
        if (!isNoFolder(::dirfd(folder.get()), inner)) moveUp(folder.get(), inner);
      });
    }
    if (::unlinkat(::dirfd(top_), name, AT_REMOVEDIR) == 0) ++removed_;
  }

  // True if the entry needs no more work: it was removed, or it is not a folder and can't be.
  bool isNoFolder(int parent, const char* name) {
    if (::unlinkat(parent, name, 0) != 0) return errno != EISDIR && errno != EPERM;
    ++removed_;
    return true;
  }

  void moveUp(DIR* from, const char* name) {
    // To move a folder, a process needs the permission to write in it.
    takeFolder(::dirfd(from), name);
    for (;;) {
      char place[32];
      std::snprintf(place, sizeof place, "%llu", static_cast<unsigned long long>(++moved_));
      if (::renameat(::dirfd(from), name, ::dirfd(top_), place) == 0) return;
      // The name is taken, by a file or a folder: try the next.
      if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) return;
    }
  }

  DIR* const top_;
  uint64_t removed_ = 0;  ///< in this round
  uint64_t moved_ = 0;
};

// Removes folders that are not in use: a process that uses one holds its lock. Folders of other
// users can't be opened.
void removeAbandoned(const std::string& where) {
  DIR* entries = ::opendir(where.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    if (std::string_view(entry->d_name).substr(0, kPrefix.size()) != kPrefix) continue;
    const base::Fd folder(
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
  lock_ = base::Fd(checkSystemCall(
      ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), "open", path));
  // Another supervisor's removeAbandoned() may have removed it before the lock was taken.
  checkSystemCall(::flock(lock_.get(), LOCK_EX), "flock", path);
  struct stat status {};
  checkSystemCall(::stat(path.c_str(), &status), "stat", path);
}

void removeLeftoversSoon(const std::string& folders, base::Epoch worker) noexcept {
  if (folders.empty()) return;
  try {
    std::string path = folders + "/" + std::to_string(worker.value);
    std::string objects = ipc::namedObjectsOf(folders, worker);
    // In a thread of its own: the folder may be large, and the loop must not wait.
    std::thread([path = std::move(path), objects = std::move(objects)] {
      removeTree(path);
      removeNamedObjects(objects);
    }).detach();
  } catch (const std::exception&) {
    // Best effort: the guardian removes them in the end.
  }
}

void removeLeftovers(const std::string& folders) noexcept {
  if (folders.empty()) return;
  removeTree(folders);
  removeNamedObjects(ipc::namedObjectsOf(folders));
}

void removeTree(const std::string& path) noexcept {
  if (::unlink(path.c_str()) == 0) return;  // user code replaced the folder by something else
  if (const Folder folder = takeFolder(AT_FDCWD, path.c_str())) Emptying(folder.get()).run();
  ::unlinkat(AT_FDCWD, path.c_str(), AT_REMOVEDIR);
}

}  // namespace isopool::supervisor
