// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/named_objects.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/worker/harness.h"

namespace isopool::tests {
namespace {

namespace fs = std::filesystem;

const std::string kFolders = "/tmp/isopool-workers-of-named-objects-test";

/// The named semaphores and shared memory whose names begin with `prefix`.
std::vector<fs::path> objectsNamed(const std::string& prefix) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix) || name.starts_with("sem." + prefix)) found.push_back(entry);
  }
  return found;
}

// The supervisor finds what a killed worker leaves by the worker's name in it.
TEST(NamedObjects, OfPythonCodeNameTheirWorkerAtEachLevel) {
  for (const std::string level : {"none", "default", "strict"}) {
    ZygoteProcess zygote({"ISOPOOL_SANDBOX=" + level, "ISOPOOL_SANDBOX_WRITE=/dev/shm",
                          "ISOPOOL_WORKER_FOLDERS=" + kFolders});
    const auto first = zygote.fork(1);
    const auto second = zygote.fork(2);
    for (WorkerProcess* worker : {first.get(), second.get()}) {
      TestClient client(*worker);
      client.defineProbe();
      client.probeValue("run", {R"(
import builtins, multiprocessing
from multiprocessing import shared_memory
context = multiprocessing.get_context('spawn')
kept = builtins.kept = []
memory = lambda: shared_memory.SharedMemory(create=True, size=9)
for make in context.Lock, context.Semaphore, memory:
    try:
        kept.append(make())
    except PermissionError:
        pass  # the process that would remove it in the end; strict lets no call start one
result = None
)"});
      const std::string own = ipc::namedObjectsOf(kFolders, base::Epoch(worker->epoch));
      EXPECT_EQ(objectsNamed(own).size(), 3u) << level;
      ASSERT_EQ(::kill(-worker->pid, SIGKILL), 0);  // with the process that would remove them
      worker->waitForEnd();
      EXPECT_EQ(objectsNamed(own).size(), 3u) << "only the supervisor removes them";
      for (const fs::path& each : objectsNamed(own)) fs::remove(each);
    }
  }
}

TEST(NamedObjects, OfProcessesThatAModelStartsNameItsWorkerToo) {
  ZygoteProcess zygote({"ISOPOOL_WORKER_FOLDERS=" + kFolders});
  const auto worker = zygote.fork(1);
  TestClient client(*worker);
  client.defineProbe();
  client.probeValue("run", {R"(
import builtins, multiprocessing, os
from multiprocessing import shared_memory
def make():
    builtins.kept = shared_memory.SharedMemory(create=True, size=100)
    os._exit(0)
child = multiprocessing.get_context('fork').Process(target=make)
child.start()
child.join()
result = None
)"});
  const std::string own = ipc::namedObjectsOf(kFolders, base::Epoch(worker->epoch));
  EXPECT_EQ(objectsNamed(own).size(), 1u);
  worker->kill();
  worker->waitForEnd();
  for (const fs::path& each : objectsNamed(own)) fs::remove(each);
}

}  // namespace
}  // namespace isopool::tests
