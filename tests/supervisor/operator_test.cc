// SPDX-License-Identifier: BSD-3-Clause
// What an operator reads of a shared supervisor: its log, and what --check and a start refuse.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "base/memory_limits.h"
#include "ipc/control/client_messages.h"
#include "testing/temporary_folder.h"
#include "tests/supervisor/private_pool.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

::testing::AssertionResult logHas(const SharedSupervisor& supervisor, const std::string& pattern) {
  const auto deadline = Clock::now() + milliseconds(5000);
  std::string log;
  while (Clock::now() < deadline) {
    log = supervisor.log();
    if (std::regex_search(log, std::regex(pattern))) return ::testing::AssertionSuccess();
    ::usleep(1000);
  }
  return ::testing::AssertionFailure() << "no line matches " << pattern << " in\n" << log;
}

TEST(DeathLog, NamesWorkerSignalLikelyCauseAndReplacement) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  ASSERT_NE(client->waitForSpare(), 0u);
  const uint64_t worker = client->serving(1, 0);
  const pid_t process = client->worker(worker).introduction.processId;
  ASSERT_EQ(client->call(worker, "served"), "served");
  ASSERT_EQ(::kill(process, SIGKILL), 0);
  ASSERT_TRUE(client->waitFor([&] { return client->serving(1, 0) != worker; }));
  const pid_t next = client->worker(client->serving(1, 0)).introduction.processId;
  // Known, because the kernel counts the processes that it kills for memory.
  ASSERT_TRUE(base::memoryKills());
  EXPECT_TRUE(logHas(supervisor, "worker 0 \\(pid " + std::to_string(process) +
                                     "\\) of shared pool died: SIGKILL \\(killed from outside: "
                                     "by another process, or by its own code\\); replaced by pid " +
                                     std::to_string(next)));
}

