// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "worker/memory/control_plane.h"
#include "worker/python/python_errors.h"
#include "worker/sandbox/file_access.h"
#include "worker/sandbox/kernel_protections.h"
#include "worker/sandbox/sandbox_settings.h"

namespace isopool::worker {

/// What the zygote finds out once for all workers.
struct SandboxPlan {
  SandboxSettings settings;
  KernelProtections kernel;
  FileAccess files;  ///< for kStrict
};

/// Of the environment, the kernel, and the Python that runs, whose folders workers may read. Throws
/// std::runtime_error that says what is wrong with a setting. With the GIL.
SandboxPlan planSandbox(const SandboxSettings& settings);

/// One worker's sandbox: goes up in two stages, tells callers what it refused, and the supervisor
/// how often. The call loop's thread.
class Sandbox {
 public:
  Sandbox(const SandboxPlan& plan, base::Epoch worker) : plan_(plan), worker_(worker) {}

  /// The first stage: before anything of Python runs in this process, while it has one thread. What
  /// the kernel has not is left out (missingProtections() told so); what it refuses throws.
  void enter();
  /// When Python knows that it was forked.
  void enteredPython();
  /// The second stage: before the first call that runs a model. Throws std::runtime_error.
  void beginCalls() {
    if (!callsBegan_) closeForCalls();
  }

  /// How many filters of system calls the second stage has added, and whether it is to add some.
  size_t filtersOfCalls() const { return callsBegan_ && filters() ? 1 : 0; }
  bool filtersLater() const { return !callsBegan_ && filters(); }

  /// A folder of modules that a client adds: one that no rule opens is counted, and named to
  /// whoever then misses a module.
  void noteModuleFolder(const std::string& folder);

  /// The call that this error ends has met the sandbox or the memory limit: says so behind what
  /// Python says.
  void explain(PythonError& error);
  /// The same for an error of isopool's own.
  void explain(std::string& reason);

  /// After each call: tells the supervisor what was forbidden since the last time.
  void report(ControlPlane& control) noexcept;

 private:
  bool strict() const { return plan_.settings.level == SandboxLevel::kStrict; }
  bool filters() const { return strict() && plan_.kernel.systemCallFilters; }
  void closeForCalls();
  void limitResources() const;
  void collect();
  /// One line for each act of the call that runs, and for the memory limit.
  std::string words(bool memoryShort, bool moduleMissing);

  void makeFolder();
  std::string ownFolder() const;

  const SandboxPlan& plan_;
  const base::Epoch worker_;
  bool callsBegan_ = false;
  int folder_ = -1;  ///< for temporary files; -1: the system lets us have none
  std::string folderPath_;
  std::vector<ipc::ForbiddenAct> unreported_;
  std::vector<std::string> hiddenFolders_;
};

}  // namespace isopool::worker
