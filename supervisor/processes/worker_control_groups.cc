// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/worker_control_groups.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/control_groups.h"
#include "base/fd.h"
#include "base/memory_limits.h"

namespace isopool::supervisor {

namespace {

namespace fs = std::filesystem;

constexpr const char* kOwnGroup = "/isopoold";
constexpr std::string_view kWorker = "worker-";

// One write() with the whole text, as files of control groups need it. Empty, or the reason.
std::string write(const std::string& file, const std::string& text) {
  const base::Fd descriptor(::open(file.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (descriptor.valid() &&
      ::write(descriptor.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
    return {};
  }
  return "writing " + text + " to " + file + " failed: " + std::strerror(errno);
}

void require(const std::string& problem) {
  if (!problem.empty()) throw std::runtime_error(problem);
}

bool lists(const std::string& file, std::string_view word) {
  std::ifstream words(file);
  for (std::string each; words >> each;) {
    if (each == word) return true;
  }
  return false;
}

// systemd marks a group that it has delegated (Delegate=) by an attribute. In a container the group
// is the root of what can be seen. A group that belongs to this user, and not to root, was given to
// it.
bool isDelegated(const std::string& folder, bool isRoot) {
  for (const char* attribute : {"user.delegate", "trusted.delegate"}) {
    char value = '0';
    if (::getxattr(folder.c_str(), attribute, &value, 1) == 1 && value == '1') return true;
  }
  struct stat status {};
  const bool isOwn = ::stat(folder.c_str(), &status) == 0 && status.st_uid == ::geteuid();
  return isRoot || (isOwn && ::geteuid() != 0);
}

// The kernel allows no processes in a group whose children have limits. Others than ours must not
// be moved.
std::string whyNotAlone(const std::string& folder) {
  std::ifstream processes(folder + "/cgroup.procs");
  for (pid_t pid = 0; processes >> pid;) {
    if (pid != ::getpid() && pid != ::getppid()) {
      return "process " + std::to_string(pid) + " is in " + folder + ", too";
    }
  }
  return {};
}

}  // namespace

WorkerControlGroups::WorkerControlGroups(const std::string& root, bool successor) {
  const std::optional<base::UnifiedGroup> own = base::unifiedGroup(root);
  if (!own) throw std::runtime_error("no hierarchy of version 2 is mounted, or none of its groups");
  const std::string& folder = own->folder;
  if (successor) {
    adopt(folder);
    return;
  }
  // The root of the machine's hierarchy has no type.
  if (!fs::exists(folder + "/cgroup.type")) throw std::runtime_error("this is the root group");
  if (!isDelegated(folder, own->isRootOfNamespace)) {
    throw std::runtime_error(folder + " is not delegated to isopoold (systemd: Delegate=yes)");
  }
  require(whyNotAlone(folder));
  std::error_code error;
  fs::create_directory(folder + kOwnGroup, error);
  if (error) throw std::runtime_error(folder + kOwnGroup + ": " + error.message());
  folder_ = folder;
  try {
    for (const pid_t pid : {::getpid(), ::getppid()}) {
      require(write(folder + kOwnGroup + "/cgroup.procs", std::to_string(pid)));
    }
    const std::string available = folder + "/cgroup.controllers";
    const bool memory = lists(available, "memory");
    const bool tasks = lists(available, "pids");
    // In one step: while a controller is on, no process could return to the group.
    if (memory || tasks) {
      require(write(folder + "/cgroup.subtree_control",
                    std::string(memory ? "+memory " : "") + (tasks ? "+pids" : "")));
    }
    limitsMemory_ = memory;
    limitsTasks_ = tasks;
  } catch (const std::exception&) {
    for (const pid_t pid : {::getppid(), ::getpid()}) {
      write(folder + "/cgroup.procs", std::to_string(pid));
    }
    fs::remove(folder + kOwnGroup, error);
    throw;
  }
  // Of a supervisor that was killed with its guardian.
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with(kWorker)) ::rmdir(entry.path().c_str());
  }
}

// `leaf` is GROUP/isopoold, unless the predecessor could not make groups.
void WorkerControlGroups::adopt(const std::string& leaf) {
  if (!leaf.ends_with(kOwnGroup)) {
    throw std::runtime_error("the supervisor before this one had none");
  }
  folder_ = leaf.substr(0, leaf.size() - std::strlen(kOwnGroup));
  limitsMemory_ = lists(folder_ + "/cgroup.subtree_control", "memory");
  limitsTasks_ = lists(folder_ + "/cgroup.subtree_control", "pids");
}

std::string WorkerControlGroups::confine(pid_t worker, const Limits& limits) {
  const std::string folder = folder_ + "/" + std::string(kWorker) + std::to_string(worker);
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) return folder + ": " + error.message();
  std::string problem;
  const auto set = [&](const char* file, const std::string& text) {
    if (problem.empty()) problem = write(folder + file, text);
  };
  if (limits.memory != 0 && limitsMemory_) {
    set("/memory.max", std::to_string(limits.memory));
    set("/memory.oom.group", "1");
    // A kernel without swap has no such file.
    if (fs::exists(folder + "/memory.swap.max")) set("/memory.swap.max", "0");
  }
  if (limits.tasks != 0 && limitsTasks_) set("/pids.max", std::to_string(limits.tasks));
  set("/cgroup.procs", std::to_string(worker));
  const bool gone = !problem.empty() && errno == ESRCH;
  const base::MutexLock lock(mutex_);
  if (problem.empty()) {
    groups_[worker] = {folder, limitsMemory_ ? limits.memory : 0};
    return {};
  }
  leave(folder);
  return gone ? std::string() : problem;
}

void WorkerControlGroups::allowMemory(pid_t worker, uint64_t bytes) {
  const base::MutexLock lock(mutex_);
  const auto found = groups_.find(worker);
  if (found == groups_.end() || found->second.memory == 0 || bytes <= found->second.memory) return;
  if (write(found->second.folder + "/memory.max", std::to_string(bytes)).empty()) {
    found->second.memory = bytes;
  }
}

void WorkerControlGroups::kill(pid_t worker) {
  const std::string folder = folderOf(worker);
  // Fails before kernel 5.14: then lifeline, process group and parents remain.
  if (!folder.empty()) write(folder + "/cgroup.kill", "1");
}

uint64_t WorkerControlGroups::memoryKills(pid_t worker) const {
  const std::string folder = folderOf(worker);
  return folder.empty() ? 0 : base::memoryKillsIn(folder).value_or(0);
}

void WorkerControlGroups::remove(pid_t worker) {
  const base::MutexLock lock(mutex_);
  const auto found = groups_.find(worker);
  std::string folder;
  if (found != groups_.end()) {
    folder = found->second.folder;
    groups_.erase(found);
  }
  leave(folder);
}

std::optional<uint64_t> WorkerControlGroups::allMemoryKills() const {
  return limitsMemory_ ? base::memoryKillsIn(folder_) : std::nullopt;
}

// Empty if the worker has no group.
std::string WorkerControlGroups::folderOf(pid_t worker) const {
  const base::MutexLock lock(mutex_);
  const auto found = groups_.find(worker);
  return found != groups_.end() ? found->second.folder : std::string();
}

void WorkerControlGroups::removeEmpty() {
  const base::MutexLock lock(mutex_);
  removeLeaving();
}

// `folder` may be empty: then it names none.
void WorkerControlGroups::leave(const std::string& folder) {
  if (!folder.empty()) leaving_.push_back(folder);
  removeLeaving();
}

void WorkerControlGroups::removeLeaving() {
  std::erase_if(leaving_, [](const std::string& each) {
    return ::rmdir(each.c_str()) == 0 || errno == ENOENT;
  });
}

}  // namespace isopool::supervisor