TEST(DeathLog, OfACallPastItsDeadlineNamesThatAsTheCause) {
  SharedSupervisor supervisor({"--workers", "1", "--grace", "50ms"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  client->post(worker, "!hang");
  const auto running = [&] { return client->worker(worker).end->hasStarted(1); };
  ASSERT_TRUE(client->waitFor(running));
  client->send(ipc::ReportOverdue{worker, 1});
  ASSERT_TRUE(client->waitFor([&] { return client->worker(worker).died.has_value(); }));
  EXPECT_TRUE(
      logHas(supervisor,
             "worker 0 \\(pid [0-9]+\\) of shared pool died: SIGKILL \\(a call of client "
             "[0-9]+ was past its deadline and continued for 50 ms \\(ISOPOOL_GRACE\\)\\)"));
}

TEST(DeathLog, DistinguishesACrashFromAKill) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  ASSERT_EQ(::kill(client->worker(worker).introduction.processId, SIGSEGV), 0);
  EXPECT_TRUE(
      logHas(supervisor, "died: SIGSEGV \\(a crash in native code\\), before it completed"));
}

TEST(DeathLog, NamesTheQuarantineInsteadOfAReplacement) {
  SharedSupervisor supervisor(
      {"--workers", "1", "--spares", "0", "--restart-limit", "1", "--quarantine", "60s"});
  const auto client = supervisor.attachWithPool(1);
  ASSERT_EQ(::kill(client->worker(client->serving(1, 0)).introduction.processId, SIGKILL), 0);
  EXPECT_TRUE(logHas(supervisor,
                     "died: SIGKILL \\(killed from outside: [^)]*\\), before it "
                     "completed a call; its slot stays empty for 60000 ms"));
}

TEST(DeathLog, NamesTheQuarantineOfASpare) {
  SharedSupervisor supervisor(
      {"--workers", "1", "--spares", "1", "--restart-limit", "1", "--quarantine", "60s"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t spare = client->waitForSpare();
  ASSERT_NE(spare, 0u);
  ASSERT_EQ(::kill(client->worker(spare).introduction.processId, SIGKILL), 0);
  EXPECT_TRUE(logHas(supervisor,
                     "spare worker \\(pid [0-9]+\\) died: SIGKILL \\(killed from "
                     "outside: [^)]*\\), before it completed a call; another spare is "
                     "started in 60000 ms"));
}

TEST(DeathLog, OfAReplacedWorkerThatCrashesNamesSignalAndCause) {
  SharedSupervisor supervisor({"--workers", "1", "--recycle-calls", "1", "--recycle-jitter", "0",
                               "--log-level", "warning"});
  const auto client = supervisor.attachWithPool(1);
  ASSERT_NE(client->waitForSpare(), 0u);
  const uint64_t worker = client->serving(1, 0);
  ASSERT_EQ(client->call(worker, "served"), "served");
  // The client does not release the worker, so it stays.
  ASSERT_TRUE(client->waitFor([&] { return !client->retired().empty(); }));
  const pid_t process = client->worker(worker).introduction.processId;
  ASSERT_EQ(::kill(process, SIGSEGV), 0);
  EXPECT_TRUE(logHas(supervisor, "worker \\(pid " + std::to_string(process) +
                                     "\\) died: SIGSEGV \\(a crash in native code\\); another "
                                     "worker had already replaced it"));
}

TEST(DeathLog, QuotesTheCrashLogOfAWorkerThatExits) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  const std::string words =
      "isopool worker: a client is refused: the worker has too many clients\n";
  ASSERT_EQ(::write(client->worker(worker).crashLog.get(), words.data(), words.size()),
            static_cast<ssize_t>(words.size()));
  client->post(worker, "!exit 70");
  EXPECT_TRUE(logHas(supervisor,
                     "died: exit code 70 \\(isopool worker: a client is refused: the worker "
                     "has too many clients\\)"));
}

TEST(Log, NamesClientsWhenTheyAttachAndLeave) {
  SharedSupervisor supervisor({"--workers", "1"});
  supervisor.attachWithPool(1, "visitor");
  EXPECT_TRUE(logHas(supervisor,
                     "\\(visitor, pid [0-9]+, user [0-9]+\\) is attached\",\"client\":"
                     "[0-9]+,\"program\":\"visitor\""));
  EXPECT_TRUE(logHas(supervisor, "\\(visitor, [^)]*\\) has disconnected\",\"client\":[0-9]+"));
}

TEST(Log, DoesNotCallClientsRefusedAtAnOrderlyStop) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1, "visitor");
  supervisor.signal(SIGTERM);
  ASSERT_TRUE(client->waitFor([&] { return client->drain().has_value(); }));
  client->send(ipc::AcknowledgeDrain{});
  ASSERT_EQ(supervisor.waitForEnd(), 0);
  const std::string log = supervisor.log();
  EXPECT_EQ(log.find("refused"), std::string::npos) << log;
  EXPECT_NE(log.find("is disconnected"), std::string::npos) << log;
}

TEST(Log, DoesNotCallClientsRefusedAtASecondSignal) {
  SharedSupervisor supervisor({"--workers", "1", "--drain-timeout", "60s"});
  const auto client = supervisor.attachWithPool(1, "visitor");
  supervisor.signal(SIGTERM);
  // The client does not acknowledge, so the supervisor continues to drain.
  ASSERT_TRUE(client->waitFor([&] { return client->drain().has_value(); }));
  supervisor.signal(SIGTERM);
  ASSERT_EQ(supervisor.waitForEnd(), 0);
  const std::string log = supervisor.log();
  EXPECT_EQ(log.find("refused"), std::string::npos) << log;
  EXPECT_NE(log.find("is disconnected: the supervisor is shutting down"), std::string::npos) << log;
}

