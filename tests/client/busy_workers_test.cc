// SPDX-License-Identifier: BSD-3-Clause
// A program that attaches to a shared supervisor while its workers run long calls of others.
#include <atomic>
#include <future>

#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

class CountingEnvironment : public Environment {
 public:
  void configureInterpreter(Interpreter* /*interpreter*/) override { ++workers; }
  std::atomic<int> workers{0};
};

class BusyWorkers : public AttachedManagers {
 protected:
  void SetUp() override {
    serve({});
    other_ = attach();
    subject_.emplace(*other_);
  }
  /// A call of the other program occupies a worker until the gate opens.
  std::future<void> occupy(const Gate& gate) {
    return std::async(std::launch::async,
                      [this, &gate] { subject_->ask("wait_at", gate.arguments()); });
  }
  InterpreterManager attachWith(const std::shared_ptr<Environment>& environment) const {
    return InterpreterManager(Address{supervisor().address()}, 2, environment);
  }
  static bool allServe(InterpreterManager& manager) {
    const std::vector<WorkerStatistics> workers = manager.statistics().workers;
    return std::all_of(workers.begin(), workers.end(), [](const WorkerStatistics& each) {
      return each.state == WorkerStatistics::State::kServing;
    });
  }

 private:
  std::unique_ptr<InterpreterManager> other_;
  std::optional<Subject> subject_;
};

TEST_F(BusyWorkers, JoinANewManagerLater) {
  Gate gate;
  std::future<void> call = occupy(gate);
  const pid_t busy = gate.arrival();
  const auto environment = std::make_shared<CountingEnvironment>();
  // Waits for no call of another program.
  InterpreterManager manager = attachWith(environment);
  EXPECT_FALSE(allServe(manager));
  EXPECT_EQ(environment->workers, 1);
  const Subject subject(manager);
  for (int i = 0; i < 20; ++i) EXPECT_NE(subject.number("pid"), busy);
  gate.open();
  call.get();
  EXPECT_TRUE(waitUntil([&] { return allServe(manager); }));
  // Its first use applies the environment.
  EXPECT_EQ(manager.callOnAll("os", "getpid").size(), 2u);
  EXPECT_EQ(environment->workers, 2);
}

TEST_F(BusyWorkers, AllServeANewManagerAtOnceIfTheyAreIdle) {
  const auto environment = std::make_shared<CountingEnvironment>();
  InterpreterManager manager = attachWith(environment);
  EXPECT_TRUE(allServe(manager));
  EXPECT_EQ(environment->workers, 2);
}

}  // namespace
}  // namespace isopool::tests
