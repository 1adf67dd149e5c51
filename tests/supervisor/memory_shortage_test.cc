// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/memory_shortage.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <ostream>
#include <string>

#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"
#include "testing/sanitizers.h"

namespace isopool::supervisor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = size_t{1} << 19;
constexpr int kHasMemory = 3;
constexpr int kBadAlloc = 4;

/// A process that runs `work` when its limit allows no further address space.
class ShortOfMemory {
 public:
  explicit ShortOfMemory(const std::function<void()>& work) : pid_(::fork()) {
    if (pid_ == 0) run(work);
    siginfo_t stopped{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED), 0);
  }
  ~ShortOfMemory() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void goOn() const { ::kill(pid_, SIGCONT); }
  bool waitUntilItSleeps() const {
    const auto deadline = Clock::now() + std::chrono::seconds(2);
    while (Clock::now() < deadline) {
      std::string text;
      std::getline(std::ifstream("/proc/" + std::to_string(pid_) + "/stat"), text);
      if (text.find(") S") != std::string::npos) return true;
      ::poll(nullptr, 0, 1);
    }
    return false;
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
  [[noreturn]] static void run(const std::function<void()>& work) {
    waitForMemoryWhenThereIsNone();
    const rlimit low{1, RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &low);
    // Uses up what other tests have left in the heap.
    [[maybe_unused]] static void* volatile kept;
    do kept = std::malloc(kBytes);
    while (kept != nullptr);
    ::raise(SIGSTOP);
    try {
      work();
      ::_exit(kHasMemory);
    } catch (const std::bad_alloc&) {
      ::_exit(kBadAlloc);
    }
  }

  const pid_t pid_;
};

struct Work {
  const char* name;
  std::function<void()> does;
};
void PrintTo(const Work& work, std::ostream* out) { *out << work.name; }

std::shared_ptr<ipc::Frame> longFrame() {
  const msgpack::sbuffer body = ipc::encodeBody(ipc::LoadPackage{1, 2, std::string(kBytes, 'n')});
  auto frame = std::make_shared<ipc::Frame>();
  frame->type = ipc::LoadPackage::kType;
  frame->body.assign(body.data(), body.data() + body.size());
  return frame;
}

Work allocating() {
  // Stored, because the compiler may remove an allocation that is not used.
  [[maybe_unused]] static void* volatile kept;
  return {"OperatorNew", [] { kept = ::operator new(kBytes); }};
}
Work encoding() {
  return {"Encoding", [message = ipc::LoadPackage{1, 2, std::string(kBytes, 'n')}] {
            static_cast<void>(ipc::encodeBody(message));
          }};
}
Work decoding() {
  return {"Decoding", [frame = longFrame()] {
            static_cast<void>(ipc::decodeMessage<ipc::LoadPackage>(*frame));
          }};
}

class MemoryShortage : public ::testing::TestWithParam<Work> {
 protected:
  void SetUp() override {
    if (isopool::tests::kUnderAddressSanitizer) {
      GTEST_SKIP() << "the address sanitizer's allocator does not call the new_handler";
    }
  }
};

TEST_P(MemoryShortage, IsWaitedOut) {
  const ShortOfMemory process(GetParam().does);
  process.goOn();
  ASSERT_TRUE(process.waitUntilItSleeps()) << "the process had memory";
  process.giveMemory();
  EXPECT_EQ(process.waitForEnd(), kHasMemory);
}

TEST_P(MemoryShortage, ThrowsBadAllocIfItLasts) {
  const ShortOfMemory process(GetParam().does);
  const auto began = Clock::now();
  process.goOn();
  EXPECT_EQ(process.waitForEnd(), kBadAlloc);
  EXPECT_GE(Clock::now() - began, std::chrono::seconds(2));
}

INSTANTIATE_TEST_SUITE_P(Of, MemoryShortage,
                         ::testing::Values(allocating(), encoding(), decoding()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace isopool::supervisor
