// SPDX-License-Identifier: BSD-3-Clause
#include "worker/worker_process.h"

#include <unistd.h>

#include <array>
#include <exception>
#include <string>

#include "ipc/crash_point.h"
#include "worker/call_loop.h"
#include "worker/forked_child.h"
#include "worker/interpreter.h"
#include "worker/isopool_module.h"
#include "worker/last_words.h"
#include "worker/python_errors.h"

namespace isopool::worker {

void runWorker(ipc::Epoch epoch, uint64_t seed, WorkerDescriptors descriptors,
               RoutedBlocks& routed) {
  try {
    setUpWorkerProcess(descriptors);
    keepLastWords(descriptors.lastWords.get());
    if (!ipc::armCrashPointFromEnvironment("ISOPOOL_CRASH_POINT")) {
      complain("isopool-worker: ISOPOOL_CRASH_POINT names no crash point of this build\n");
    }
    ipc::reachCrashPoint(ipc::CrashPoint::kWorkerForked);
    const PyRef begin = workerFunction("startup", "begin");
    const PyRef begun = begin ? PyRef::steal(PyObject_CallFunction(
                                    begin.get(), "Ki", static_cast<unsigned long long>(seed),
                                    descriptors.lastWords.get()))
                              : PyRef();
    if (!begun) throw std::runtime_error(takePythonError().traceback);

    static CopyCounts copies;
    setIsopoolModuleWorker(epoch, copies);
    const std::array<int, 3> own{descriptors.control.get(), descriptors.lifeline.get(),
                                 descriptors.bell.get()};
    watchForForks(own);
    ControlLink control(epoch, std::move(descriptors.control), descriptors.bell, routed);
    control.announceReady();
    CallLoop loop(control, copies);
    loop.run();
  } catch (const std::exception& error) {
    complain(std::string("isopool-worker: can't start: ") + error.what() + "\n");
  }
  ::_exit(1);
}

}  // namespace isopool::worker
