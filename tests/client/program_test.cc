// SPDX-License-Identifier: BSD-3-Clause
// Programs that use isopool, as separate processes: how they end, and cases that are impossible
// within a test process.
#include <ATen/Parallel.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "client/program/event_log.h"
#include "testing/sanitizers.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

// ---- ends ------------------------------------------------------------------------------------

/// A program with a pool that is idle, or with calls in all threads of the program.
class Ending : public ::testing::TestWithParam<const char*> {
 protected:
  Ending() {
    EXPECT_EQ(program_.readLine(), "ready");
    EXPECT_GE(program_.tree().all().size(),
              6u);  // program, guardian, supervisor, zygote, 2 workers
  }

  void expectNothingIsLeft() {
    EXPECT_TRUE(program_.waitForEnd());
    EXPECT_TRUE(program_.tree().goneWithin(kPatience));
  }

  Program program_{{PROGRAM, GetParam(), packagePath()}};
};

TEST_P(Ending, KilledLeavesNothing) {
  program_.kill(SIGKILL);
  expectNothingIsLeft();
}

TEST_P(Ending, StoppedAndKilledLeavesNothing) {
  program_.kill(SIGSTOP);
  program_.kill(SIGKILL);
  expectNothingIsLeft();
}

TEST_P(Ending, InterruptedLeavesNothing) {
  program_.kill(SIGINT);
  expectNothingIsLeft();
}

TEST_P(Ending, KilledWhileSupervisorAndWorkersAreStoppedLeavesNothing) {
  const pid_t guardian = program_.tree().guardian();
  for (const pid_t pid : program_.tree().all()) {
    if (pid != program_.pid() && pid != guardian) ::kill(pid, SIGSTOP);
  }
  program_.kill(SIGKILL);
  expectNothingIsLeft();
}

TEST_P(Ending, InOrderLeavesNothing) {
  program_.closeInput();
  EXPECT_EQ(program_.waitForEnd(), 0);
  EXPECT_TRUE(program_.tree().goneWithin(kPatience));
}

INSTANTIATE_TEST_SUITE_P(Program, Ending, ::testing::Values("rest", "load"),
                         [](const auto& test) { return std::string(test.param); });

class WayOut : public ::testing::TestWithParam<const char*> {};

TEST_P(WayOut, EndsTheProgramAndLeavesNothing) {
  Program program({PROGRAM, GetParam(), packagePath()});
  EXPECT_EQ(program.readLine(), "ready");
  program.closeInput();
  EXPECT_EQ(program.waitForEnd(), 0);
  EXPECT_TRUE(program.tree().goneWithin(kPatience));
}

INSTANTIATE_TEST_SUITE_P(Program, WayOut,
                         ::testing::Values("exit", "quick_exit", "static_manager",
                                           "result_outlives_main"),
                         [](const auto& test) { return std::string(test.param); });

// ---- what programs do ------------------------------------------------------------------------

/// Runs a mode of the program that prints one line before it waits for the end of its input.
void expectSays(const char* mode, const char* line) {
  Program program({PROGRAM, mode, packagePath()});
  EXPECT_EQ(program.readLine(), line);
  program.closeInput();
  EXPECT_EQ(program.waitForEnd(), 0);
}

TEST(Program, GetsWhatItsModelsPrintOnItsStandardOutput) {
  expectSays("say", "printed by the model");
}

TEST(Program, GetsWhatPythonPrintsInTheOrderOfTheCalls) {
  Program program({PROGRAM, "print_in_turn", packagePath()});
  for (const char* line :
       {"first from Python", "second from the program", "third from Python and the program",
        "fourth from Python", "fifth from the program"}) {
    EXPECT_EQ(program.readLine(), line);
  }
  program.closeInput();
  EXPECT_EQ(program.waitForEnd(), 0);
}

TEST(Program, ThatReapsEveryChildHasAPoolLikeAnyOther) { expectSays("reaping", "ready"); }

TEST(Program, HasNoChildProcessFromUs) { expectSays("children", "no child"); }

TEST(Program, WithManyThreadsMakesAManagerLate) { expectSays("threads", "ready"); }

