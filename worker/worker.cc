// SPDX-License-Identifier: BSD-3-Clause
#include "worker/worker.h"

#include <Python.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/settings/environment.h"
#include "ipc/crash_point.h"
#include "ipc/named_objects.h"
#include "ipc/thread_variables.h"
#include "worker/memory/fork_copies.h"
#include "worker/process/blas_threads.h"
#include "worker/process/crash_log.h"
#include "worker/process/native_libraries.h"
#include "worker/process/process_title.h"
#include "worker/process/user_forks.h"
#include "worker/python/interpreter.h"
#include "worker/python/python_errors.h"
#include "worker/serve/call_loop.h"
#include "worker/serve/operation_threads.h"
#include "worker/serve/task_threads.h"

namespace isopool::worker {

namespace {

// `folders` empty: named objects keep Python's names, because the supervisor would not find them.
void beginInPython(const ipc::ForkWorker& order, int crashLog, bool logged,
                   const std::string& folders) {
  const std::string names =
      folders.empty() ? "" : ipc::namedObjectsOf(folders, base::Epoch(order.epoch));
  const auto threads =
      static_cast<unsigned long long>(base::settingInEnvironment("ISOPOOL_WORKER_THREADS").number);
  const PyRef variables = PyRef::steal(PyList_New(0));
  for (const std::string_view name : ipc::kThreadVariables) {
    const PyRef object = PyRef::steal(PyUnicode_FromString(name.data()));
    if (!variables || !object || PyList_Append(variables.get(), object.get()) != 0) {
      throw std::runtime_error(takePythonError().traceback);
    }
  }
  const PyRef begin = workerFunction("startup", "begin");
  if (begin &&
      PyRef::steal(PyObject_CallFunction(
          begin.get(), "KiisKOsii", order.seed, crashLog, debugged() ? 1 : 0, names.c_str(),
          threads, variables.get(), order.gpu.c_str(), order.shared ? 1 : 0, logged ? 1 : 0)))
    return;
  throw std::runtime_error(takePythonError().traceback);
}

}  // namespace

void runWorker(const ipc::ForkWorker& order, WorkerDescriptors descriptors, pid_t forker,
               RoutedBlocks& blocks, const SandboxPlan& plan) {
  try {
    if (!ipc::armCrashPointFromEnvironment("ISOPOOL_CRASH_POINT")) {
      logError("isopool worker: ISOPOOL_CRASH_POINT does not name a crash point: ignored\n");
    }
    ipc::reachCrashPoint(ipc::CrashPoint::kWorkerForked);
    // The descriptors first: an error from here on is logged to the crash log.
    setUpWorkerProcess(descriptors, forker);
    const bool logged = descriptors.output.valid();
    descriptors.output.close();
    setProcessTitle("starting");
    keepCrashLog(descriptors.crashLog.get());
    ipc::reachCrashPoint(ipc::CrashPoint::kWorkerSetUp);
    Sandbox sandbox(plan, base::Epoch(order.epoch));
    sandbox.enter();
    PyOS_AfterFork_Child();
    sandbox.enteredPython();
    ipc::reachCrashPoint(ipc::CrashPoint::kWorkerSandboxed);
    watchForForks(std::array{descriptors.control.get(), descriptors.lifeline.get(),
                             descriptors.doorbell.get()});
    copyTensorsInForks(base::settingInEnvironment("ISOPOOL_FORK_COPY_LIMIT").number);
    beginInPython(order, descriptors.crashLog.get(), logged, plan.settings.folders);
    loadLibraries(base::settingInEnvironment(kWorkerLibraries).items);
    matchOperationThreads();
    carryModesToTaskThreads();
    remakeBlasThreadsAfterForks();
    if (!ipc::memoryObjectHas(descriptors.doorbell, ipc::kPageBytes, ipc::Seal::kFixedSize)) {
      throw std::runtime_error("the doorbell is not a memory object of one page");
    }
    ipc::Mapping doorbell = ipc::mapShared(descriptors.doorbell, 0, ipc::kPageBytes,
                                           ipc::Access::kReadOnly, ipc::Prefault::kYes);
    if (!ipc::memoryObjectHas(descriptors.statusPage, ipc::kPageBytes, ipc::Seal::kFixedSize)) {
      throw std::runtime_error("the status page is not a memory object of one page");
    }
    ipc::Mapping statusPage = ipc::mapShared(descriptors.statusPage, 0, ipc::kPageBytes,
                                             ipc::Access::kReadWrite, ipc::Prefault::kYes);
    ipc::sealMemoryObject(descriptors.statusPage, ipc::Seal::kSingleWriter);
    descriptors.statusPage.close();
    ipc::reachCrashPoint(ipc::CrashPoint::kStatusPageSealed);
    CallLoop loop(base::Epoch(order.epoch), ipc::ControlSocket(std::move(descriptors.control)),
                  std::move(doorbell), std::move(statusPage), blocks, sandbox);
    loop.run();
  } catch (const std::exception& error) {
    logError(std::string("isopool worker: ") + error.what() + "\n");
  }
  ::_exit(70);
}

}  // namespace isopool::worker
