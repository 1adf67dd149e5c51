// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "base/system_call.h"
#include "ipc/control/client_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/supervisor/private_pool.h"

namespace isopool::tests {
namespace {

TEST(Pool, ServesItsSlotsAndKeepsASpare) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 3);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(pool.call(pool.serving(1, slot), "hello"), "hello");
  }
  const uint64_t spare = pool.waitForSpare();
  ASSERT_NE(spare, 0u);
  EXPECT_EQ(pool.call(spare, "ready"), "ready");
}

TEST(Pool, TheProgramHasNoChildOfOurs) {
  PrivatePool pool;
  pool.begin();
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Pool, DescriptorsOfTheProgramAreNotInherited) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  ::close(pipe[1]);
  char byte;
  EXPECT_EQ(::read(pipe[0], &byte, 1), 0) << "a process still holds its write end";
  ::close(pipe[0]);
}

TEST(Pool, WorkersHaveOneThreadPerMathLibraryAndAGroupOfTheirOwn) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t epoch = pool.serving(1, 0);
  EXPECT_EQ(pool.call(epoch, "!environment OMP_NUM_THREADS"), "1");
  EXPECT_EQ(pool.call(epoch, "!environment OPENBLAS_NUM_THREADS"), "1");
  const pid_t pid = pool.worker(epoch).introduction.processId;
  EXPECT_EQ(::getpgid(pid), pid);
  EXPECT_NE(::getsid(pid), ::getsid(0));
}

TEST(Pool, EveryWorkerReceivesAllPackagesAndSegments) {
  PrivatePool pool;
  pool.begin();
  base::Fd segment = ipc::createMemoryObject("test", ipc::kPageBytes);
  base::Fd early = ipc::createMemoryObject("test", ipc::kPageBytes);
  ipc::sealMemoryObject(early, ipc::Seal::kReadOnly);
  pool.send(ipc::LoadPackage{1, ipc::kPageBytes, "early"}, {early.get()});
  pool.openPool(1, 1);
  ASSERT_NE(pool.waitForSpare(), 0u);
  pool.send(ipc::LoadPackage{2, ipc::kPageBytes, "late"}, {early.get()});
  pool.send(ipc::DeclareInputSegment{1, ipc::kPageBytes}, {segment.get()});
  pool.send(ipc::UnloadPackage{1});
  pool.statistics();
  // The doorbell wakes the worker: it reads earlier messages before the call or soon after it.
  const uint64_t epoch = pool.serving(1, 0);
  EXPECT_TRUE(pool.waitFor([&] { return pool.call(epoch, "!known") == "+early+late#1-1"; }));
  // A worker that is forked later receives only what still exists.
  pool.killAndReport(epoch);
  ASSERT_TRUE(pool.waitFor([&] { return pool.serving(1, 0) != epoch; }));
  pool.killAndReport(pool.serving(1, 0));
  const uint64_t spare = pool.waitForSpare();
  EXPECT_TRUE(pool.waitFor([&] { return pool.call(spare, "!known") == "+late#1"; }));
}

// A seal would keep each later worker from mapping the memory, and user code in a worker has its
// descriptors.
TEST(Pool, NobodyCanSealMemoryThatWorkersWriteTo) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  base::Fd crashLog = pool.worker(pool.serving(1, 0)).crashLog.duplicate();
  base::Fd segment = ipc::createMemoryObject("test", ipc::kPageBytes);
  base::Fd moved = ipc::createMemoryObject("test", ipc::kPageBytes);
  ipc::LoadPackage object{1, ipc::kPageBytes, "moved"};
  object.shared = true;
  pool.send(object, {moved.get()});
  pool.send(ipc::DeclareInputSegment{1, ipc::kPageBytes}, {segment.get()});
  pool.statistics();  // it has handled both messages
  for (const base::Fd* each : {&segment, &moved, &crashLog}) {
    EXPECT_THROW(ipc::sealMemoryObject(*each, ipc::Seal::kSingleWriter), base::SystemCallError);
  }
}

TEST(Pool, SeveralPoolsShareTheSpareAndCloseOneByOne) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 2);
  pool.openPool(2, 1);
  EXPECT_TRUE(pool.waitFor([&] { return pool.statistics().workers.size() == 4; }));
  // The supervisor reports the death of a worker only if it has introduced that worker.
  ASSERT_NE(pool.waitForSpare(), 0u);
  const pid_t gone = pool.worker(pool.serving(1, 0)).introduction.processId;
  pool.send(ipc::ClosePool{1});
  EXPECT_TRUE(waitUntilDead(gone, milliseconds(1000)));
  EXPECT_TRUE(pool.waitFor([&] { return pool.deaths() == 2; }));
  EXPECT_EQ(pool.call(pool.serving(2, 0), "still here"), "still here");
  pool.send(ipc::ClosePool{2});
  EXPECT_TRUE(pool.waitFor([&] { return pool.deaths() == 4; }));
  EXPECT_TRUE(pool.statistics().workers.empty());
  pool.openPool(3, 1);
  EXPECT_EQ(pool.call(pool.serving(3, 0), "again"), "again");
}

TEST(Pool, APoolMayBeClosedWhileItsWorkersAreBeingMade) {
  PrivatePool pool;
  pool.begin();
  for (uint32_t number = 1; number <= 10; ++number) {
    pool.send(ipc::OpenPool{number, 3});
    pool.send(ipc::ClosePool{number});
  }
  pool.openPool(11, 2);
  EXPECT_TRUE(pool.waitFor([&] { return pool.statistics().workers.size() == 3; }));
}

