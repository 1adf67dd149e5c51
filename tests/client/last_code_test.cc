// SPDX-License-Identifier: BSD-3-Clause
// Destructors of the objects of a program that has left a shared supervisor: they run in its
// workers, and other programs' calls wait meanwhile.
#include <string>

#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

// Each function leaves an object behind whose destructor takes `seconds`.
constexpr const char* kLeaving = R"(
import gc
import time


class Slow:
    def __init__(self, seconds):
        self.seconds = seconds

    def __del__(self):
        time.sleep(self.seconds)


def in_a_cycle(seconds):
    gc.disable()  # a collection within the call would run the destructor there
    slow = Slow(seconds)
    slow.itself = slow


def in_a_handle(seconds):
    return Slow(seconds)
)";

class LastCode : public AttachedManagers, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    serve({"--workers", "1", "--grace", "200ms"});
    staying_ = attach(1);
    subject_.emplace(*staying_);
    worker_ = static_cast<pid_t>(subject_->number("pid"));
  }
  /// A program leaves whose last destructor takes so long.
  void leave(double seconds) const {
    auto leaving = attach(1);
    leaving->registerModuleSource("leaving", kLeaving);
    const Obj left = leaving->acquireOne().global("leaving", GetParam())({seconds});
    leaving.reset();
  }
  /// The worker of a call that waits for the destructors.
  pid_t next() const {
    CallOptions options;
    options.deadline = std::chrono::seconds(10);
    return static_cast<pid_t>(subject_->ask("pid", {}, options).toInt());
  }

  std::unique_ptr<InterpreterManager> staying_;
  std::optional<Subject> subject_;
  pid_t worker_ = -1;
};

TEST_P(LastCode, IsLimitedByTheGracePeriod) {
  leave(3600);
  EXPECT_TRUE(waitUntil([&] { return next() != worker_; }));
  EXPECT_TRUE(waitUntil([&] {
    return supervisor().log().find(
               "which has left, continued for more than 200 ms (ISOPOOL_GRACE)") !=
           std::string::npos;
  })) << supervisor().log();
}

TEST_P(LastCode, ThatEndsWithinTheGracePeriodEndsNoWorker) {
  for (int i = 0; i < 5; ++i) {
    leave(0.05);
    EXPECT_EQ(next(), worker_);
  }
  EXPECT_TRUE(supervisor().waitForReport(
      [](const ipc::Report& report) { return report.clients.size() == 1; }));
  EXPECT_EQ(supervisor().report().restarts, 0u);
}

INSTANTIATE_TEST_SUITE_P(Left, LastCode, ::testing::Values("in_a_cycle", "in_a_handle"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace isopool::tests
