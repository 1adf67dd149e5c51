// SPDX-License-Identifier: BSD-3-Clause
#include "base/process_tree.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/parent_death.h"
#include "base/system_call.h"

namespace isopool::base {
namespace {

constexpr size_t kBytes = size_t{64} << 20;

/// A child process. It runs `begin`, reports that this is done, and waits until it is killed.
class Child {
 public:
  explicit Child(const std::function<pid_t()>& begin) {
    std::array<int, 2> report{};
    checkSystemCall(::pipe(report.data()), "pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      const pid_t further = begin();
      (void)!::write(report[1], &further, sizeof further);
      for (;;) ::pause();
    }
    ::close(report[1]);
    if (::read(report[0], &further_, sizeof further_) != sizeof further_) further_ = -1;
    ::close(report[0]);
  }
  ~Child() {
    if (further_ > 0) ::kill(further_, SIGKILL);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  pid_t further() const { return further_; }  ///< what `begin` returned

 private:
  pid_t pid_ = -1;
  pid_t further_ = -1;
};

pid_t forkOne(bool ends = false) {
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (ends) ::_exit(0);
  endWithParent(self);
  for (;;) ::pause();
}

void* touched(size_t bytes, int flags) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
  auto* pages = static_cast<volatile char*>(memory);
  for (size_t at = 0; at < bytes; at += 4096) pages[at] = 1;
  return memory;
}

TEST(ProcessTree, HasChildrenOfChildrenAndCountsThoseThatEnded) {
  const Child child([] {
    const pid_t dead = forkOne(/*ends=*/true);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(dead), &info, WEXITED | WNOWAIT);
    return forkOne();
  });
  const pid_t root = child.pid();
  const Descendants found = descendantsOf({&root, 1}, root, 100);
  EXPECT_EQ(found.living, std::vector<pid_t>{child.further()});
  EXPECT_EQ(found.ended, 1u);
  EXPECT_EQ(found.further, 0u);
  const pid_t self = ::getpid();
  const Descendants all = descendantsOf({&self, 1}, self, 100);
  for (const pid_t pid : {root, child.further()}) {
    EXPECT_EQ(std::count(all.living.begin(), all.living.end(), pid), 1) << pid;
  }
}

TEST(ProcessTree, CountsTheLivingBeyondTheMostAndNoneThatEnded) {
  const Child child([] {
    for (int i = 0; i < 3; ++i) {
      siginfo_t info{};
      ::waitid(P_PID, static_cast<id_t>(forkOne(/*ends=*/true)), &info, WEXITED | WNOWAIT);
    }
    forkOne();
    return forkOne();
  });
  const pid_t root = child.pid();
  const Descendants all = descendantsOf({&root, 1}, root, 2);
  EXPECT_EQ(all.living.size(), 2u);
  EXPECT_EQ(all.ended, 3u);
  EXPECT_EQ(all.further, 0u);
  const Descendants some = descendantsOf({&root, 1}, root, 1);
  EXPECT_EQ(some.living.size(), 1u);
  EXPECT_EQ(some.further, 1u);
}

// Sharing through fork() neither hides memory nor counts it twice.
TEST(ProcessTree, SumsMemoryThatProcessesShareSinceAForkOnce) {
  const Child child([] {
    touched(kBytes, MAP_PRIVATE);
    return forkOne();
  });
  const uint64_t both = privateBytes(child.pid()) + privateBytes(child.further());
  EXPECT_GE(both, kBytes);
  EXPECT_LT(both, kBytes + kBytes / 2);
  EXPECT_GE(privateBytesAtMost(child.pid()), kBytes);
  EXPECT_GE(privateBytesAtMost(child.further()), kBytes);
}

TEST(ProcessTree, CountsMemoryThatNoLimitOfTheKernelCounts) {
  const Child grown([] {
    touched(kBytes, MAP_PRIVATE | MAP_GROWSDOWN);
    return 0;
  });
  EXPECT_GE(privateBytes(grown.pid()), kBytes);
  const Child readOnly([] {
    ::mprotect(touched(kBytes, MAP_PRIVATE), kBytes, PROT_READ);
    return 0;
  });
  EXPECT_GE(privateBytes(readOnly.pid()), kBytes);
}

TEST(ProcessTree, CountsPageTablesAndNoSharedMemory) {
  const Child child([] {
    touched(kBytes, MAP_SHARED);
    return 0;
  });
  EXPECT_LT(privateBytes(child.pid()), kBytes);
  const Child sparse([] {
    constexpr size_t kSparse = size_t{16} << 30;
    auto* pages = static_cast<volatile char*>(
        ::mmap(nullptr, kSparse, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ::madvise(const_cast<char*>(pages), kSparse, MADV_NOHUGEPAGE);
    // One page of 2 MiB each has a page table of its own.
    for (size_t at = 0; at < kSparse; at += size_t{2} << 20) (void)pages[at];
    return 0;
  });
  EXPECT_GE(privateBytes(sparse.pid()), uint64_t{32} << 20);
}

TEST(ProcessTree, IsEmptyWhenTheProcessIsGone) {
  pid_t gone = 0;
  {
    gone = Child([] { return 0; }).pid();
  }
  EXPECT_TRUE(descendantsOf({&gone, 1}, 0, 100).living.empty());
  EXPECT_EQ(privateBytes(gone), 0u);
}

}  // namespace
}  // namespace isopool::base