TEST(Pool, GrantsOutputSegmentsToTheClientAndTheWorkerUpToTheLimit) {
  PrivatePool pool({"--output-arena-limit", "32MiB"});
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t epoch = pool.serving(1, 0);
  ASSERT_NE(pool.waitForSpare(), 0u);
  pool.call(epoch, "!want 1000");
  ASSERT_TRUE(pool.waitFor([&] { return pool.call(epoch, "!segments") == "2:8388608;"; }));
  // The client's message and the worker's travel on two sockets.
  ASSERT_TRUE(pool.waitFor([&] { return pool.worker(epoch).segments.size() == 1; }));
  EXPECT_EQ(pool.worker(epoch).segments[0].segment, 2u);
  EXPECT_EQ(pool.worker(epoch).segments[0].bytes, 8u << 20);
  pool.call(epoch, "!want 40000000");
  ASSERT_TRUE(pool.waitFor([&] { return pool.call(epoch, "!segments")->size() > 20; }));
  EXPECT_NE(pool.call(epoch, "!segments")->find("ISOPOOL_OUTPUT_ARENA_LIMIT"), std::string::npos);
  for (const ipc::WorkerStatistics& each : pool.statistics().workers) {
    EXPECT_EQ(each.outputBytes, each.epoch == epoch ? 12u << 20 : 4u << 20);
  }
}

// Calls the worker of the only slot until another worker serves it. Returns the former worker.
uint64_t callUntilReplaced(PrivatePool& pool) {
  const uint64_t worker = pool.serving(1, 0);
  EXPECT_TRUE(pool.waitFor(
      [&] {
        EXPECT_EQ(pool.call(pool.serving(1, 0), "call"), "call");
        return pool.serving(1, 0) != worker;
      },
      milliseconds(10000)));
  return worker;
}

TEST(Pool, RecyclesItsWorkersAndLosesNoCall) {
  PrivatePool pool({"--recycle-calls", "20"});
  pool.begin();
  pool.openPool(1, 1);
  ASSERT_NE(pool.waitForSpare(), 0u);
  const uint64_t worker = callUntilReplaced(pool);
  ASSERT_TRUE(pool.waitFor([&] { return !pool.retired().empty(); }));
  EXPECT_EQ(pool.call(worker, "a session on the old one"), "a session on the old one");
  pool.send(ipc::WorkerReleased{worker});
  EXPECT_TRUE(pool.waitFor([&] { return pool.worker(worker).died.has_value(); }));
  EXPECT_EQ(pool.statistics().restarts, 0u);
}

TEST(Pool, RecyclesNoWorkerWhileTheSpareMakesItsObjects) {
  PrivatePool pool({"--recycle-calls", "5"});
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t spare = pool.waitForSpare();
  ASSERT_NE(spare, 0u);
  const std::string gate =
      "/tmp/isopool-pool-test-" + std::to_string(::getpid()) + "-spare-is-ready";
  pool.post(spare, "!await " + gate);
  const uint64_t worker = pool.serving(1, 0);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(pool.call(worker, "call"), "call");
  // Longer than the period of the checks.
  EXPECT_FALSE(pool.waitFor([&] { return pool.serving(1, 0) != worker; }, milliseconds(1500)));
  std::ofstream(gate) << "";
  EXPECT_TRUE(pool.waitFor([&] { return pool.serving(1, 0) == spare; }));
  ::unlink(gate.c_str());
}

TEST(Pool, WithoutSparesStartsAReplacementBeforeItRecyclesAWorker) {
  PrivatePool pool({"--recycle-calls", "20", "--spares", "0"});
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t worker = callUntilReplaced(pool);
  ASSERT_TRUE(pool.waitFor([&] { return !pool.retired().empty(); }));
  pool.send(ipc::WorkerReleased{worker});
  ASSERT_TRUE(pool.waitFor([&] { return pool.worker(worker).died.has_value(); }));
  EXPECT_EQ(pool.statistics().workers.size(), 1u) << "no spare is kept";
}

TEST(Pool, RecyclesAWorkerInWhichACallRanOutOfMemory) {
  PrivatePool pool({"--worker-memory", "64MiB"});
  pool.begin();
  pool.openPool(1, 1);
  ASSERT_NE(pool.waitForSpare(), 0u);
  const uint64_t worker = pool.serving(1, 0);
  EXPECT_EQ(pool.call(worker, "!limit 16"), "!limit 16");
  EXPECT_EQ(pool.call(worker, "!lack"), "!lack");
  EXPECT_TRUE(pool.waitFor([&] { return pool.serving(1, 0) != worker; }));
  EXPECT_EQ(pool.call(pool.serving(1, 0), "served"), "served");
}

TEST(Pool, AnIdleSupervisorDoesNothing) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 2);
  ASSERT_NE(pool.waitForSpare(), 0u);
  // An idle process has no voluntary context switches: waitFor() is expected to time out.
  const auto switches = [&] {
    std::string text;
    std::ifstream file("/proc/" + std::to_string(pool.welcome().processId) + "/status");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("voluntary_ctxt_switches", 0) == 0) text = line;
    }
    return text;
  };
  bool quiet = false;
  for (int window = 0; window < 10 && !quiet; ++window) {  // first it fills its stock of memory
    const std::string before = switches();
    quiet = !pool.waitFor([&] { return switches() != before; }, milliseconds(500));
  }
  EXPECT_TRUE(quiet);
}

TEST(Pool, CountsItsSharedMemory) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  ASSERT_NE(pool.waitForSpare(), 0u);
  const ipc::Statistics statistics = pool.statistics();
  EXPECT_GE(statistics.sharedBytes, 2u * (4u << 20));
  EXPECT_EQ(statistics.restarts, 0u);
  EXPECT_EQ(statistics.zygoteProcessId, pool.welcome().zygoteProcessId);
}

}  // namespace
}  // namespace isopool::tests
