// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

/// A pool whose object is warmed up by a call that notes its process in a file. While a file named
/// "blocked" exists the call waits, while "raising" exists it raises an error.
class WarmUp : public ::testing::Test {
 protected:
  explicit WarmUp(size_t workers = 2) {
    sharedManager();
    PoolOptions options;
    options.workers = workers;
    options.logger = [this](LogLevel, std::string_view text) {
      std::lock_guard lock(mutex_);
      events_ += std::string(text) + "\n";
    };
    options_ = options;
  }

  void TearDown() override {
    std::lock_guard lock(mutex_);
    if (HasFailure()) std::cerr << "events of the pool:\n" << events_;
  }
  void open() {
    const ScopedVariable variable(mark_.variable());
    manager_ = std::make_unique<InterpreterManager>(options_);
    subject_.emplace(*manager_);
  }
  const ReplicatedObj& object() const { return subject_->object(); }
  std::string source() const {
    return "import os, time\n"
           "def note(path, text):\n"
           "    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
           "    os.write(file, text.encode())\n"
           "    os.close(file)\n"
           "note('" +
           path("begun") +
           "', f'{os.getpid()}\\n')\n"
           "while os.path.exists('" +
           path("blocked") +
           "'):\n"
           "    time.sleep(0.001)\n"
           "if os.path.exists('" +
           path("raising") +
           "'):\n"
           "    raise LookupError('the warm-up is refused')\n"
           "note('" +
           path("warm") + "', f'{os.getpid()}\\n')\n";
  }
  void warmUp() const { object().method("run").warmUp({source()}); }
  std::string path(const std::string& name) const { return stem_ + name; }
  void make(const std::string& name) const { std::ofstream(path(name)).put('x'); }
  void remove(const std::string& name) const { std::filesystem::remove(path(name)); }
  std::multiset<int64_t> processesIn(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istream_iterator<int64_t>(file), {}};
  }
  bool isWarm(int64_t process) const { return processesIn("warm").contains(process); }
  int64_t process(size_t slot) const {
    return manager_->allInstances()[slot].processId().value_or(-1);
  }
  void kill(size_t slot) const {
    // The slot may name a process that has just died.
    pid_t victim = -1;
    ASSERT_TRUE(waitUntil([&] {
      victim = static_cast<pid_t>(process(slot));
      return victim > 0 && ::kill(victim, SIGKILL) == 0;
    }));
    ASSERT_TRUE(waitUntilDead(victim, kPatience));
  }
  /// Waits until a spare has begun the call.
  void awaitNewBeginning(size_t known) const {
    ASSERT_TRUE(waitUntil([&] { return processesIn("begun").size() > known; }));
  }
  bool isLogged(const std::string& words) {
    std::lock_guard lock(mutex_);
    return events_.find(words) != std::string::npos;
  }

  ProcessMark mark_;
  std::mutex mutex_;
  std::string events_;
  PoolOptions options_;
  std::unique_ptr<InterpreterManager> manager_;
  std::optional<Subject> subject_;
  const std::string stem_ = testFolder() / ("warm-up-" + std::to_string(number_++) + "-");
  static inline int number_ = 0;
};

TEST_F(WarmUp, CallsEveryWorkerAndTheSpare) {
  open();
  warmUp();
  EXPECT_TRUE(isWarm(process(0)));
  EXPECT_TRUE(isWarm(process(1)));
  EXPECT_TRUE(waitUntil([&] { return processesIn("warm").size() == 3; })) << "the spare";
}

TEST_F(WarmUp, AReplacementMakesTheCallBeforeAnyOther) {
  open();
  warmUp();
  for (int round = 0; round < 5; ++round) {
    kill(static_cast<size_t>(round % 2));
    for (int call = 0; call < 20; ++call) {
      const int64_t served = subject_->number("pid");
      EXPECT_TRUE(isWarm(served)) << "process " << served << " was not warm";
    }
    ASSERT_TRUE(waitUntil([&] { return process(0) > 0 && process(1) > 0; }));
  }
  for (const int64_t each : processesIn("warm")) {
    EXPECT_EQ(processesIn("warm").count(each), 1u) << "once per process";
  }
}

TEST_F(WarmUp, WithoutSparesAReplacementMakesTheCallBeforeAnyOther) {
  options_.workers = 1;
  options_.spares = 0;
  open();
  warmUp();
  for (int round = 0; round < 3; ++round) {
    kill(0);
    EXPECT_TRUE(isWarm(subject_->number("pid")));
  }
}

