// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/file_access.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>

#include "base/fd.h"
#include "base/system_call.h"
#include "worker/sandbox/landlock_interface.h"

namespace isopool::worker {

namespace {

namespace fs = std::filesystem;
using base::checkSystemCall;

constexpr uint64_t kRightsOfFiles = landlock::kExecute | landlock::kWriteFile |
                                    landlock::kReadFile | landlock::kTruncate |
                                    landlock::kControlDevice;

uint64_t rightsKnownTo(int version) {
  uint64_t known = landlock::kRefer - 1;
  if (version >= landlock::kVersionWithRefer) known |= landlock::kRefer;
  if (version >= landlock::kVersionWithTruncate) known |= landlock::kTruncate;
  if (version >= landlock::kVersionWithDevices) known |= landlock::kControlDevice;
  return known;
}

size_t attributeBytes(int version) {
  if (version >= landlock::kVersionWithScopes) return sizeof(landlock::RulesetAttributes);
  return version >= landlock::kVersionWithTcp ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
}

void addRule(int ruleset, int place, uint64_t rights, const std::string& path) {
  struct stat status {};
  checkSystemCall(::fstat(place, &status), "fstat", path);
  const landlock::PathRule rule{S_ISDIR(status.st_mode) ? rights : rights & kRightsOfFiles, place};
  checkSystemCall(static_cast<int>(
                      ::syscall(landlock::kAddRule, ruleset, landlock::kRulePathBeneath, &rule, 0)),
                  "landlock_add_rule", path);
}

std::string withoutLinks(const std::string& path) {
  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(path, ignored);
  return real.empty() ? path : real.string();
}

bool liesIn(const std::string& path, const std::string& folder) {
  return path.compare(0, folder.size(), folder) == 0 &&
         (path.size() == folder.size() || folder.back() == '/' || path[folder.size()] == '/');
}

}  // namespace

FileAccess FileAccess::ofTheSystem(bool network) {
  FileAccess access;
  for (const char* path : {"/usr", "/bin", "/lib", "/lib32", "/lib64"}) access.allowPrograms(path);
  for (const char* path : {"/etc/ld.so.cache",
                           "/etc/ld.so.preload",
                           "/etc/localtime",
                           "/etc/timezone",
                           "/etc/locale.alias",
                           "/etc/mime.types",
                           "/etc/nsswitch.conf",
                           "/etc/os-release",
                           "/etc/passwd",
                           "/etc/group",
                           "/etc/ssl",
                           "/etc/alternatives",
                           "/proc/self",
                           "/proc/cpuinfo",
                           "/proc/meminfo",
                           "/proc/stat",
                           "/proc/loadavg",
                           "/proc/uptime",
                           "/proc/version",
                           "/proc/filesystems",
                           "/proc/sys/kernel/osrelease",
                           "/proc/sys/kernel/ostype",
                           "/proc/sys/kernel/ngroups_max",
                           "/proc/sys/kernel/cap_last_cap",
                           "/proc/sys/kernel/threads-max",
                           "/proc/sys/vm",
                           "/sys/devices/system/cpu",
                           "/sys/devices/system/node",
                           "/sys/fs/cgroup",
                           "/sys/kernel/mm/transparent_hugepage"}) {
    access.allowReading(path);
  }
  if (network) {
    for (const char* path : {"/etc/hosts", "/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf",
                             "/etc/services", "/etc/protocols", "/etc/ca-certificates"}) {
      access.allowReading(path);
    }
  }
  for (const char* path : {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}) {
    access.add(path, Use::kDevice);
  }
  return access;
}

void FileAccess::allowGpus() {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev", ignored)) {
    if (entry.path().filename().string().starts_with("nvidia")) add(entry.path(), Use::kDevice);
  }
  // CUDA names its threads, each in a file of the thread, and fails where it can't.
  add("/proc/self/task", Use::kDevice);
  for (const char* path :
       {"/proc/devices", "/proc/driver/nvidia", "/proc/modules", "/sys/bus/pci/devices",
        "/sys/module/nvidia", "/sys/module/nvidia_uvm"}) {
    allowReading(path);
  }
}

void FileAccess::add(const std::string& path, Use use) {
  if (::access(path.c_str(), F_OK) != 0) return;
  rules_.push_back({path, liesIn(path, "/proc/self") ? path : withoutLinks(path), use});
}

uint64_t FileAccess::rightsFor(Use use, uint64_t handled) {
  constexpr uint64_t kRead = landlock::kReadFile | landlock::kReadFolder;
  switch (use) {
    case Use::kPrograms:
      return handled & (kRead | landlock::kExecute);
    case Use::kReading:
      return handled & kRead;
    case Use::kWriting:
      return handled & ~uint64_t{landlock::kExecute | landlock::kMakeCharacterDevice |
                                 landlock::kMakeBlockDevice | landlock::kControlDevice};
    case Use::kDevice:
      return handled & (landlock::kReadFile | landlock::kWriteFile | landlock::kTruncate |
                        landlock::kControlDevice);
  }
  return 0;
}

void FileAccess::restrictSelf(int version, bool network, int folder) const {
  if (version == 0) return;
  const uint64_t handled = rightsKnownTo(version);
  const landlock::RulesetAttributes attributes{handled, network ? 0 : landlock::kTcpRights,
                                               landlock::kScopes};
  const base::Fd ruleset(
      checkSystemCall(static_cast<int>(::syscall(landlock::kCreateRuleset, &attributes,
                                                 attributeBytes(version), 0)),
                      "landlock_create_ruleset"));
  for (const Rule& rule : rules_) {
    const base::Fd place(::open(rule.path.c_str(), O_PATH | O_CLOEXEC));
    // Ignores a path that was removed after the zygote saw it: the rules do not cover a file that
    // is created there later.
    if (place.valid()) addRule(ruleset.get(), place.get(), rightsFor(rule.use, handled), rule.path);
  }
  if (folder != -1) {
    addRule(ruleset.get(), folder, rightsFor(Use::kWriting, handled), "the worker's own folder");
  }
  checkSystemCall(static_cast<int>(::syscall(landlock::kRestrictSelf, ruleset.get(), 0)),
                  "landlock_restrict_self");
}

const FileAccess::Rule* FileAccess::ruleFor(const std::string& path) const {
  const Rule* found = nullptr;
  for (const Rule& rule : rules_) {
    if (!liesIn(path, rule.real)) continue;
    if (found == nullptr || rule.use > found->use) found = &rule;
  }
  return found;
}

bool FileAccess::forbids(const std::string& path) const {
  // No rule is to blame there: a link of an open descriptor may lead to a file of no folder, such
  // as a memory object.
  if (liesIn(path, "/proc/self")) return false;
  const std::string real = withoutLinks(path);
  const Rule* rule = ruleFor(real);
  if (rule == nullptr) return true;
  if (rule->use == Use::kWriting || rule->use == Use::kDevice) return false;
  // access() is not bound by Landlock.
  if (::access(real.c_str(), F_OK) == 0) return ::access(real.c_str(), W_OK) == 0;
  return ::access(fs::path(real).parent_path().c_str(), W_OK) == 0;
}

bool FileAccess::hides(const std::string& path) const {
  return ruleFor(withoutLinks(path)) == nullptr;
}

}  // namespace isopool::worker