TEST(Log, OfAPrivateSupervisorThatIsAskedToEndHasNoError) {
  testing::internal::CaptureStderr();
  {
    PrivatePool pool;
    pool.begin();
    ::kill(pool.welcome().processId, SIGTERM);
    EXPECT_TRUE(pool.waitForEnd());
    EXPECT_NE(pool.failure().value_or("").find("shutting down"), std::string::npos);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// ---- settings and this system ----------------------------------------------------------------

struct Checked {
  int exitCode = -1;
  std::string text;
};

Checked isopoold(const std::string& arguments) {
  const std::string command = std::string("env -u ISOPOOL_TEST_MARK ") + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  Checked checked;
  std::array<char, 4096> buffer{};
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    checked.text.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) checked.exitCode = WEXITSTATUS(status);
  return checked;
}

/// Creates a shell script in the folder and returns its path.
std::string programIn(const TemporaryFolder& folder, const std::string& name,
                      const std::string& commands) {
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path) << "#!/bin/sh\n" << commands << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

const std::string kCheck = std::string(ISOPOOLD) + " --check --worker " + PLAIN_WORKER + " ";

void expectRefused(const std::string& arguments, const std::string& text) {
  const Checked checked = isopoold(arguments);
  EXPECT_EQ(checked.exitCode, 2) << checked.text;
  EXPECT_NE(checked.text.find(text), std::string::npos) << checked.text;
  EXPECT_EQ(std::count(checked.text.begin(), checked.text.end(), '\n'), 1) << checked.text;
}

TEST(Check, PassesWhatThisSystemHas) {
  const Checked checked = isopoold(kCheck + "--sandbox-read /usr --python /usr/bin/env");
  EXPECT_EQ(checked.exitCode, 2) << "env is not a Python";
  EXPECT_EQ(isopoold(kCheck + "--sandbox-read /usr:/etc --listen /tmp/s").exitCode, 0);
}

TEST(Check, StatesThatSettingsWithoutAnAddressNeedASocket) {
  const std::string needsSocket = "only a service manager that hands over a socket can start";
  const Checked without = isopoold(kCheck);
  EXPECT_EQ(without.exitCode, 0) << "a unit with a socket has no address in its settings";
  EXPECT_NE(without.text.find(needsSocket), std::string::npos) << without.text;
  const Checked with = isopoold(kCheck + "--listen /tmp/s");
  EXPECT_EQ(with.exitCode, 0);
  EXPECT_EQ(with.text.find(needsSocket), std::string::npos) << with.text;
  expectRefused(kCheck + "--listen ''", "isopoold: --listen: '' is not a path");
}

TEST(Check, RefusesFoldersThatAreNotThere) {
  expectRefused(kCheck + "--sandbox-read /usr:/no/folder",
                "sandbox.read (flag --sandbox-read): /no/folder: No such file or directory");
  expectRefused(kCheck + "--sandbox-write /etc/passwd",
                "sandbox.write (flag --sandbox-write): /etc/passwd is not a folder");
  expectRefused(kCheck + "--listen /no/folder/socket", "listen (flag --listen): /no/folder: ");
}

TEST(Check, RefusesALogFileThatAStartCouldNotOpen) {
  const TemporaryFolder folder;
  expectRefused(kCheck + "--log-file /no/folder/log", "log_file (flag --log-file): /no/folder: ");
  expectRefused(kCheck + "--log-file " + folder.path(), "is a folder, not a file");
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expectRefused(kCheck + "--log-file " + pipe, "is a named pipe that no process reads");
  EXPECT_EQ(isopoold(kCheck + "--log-file " + folder.path() + "/log").exitCode, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/log"));
}

TEST(Check, RefusesFoldersWhereStrictWorkersCouldPlantCode) {
  // The plain worker stands in for the real program, whose answer worker_test checks.
  expectRefused("PLAIN_WORKER_CHECK='one line' " + kCheck + "--sandbox strict --sandbox-write /tmp",
                "isopoold: one line");
  EXPECT_EQ(isopoold("PLAIN_WORKER_CHECK='one line' " + kCheck + "--sandbox-write /tmp").exitCode,
            0);
}

TEST(Check, RefusesAWorkerProgramThatIsNotThere) {
  expectRefused(kCheck + "--worker /no/worker", "worker_program (flag --worker): /no/worker: ");
  expectRefused("ISOPOOL_WORKER=/etc " + std::string(ISOPOOLD) + " --check",
                "worker_program (environment ISOPOOL_WORKER): /etc is a folder");
}

TEST(Check, RefusesAVariableThatIsNoSetting) {
  expectRefused("ISOPOOL_WORKRES=2 " + kCheck,
                "the variable ISOPOOL_WORKRES is not a setting; the nearest is ISOPOOL_WORKERS");
}

TEST(Check, RefusesAWorkerProgramThatAnswersNothingAboutTheSandbox) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& commands) {
    const std::string program = programIn(folder, "worker", commands);
    const Checked checked =
        isopoold(std::string(ISOPOOLD) + " --check --sandbox strict --worker " + program);
    EXPECT_EQ(checked.exitCode, 2) << checked.text;
    return checked.text;
  };
  EXPECT_NE(refusal("kill -SEGV $$").find("/worker --check-sandbox was killed by signal 11"),
            std::string::npos);
  EXPECT_NE(refusal("exit 1").find("/worker --check-sandbox exited with code 1"),
            std::string::npos);
}

