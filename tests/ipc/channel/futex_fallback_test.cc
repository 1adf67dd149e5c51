// SPDX-License-Identifier: BSD-3-Clause
// Futexes on a kernel without futex_waitv, or in a sandbox that forbids it.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <thread>

#include "ipc/channel/futex.h"
#include "tests/ipc/channel/peers.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

namespace isopool::ipc {
namespace {

constexpr int kNoSandbox = 77;

bool forbidWaitVector(uint32_t error) {
  std::array filter{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{filter.size(), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class FutexWithoutWaitVector : public testing::TestWithParam<uint32_t> {
 protected:
  /// Runs `claim` in a process that may not call futex_waitv. Returns the exit code: 0 if it
  /// is true.
  int inSandbox(const std::function<bool()>& claim) {
    tests::Peer peer(tests::PeerKind::kProcess, [&] {
      ::_exit(!forbidWaitVector(GetParam()) ? kNoSandbox : claim() ? 0 : 1);
    });
    const int status = peer.waitForEnd();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_P(FutexWithoutWaitVector, ASleepOnTwoWordsEndsSoonSoThatTheSecondIsLookedAt) {
  const int result = inSandbox([] {
    SharedWord<uint32_t> first{0};
    SharedWord<uint32_t> second{0};
    const std::array watches{FutexWatch{&first, 0}, FutexWatch{&second, 0}};
    const int64_t begin = monotonicNow();
    for (int i = 0; i < 5; ++i) futexWait(watches, std::nullopt);
    const int64_t slept = monotonicNow() - begin;
    return slept > 5'000'000 && slept < 5'000'000'000;
  });
  if (result == kNoSandbox) GTEST_SKIP() << "no seccomp filter can be installed here";
  EXPECT_EQ(result, 0);
}

TEST_P(FutexWithoutWaitVector, AWakeOfTheFirstWordEndsTheSleepAtOnce) {
  const int result = inSandbox([] {
    SharedWord<uint32_t> turn{0};
    static const SharedWord<uint32_t> kNever{0};
    constexpr uint32_t kRounds = 200;
    const auto waitFor = [&](uint32_t parity) {
      for (uint32_t now = turn; now % 2 != parity; now = turn) {
        const std::array watches{FutexWatch{&turn, now}, FutexWatch{&kNever, 0}};
        futexWait(watches, std::nullopt);
      }
    };
    const auto play = [&](uint32_t parity) {
      for (uint32_t round = 0; round < kRounds; ++round) {
        waitFor(parity);
        turn.fetch_add(1);
        futexWake(turn);
      }
    };
    const int64_t begin = monotonicNow();
    std::thread other([&] { play(1); });
    play(0);
    other.join();
    // Far less than the 10 ms that each turn would take without wake-ups.
    return monotonicNow() - begin < int64_t{2 * kRounds} * 5'000'000;
  });
  if (result == kNoSandbox) GTEST_SKIP() << "no seccomp filter can be installed here";
  EXPECT_EQ(result, 0);
}

INSTANTIATE_TEST_SUITE_P(Errors, FutexWithoutWaitVector, testing::Values(ENOSYS, EPERM),
                         [](const auto& error) {
                           return error.param == ENOSYS ? "Unknown" : "Forbidden";
                         });

}  // namespace
}  // namespace isopool::ipc
