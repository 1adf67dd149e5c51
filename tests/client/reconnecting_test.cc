// SPDX-License-Identifier: BSD-3-Clause
// What a manager does when its shared supervisor ends and another one listens at its address.
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

constexpr milliseconds kLong(60'000);

class Reconnecting : public AttachedManagers {
 protected:
  void kill() {
    ASSERT_EQ(::kill(supervisor().supervisorPid(), SIGKILL), 0);
    ASSERT_TRUE(supervisor().waitForEnd());
  }
  void restart() {
    kill();
    supervisor().start();
  }
};

/// "answered", "not started" or "started" of a SupervisorLost, or the text of another error.
std::string outcomeOf(const std::function<void()>& use) {
  try {
    use();
    return "answered";
  } catch (const SupervisorLost& error) {
    return error.started() ? "started" : "not started";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string textOf(const std::function<void()>& use) {
  try {
    use();
  } catch (const SupervisorLost& error) {
    return error.what();
  }
  return "";
}

size_t threadCount() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

TEST_F(Reconnecting, CallsThatCameMeanwhileAreMadeAtTheNextSupervisor) {
  serve({});
  const auto manager = attach(2, kLong);
  const Subject subject(*manager);
  const int64_t before = subject.number("pid");
  kill();
  std::vector<PendingCall> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(subject.object().callAsync({"pid"}));
  auto waiting = std::async(std::launch::async, [&] { return subject.number("pid"); });
  EXPECT_EQ(waiting.wait_for(milliseconds(50)), std::future_status::timeout);
  EXPECT_FALSE(manager->statistics().connected);
  supervisor().start();
  EXPECT_NE(waiting.get(), before);
  for (const PendingCall& call : calls) EXPECT_NE(call.get().toInt(), before);
  EXPECT_TRUE(manager->statistics().connected);
  EXPECT_EQ(manager->statistics().reconnects, 1u);
}

TEST_F(Reconnecting, ACallThatHadStartedIsLostAndThoseBehindItAreMade) {
  serve({});
  const auto manager = attach(1, kLong);
  const Subject subject(*manager);
  const Gate gate;
  auto started = std::async(std::launch::async, [&] {
    return outcomeOf([&] { subject.ask("wait_at", gate.arguments()); });
  });
  gate.arrival();
  std::vector<std::future<std::string>> behind;
  for (int i = 0; i < 5; ++i) {
    behind.push_back(
        std::async(std::launch::async, [&] { return outcomeOf([&] { subject.ask("pid"); }); }));
  }
  ASSERT_TRUE(waitUntil([&] {
    const PoolStatistics now = manager->statistics();
    return now.callersWaiting + now.workers.at(0).callsInFlight == 6;
  }));
  restart();
  EXPECT_EQ(started.get(), "started");
  for (auto& each : behind) EXPECT_EQ(each.get(), "answered");
}

TEST_F(Reconnecting, AnIdempotentCallThatHadStartedRunsAgain) {
  serve({});
  const auto manager = attach(1, kLong);
  const Subject subject(*manager);
  const Gate gate;
  CallOptions idempotent;
  idempotent.idempotent = true;
  auto call = std::async(std::launch::async, [&] {
    return outcomeOf([&] { subject.ask("wait_at", gate.arguments(), idempotent); });
  });
  const pid_t before = gate.arrival();
  restart();
  EXPECT_TRUE(waitUntil([&] { return gate.arrival() != before; }));
  gate.open();
  EXPECT_EQ(call.get(), "answered");
}

TEST_F(Reconnecting, AnEvictedManagerLosesTheCallThatHadStartedAndAttachesAgain) {
  serve({"--grace", "50ms"});
  const auto manager = attach(1, kLong);
  const Subject subject(*manager);
  const Gate gate;
  auto started = std::async(std::launch::async, [&] {
    return outcomeOf([&] { subject.ask("wait_at", gate.arguments()); });
  });
  gate.arrival();
  const uint64_t number = supervisor().report().clients.at(0).number;
  ASSERT_TRUE(supervisor().act(ipc::Action::kEvictClient, number).done);
  EXPECT_EQ(started.get(), "started");
  EXPECT_EQ(outcomeOf([&] { subject.ask("pid"); }), "answered");
  EXPECT_EQ(manager->statistics().reconnects, 1u);
  EXPECT_NE(supervisor().report().clients.at(0).number, number);
}

TEST_F(Reconnecting, AnEvictedManagerThatDoesNotAttachAgainReportsTheReason) {
  serve({});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const uint64_t number = supervisor().report().clients.at(0).number;
  const size_t threads = threadCount();
  ASSERT_TRUE(supervisor().act(ipc::Action::kEvictClient, number).done);
  // The connection's thread has then read the reason, and behind it the end of the connection.
  ASSERT_TRUE(waitUntil([&] { return threadCount() < threads; }));
  const std::string text = textOf([&] { subject.ask("pid"); });
  EXPECT_NE(text.find("evicted this client"), std::string::npos) << text;
}

TEST_F(Reconnecting, SessionsAndStreamsAreLostAndSaySo) {
  serve({});
  const auto manager = attach(1, kLong);
  const Subject subject(*manager);
  InterpreterSession session = subject.object().acquireSession();
  const Obj list = session.fromIValue(at::IValue(std::vector<int64_t>{1, 2, 3}));
  ResultStream stream(list);
  ASSERT_EQ(stream.next()->toInt(), 1);
  kill();
  ASSERT_TRUE(waitUntil([&] { return !manager->statistics().connected; }));
  EXPECT_EQ(outcomeOf([&] { session.global("math", "pi"); }), "not started");
  supervisor().start();
  EXPECT_EQ(outcomeOf([&] { subject.ask("pid"); }), "answered");
  EXPECT_EQ(outcomeOf([&] { session.global("math", "pi"); }), "not started");
  EXPECT_EQ(outcomeOf([&] { list.toIValue(); }), "not started");
  EXPECT_EQ(outcomeOf([&] { stream.next(); }), "not started");
  const std::string text = textOf([&] { session.global("math", "pi"); });
  EXPECT_NE(text.find("supervisor is gone"), std::string::npos) << text;
  EXPECT_NE(text.find("the session, its Objs and streams are lost"), std::string::npos) << text;
  EXPECT_EQ(outcomeOf([&] { subject.object().acquireSession().self({"pid"}); }), "answered");
}

TEST_F(Reconnecting, PackagesAndMovedObjectsAreThereAgain) {
  serve({});
  const auto manager = attach(2, kLong);
  Package package = manager->loadPackage(packagePath());
  const Subject early(package.loadPickle("model", "model.pkl"));
  InterpreterSession session = package.acquireSession();
  const ReplicatedObj moved =
      session.createMovable(session.global("torch", "arange")({at::IValue(100'000)}));
  early.object().callOnAll({"pid"});
  restart();
  early.object().callOnAll({"pid"});
  EXPECT_EQ(early.object().rebuilt(), 2u);
  const Subject late(package.loadPickle("model", "model.pkl"));
  EXPECT_GT(late.number("pid"), 0);
  for (const Interpreter& each : manager->allInstances()) {
    InterpreterSession now = each.acquireSession();
    EXPECT_TRUE(moved.toObj(&now).toIValue().toTensor().equal(at::arange(100'000)));
  }
}

TEST_F(Reconnecting, LoadingAndOpeningWaitForTheNextSupervisor) {
  serve({});
  const auto manager = attach(2, kLong);
  kill();
  auto loading = std::async(std::launch::async, [&] { return Subject(*manager).number("pid"); });
  auto opening = std::async(std::launch::async, [&] {
    return manager->acquireOne().global("os", "getpid")(at::ArrayRef<at::IValue>{}).toIValue();
  });
  auto everywhere =
      std::async(std::launch::async, [&] { return manager->callOnAll("os", "getpid").size(); });
  EXPECT_EQ(loading.wait_for(milliseconds(50)), std::future_status::timeout);
  supervisor().start();
  EXPECT_GT(loading.get(), 0);
  EXPECT_GT(opening.get().toInt(), 0);
  EXPECT_EQ(everywhere.get(), 2u);
}

TEST_F(Reconnecting, WorkersOfTheNextSupervisorAreWarm) {
  serve({});
  const auto manager = attach(2, kLong);
  const Subject subject(*manager);
  subject.object().warmUp({"set_mark", 7});
  restart();
  EXPECT_EQ(subject.number("get_mark"), 7);
}

TEST_F(Reconnecting, EachLossIsLoggedOnceAndNoOtherError) {
  serve({});
  std::mutex mutex;
  std::vector<std::string> errors;
  PoolOptions options;
  options.workers = 1;
  options.sharedSupervisor = supervisor().address();
  options.reconnect = kLong;
  options.logger = [&](LogLevel level, std::string_view text) {
    const std::lock_guard lock(mutex);
    if (level == LogLevel::kError) errors.emplace_back(text);
  };
  InterpreterManager manager(options);
  const Subject subject(manager);
  for (int i = 0; i < 3; ++i) {
    restart();
    EXPECT_GT(subject.number("pid"), 0);
  }
  // The next loss comes after the end of the connection that the one before has lost.
  const std::lock_guard lock(mutex);
  EXPECT_EQ(errors.size(), 3u);
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("the supervisor is gone"), std::string::npos) << error;
  }
}

TEST_F(Reconnecting, AfterItsLimitCallsFailUntilASupervisorListens) {
  serve({});
  const auto manager = attach(1, milliseconds(300));
  const Subject subject(*manager);
  const auto began = Clock::now();
  kill();
  EXPECT_EQ(outcomeOf([&] { subject.ask("pid"); }), "not started");
  EXPECT_GE(Clock::now() - began, milliseconds(300));
  const std::string text = textOf([&] { subject.ask("pid"); });
  EXPECT_NE(text.find("can't be reached"), std::string::npos) << text;
  EXPECT_FALSE(manager->statistics().connected);
  supervisor().start();
  EXPECT_TRUE(waitUntil([&] { return outcomeOf([&] { subject.ask("pid"); }) == "answered"; },
                        milliseconds(20'000)));
}

TEST_F(Reconnecting, AManagerWhoseProgramHadNoMemoryAtTheLossAttachesAgain) {
  serve({});
  const auto manager = attach(1, kLong);
  const Subject subject(*manager);
  const int64_t before = subject.number("pid");
  // No address space for the stack of a new thread, or for anything else that is not there yet.
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &usual), 0);
  const rlimit least{1, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &least), 0);
  ::kill(supervisor().supervisorPid(), SIGKILL);
  const bool seen = waitUntil([&] { return !manager->statistics().connected; });
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &usual), 0);
  EXPECT_TRUE(seen);
  ASSERT_TRUE(supervisor().waitForEnd());
  supervisor().start();
  EXPECT_NE(subject.number("pid"), before);
}

TEST_F(Reconnecting, ADeadlineEndsTheWait) {
  serve({});
  const auto manager = attach(1, kLong);
  const Subject subject(*manager);
  kill();
  CallOptions options;
  options.deadline = milliseconds(100);
  try {
    subject.ask("pid", {}, options);
    FAIL() << "answered";
  } catch (const DeadlineExceeded& error) {
    EXPECT_FALSE(error.started());
  }
  EXPECT_THROW(manager->acquireOne(options), DeadlineExceeded);
  EXPECT_THROW(subject.object().callAsync({"pid"}, {}, options).get(), DeadlineExceeded);
}

TEST_F(Reconnecting, TheManagersEndDoesNotWait) {
  serve({});
  auto manager = attach(1, kLong);
  const Subject subject(*manager);
  kill();
  const PendingCall call = subject.object().callAsync({"pid"});
  const auto began = Clock::now();
  manager.reset();
  EXPECT_LT(Clock::now() - began, milliseconds(2000));
  EXPECT_THROW(call.get(), Error);
}

TEST_F(Reconnecting, ASupervisorThatEndsInOrderLosesNoCall) {
  serve({});
  const auto manager = attach(1, kLong);
  const Subject subject(*manager);
  const Gate gate;
  auto running = std::async(std::launch::async, [&] {
    return outcomeOf([&] { subject.ask("wait_at", gate.arguments()); });
  });
  gate.arrival();
  supervisor().signal(SIGTERM);
  // It gives up its address before it asks its programs.
  ASSERT_TRUE(waitUntil([&] { return !supervisor().connect().valid(); }));
  std::vector<PendingCall> calls;
  for (int i = 0; i < 5; ++i) calls.push_back(subject.object().callAsync({"pid"}));
  std::vector<std::future<std::string>> waiting;
  for (int i = 0; i < 5; ++i) {
    waiting.push_back(
        std::async(std::launch::async, [&] { return outcomeOf([&] { subject.ask("pid"); }); }));
  }
  auto session = std::async(std::launch::async, [&] {
    return outcomeOf([&] { manager->acquireOne().global("math", "pi"); });
  });
  gate.open();
  EXPECT_EQ(running.get(), "answered");
  EXPECT_EQ(supervisor().waitForEnd(), 0);
  supervisor().start();
  for (auto& each : waiting) EXPECT_EQ(each.get(), "answered");
  for (const PendingCall& call : calls) EXPECT_GT(call.get().toInt(), 0);
  EXPECT_EQ(session.get(), "answered");
}

// A release whose control protocol is one version older: its isopoold and isopool-worker lie in a
// folder as in a build's libexec/isopool.
TEST_F(Reconnecting, TheNextSupervisorMayBeOfTheReleaseBefore) {
  const char* const older = std::getenv("ISOPOOL_TEST_OLDER_RELEASE");
  if (older == nullptr) {
    GTEST_SKIP() << "ISOPOOL_TEST_OLDER_RELEASE names no folder with an older release's isopoold";
  }
  const auto use = [&](const std::filesystem::path& folder) {
    kill();
    supervisor().usePrograms(folder / "isopoold", folder / "isopool-worker");
    supervisor().start();
  };
  serve({});
  const auto manager = attach(2, kLong);
  Package package = manager->loadPackage(packagePath());
  const Subject subject(package.loadPickle("model", "model.pkl"));
  const auto expectService = [&] {
    const at::Tensor input = isopool::empty({50'000}).fill_(1);
    EXPECT_TRUE(subject.tensor("add_one", {input}).equal(at::full({50'000}, 2.0f)));
    EXPECT_EQ(subject.object().callOnAll({"pid"}).size(), 2u);
    EXPECT_GT(Subject(package.loadPickle("model", "model.pkl")).number("pid"), 0);
  };
  expectService();
  use(older);
  expectService();
  // What only the present release has is refused with the reason.
  EXPECT_THROW((void)subject.object().method("pid"), Error);
  use(std::filesystem::path(ISOPOOLD).parent_path());
  expectService();
  EXPECT_GT(subject.object().method("pid")({}).toInt(), 0);
}

/// A package of the model that records its calls; workers without Python act as if they had it.
std::string stepPackage() {
  static const std::string path = [] {
    const std::string file = testFolder() / "step.pt";
    Program python({PYTHON, TEST_SOURCE_DIR "/../../chaos/model/package_model.py", file});
    EXPECT_EQ(python.waitForEnd(milliseconds(120'000)), 0);
    return file;
  }();
  return path;
}

/// Calls a model from several threads, each call with a number of its own that the worker notes in
/// a file before it answers.
class Load {
 public:
  Load(InterpreterManager& manager, const std::string& effects)
      : step_(manager.loadPackage(stepPackage()).loadPickle("model", "step.pkl")),
        effects_(effects) {
    std::ofstream(effects_).flush();
    for (int thread = 0; thread < 4; ++thread) threads_.emplace_back([this] { run(); });
  }

  void end() {
    stopped_ = true;
    threads_.clear();
  }
  uint64_t answered() const { return answered_; }
  uint64_t lost() {
    const std::lock_guard lock(mutex_);
    return lost_.size();
  }

  /// Call after end(): each answered call has run once, each lost one once at most.
  void expectEachCallOnce() {
    std::map<uint64_t, int> runs;
    std::ifstream file(effects_, std::ios::binary);
    uint64_t effect[2];
    while (file.read(reinterpret_cast<char*>(effect), sizeof effect)) ++runs[effect[0]];
    for (const auto& [number, times] : runs) EXPECT_EQ(times, 1) << "call " << number;
    uint64_t missing = 0;
    for (uint64_t number = 1; number <= last_; ++number) {
      if (runs.count(number) == 0 && lost_.count(number) == 0) ++missing;
    }
    EXPECT_EQ(missing, 0u) << "calls were answered that have not run";
  }

 private:
  void run() {
    const at::Tensor x = isopool::empty({10'000}, at::kLong);
    while (!stopped_) {
      const uint64_t number = ++last_;
      x.fill_(static_cast<int64_t>(number));
      const std::string outcome = outcomeOf([&] {
        const at::IValue answer = step_(
            {static_cast<int64_t>(number), effects_, number % 4 == 0 ? "spin" : "none", 2, x});
        EXPECT_TRUE(answer.toTensor().eq(static_cast<int64_t>(number) * 4).all().item<bool>());
      });
      if (outcome == "answered") {
        ++answered_;
      } else {
        EXPECT_EQ(outcome, "started");
        const std::lock_guard lock(mutex_);
        lost_.insert(number);
      }
    }
  }

  const ReplicatedObj step_;
  const std::string effects_;
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> last_{0};
  std::atomic<uint64_t> answered_{0};
  std::mutex mutex_;
  std::set<uint64_t> lost_;
  std::vector<std::jthread> threads_;
};

class ReconnectingUnderLoad : public Reconnecting {
 protected:
  // Most restarts are by SIGKILL, every third one is in order.
  void restartTimes(int rounds) {
    const auto manager = attach(2, kLong);
    Load load(*manager, supervisor().folder() + "/effects");
    for (int round = 0; round < rounds; ++round) {
      const uint64_t before = load.answered();
      ASSERT_TRUE(waitUntil([&] { return load.answered() > before + 20; }, kLong));
      if (round % 3 == 2) {
        supervisor().signal(SIGTERM);
        ASSERT_EQ(supervisor().waitForEnd(milliseconds(40'000)), 0);
        supervisor().start();
      } else {
        restart();
      }
    }
    const uint64_t before = load.answered();
    EXPECT_TRUE(waitUntil([&] { return load.answered() > before + 20; }, kLong));
    load.end();
    load.expectEachCallOnce();
    EXPECT_EQ(manager->statistics().reconnects, static_cast<uint64_t>(rounds));
    // Two of the callers have a call that runs.
    EXPECT_LE(load.lost(), 2u * static_cast<uint64_t>(rounds));
    std::printf("%d restarts: %llu calls answered, %llu lost that had started\n", rounds,
                static_cast<unsigned long long>(load.answered()),
                static_cast<unsigned long long>(load.lost()));
  }
};

TEST_F(ReconnectingUnderLoad, ThreeTimesLosesNoCallThatHadNotStarted) {
  serve({});
  restartTimes(3);
}

// The supervisor of workers without Python starts in milliseconds.
TEST_F(ReconnectingUnderLoad, AHundredTimesLosesNoCallThatHadNotStarted) {
  serve({"--worker", WORKER_WITHOUT_PYTHON});
  restartTimes(100);
}

}  // namespace
}  // namespace isopool::tests
