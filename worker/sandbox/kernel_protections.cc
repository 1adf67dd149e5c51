// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/kernel_protections.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "base/fd.h"
#include "worker/sandbox/landlock_interface.h"

namespace isopool::worker {

namespace {

bool dataLimitIgnored() {
  const base::Fd file(
      ::open("/sys/module/kernel/parameters/ignore_rlimit_data", O_RDONLY | O_CLOEXEC));
  char value = 'N';
  return file.valid() && ::read(file.get(), &value, 1) == 1 && value == 'Y';
}

void addMissingWalls(const SandboxSettings& settings, const KernelProtections& kernel,
                     std::vector<std::string>& missing) {
  if (!kernel.systemCallFilters) {
    missing.push_back(
        "system call filters: no seccomp here, so user code can make every system call: start "
        "processes, signal and trace processes of the same user, raise its own limits" +
        std::string(settings.network ? "" : ", open sockets"));
  }
  if (kernel.landlock == 0) {
    missing.push_back(
        "file rules: no Landlock here, so user code can read and write every file that "
        "isopool's own user can");
    return;
  }
  if (kernel.landlock < landlock::kVersionWithTruncate) {
    missing.push_back("truncation rule: Landlock " + std::to_string(kernel.landlock) +
                      " has none, so user code can empty files that it can't open for writing");
  }
  if (kernel.landlock < landlock::kVersionWithTcp && !settings.network) {
    missing.push_back("TCP rules: Landlock " + std::to_string(kernel.landlock) +
                      " has none, so only the system call filter keeps user code from the network");
  }
  if (kernel.landlock < landlock::kVersionWithDevices) {
    missing.push_back("device rule: Landlock " + std::to_string(kernel.landlock) +
                      " has none, so user code can control the devices that it may open");
  }
  if (kernel.landlock < landlock::kVersionWithScopes) {
    missing.push_back(
        "signal and abstract socket scopes: Landlock " + std::to_string(kernel.landlock) +
        " has none, so only the system call filter keeps user code from other processes");
  }
}

}  // namespace

KernelProtections probeKernelProtections() {
  KernelProtections found;
  const uint32_t trap = SECCOMP_RET_TRAP;
  found.systemCallFilters = ::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &trap) == 0;
  const long version = ::syscall(landlock::kCreateRuleset, nullptr, 0, landlock::kAskVersion);
  found.landlock = version > 0 ? static_cast<int>(version) : 0;
  found.memoryLimit = !dataLimitIgnored();
  return found;
}

std::vector<std::string> missingProtections(const SandboxSettings& settings,
                                            const KernelProtections& kernel) {
  std::vector<std::string> missing;
  if (settings.memory && !kernel.memoryLimit) {
    missing.push_back(
        "memory limit: the kernel runs with ignore_rlimit_data, so ISOPOOL_WORKER_MEMORY limits "
        "nothing");
  }
  if (settings.level != SandboxLevel::kStrict) return missing;
  addMissingWalls(settings, kernel, missing);
  if (!kernel.temporaryFolders && !settings.folders.empty()) {
    missing.push_back(
        "temporary folders in memory: user namespaces are forbidden here (RestrictNamespaces= of a "
        "unit, a container's filter, a sysctl), so workers' temporary files lie in " +
        settings.folders + ", where only the disk's size limits them");
  } else if (!kernel.temporaryFolders) {
    missing.push_back(
        "temporary folders: user namespaces are forbidden here (RestrictNamespaces= of a unit, a "
        "container's filter, a sysctl), so workers have no folder for temporary files unless "
        "TMPDIR is in ISOPOOL_SANDBOX_WRITE, and compiled models that use the dispatcher are "
        "refused");
  }
  return missing;
}

}  // namespace isopool::worker
