// SPDX-License-Identifier: BSD-3-Clause
// A private supervisor with plain workers, with each of its calls failing in turn.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "ipc/channel/layout.h"
#include "ipc/control/client_messages.h"
#include "testing/process_mark.h"
#include "tests/fault_injection/failing_calls.h"
#include "tests/supervisor/control_client.h"

namespace isopool::tests {
namespace {

constexpr milliseconds kHang(8000);
constexpr uint64_t kMost = 100'000;

/// A supervisor in which the n-th call of a kind fails.
class FailingSupervisor : public ControlClient {
 public:
  FailingSupervisor(std::string_view kind, uint64_t n) {
    report_ =
        std::filesystem::temp_directory_path() / ("isopool-fail-" + std::to_string(::getpid()));
    std::filesystem::remove(report_);
    auto [ours, theirs] = ipc::ControlSocket::makePair();
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
    setControl(ipc::ControlSocket(std::move(ours)));
    lifeline_ = base::Fd(pipe[1]);
    const base::Fd control(::fcntl(theirs.get(), F_DUPFD_CLOEXEC, 10));
    const base::Fd readEnd(::fcntl(pipe[0], F_DUPFD_CLOEXEC, 10));
    ::close(pipe[0]);
    theirs.close();
    std::vector<std::string> variables{
        mark_.variable(),
        "LD_PRELOAD=" FAILING_CALLS,
        "ISOPOOL_FAIL_CALL=" + std::string(kind) + ":" + std::to_string(n),
        "ISOPOOL_FAIL_PROGRAM=isopoold",
        "ISOPOOL_FAIL_REPORT=" + report_.string(),
        "ISOPOOL_LOG_LEVEL=off"};
    for (char** each = environ; *each != nullptr; ++each) variables.emplace_back(*each);
    std::vector<std::string> words{ISOPOOLD, "--private", "--worker", PLAIN_WORKER};
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> result;
      for (std::string& text : texts) result.push_back(text.data());
      result.push_back(nullptr);
      return result;
    };
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, control.get(), 3);
    ::posix_spawn_file_actions_adddup2(&actions, readEnd.get(), 4);
    ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    pid_t pid = -1;
    EXPECT_EQ(::posix_spawn(&pid, ISOPOOLD, &actions, nullptr, pointers(words).data(),
                            pointers(variables).data()),
              0);
    ::posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    ::waitpid(pid, &status, 0);
    // isopoold goes into the background at once; if that fails, it exits with an error code.
    EXPECT_TRUE(WIFEXITED(status)) << "it died of signal " << WTERMSIG(status);
  }

  ~FailingSupervisor() {
    closeControl();
    lifeline_.close();
    EXPECT_TRUE(mark_.waitUntilNoneIsLeft(milliseconds(3000))) << "processes are left over";
    for (const pid_t pid : mark_.processes()) ::kill(pid, SIGKILL);
    std::filesystem::remove(report_);
  }

  bool callFailed() const { return report().find('f') != std::string::npos; }
  bool crashed() const { return report().find('c') != std::string::npos; }

  bool ended() const { return failure().has_value() || controlEnded(); }

  /// Runs a pool from its start to its end, or until the supervisor ends. Returns an empty text, or
  /// the step at which neither the expected event nor an end came in time.
  std::string live() {
    const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    ipc::Hello hello;
    hello.layoutVersion = ipc::kLayoutVersion;
    hello.processId = ::getpid();
    send(hello, {pidfd.get()});
    if (!reaches([this] { return isWelcome(); })) return "no welcome";
    send(ipc::OpenPool{1, 1});
    if (!reaches([this] { return serves(0); })) return "no worker";
    if (ended()) return {};
    const uint64_t first = serving(1, 0);
    post(first, "hello");
    if (!reaches([&] { return worker(first).end->completionReady() || worker(first).died; })) {
      return "no answer";
    }
    if (ended()) return {};
    killAndReport(first);
    if (!reaches([&] { return serves(first); })) return "no replacement";
    return {};
  }

 private:
  bool serves(uint64_t butNot) {
    const uint64_t epoch = serving(1, 0);
    return epoch != 0 && epoch != butNot && !worker(epoch).died;
  }
  bool reaches(const std::function<bool()>& condition) {
    return waitFor([&] { return ended() || condition(); }, kHang) || ended();
  }

  std::string report() const {
    std::string text;
    std::ifstream(report_) >> text;
    return text;
  }

  ProcessMark mark_;
  base::Fd lifeline_;
  std::filesystem::path report_;
};

class EachCallOfTheSupervisor : public testing::TestWithParam<uint32_t> {};

TEST_P(EachCallOfTheSupervisor, ThatFailsEndsInAnErrorOrInService) {
  const std::string_view kind = kCallKindNames[GetParam()];
  const bool many = GetParam() == static_cast<uint32_t>(CallKind::kAllocation);
  // There are thousands of allocations: the steps grow, unless the variable asks for all.
  const char* everyFrom = std::getenv("ISOPOOL_FAIL_EVERY_CALL_FROM");
  const bool leaps = many && everyFrom == nullptr;
  uint64_t failed = 0;
  uint64_t served = 0;
  uint64_t n = many && everyFrom != nullptr ? std::strtoull(everyFrom, nullptr, 10) : 1;
  for (bool more = true; more; n += leaps ? 1 + n / 24 : 1) {
    FailingSupervisor supervisor(kind, n);
    const std::string stuck = supervisor.live();
    EXPECT_EQ(stuck, "") << kind << " " << n << " failed, and neither an event nor an end followed";
    EXPECT_FALSE(supervisor.crashed()) << kind << " " << n << " failed, and it crashed";
    if (supervisor.callFailed() && !supervisor.ended()) ++served;
    more = supervisor.callFailed() && n < kMost;
    if (more) ++failed;
  }
  std::printf("%s: %llu failed, of which %llu were survived; the last was before the %llu-th\n",
              std::string(kind).c_str(), static_cast<unsigned long long>(failed),
              static_cast<unsigned long long>(served), static_cast<unsigned long long>(n - 1));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachCallOfTheSupervisor,
                         testing::Range(0u, static_cast<uint32_t>(CallKind::kCount)),
                         [](const auto& test) { return std::string(kCallKindNames[test.param]); });

}  // namespace
}  // namespace isopool::tests
