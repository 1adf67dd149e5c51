// SPDX-License-Identifier: BSD-3-Clause
// A shared supervisor that has reached its limit of open files: which programs are affected.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "ipc/control/client_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

void limitFilesOf(pid_t process, rlim_t files) {
  rlimit limit{};
  ASSERT_EQ(::prlimit(process, RLIMIT_NOFILE, nullptr, &limit), 0);
  limit.rlim_cur = files;
  ASSERT_EQ(::prlimit(process, RLIMIT_NOFILE, &limit, nullptr), 0);
}

base::Fd segment() { return ipc::createMemoryObject("isopool-test-segment", ipc::kPageBytes); }

base::Fd package() {
  base::Fd object = ipc::createMemoryObject("isopool-test-package", ipc::kPageBytes);
  ipc::sealMemoryObject(object, ipc::Seal::kReadOnly);
  return object;
}

TEST(Descriptors, OneProgramGetsAtMostAQuarterOfThem) {
  constexpr rlim_t kFiles = 512;
  SharedSupervisor supervisor({"--workers", "1"});
  const auto greedy = supervisor.attachWithPool(1, "greedy");
  const auto other = supervisor.attachWithPool(1, "other");
  const uint64_t worker = other->serving(1, 0);
  const pid_t process = supervisor.supervisorPid();
  limitFilesOf(process, kFiles);
  const base::Fd object = segment();
  for (uint32_t number = 1; number <= 2 * kFiles; ++number) {
    greedy->send(ipc::DeclareInputSegment{number, ipc::kPageBytes}, {object.get()});
    // Reads the answers: the supervisor closes a connection whose peer does not read.
    if (number % 64 == 0) greedy->statistics();
  }
  EXPECT_EQ(descriptorsCalled(process, "isopool-test-segment"), kFiles / 4);
  const base::Fd model = package();
  greedy->send(
      ipc::LoadPackage{
          .package = 1, .bytes = ipc::kPageBytes, .name = "model", .digestLow = 1, .digestHigh = 1},
      {model.get()});
  ASSERT_TRUE(greedy->waitFor([&] { return greedy->held().count(1) != 0; }));
  EXPECT_NE(greedy->held().at(1).refusal.find("LimitNOFILE"), std::string::npos);
  EXPECT_EQ(greedy->call(worker, "served all the same"), "served all the same");

  const base::Fd own = ipc::createMemoryObject("isopool-other-segment", ipc::kPageBytes);
  other->send(ipc::DeclareInputSegment{1, ipc::kPageBytes}, {own.get()});
  other->statistics();
  EXPECT_EQ(descriptorsCalled(process, "isopool-other-segment"), 1u);
  const auto late = supervisor.attachWithPool(1, "late");
  EXPECT_EQ(late->call(late->serving(1, 0), "served"), "served");
  EXPECT_FALSE(other->controlEnded());
  EXPECT_EQ(supervisor.report().restarts, 0u);
}

TEST(Descriptors, ObjectsThatAreMovedBeyondTheQuarterEndTheirProgramOnly) {
  constexpr rlim_t kFiles = 512;
  SharedSupervisor supervisor({"--workers", "1"});
  const auto greedy = supervisor.attachWithPool(1, "greedy");
  const auto other = supervisor.attachWithPool(1, "other");
  limitFilesOf(supervisor.supervisorPid(), kFiles);
  const base::Fd object = segment();
  for (uint32_t number = 1; number <= kFiles / 4 + 1; ++number) {
    greedy->send(
        ipc::LoadPackage{
            .package = number, .bytes = ipc::kPageBytes, .name = "object", .shared = true},
        {object.get()});
  }
  ASSERT_TRUE(greedy->waitForEnd());
  EXPECT_NE(greedy->failure().value_or("").find("LimitNOFILE"), std::string::npos);
  EXPECT_EQ(other->call(other->serving(1, 0), "served"), "served");
}

TEST(Descriptors, MessagesWaitWhileTheSupervisorHasNoneFree) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1, "client");
  const uint64_t worker = client->serving(1, 0);
  ASSERT_NE(client->waitForSpare(), 0u);
  const pid_t process = supervisor.supervisorPid();
  const base::Fd own = segment();
  limitFilesOf(process, 8);
  client->send(ipc::DeclareInputSegment{1, ipc::kPageBytes}, {own.get()});
  ASSERT_TRUE(client->waitFor([&] {
    return supervisor.log().find("has reached its limit of open files") != std::string::npos;
  }));
  EXPECT_EQ(client->call(worker, "!known"), "");
  limitFilesOf(process, 1024);
  EXPECT_TRUE(client->waitFor([&] { return client->call(worker, "!known") == "#1"; }));
  EXPECT_FALSE(client->controlEnded());
}

std::set<rlim_t> numbersIn(pid_t process) {
  std::set<rlim_t> numbers;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
    numbers.insert(std::stoul(entry.path().filename()));
  }
  return numbers;
}

