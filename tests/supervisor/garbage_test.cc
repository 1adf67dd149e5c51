// SPDX-License-Identifier: BSD-3-Clause
// The supervisor treats all input from other processes as hostile.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc/control/client_messages.h"
#include "ipc/control/worker_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/supervisor/private_pool.h"

namespace isopool::tests {
namespace {

class ClientGarbage : public testing::Test {
 protected:
  ClientGarbage() { pool_.begin(); }
  void expectRefused(const std::string& text) {
    EXPECT_TRUE(pool_.waitForEnd());
    EXPECT_NE(pool_.failure().value_or("no failure").find(text), std::string::npos)
        << pool_.failure().value_or("no failure");
    EXPECT_TRUE(pool_.mark().waitUntilNoneIsLeft(milliseconds(1000)));
  }

  PrivatePool pool_;
};

TEST_F(ClientGarbage, BytesThatAreNoFrame) {
  pool_.sendBytes("GET / HTTP/1.1\r\nHost: isopool\r\n");
  EXPECT_TRUE(pool_.waitForEnd());
  EXPECT_TRUE(pool_.mark().waitUntilNoneIsLeft(milliseconds(1000)));
}

TEST_F(ClientGarbage, AMessageThatOnlyAWorkerSends) {
  pool_.send(ipc::WorkerReady{1});
  expectRefused("unexpected message of type 500");
}

TEST_F(ClientGarbage, HelloTwice) {
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  pool_.send(hello);
  expectRefused("Hello a second time");
}

TEST_F(ClientGarbage, APackageThatMayStillChange) {
  const base::Fd object = ipc::createMemoryObject("test", ipc::kPageBytes);
  pool_.send(ipc::LoadPackage{1, ipc::kPageBytes, "p"}, {object.get()});
  expectRefused("sealed");
}

TEST_F(ClientGarbage, ASegmentThatIsShorterThanItSays) {
  const base::Fd object = ipc::createMemoryObject("test", ipc::kPageBytes);
  pool_.send(ipc::DeclareInputSegment{1, 2 * ipc::kPageBytes}, {object.get()});
  expectRefused("an input segment");
}

TEST_F(ClientGarbage, ASegmentThatNoWorkerCanMap) {
  const base::Fd object = ipc::createMemoryObject("test", ipc::kPageBytes);
  ipc::sealMemoryObject(object, ipc::Seal::kSingleWriter);
  pool_.send(ipc::DeclareInputSegment{1, ipc::kPageBytes}, {object.get()});
  expectRefused("seals");
}

TEST_F(ClientGarbage, AnObjectInSharedMemoryThatNoWorkerCanMap) {
  const base::Fd object = ipc::createMemoryObject("test", ipc::kPageBytes);
  ipc::sealMemoryObject(object, ipc::Seal::kSingleWriter);
  ipc::LoadPackage message{1, ipc::kPageBytes, "p"};
  message.shared = true;
  pool_.send(message, {object.get()});
  expectRefused("sealed");
}

TEST_F(ClientGarbage, AMessageWithoutItsDescriptor) {
  pool_.send(ipc::LoadPackage{1, ipc::kPageBytes, "p"});
  expectRefused("lacks its descriptor");
}

TEST_F(ClientGarbage, APoolOfMillions) {
  pool_.send(ipc::OpenPool{1, 5'000'000});
  expectRefused("OpenPool of 5000000 workers");
}

TEST_F(ClientGarbage, AChannelThatIsNotSealed) {
  pool_.answersIntroductions = false;
  pool_.send(ipc::OpenPool{1, 1});
  ASSERT_TRUE(pool_.waitFor([&] { return !pool_.workers().empty(); }));
  pool_.send(ipc::ChannelMapped{pool_.workers().begin()->first});
  expectRefused("sealed");
}

TEST_F(ClientGarbage, NumbersThatNameNothingAreIgnored) {
  pool_.send(ipc::ClosePool{77});
  pool_.send(ipc::ReportDeath{77, "?"});
  pool_.send(ipc::ChannelMapped{77});
  pool_.send(ipc::UnloadPackage{77});
  pool_.openPool(1, 1);
  EXPECT_EQ(pool_.call(pool_.serving(1, 0), "fine"), "fine");
}

TEST(ClientVersion, ThatDiffersIsRefusedWithBothNumbers) {
  PrivatePool pool;
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.protocolVersion = 99;
  pool.send(hello, {pidfd.get()});
  ASSERT_TRUE(pool.waitForEnd());
  EXPECT_NE(pool.failure().value_or("").find("99"), std::string::npos);
}

class WorkerGarbage : public testing::Test {
 protected:
  WorkerGarbage() {
    pool_.begin();
    pool_.openPool(1, 2);
    victim_ = pool_.serving(1, 0);
  }
  void expectKilled() {
    ASSERT_TRUE(pool_.waitFor([&] { return pool_.worker(victim_).died.has_value(); }));
    EXPECT_EQ(pool_.worker(victim_).died->signal, SIGKILL);
    ASSERT_TRUE(pool_.waitFor([&] { return pool_.serving(1, 0) != victim_; }));
    EXPECT_EQ(pool_.call(pool_.serving(1, 1), "unharmed"), "unharmed");
    EXPECT_FALSE(pool_.failure());
  }

