// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ipc/control/client_messages.h"
#include "tests/supervisor/private_pool.h"

namespace isopool::tests {
namespace {

/// The values of this variable in the environment that the process was started with, in order.
std::vector<std::string> valuesOf(pid_t pid, const std::string& variable) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  std::vector<std::string> values;
  for (std::string text; std::getline(file, text, '\0');) {
    if (text.starts_with(variable + "=")) values.push_back(text.substr(variable.size() + 1));
  }
  return values;
}

TEST(Zygote, StartupFailureIsReportedToClient) {
  PrivatePool pool({}, "zygote-fails");
  ASSERT_TRUE(pool.waitForEnd());
  EXPECT_NE(pool.failure().value_or("").find("No module named 'torch'"), std::string::npos);
  EXPECT_TRUE(pool.mark().waitUntilNoneIsLeft(milliseconds(1000)));
}

TEST(Zygote, ExitCodeIsReportedToClient) {
  PrivatePool pool({}, "zygote-exits");
  ASSERT_TRUE(pool.waitForEnd());
  EXPECT_NE(pool.failure().value_or("").find("exited with code 7"), std::string::npos);
}

TEST(Zygote, StartupIsLimitedByZygoteTimeout) {
  PrivatePool pool({"--zygote-timeout", "100ms"}, "zygote-silent");
  ASSERT_TRUE(pool.waitForEnd());
  EXPECT_NE(pool.failure().value_or("").find("ISOPOOL_ZYGOTE_TIMEOUT"), std::string::npos);
}

TEST(Zygote, InvalidMessageEndsThePool) {
  PrivatePool pool({}, "zygote-garbage");
  ASSERT_TRUE(pool.waitForEnd());
  EXPECT_NE(pool.failure().value_or("").find("broke the protocol"), std::string::npos);
}

TEST(Zygote, MissingWorkerProgramIsReportedToClient) {
  PrivatePool pool({"--worker", "/nowhere/isopool-worker"});
  ASSERT_TRUE(pool.waitForEnd());
  EXPECT_NE(pool.failure().value_or("").find("/nowhere/isopool-worker"), std::string::npos);
}

TEST(Zygote, FlagsOverrideTheInheritedEnvironment) {
  ::setenv("ISOPOOL_PRELOAD_MODULES", "csv", 1);
  ::setenv("ISOPOOL_PRELOAD_LIBS", "inherited.so", 1);
  ::setenv("OMP_NUM_THREADS", "16", 1);
  PrivatePool pool({"--preload-modules", "json,csv"});
  for (const char* name : {"ISOPOOL_PRELOAD_MODULES", "ISOPOOL_PRELOAD_LIBS", "OMP_NUM_THREADS"}) {
    ::unsetenv(name);
  }
  pool.begin();
  const pid_t zygote = pool.welcome().zygoteProcessId;
  using Values = std::vector<std::string>;
  EXPECT_EQ(valuesOf(zygote, "ISOPOOL_PRELOAD_MODULES"), Values{"json,csv"});
  EXPECT_EQ(valuesOf(zygote, "ISOPOOL_PRELOAD_LIBS"), Values{"inherited.so"});
  EXPECT_EQ(valuesOf(zygote, "OMP_NUM_THREADS"), Values{"1"});
}

TEST(Zygote, KilledIsReplacedWhileWorkersLiveOn) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 2);
  ASSERT_NE(pool.waitForSpare(), 0u);
  const uint64_t epoch = pool.serving(1, 0);
  const pid_t first = pool.welcome().zygoteProcessId;
  ::kill(first, SIGKILL);
  EXPECT_EQ(pool.call(epoch, "alive"), "alive");
  ASSERT_TRUE(pool.waitFor([&] {
    const ipc::Statistics statistics = pool.statistics();
    return statistics.zygoteRestarts == 1 && statistics.zygoteProcessId != first;
  }));
  EXPECT_EQ(pool.deaths(), 0u);
  // The spare takes over; the new zygote forks the next one.
  pool.killAndReport(epoch);
  ASSERT_TRUE(pool.waitFor([&] { return pool.serving(1, 0) != epoch; }));
  EXPECT_NE(pool.waitForSpare(), 0u);
}

TEST(Zygote, DeathDuringForksIsHandledByRepeatingTheForks) {
  PrivatePool pool;
  pool.begin();
  pool.setMode("first-fork-kills-zygote");
  pool.openPool(1, 3);
  const ipc::Statistics statistics = pool.statistics();
  EXPECT_EQ(statistics.zygoteRestarts, 1u);
  EXPECT_EQ(statistics.restarts, 0u) << "the death does not count for a slot";
  EXPECT_TRUE(pool.quarantines().empty());
}

TEST(Zygote, StoppedIsKilledAtTheNextForkThatItDoesNotAnswer) {
  PrivatePool pool({"--fork-timeout", "200ms"});
  pool.begin();
  pool.openPool(1, 1);
  ASSERT_NE(pool.waitForSpare(), 0u);
  ::kill(pool.welcome().zygoteProcessId, SIGSTOP);
  for (int round = 0; round < 2; ++round) {
    const uint64_t victim = pool.serving(1, 0);
    pool.killAndReport(victim);
    ASSERT_TRUE(pool.waitFor([&] { return pool.serving(1, 0) != victim; }));
  }
  EXPECT_EQ(pool.statistics().zygoteRestarts, 1u);
  EXPECT_NE(pool.waitForSpare(), 0u);
}