TEST(Program, WithoutStandardStreamsHasAPoolLikeAnyOther) {
  Program program({PROGRAM, "no_streams", packagePath()});
  EXPECT_EQ(program.waitForEnd(milliseconds(30'000)), 0);
}

TEST(Program, InPythonUsesALibraryThatUsesUs) {
  if (kUnderAddressSanitizer) {
    GTEST_SKIP() << "a Python without the sanitizer can't load a library with it";
  }
  Program program({PYTHON, TEST_SOURCE_DIR "/host_program.py", BRIDGE, packagePath()});
  EXPECT_EQ(program.readLine(), "in another process: True");
  EXPECT_EQ(program.readLine(), "sum: 10.0");
  EXPECT_EQ(program.readLine(), "error: ValueError");
  EXPECT_EQ(program.readLine(), "from a thread: 10.0");
  program.closeInput();
  EXPECT_EQ(program.waitForEnd(), 0);
  EXPECT_TRUE(program.tree().goneWithin(kPatience));
}

TEST(Program, WhoseSignalHandlerRunsEachMillisecondMakesAndEndsItsManagers) {
  Program program({PROGRAM, "interrupted", packagePath()});
  EXPECT_EQ(program.readLine(), "sum: 6.000000");
  EXPECT_EQ(program.waitForEnd(), 0);
}

// ---- forks -----------------------------------------------------------------------------------

/// Runs `inChild` in a fork of this process. Its result is the child's exit status.
int exitStatusOfFork(const std::function<int()>& inChild) {
  const pid_t child = ::fork();
  if (child == 0) {
    // The fork has no OpenMP threads, and OpenMP would wait for them.
    at::set_num_threads(1);
    int status = 99;
    try {
      status = inChild();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the fork: %s\n", error.what());
    }
    ::_exit(status);
  }
  int status = -1;
  if (!waitUntilDead(child, milliseconds(30'000))) {
    ::kill(child, SIGKILL);
    ADD_FAILURE() << "the fork hangs";
  }
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// True if `use` throws an Error that mentions the fork.
bool refusesForFork(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    return std::string(error.what()).find("forked") != std::string::npos;
  }
  return false;
}

bool isReadable(int fd, milliseconds patience = milliseconds(0)) {
  pollfd watched{fd, POLLIN, 0};
  return ::poll(&watched, 1, static_cast<int>(patience.count())) == 1;
}

/// Removes the logger and the observer at its end.
struct ScopedObservation {
  ScopedObservation(std::function<void(LogLevel, std::string_view)> logger,
                    std::function<void(const CallRecord&)> observer) {
    setLogger(std::move(logger));
    setCallObserver(std::move(observer));
  }
  ~ScopedObservation() {
    setLogger(nullptr);
    setCallObserver(nullptr);
  }
  ScopedObservation(const ScopedObservation&) = delete;
  ScopedObservation& operator=(const ScopedObservation&) = delete;
};

TEST(Fork, OfAForkMakesSharedMemoryOfItsOwn) {
  Program program({PROGRAM, "forks_of_forks", packagePath()});
  EXPECT_EQ(program.waitForEnd(milliseconds(30'000)), 0);
}

TEST(Fork, CannotUseItsManagersAndDoesNotHarmTheParent) {
  OwnPool pool;
  const pid_t worker = pool.processOf(0);
  const ReplicatedObj& object = pool.subject().object();
  InterpreterSession session = object.acquireSession(&pool.manager().allInstances()[0]);
  const Obj value = session.fromIValue(3);
  const at::Tensor result = pool.subject().tensor("add_one", {at::ones({100'000})});
  const std::string package = packagePath();
  Trace trace(pool.manager());
  static std::atomic<int> observed{0};
  const ScopedObservation observation(nullptr, [](const CallRecord&) { ++observed; });
  const int failed = exitStatusOfFork([&] {
    int accepted = 0;
    accepted |= refusesForFork([&] { pool.subject().ask("pid"); }) ? 0 : 1;
    accepted |= refusesForFork([&] { (void)object.hasattr("x"); }) ? 0 : 2;
    accepted |= refusesForFork([&] { session.global("math", "pi"); }) ? 0 : 4;
    accepted |= refusesForFork([&] { value.toIValue(); }) ? 0 : 8;
    accepted |= refusesForFork([&] { pool.manager().loadPackage(package); }) ? 0 : 16;
    accepted |= refusesForFork([&] { pool.manager().acquireOne(); }) ? 0 : 32;
    accepted |= refusesForFork([&] { trace.write("/dev/null"); }) ? 0 : 64;
    // The child must not call the observer: it may wait for a lock that a thread of
    // the parent held.
    return accepted | (observed == 0 ? 0 : 128);
  });
  EXPECT_EQ(failed, 0) << "a bit for each use that was not refused, 128: one was observed";
  trace.write(testFolder() / "trace_beside_a_fork.json");
  EXPECT_EQ(session.self({"pid"}).toIValue().toInt(), worker);
  EXPECT_EQ(value.toIValue().toInt(), 3);
  EXPECT_TRUE(result.eq(2).all().item<bool>());
}

TEST(Fork, DoesNotHarmTheParentWhenItDestroysItsCopies) {
  OwnPool pool;
  auto subject = std::make_unique<Subject>(pool.subject());
  auto session = std::make_unique<InterpreterSession>(
      subject->object().acquireSession(&pool.manager().allInstances()[0]));
  auto value = std::make_unique<Obj>(session->fromIValue(3));
  at::Tensor result = subject->tensor("add_one", {at::ones({100'000})});
  at::Tensor input = empty({100'000}).fill_(1);
  const pid_t worker = pool.processOf(0);
  EXPECT_EQ(exitStatusOfFork([&] {
              value.reset();
              session.reset();
              subject.reset();
              result.reset();
              input.reset();
              pool.endManager();
              return 0;
            }),
            0);
  EXPECT_EQ(session->self({"pid"}).toIValue().toInt(), worker);
  EXPECT_EQ(value->toIValue().toInt(), 3);
  // The child has freed neither block: new tensors are in other blocks.
  for (int i = 0; i < 10; ++i) {
    const at::Tensor other = subject->tensor("add_one", {empty({100'000}).fill_(4)});
    EXPECT_TRUE(other.eq(5).all().item<bool>());
  }
  EXPECT_TRUE(result.eq(2).all().item<bool>());
  EXPECT_TRUE(input.eq(1).all().item<bool>());
}

TEST(Fork, TakesNothingFromItsParentsCompletionQueue) {
  CompletionQueue queue;
  const PendingCall call = sharedSubject().object().callAsync({"pid"}, queue, 7);
  ASSERT_TRUE(isReadable(queue.fd(), kPatience));
  const int failed = exitStatusOfFork([&] {
    int accepted = 0;
    accepted |= refusesForFork([&] { queue.take(); }) ? 0 : 1;
    accepted |= refusesForFork([&] { (void)queue.fd(); }) ? 0 : 2;
    return accepted;
  });
  EXPECT_EQ(failed, 0) << "a bit for each use that was not refused";
  EXPECT_TRUE(isReadable(queue.fd())) << "the parent's event loop was not woken";
  const std::vector<Completed> taken = queue.take();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken.front().tag, 7u);
}

// Threads of the parent repeatedly hold each lock and wait on each condition variable.
TEST(Fork, DoesNotHangWhileThreadsUseEveryLock) {
  OwnPool pool;
  const std::string file = packagePath("one.pt");
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<int> right{0};
  const auto inLoop = [&](const std::function<bool()>& use) {
    return std::thread([&, use] {
      while (!stop) {
        try {
          ++(use() ? right : wrong);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
          ++wrong;
        }
      }
    });
  };
  const Subject& subject = pool.subject();
  const auto answers = [&] {
    return subject.tensor("add_one", {empty({2000}).fill_(4)}).eq(5).all().item<bool>();
  };
  auto kept = std::make_unique<InterpreterSession>(pool.manager().acquireOne());
  auto object = std::make_unique<Obj>(kept->fromIValue(3));
  auto package = std::make_unique<Package>(pool.manager().loadPackage(file));
  auto replica = std::make_unique<ReplicatedObj>(package->loadPickle("model", "model.pkl"));
  auto stream = std::make_unique<ResultStream>(subject.object().stream({"count_to", 1000}));
  auto pending = std::make_unique<PendingCall>(subject.object().callAsync({"pid"}));
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.push_back(inLoop(answers));
  threads.push_back(inLoop([&] { return kept->fromIValue(7).toIValue().toInt() == 7; }));
  threads.push_back(inLoop([&] {
    Package loaded = pool.manager().loadPackage(file);
    return loaded.loadPickle("model", "model.pkl")({at::ones({1, 2})}).toTensor().numel() == 2;
  }));
  threads.push_back(inLoop([&] {
    return subject.object().callAsync({"add_one", at::ones({3})}).get().isTensor();
  }));
  CompletionQueue queue;
  threads.push_back(inLoop([&] {
    const PendingCall call = subject.object().callAsync({"pid"}, queue, 1);
    return isReadable(queue.fd(), kPatience) && queue.take().size() == 1;
  }));
  // These threads hold locks very briefly, so they do nothing else: otherwise a fork would rarely
  // happen meanwhile.
  LoadBalancer balancer(4);
  const ScopedObservation observation(nullptr, nullptr);
  const std::function<void()> uses[] = {[] {
                                          setLogger([](LogLevel, std::string_view) {});
                                          client::logToProgram(LogLevel::kInfo, "from a thread");
                                        },
                                        [] { setCallObserver([](const CallRecord&) {}); },
                                        [&] {
                                          balancer.free(balancer.acquire());
                                          pool.manager().countRegisteredModuleSources();
                                          replica->onRebuilt(nullptr);
                                        }};
  for (const auto& use : uses) {
    threads.emplace_back([&] {
      while (!stop) use();
    });
  }
  EXPECT_TRUE(waitUntil([&] { return right > 50; }));
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    EXPECT_EQ(exitStatusOfFork([&] {
                int accepted = 0;
                accepted |= refusesForFork([&] { subject.ask("pid"); }) ? 0 : 1;
                accepted |= refusesForFork([&] { object->toIValue(); }) ? 0 : 2;
                accepted |= refusesForFork([&] { queue.take(); }) ? 0 : 4;
                accepted |= refusesForFork([&] { replica->onRebuilt(nullptr); }) ? 0 : 8;
                const auto countModules = [&] { pool.manager().countRegisteredModuleSources(); };
                accepted |= refusesForFork(countModules) ? 0 : 16;
                balancer.free(balancer.acquire());
                client::logToProgram(LogLevel::kInfo, "in the fork");
                setLogger(nullptr);
                setCallObserver(nullptr);
                stream.reset();
                object.reset();
                replica.reset();
                package.reset();
                pending.reset();
                kept.reset();
                pool.endManager();
                return accepted;
              }),
              0)
        << "fork " << i << ", a bit for each use that was not refused";
  }
  const int before = right;
  EXPECT_TRUE(waitUntil([&] { return right > before + 50; })) << "the parent's calls hang";
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(object->toIValue().toInt(), 3);
  EXPECT_EQ((*replica)({at::ones({1, 2})}).toTensor().numel(), 2);
  EXPECT_EQ(stream->next()->toInt(), 0);
}

TEST(Fork, CanExitWithThePoolInStaticObjects) {
  Program program({PROGRAM, "exiting_fork", packagePath()});
  EXPECT_EQ(program.readLine(), "done");
  EXPECT_EQ(program.waitForEnd(), 0);
}

TEST(Fork, ReadsResultsOfItsParent) {
  const at::Tensor result = sharedSubject().tensor("add_one", {at::ones({100'000})});
  EXPECT_EQ(exitStatusOfFork([&] { return result.eq(2).all().item<bool>() ? 0 : 1; }), 0);
}

TEST(Fork, DoesNotKeepTheParentsProcessesAlive) {
  auto pool = std::make_unique<OwnPool>(1);
  int held[2];
  ASSERT_EQ(::pipe(held), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(held[1]);
    char byte = 0;
    [[maybe_unused]] const ssize_t got = ::read(held[0], &byte, 1);
    ::_exit(0);
  }
  ::close(held[0]);
  // The fork holds copies of all descriptors.
  pool->endManager();
  EXPECT_TRUE(pool->tree().goneWithin(kPatience));
  ::close(held[1]);
  ::waitpid(child, nullptr, 0);
}

TEST(Fork, OfAKilledProgramDoesNotKeepItsPoolAlive) {
  Program program({PROGRAM, "fork", packagePath()});
  EXPECT_EQ(program.readLine(), "ready");
  const auto line = program.readLine();
  ASSERT_TRUE(line);
  const pid_t fork = std::stoi(*line);
  program.kill(SIGKILL);
  EXPECT_TRUE(program.waitForEnd());
  EXPECT_TRUE(
      waitUntil([&] { return program.tree().all() == std::vector<pid_t>{fork}; }, kPatience));
  ::kill(fork, SIGKILL);
}

TEST(Fork, MakesAManagerOfItsOwn) {
  sharedManager();
  packagePath();
  EXPECT_EQ(exitStatusOfFork([] {
              InterpreterManager manager(1);
              const Subject subject(manager);
              if (subject.number("pid") <= 0) return 1;
              const at::Tensor x = at::ones({100'000});
              if (!subject.tensor("add_one", {x}).eq(2).all().item<bool>()) return 2;
              const at::Tensor y = empty({100'000}).fill_(1);
              if (!isShared(y)) return 3;
              return subject.tensor("identity", {y}).data_ptr() == y.data_ptr() ? 0 : 4;
            }),
            0);
  EXPECT_GT(sharedSubject().number("pid"), 0);
}

// A call of the child does not complete in a queue of its parent.
TEST(Fork, HasItsParentsLoggerAndObserverForAManagerOfItsOwn) {
  packagePath();
  static std::atomic<int> logged{0};
  static std::atomic<int> observed{0};
  const ScopedObservation observation([](LogLevel, std::string_view) { ++logged; },
                                      [](const CallRecord&) { ++observed; });
  CompletionQueue queue;
  EXPECT_EQ(exitStatusOfFork([&] {
              InterpreterManager manager(1);
              if (!waitUntil([] { return logged > 0; })) return 1;
              const Subject subject(manager);
              const int before = observed;
              if (subject.number("pid") <= 0) return 2;
              if (observed != before + 1) return 3;
              return subject.object().callAsync({"pid"}, queue, 7).get().toInt() > 0 ? 0 : 4;
            }),
            0);
  EXPECT_EQ(observed, 0) << "in the parent";
  EXPECT_FALSE(isReadable(queue.fd()));
  EXPECT_TRUE(queue.take().empty());
}

}  // namespace
}  // namespace isopool::tests
