// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/anonymous_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

namespace isopool::worker {
namespace {

// After each call of begin(), kills the first child of the given thread that it sees.
class ChildKiller {
 public:
  explicit ChildKiller(pid_t thread)
      : children_("/proc/self/task/" + std::to_string(thread) + "/children"),
        thread_([this] { run(); }) {}
  ~ChildKiller() {
    over_ = true;
    thread_.join();
  }
  void begin() { armed_ = true; }
  int kills() const { return kills_; }

 private:
  void run() {
    while (!over_) {
      pid_t child = 0;
      if (!armed_ || !(std::ifstream(children_) >> child)) continue;
      armed_ = false;
      // A child that has ended by itself may be killed too, without effect.
      if (::kill(child, SIGKILL) == 0) ++kills_;
    }
  }

  const std::string children_;
  std::atomic<bool> armed_{false};
  std::atomic<bool> over_{false};
  std::atomic<int> kills_{0};
  std::thread thread_;
};

TEST(AnonymousFolder, IsMadeThoughTheProcessThatMountsItIsKilled) {
  if (!makeAnonymousFolder().valid()) {
    GTEST_SKIP() << "this system allows no user namespaces";
  }
  ChildKiller killer(static_cast<pid_t>(::syscall(SYS_gettid)));
  for (int i = 0; i < 200; ++i) {
    killer.begin();
    ASSERT_TRUE(makeAnonymousFolder().valid()) << "after " << killer.kills() << " kills";
  }
  EXPECT_GT(killer.kills(), 0);
}

}  // namespace
}  // namespace isopool::worker