TEST(Zygote, StoppedBySignalIsReplacedLongBeforeTheTimeForAForkIsOver) {
  PrivatePool pool({"--fork-timeout", "60s", "--spares", "0"});
  pool.begin();
  pool.openPool(1, 1);
  ::kill(pool.welcome().zygoteProcessId, SIGSTOP);
  const uint64_t victim = pool.serving(1, 0);
  pool.killAndReport(victim);
  ASSERT_TRUE(pool.waitFor([&] { return pool.serving(1, 0) != victim; }));
  EXPECT_EQ(pool.call(pool.serving(1, 0), "served"), "served");
  EXPECT_EQ(pool.statistics().zygoteRestarts, 1u);
}

/// The zygote of a pool that has not received Welcome, and so does not know the zygote's process
/// id; 0 if the zygote has not executed the worker program in time.
pid_t zygoteOf(PrivatePool& pool) {
  pid_t zygote = 0;
  pool.waitFor([&] {
    for (const pid_t process : pool.mark().processes()) {
      std::error_code gone;
      const auto program =
          std::filesystem::read_symlink("/proc/" + std::to_string(process) + "/exe", gone);
      if (!gone && std::filesystem::equivalent(program, PLAIN_WORKER, gone)) zygote = process;
    }
    return zygote != 0;
  });
  return zygote;
}

TEST(Zygote, StoppedBeforeItIsReadyIsReplacedLongBeforeTheTimeForItsStartIsOver) {
  PrivatePool pool({"--zygote-timeout", "60s"}, "zygote-silent");
  const pid_t stopped = zygoteOf(pool);
  ASSERT_NE(stopped, 0);
  pool.setMode("");
  ASSERT_EQ(::kill(stopped, SIGSTOP), 0);
  pool.begin();
  EXPECT_NE(pool.welcome().zygoteProcessId, stopped);
  pool.openPool(1, 1);
  EXPECT_EQ(pool.call(pool.serving(1, 0), "served"), "served");
}

TEST(Zygote, FailedForksQuarantineTheSlot) {
  PrivatePool pool({"--restart-limit", "2"});
  pool.begin();
  pool.setMode("fork-fails");
  pool.send(ipc::OpenPool{1, 1});
  EXPECT_TRUE(pool.waitFor([&] { return pool.quarantines().size() == 1; }));
}

/// A process in a group of its own that does not belong to the supervisor.
class Bystander {
 public:
  Bystander() {
    pid_ = ::fork();
    if (pid_ == 0) {
      for (;;) ::pause();
    }
    ::setpgid(pid_, pid_);
  }
  ~Bystander() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;

  pid_t pid() const { return pid_; }
  bool lives() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_ = -1;
};

TEST(Zygote, ForeignProcessNamedAsWorkerIsNotKilled) {
  const Bystander bystander;
  {
    PrivatePool pool({"--worker-timeout", "300ms"}, "names-" + std::to_string(bystander.pid()));
    pool.begin();
    pool.openPool(1, 1);
    EXPECT_EQ(pool.statistics().zygoteRestarts, 1u);
    EXPECT_EQ(pool.call(pool.serving(1, 0), "served"), "served");
    EXPECT_FALSE(pool.waitFor([&] { return !bystander.lives(); }, milliseconds(600)));
  }
  EXPECT_TRUE(bystander.lives());
}

TEST(Zygote, ServingWorkerNamedAsNewWorkerIsNotKilled) {
  PrivatePool pool({"--worker-timeout", "300ms", "--spares", "0"});
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t first = pool.serving(1, 0);
  pool.setMode("names-" + std::to_string(pool.worker(first).introduction.processId));
  pool.openPool(2, 1);
  EXPECT_EQ(pool.statistics().zygoteRestarts, 1u);
  EXPECT_FALSE(pool.waitFor([&] { return pool.deaths() > 0; }, milliseconds(600)));
  EXPECT_EQ(pool.call(first, "undisturbed"), "undisturbed");
}

TEST(Zygote, FailedReplacementIsReportedWhenAWorkerIsNeeded) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 2);
  ASSERT_NE(pool.waitForSpare(), 0u);
  pool.setMode("zygote-exits");
  ::kill(pool.welcome().zygoteProcessId, SIGKILL);
  ASSERT_TRUE(pool.waitFor([&] { return pool.statistics().zygoteRestarts >= 4; }));
  EXPECT_FALSE(pool.failure());
  EXPECT_TRUE(pool.quarantines().empty());
  // The spare takes the first slot. The second has no worker, which the supervisor reports. The
  // death of the last worker ends the pool.
  pool.killAndReport(pool.serving(1, 0));
  pool.killAndReport(pool.serving(1, 1));
  ASSERT_TRUE(pool.waitFor([&] { return !pool.quarantines().empty(); }));
  EXPECT_NE(pool.quarantines()[0].text.find("exited with code 7"), std::string::npos);
  EXPECT_FALSE(pool.failure());
  pool.killAndReport(pool.serving(1, 0));
  ASSERT_TRUE(pool.waitForEnd());
  EXPECT_NE(pool.failure().value_or("").find("exited with code 7"), std::string::npos);
}

}  // namespace
}  // namespace isopool::tests