TEST_F(WarmUp, AWorkerThatIsNotWarmDoesNotServe) {
  open();
  warmUp();
  ASSERT_TRUE(waitUntil([&] { return processesIn("warm").size() == 3; }));
  make("blocked");
  kill(0);  // the warm spare takes over; the next one waits in its warm-up
  awaitNewBeginning(3);
  const int64_t served = process(1);
  kill(0);
  EXPECT_TRUE(waitUntil([&] {
    return manager_->statistics().workers[0].state == WorkerStatistics::State::kWarmingUp;
  }));
  for (int call = 0; call < 20; ++call) EXPECT_EQ(subject_->number("pid"), served);
  remove("blocked");
  EXPECT_TRUE(waitUntil([&] {
    return manager_->statistics().workers[0].state == WorkerStatistics::State::kServing;
  }));
  EXPECT_TRUE(isWarm(process(0)));
}

TEST_F(WarmUp, ThatFailsThrowsAndIsForgotten) {
  // A spare that starts while warmUp() runs may make the call once.
  options_.spares = 0;
  open();
  make("raising");
  EXPECT_THROW(warmUp(), RemoteError);
  remove("raising");
  const size_t begun = processesIn("begun").size();
  kill(0);
  EXPECT_TRUE(waitUntil([&] { return process(0) > 0; }));
  subject_->number("pid");
  EXPECT_EQ(processesIn("begun").size(), begun);
}

TEST_F(WarmUp, ThatFailsInALaterWorkerIsLoggedAndTheWorkerServes) {
  options_.workers = 1;
  options_.spares = 0;
  open();
  warmUp();
  make("raising");
  kill(0);
  const int64_t served = subject_->number("pid");
  EXPECT_FALSE(isWarm(served));
  EXPECT_TRUE(waitUntil([&] { return isLogged("serves although its warm-up failed"); }));
  EXPECT_TRUE(isLogged("the warm-up is refused"));
}

TEST_F(WarmUp, EndsWithItsObject) {
  options_.workers = 1;
  open();
  warmUp();
  ASSERT_TRUE(waitUntil([&] { return processesIn("warm").size() == 2; }));
  subject_.reset();
  subject_.emplace(*manager_);
  kill(0);
  kill(0);
  EXPECT_TRUE(waitUntil([&] { return process(0) > 0; }));
  EXPECT_GT(subject_->number("pid"), 0);
  EXPECT_EQ(processesIn("begun").size(), 2u);
}

TEST_F(WarmUp, AManagerEndsWhileAWorkerIsWarmedUp) {
  open();
  warmUp();
  ASSERT_TRUE(waitUntil([&] { return processesIn("warm").size() == 3; }));
  make("blocked");
  kill(0);
  awaitNewBeginning(3);
  subject_.reset();
  const auto began = Clock::now();
  manager_.reset();
  EXPECT_LT(Clock::now() - began, kPatience);
  EXPECT_TRUE(mark_.waitUntilNoneIsLeft(kPatience));
}

class NotesItself : public Environment {
 public:
  void configureInterpreter(Interpreter* interpreter) override {
    InterpreterSession session = interpreter->acquireSession();
    session.global("os", "environ").attr("__setitem__")({"ISOTEST_CONFIGURED", "yes"});
  }
};

TEST_F(WarmUp, ComesAfterTheEnvironmentOfTheProgram) {
  options_.workers = 1;
  options_.environment = std::make_shared<NotesItself>();
  open();
  const std::string check =
      "import os\n"
      "if os.environ.get('ISOTEST_CONFIGURED') != 'yes':\n"
      "    raise LookupError('not configured')\n" +
      source();
  object().method("run").warmUp({check});
  for (int round = 0; round < 3; ++round) {
    kill(0);
    EXPECT_TRUE(isWarm(subject_->number("pid")));
  }
  EXPECT_FALSE(isLogged("not configured"));
}

TEST_F(WarmUp, TakesTensorsWithIt) {
  options_.workers = 1;
  open();
  object().method("keep").warmUp({at::ones({1 << 16})});
  kill(0);
  EXPECT_EQ(subject_->ask("kept_sum").toDoubleVector(), std::vector<double>{65536.0});
}

}  // namespace
}  // namespace isopool::tests
