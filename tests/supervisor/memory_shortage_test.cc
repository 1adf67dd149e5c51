// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/memory_shortage.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <new>
#include <string>

#include "tests/sanitizers.h"

namespace isopool::supervisor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = size_t{64} << 20;
constexpr int kHasMemory = 3;
constexpr int kBadAlloc = 4;

/// A process that asks for kBytes when it may not have more address space than it has.
class ShortOfMemory {
 public:
  ShortOfMemory() : pid_(::fork()) {
    if (pid_ == 0) ask();
    siginfo_t stopped{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED), 0);
  }
  ~ShortOfMemory() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void goOn() const { ::kill(pid_, SIGCONT); }
  bool sleeps() const {
    std::string text;
    std::getline(std::ifstream("/proc/" + std::to_string(pid_) + "/stat"), text);
    return text.find(") S") != std::string::npos;
  }
  void giveMemory() const {
    const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
    EXPECT_EQ(::prlimit(pid_, RLIMIT_AS, &none, nullptr), 0);
  }
  int waitForEnd() const {
    siginfo_t end{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT), 0);
    return end.si_status;
  }

 private:
  [[noreturn]] static void ask() {
    waitForMemoryWhenThereIsNone();
    const rlimit low{1, RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &low);
    ::raise(SIGSTOP);
    try {
      // Of a new-expression the compiler may think that nobody needs it.
      static_cast<void>(::operator new(kBytes));
      ::_exit(kHasMemory);
    } catch (const std::bad_alloc&) {
      ::_exit(kBadAlloc);
    }
  }

  const pid_t pid_;
};

class MemoryShortage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (isopool::tests::kUnderAddressSanitizer) {
      GTEST_SKIP() << "the address sanitizer's allocator asks no new_handler";
    }
  }
};

TEST_F(MemoryShortage, IsWaitedOut) {
  const ShortOfMemory process;
  process.goOn();
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  while (!process.sleeps() && Clock::now() < deadline) ::poll(nullptr, 0, 1);
  process.giveMemory();
  EXPECT_EQ(process.waitForEnd(), kHasMemory);
}

TEST_F(MemoryShortage, ThatLastsIsABadAlloc) {
  const ShortOfMemory process;
  const auto began = Clock::now();
  process.goOn();
  EXPECT_EQ(process.waitForEnd(), kBadAlloc);
  EXPECT_GE(Clock::now() - began, std::chrono::seconds(2));
}

}  // namespace
}  // namespace isopool::supervisor
