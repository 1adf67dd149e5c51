// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "ipc/control/worker_messages.h"
#include "worker/memory/control_plane.h"
#include "worker/python/python_errors.h"
#include "worker/sandbox/file_access.h"
#include "worker/sandbox/kernel_protections.h"
#include "worker/sandbox/sandbox_settings.h"

namespace isopool::worker {

/// What the zygote determines once for all its workers.
struct SandboxPlan {
  SandboxSettings settings;
  KernelProtections kernel;
  FileAccess files;  ///< for kStrict
};

/// Makes the plan from the settings, the kernel, and the running Python, whose folders workers may
/// read. Throws std::runtime_error with the setting and what is wrong with it. With the GIL.
SandboxPlan planSandbox(const SandboxSettings& settings);

/// The sandbox of one worker. It is closed in two stages, and neither can be undone. Adds to the
/// errors of calls what the sandbox refused, and reports to the supervisor how often. `plan` must
/// outlive it. The call loop's thread.
class Sandbox {
 public:
  Sandbox(const SandboxPlan& plan, base::Epoch worker) : plan_(plan), worker_(worker) {}

  /// The first stage: before any Python runs in this process, while it has one thread. Omits
  /// protections that the kernel lacks (the zygote has reported them, see missingProtections()).
  /// Throws SystemCallError if the kernel refuses one that it has, and std::runtime_error if the
  /// worker can't make its folder for temporary files.
  void enter();
  /// To be called after PyOS_AfterFork_Child(), with the GIL. Throws std::runtime_error.
  void enteredPython();
  /// The second stage: before the first call that runs a model. Throws std::runtime_error or
  /// SystemCallError. Has no effect if the stage is reached already.
  void beginCalls() {
    if (!callsBegan_) closeForCalls();
  }

  /// How many system call filters the second stage has added, and whether it will add one.
  size_t filtersOfCalls() const { return callsBegan_ && filters() ? 1 : 0; }
  bool filtersLater() const { return !callsBegan_ && filters(); }

  /// True if processes of user code stay descendants of the worker, however they are started.
  bool adoptsOrphans() const { return strict(); }
  /// True if user code can change neither its users and groups nor its capabilities.
  bool keepsCredentials() const { return filters(); }
  /// True if user code can start no process any more.
  bool processStartsForbidden() const { return filtersOfCalls() > 0; }

  /// A client adds this folder of modules. If no rule allows reading it, it is counted, and the
  /// error of a call that then misses a module names it.
  void noteModuleFolder(const std::string& folder);

  /// If the call that fails with this error met the sandbox or the memory limit, appends one line
  /// for each to the texts of the error.
  void explain(PythonError& error);
  /// The same for the reason with which isopool itself refuses a call.
  void explain(std::string& reason);

  /// To be called after each call: reports to the supervisor what was forbidden since the
  /// last report. Never waits: what does not fit into the socket's buffer is reported after
  /// a later call.
  void report(ControlPlane& control) noexcept;

 private:
  bool strict() const { return plan_.settings.level == SandboxLevel::kStrict; }
  bool filters() const { return strict() && plan_.kernel.systemCallFilters; }
  void closeForCalls();
  void limitResources() const;
  void collect();
  /// One line for each act of the running call, and one for the memory limit.
  std::string words(bool memoryShort, bool moduleMissing);

  void makeFolder();
  std::string ownFolder() const;

  const SandboxPlan& plan_;
  const base::Epoch worker_;
  bool callsBegan_ = false;
  int folder_ = -1;  ///< for temporary files; -1: none
  std::string folderPath_;
  std::vector<ipc::ForbiddenAct> unreported_;
  std::vector<std::string> hiddenFolders_;
};

}  // namespace isopool::worker
