// SPDX-License-Identifier: BSD-3-Clause
// Functions of the program that the library calls, and threads that end inside the library.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>
#include <utility>

#include "base/without_cancellation.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

std::vector<at::IValue> waitingAt(const Gate& gate) {
  std::vector<at::IValue> arguments = gate.arguments();
  arguments.insert(arguments.begin(), "wait_at");
  return arguments;
}

/// A call that runs until the gate opens, on another thread.
class RunningCall {
 public:
  explicit RunningCall(const ReplicatedObj& object)
      : thread_([this, object] { object(waitingAt(gate_)); }) {
    gate_.arrival();
  }
  ~RunningCall() {
    gate_.open();
    thread_.join();
  }
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

 private:
  Gate gate_;
  std::thread thread_;
};

struct OfTheProgram {};

CallOptions stoppedBy(std::function<bool()> interrupted) {
  CallOptions options;
  options.interrupted = std::move(interrupted);
  return options;
}

TEST(Interrupted, ThatThrowsEndsARunningCallWithItsException) {
  OwnPool pool(1);
  const Gate gate;
  EXPECT_THROW(pool.subject().object().call(waitingAt(gate), {},
                                            stoppedBy([]() -> bool { throw OfTheProgram(); })),
               OfTheProgram);
  EXPECT_EQ(pool.subject().number("identity", {7}), 7);
  EXPECT_EQ(pool.manager().workersReplaced(), 1u) << "the call had started";
}