TEST(Check, WorksIfItsStarterIgnoresSigchld) {
  expectRefused(
      "env --ignore-signal=CHLD PLAIN_WORKER_CHECK='one line' " + kCheck + "--sandbox strict",
      "isopoold: one line");
  EXPECT_EQ(isopoold("env --ignore-signal=CHLD " + kCheck + "--sandbox strict").exitCode, 0);
}

TEST(Check, RefusesAPythonOfAnotherVersionAndOneWithAnotherTorch) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& versions) {
    return isopoold(kCheck + "--python " +
                    programIn(folder, "python", "printf '" + versions + "'"));
  };
  const Checked otherPython = refusal("2.7\\n2.0.0\\n");
  EXPECT_EQ(otherPython.exitCode, 2);
  std::smatch built;
  ASSERT_TRUE(std::regex_search(
      otherPython.text, built,
      std::regex("python \\(flag --python\\): [^ ]*/python is Python 2.7, but isopool was built "
                 "for ([0-9]+[.][0-9]+)\n")))
      << otherPython.text;
  const Checked otherTorch = refusal(built[1].str() + "\\n0.1.0\\n");
  EXPECT_EQ(otherTorch.exitCode, 2);
  std::smatch torch;
  ASSERT_TRUE(std::regex_search(
      otherTorch.text, torch,
      std::regex("/python has torch 0.1.0, but isopool was built for ([0-9.]+)\n")))
      << otherTorch.text;
  const Checked right = refusal(built[1].str() + "\\n" + torch[1].str() + "+cpu\\n");
  EXPECT_EQ(right.exitCode, 0) << right.text;
}

class PythonSetting : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(PythonSetting, IsRefusedByCheckAndAtStart) {
  const auto& [value, problem] = GetParam();
  const std::string setting = std::string("ISOPOOL_PYTHON_EXECUTABLE=") + value + " ";
  const std::string text =
      std::string("python (environment ISOPOOL_PYTHON_EXECUTABLE): ") + value + problem;
  expectRefused(setting + kCheck, text);
  expectRefused(setting + ISOPOOLD + " --listen /tmp/never-served --worker " + PLAIN_WORKER, text);
}

INSTANTIATE_TEST_SUITE_P(, PythonSetting,
                         testing::Values(std::pair{"/no/python", ": No such file or directory"},
                                         std::pair{"/usr", " is a folder, not a program"},
                                         std::pair{"/etc/passwd", " can't be executed"},
                                         std::pair{"/bin/false", " is not a working Python"}));

TEST(Check, RefusesAPythonWithoutTorch) {
  const char* python = "/usr/bin/python3";
  if (!std::filesystem::exists(python)) GTEST_SKIP() << "there is no " << python;
  if (std::system("/usr/bin/python3 -c 'import torch' >/dev/null 2>&1") == 0) {
    GTEST_SKIP() << "it has torch";
  }
  expectRefused(kCheck + "--python " + python,
                std::string("python (flag --python): ") + python + " has no torch");
}

}  // namespace
}  // namespace isopool::tests
