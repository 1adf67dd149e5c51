// SPDX-License-Identifier: BSD-3-Clause
// The file that a supervisor appends its log to.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/procfs.h"
#include "testing/temporary_folder.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

TEST(LogFile, HasTheLogAndIsMadeAgainByAReload) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/isopoold.log";
  const auto has = [](const std::string& file, const std::string& text) {
    std::ifstream stream(file);
    const std::string all((std::istreambuf_iterator<char>(stream)), {});
    return all.find(text) != std::string::npos;
  };
  {
    SharedSupervisor supervisor({"--workers", "1", "--log-level", "info", "--log-file", path});
    const auto client = supervisor.attachWithPool(1, "first");
    EXPECT_TRUE(client->waitFor([&] { return has(path, "(first, pid "); }));
    EXPECT_EQ(supervisor.log(), "");
    ASSERT_EQ(::rename(path.c_str(), (path + ".1").c_str()), 0);
    supervisor.signal(SIGHUP);
    EXPECT_TRUE(client->waitFor([&] { return has(path, "the settings were reloaded"); }));
    const auto next = supervisor.attachWithPool(1, "second");
    EXPECT_TRUE(next->waitFor([&] { return has(path, "(second, pid "); }));
    EXPECT_FALSE(has(path + ".1", "(second, pid "));
  }
}

std::string contentOf(const std::string& path) {
  std::ifstream stream(path);
  return {(std::istreambuf_iterator<char>(stream)), {}};
}

uint64_t linesLost(const ipc::Report& report, const std::string& kind) {
  for (const ipc::ReportedCount& each : report.lostLogLines) {
    if (each.name == kind) return each.count;
  }
  return 0;
}

TEST(LogFile, ThatWasFullHasEachDeathAndSaysWhatWasLostWithoutAnotherEvent) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/isopoold.log";
  // A full disk that gets room: the path leads to a device, and then to a file.
  std::filesystem::create_symlink("/dev/full", path);
  SharedSupervisor supervisor({"--workers", "1", "--log-level", "info", "--log-file", path});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  client->killAndReport(worker);
  ASSERT_TRUE(client->waitFor([&] { return client->serving(1, 0) != worker; }));
  ASSERT_TRUE(supervisor.waitForReport(
      [](const ipc::Report& report) { return linesLost(report, "info") > 0; }));
  EXPECT_EQ(linesLost(supervisor.report(), "warning"), 0u);
  std::filesystem::create_symlink(folder.path() + "/real.log", path + ".new");
  std::filesystem::rename(path + ".new", path);
  const auto has = [&](const std::string& text) {
    return contentOf(path).find(text) != std::string::npos;
  };
  EXPECT_TRUE(client->waitFor([&] {
    return has(" of the log were lost since ") || has(" of the log was lost since ");
  })) << contentOf(path);
  EXPECT_TRUE(has("No space left on device\",\"lost_info\":")) << contentOf(path);
  EXPECT_TRUE(has(" died: SIGKILL")) << contentOf(path);
}

TEST(LogFile, IsMadeAgainWithoutASignalWhenItWasRenamedOrRemoved) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/isopoold.log";
  SharedSupervisor supervisor({"--workers", "1", "--log-level", "info", "--log-file", path});
  const auto first = supervisor.attachWithPool(1, "first");
  std::filesystem::rename(path, path + ".1");
  const auto second = supervisor.attachWithPool(1, "second");
  EXPECT_NE(contentOf(path + ".1").find("(first, pid "), std::string::npos);
  EXPECT_NE(contentOf(path).find("(second, pid "), std::string::npos);
  std::filesystem::remove(path);
  const auto third = supervisor.attachWithPool(1, "third");
  EXPECT_NE(contentOf(path).find("(third, pid "), std::string::npos);
}

TEST(LogFile, HasTheSignalThatKilledTheSupervisor) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/isopoold.log";
  SharedSupervisor supervisor({"--workers", "1", "--log-level", "info", "--log-file", path});
  const auto client = supervisor.attachWithPool(1);
  std::filesystem::rename(path, path + ".1");
  ::kill(supervisor.supervisorPid(), SIGKILL);
  EXPECT_EQ(supervisor.waitForEnd(), 128 + SIGKILL);
  EXPECT_NE(
      contentOf(path).find("the supervisor was killed by signal 9 (Killed): all processes of the "
                           "service end"),
      std::string::npos)
      << contentOf(path) << contentOf(path + ".1");
}

TEST(LogFile, IsNotHeldByTheGuardian) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/isopoold.log";
  SharedSupervisor supervisor({"--workers", "1", "--log-level", "info", "--log-file", path});
  const auto client = supervisor.attachWithPool(1);
  const pid_t guardian = base::statusOf(supervisor.supervisorPid()).parent;
  const std::string stream = "/proc/" + std::to_string(guardian) + "/fd/2";
  EXPECT_TRUE(client->waitFor([&] { return std::filesystem::read_symlink(stream) == "/dev/null"; }))
      << "the guardian holds the file until the service ends";
}

}  // namespace
}  // namespace isopool::tests