TEST(Interrupted, ThatThrowsEndsACallInLineAndNoWorker) {
  OwnPool pool(1);
  {
    // One runs, one waits behind it, the third one in line.
    const RunningCall running(pool.subject().object());
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        EXPECT_THROW(pool.subject().object().call(
                         {"identity", 1}, {}, stoppedBy([]() -> bool { throw OfTheProgram(); })),
                     OfTheProgram);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(pool.subject().number("identity", {7}), 7);
  EXPECT_EQ(pool.manager().workersReplaced(), 0u);
}

TEST(Interrupted, MayUseTheLibrary) {
  OwnPool pool(2);
  const ReplicatedObj& object = pool.subject().object();
  const Gate gate;
  int64_t sum = 0;
  EXPECT_THROW(
      object.call(
          waitingAt(gate), {}, stoppedBy([&] {
            sum += object({"identity", 1}).toInt();
            sum += object.callAsync({"identity", 1}).get().toInt();
            sum += pool.manager().acquireOne().global("builtins", "int")({1}).toIValue().toInt();
            return sum >= 9;
          })),
      Cancelled);
  EXPECT_EQ(sum, 9);
  EXPECT_EQ(pool.subject().number("identity", {7}), 7);
}

TEST(Interrupted, MayCallWhileItsCallWaitsInLine) {
  OwnPool pool(1);
  const ReplicatedObj& object = pool.subject().object();
  std::optional<RunningCall> running(object);
  std::atomic<bool> begun{false};
  int64_t sum = 0;
  std::thread waiting([&] {
    // One waits behind the running call, this one in line.
    const PendingCall behind = object.callAsync({"identity", 1});
    EXPECT_EQ(object
                  .call({"identity", 1}, {}, stoppedBy([&] {
                          if (!begun.exchange(true)) sum += object({"identity", 1}).toInt();
                          return false;
                        }))
                  .toInt(),
              1);
    EXPECT_EQ(behind.get().toInt(), 1);
  });
  while (!begun) std::this_thread::yield();
  running.reset();
  waiting.join();
  EXPECT_EQ(sum, 1);
}

TEST(Interrupted, MayEndItsThread) {
  OwnPool pool(1);
  const Gate gate;
  for (const bool runs : {true, false}) {
    std::optional<RunningCall> other;
    if (!runs) other.emplace(pool.subject().object());
    std::atomic<bool> unwound{false};
    std::thread([&] {
      struct Local {
        std::atomic<bool>& unwound;
        ~Local() { unwound = true; }
      } const local{unwound};
      (void)pool.subject().object().call(waitingAt(gate), {},
                                         stoppedBy([]() -> bool { ::pthread_exit(nullptr); }));
    }).join();
    EXPECT_TRUE(unwound);
    other.reset();
    EXPECT_EQ(pool.subject().number("identity", {7}), 7);
  }
}

TEST(Callback, MayEndItsThread) {
  std::vector<PendingCall> calls;
  for (int i = 0; i < 20; ++i) {
    calls.push_back(sharedSubject().object().callAsync(
        {"identity", i}, [](const Outcome&) { ::pthread_exit(nullptr); }));
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(calls[static_cast<size_t>(i)].get().toInt(), i);
  EXPECT_EQ(sharedSubject().object().callAsync({"identity", 7}).get().toInt(), 7);
}

TEST(Callback, MayEndItsThreadPastTheDeadline) {
  OwnPool pool(1);
  const RunningCall running(pool.subject().object());
  const PendingCall blocked = pool.subject().object().callAsync({"identity", 1});
  CallOptions options;
  options.deadline = milliseconds(100);
  for (int i = 0; i < 3; ++i) {
    const PendingCall call = pool.subject().object().callAsync(
        {"identity", 1}, [](const Outcome&) { ::pthread_exit(nullptr); }, {}, options);
    EXPECT_THROW(call.get(), DeadlineExceeded);
  }
}

TEST(Observer, MayThrowAndEndItsThread) {
  std::atomic<int> records{0};
  setCallObserver([&](const CallRecord&) {
    ++records;
    throw OfTheProgram();
  });
  EXPECT_EQ(sharedSubject().number("identity", {7}), 7);
  setCallObserver([&](const CallRecord&) {
    ++records;
    ::pthread_exit(nullptr);
  });
  std::thread([] { sharedSubject().number("identity", {7}); }).join();
  EXPECT_THROW(sharedSubject().object().callAsync({"identity", 7}).get(), Error);
  setCallObserver(nullptr);
  EXPECT_EQ(records, 3);
  EXPECT_EQ(sharedSubject().object().callAsync({"identity", 7}).get().toInt(), 7);
}

TEST(Logger, MayEndTheManager) {
  std::optional<OwnPool> pool(std::in_place, 1);
  std::promise<void> ended;
  std::atomic<bool> once{false};
  setLogger([&](LogLevel level, std::string_view) {
    if (level != LogLevel::kWarning || once.exchange(true)) return;
    pool->endManager();
    ended.set_value();
  });
  ::kill(pool->processOf(0), SIGKILL);
  EXPECT_EQ(ended.get_future().wait_for(kPatience), std::future_status::ready);
  setLogger(nullptr);
  pool.reset();  // expects that no process is left
}

// A cancelled thread ends between two uses of the library, or in the program's own code.
TEST(Cancellation, OfAThreadAtAnyMomentLeavesTheLibraryAsItWas) {
  std::minstd_rand random(1);
  OwnPool pool(1);
  const ReplicatedObj& object = pool.subject().object();
  const std::function<void()> uses[] = {
      [&] { InterpreterManager manager(1); },
      [&] {
        object({"identity", 1});
      },
      [&] {
        object.callAsync({"identity", 1}).get();
      },
      [&] {
        object.callOnAll({"identity", 1});
      },
      [&] { pool.manager().acquireOne().global("builtins", "int")({1}).toIValue(); },
      [&] { pool.manager().loadPackage(packagePath()).loadPickle("model", "model.pkl"); },
      [&] { isopool::empty({1'000'000}); }};
  const ScopedVariable sameSupervisor("ISOPOOL_TEST_UNUSED=1");
  setLogger([](LogLevel, std::string_view) { ::usleep(10); });
  for (int round = 0; round < 70; ++round) {
    const auto& use = uses[static_cast<size_t>(round) % std::size(uses)];
    std::promise<void> begun;
    std::thread thread([&] {
      begun.set_value();
      for (;;) {
        use();
        ::pthread_testcancel();
      }
    });
    begun.get_future().wait();
    ::usleep(random() % 20'000);
    const pthread_t handle = thread.native_handle();
    ASSERT_EQ(::pthread_cancel(handle), 0);
    thread.join();
    ASSERT_EQ(object({"identity", 7}).toInt(), 7);
  }
  setLogger(nullptr);
  EXPECT_EQ(pool.manager().workersReplaced(), 0u);
}

/// Makes `use` on a thread of which the cancellation is pending. True if `use` returned.
bool returnsWithPendingCancellation(const std::function<void()>& use) {
  bool returned = false;
  std::thread thread([&] {
    ASSERT_EQ(::pthread_cancel(::pthread_self()), 0);
    use();
    returned = true;
    ::pthread_testcancel();
    ADD_FAILURE() << "the cancellation was lost";
  });
  thread.join();
  return returned;
}

// A function of the library that has a cancellation point ends the thread there, each time.
TEST(Cancellation, ThatIsPendingHasNoEffectInTheLibrary) {
  OwnPool pool(1);
  const ReplicatedObj& object = pool.subject().object();
  CompletionQueue completed;
  at::Tensor large;
  const std::string file = testFolder() / "trace.json";
  const std::pair<const char*, std::function<void()>> uses[] = {
      {"a manager", [&] { InterpreterManager manager(1); }},
      {"a call",
       [&] {
         object({"identity", 1});
       }},
      {"an asynchronous call",
       [&] {
         object.callAsync({"identity", 1}).get();
       }},
      {"a queued call",
       [&] {
         object.callAsync({"identity", 1}, completed, 1);
         while (completed.take().empty()) std::this_thread::yield();
       }},
      {"a broadcast",
       [&] {
         object.callOnAll({"identity", 1});
       }},
      {"a session", [&] { pool.manager().acquireOne().global("builtins", "int")({1}).toIValue(); }},
      {"a package",
       [&] { pool.manager().loadPackage(packagePath()).loadPickle("model", "model.pkl"); }},
      {"a tensor", [&] { large = isopool::empty({10'000'000}); }},
      {"a call with it",
       [&] {
         object({"identity", large});
       }},
      {"its end", [&] { large = at::Tensor(); }},
      {"trimming", [&] { isopool::trimSharedMemory(); }},
      {"a trace",
       [&] {
         Trace trace(pool.manager());
         object({"identity", 1});
         trace.write(file);
       }},
      {"the statistics", [&] { EXPECT_FALSE(pool.manager().statistics().workers.empty()); }},
      {"a stream",
       [&] {
         EXPECT_TRUE(object.stream({"count_to", 3}).next());
       }},
      {"a fork", [&] {
         const at::Tensor shared = isopool::empty({1'000'000});
         const pid_t child = ::fork();
         if (child == 0) ::_exit(0);
         const base::WithoutCancellation complete;
         int status = -1;
         EXPECT_EQ(::waitpid(child, &status, 0), child);
         EXPECT_EQ(status, 0);
       }}};
  for (const auto& [name, use] : uses) {
    EXPECT_TRUE(returnsWithPendingCancellation(use)) << name;
    EXPECT_EQ(object({"identity", 7}).toInt(), 7) << name;
  }
  EXPECT_EQ(pool.manager().workersReplaced(), 0u);
}

TEST(SecondTrace, OfAManagerIsRefusedWhileTheFirstExists) {
  OwnPool pool(1);
  {
    const Trace first(pool.manager());
    EXPECT_THROW(Trace second(pool.manager()), Error);
  }
  Trace next(pool.manager());
  pool.subject().number("identity", {1});
  next.write(testFolder() / "trace.json");
  EXPECT_GT(std::filesystem::file_size(testFolder() / "trace.json"), 1000u);
}

}  // namespace
}  // namespace isopool::tests
