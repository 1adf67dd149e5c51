// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace isopool::tests {

/// Kinds of calls that can be made to fail. The first is malloc and its relatives, and so also
/// operator new.
enum class CallKind : uint32_t {
  kAllocation,
  kMmap,
  kMemfdCreate,
  kFallocate,
  kFork,  ///< and posix_spawn
  kSocketpair,
  kSendmsg,
  kRecvmsg,
  kPipe,
  kEventfd,
  kEpoll,      ///< epoll_create1 and epoll_ctl
  kDuplicate,  ///< fcntl(F_DUPFD_CLOEXEC)
  kPidfdOpen,
  kThread,  ///< pthread_create
  kCount
};

inline constexpr std::array<std::string_view, static_cast<size_t>(CallKind::kCount)> kCallKindNames{
    "allocation", "mmap", "memfd_create", "fallocate", "fork", "socketpair", "sendmsg",
    "recvmsg",    "pipe", "eventfd",      "epoll",     "dup",  "pidfd_open", "thread"};

/// The library libisopool_failing_calls.so makes the n-th call of a kind fail with the error that
/// the kernel returns when the resource is used up. It is linked first, or loaded by LD_PRELOAD and
/// controlled by the environment:
///
///   ISOPOOL_FAIL_CALL     KIND:N, counted from main
///   ISOPOOL_FAIL_PROGRAM  the name of the program that it is meant for
///   ISOPOOL_FAIL_REPORT   a file that gets an f for each call that failed, a c for each crash
extern "C" {
/// Makes the n-th call of a kind from now on fail in this process; n = 0: none fails.
void isopoolFailNthCall(uint32_t kind, uint64_t n);
/// The number of calls of that kind since isopoolFailNthCall().
uint64_t isopoolCallsCounted();
}

}  // namespace isopool::tests