// The pidfd of a Hello takes the last free descriptor number, which lies below the limit by more
// than the descriptors of one message. To examine the pidfd, the supervisor needs another number.
TEST(Descriptors, HelloWaitsUntilItsPidfdCanBeExamined) {
  constexpr size_t kConnections = 280;
  SharedSupervisor supervisor({"--workers", "1"});
  const auto first = supervisor.attachWithPool(1, "first");
  ASSERT_NE(first->waitForSpare(), 0u);
  const pid_t process = supervisor.supervisorPid();
  ControlClient client(supervisor.connect());
  std::vector<ipc::ControlSocket> waiting;
  for (size_t i = 0; i < kConnections; ++i) waiting.push_back(supervisor.connect());
  // The supervisor accepts connections in order: the welcome of a later client shows that all of
  // them are accepted.
  std::vector<std::unique_ptr<ControlClient>> welcome;
  const auto hasNoGaps = [&] {
    const std::set<rlim_t> numbers = numbersIn(process);
    return numbers.size() == *numbers.rbegin() + 1;
  };
  do {
    welcome.push_back(supervisor.attach("later"));
    // The supervisor answers after it has closed the descriptor that a welcome takes for a moment.
    first->statistics();
  } while (!hasNoGaps() && welcome.size() < 20);
  ASSERT_TRUE(hasNoGaps());
  const size_t files = numbersIn(process).size();
  limitFilesOf(process, files);
  waiting.front().close();
  ASSERT_TRUE(client.waitFor([&] { return numbersIn(process).size() == files - 1; }));

  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  hello.processId = ::getpid();
  client.send(hello, {pidfd.get()});
  ASSERT_TRUE(client.waitFor([&] {
    return supervisor.log().find("has reached its limit of open files") != std::string::npos;
  })) << client.failure().value_or("");
  EXPECT_FALSE(client.failure());
  limitFilesOf(process, 1024);
  ASSERT_TRUE(client.waitFor([&] { return client.isWelcome(); })) << client.failure().value_or("");
}

TEST(Descriptors, AProgramForWhichTooFewAreFreeIsRefusedAndReportsGoOn) {
  SharedSupervisor supervisor({"--workers", "2", "--spares", "0"});
  const auto first = supervisor.attachWithPool(2, "first");
  const pid_t process = supervisor.supervisorPid();
  limitFilesOf(process, numbersIn(process).size() + 60);
  std::vector<std::unique_ptr<ControlClient>> attached;
  std::string refusal;
  while (refusal.empty() && attached.size() < 60) {
    auto next = std::make_unique<ControlClient>(supervisor.connect());
    const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    ipc::Hello hello;
    hello.layoutVersion = ipc::kLayoutVersion;
    hello.processId = ::getpid();
    next->send(hello, {pidfd.get()});
    ASSERT_TRUE(next->waitFor([&] { return next->isWelcome() || next->controlEnded(); }));
    if (!next->isWelcome()) {
      refusal = next->failure().value_or("no reason");
    } else {
      next->send(ipc::OpenPool{1, 2});
      ASSERT_TRUE(next->waitForPool(1, 2));
      attached.push_back(std::move(next));
    }
  }
  EXPECT_NE(refusal.find("LimitNOFILE"), std::string::npos) << refusal;
  EXPECT_GE(attached.size(), 3u);
  for (const auto& each : attached) {
    EXPECT_EQ(each->call(each->serving(1, 0), "served"), "served");
  }
  EXPECT_EQ(supervisor.report().clients.size(), attached.size() + 1);
  EXPECT_EQ(supervisor.log().find("has reached its limit of open files"), std::string::npos);
}

TEST(Descriptors, LackForANewChannelHarmsNoOtherProgram) {
  SharedSupervisor supervisor({"--workers", "1", "--spares", "0"});
  const auto other = supervisor.attachWithPool(1, "other");
  const uint64_t worker = other->serving(1, 0);
  const auto coming = supervisor.attach("coming");
  const auto second = supervisor.attach("second");
  const pid_t process = supervisor.supervisorPid();
  // The supervisor has one set of channel memory in stock; the limit leaves no room for another.
  limitFilesOf(process, 8);
  coming->send(ipc::OpenPool{1, 1});
  second->send(ipc::OpenPool{1, 1});
  ASSERT_TRUE(other->waitFor([&] {
    return supervisor.log().find("no shared memory for a channel") != std::string::npos;
  })) << supervisor.log();
  EXPECT_EQ(other->call(worker, "undisturbed"), "undisturbed");
  limitFilesOf(process, 1024);
  for (const auto* client : {&coming, &second}) {
    ASSERT_TRUE((*client)->waitForPool(1, 1));
    EXPECT_EQ((*client)->call(worker, "served"), "served");
  }
  EXPECT_FALSE(other->worker(worker).died);
}

}  // namespace
}  // namespace isopool::tests