  PrivatePool pool_;
  uint64_t victim_ = 0;
};

TEST_F(WorkerGarbage, BytesThatAreNoFrame) {
  pool_.post(victim_, "!garbage");
  expectKilled();
}

TEST_F(WorkerGarbage, AMessageOutOfTurn) {
  pool_.post(victim_, "!lie");
  expectKilled();
}

TEST(StoppedPeers, AStoppedWorkerDoesNotHoldTheOthersUp) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 2);
  ::kill(pool.worker(pool.serving(1, 0)).introduction.processId, SIGSTOP);
  base::Fd package = ipc::createMemoryObject("test", ipc::kPageBytes);
  ipc::sealMemoryObject(package, ipc::Seal::kReadOnly);
  for (uint32_t number = 1; number <= 600; ++number) {
    pool.send(ipc::LoadPackage{number, ipc::kPageBytes, std::string(2000, 'x')}, {package.get()});
  }
  EXPECT_EQ(pool.call(pool.serving(1, 1), "still here"), "still here");
  pool.statistics();
  ::kill(pool.worker(pool.serving(1, 0)).introduction.processId, SIGCONT);
  EXPECT_EQ(pool.call(pool.serving(1, 0), "back"), "back");
}

// Eight threads might load and drop packages like this while a worker runs a long call. Only
// packages that still exist wait to be sent to the worker.
TEST(StoppedPeers, AStormOfLoadsKillsNoWorker) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 2);
  const uint64_t victim = pool.serving(1, 0);
  const pid_t process = pool.worker(victim).introduction.processId;
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  base::Fd package = ipc::createMemoryObject("test", ipc::kPageBytes);
  ipc::sealMemoryObject(package, ipc::Seal::kReadOnly);
  constexpr uint32_t kLoads = 32'000;
  for (uint32_t number = 1; number <= kLoads; ++number) {
    pool.send(ipc::LoadPackage{number, ipc::kPageBytes, "p"}, {package.get()});
    if (number > 8) pool.send(ipc::UnloadPackage{number - 8});
    // A package that is loaded again, whether or not the worker has been informed of it.
    if (number % 1000 == 0) {
      pool.send(ipc::UnloadPackage{number});
      pool.send(ipc::LoadPackage{number, ipc::kPageBytes, "p"}, {package.get()});
    }
  }
  EXPECT_EQ(pool.call(pool.serving(1, 1), "still here"), "still here");
  ::kill(process, SIGCONT);
  EXPECT_EQ(pool.call(victim, "back"), "back");
  EXPECT_EQ(pool.serving(1, 0), victim);
}

}  // namespace
}  // namespace isopool::tests
