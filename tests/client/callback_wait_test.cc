// SPDX-License-Identifier: BSD-3-Clause
// Callbacks of asynchronous calls that wait for other calls, in any way.
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

/// More than the library has threads for the shared manager: two a worker.
constexpr int kMoreThanThreads = 12;

/// Runs `body` on a thread. Ends the program if it hangs: its objects are in use.
void endsInTime(const std::function<void()>& body, milliseconds patience = milliseconds(60'000)) {
  std::packaged_task<void()> task(body);
  std::future<void> end = task.get_future();
  std::thread thread(std::move(task));
  if (end.wait_for(patience) != std::future_status::ready) {
    std::fprintf(stderr, "it hangs\n");
    ::_exit(1);
  }
  thread.join();
  end.get();
}

PendingCall identity(const ReplicatedObj& object, int64_t number,
                     std::function<void(const Outcome&)> callback = nullptr) {
  if (!callback) return object.callAsync({"identity", number});
  return object.callAsync({"identity", number}, std::move(callback));
}

/// The text of the Error that `use` throws; empty if it throws none.
std::string refusalOf(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A way in which a callback waits for another call: returns its result.
struct Way {
  const char* name;
  int64_t (*wait)(InterpreterManager& manager, const ReplicatedObj& object, int64_t number);
};

int64_t byGet(InterpreterManager&, const ReplicatedObj& object, int64_t number) {
  return identity(object, number).get().toInt();
}
int64_t byWaitFor(InterpreterManager&, const ReplicatedObj& object, int64_t number) {
  const PendingCall call = identity(object, number);
  while (!call.wait_for(milliseconds(100))) {
  }
  return call.get().toInt();
}
int64_t byReady(InterpreterManager&, const ReplicatedObj& object, int64_t number) {
  const PendingCall call = identity(object, number);
  while (!call.ready()) ::usleep(100);
  return call.get().toInt();
}
int64_t byRunInline(InterpreterManager&, const ReplicatedObj& object, int64_t number) {
  const PendingCall call = identity(object, number);
  call.runInline();
  return call.get().toInt();
}
int64_t byCallback(InterpreterManager&, const ReplicatedObj& object, int64_t number) {
  std::promise<int64_t> answer;
  identity(object, number,
           [&](const Outcome& outcome) { answer.set_value(outcome.value().toInt()); });
  return answer.get_future().get();
}
int64_t byQueue(InterpreterManager&, const ReplicatedObj& object, int64_t number) {
  CompletionQueue queue;
  object.callAsync({"identity", number}, queue, 1);
  pollfd watched{queue.fd(), POLLIN, 0};
  while (::poll(&watched, 1, -1) != 1) {
  }
  return queue.take().at(0).outcome.value().toInt();
}
int64_t bySynchronousCall(InterpreterManager&, const ReplicatedObj& object, int64_t number) {
  return object({"identity", number}).toInt();
}
int64_t bySession(InterpreterManager& manager, const ReplicatedObj&, int64_t number) {
  return manager.acquireOne().global("builtins", "int")({number}).toIValue().toInt();
}
int64_t byCallOnAll(InterpreterManager&, const ReplicatedObj& object, int64_t number) {
  return object.callOnAll({"identity", number}).at(1).toInt();
}

constexpr Way kWays[] = {{"Get", byGet},
                         {"WaitFor", byWaitFor},
                         {"Ready", byReady},
                         {"RunInline", byRunInline},
                         {"Callback", byCallback},
                         {"Queue", byQueue},
                         {"SynchronousCall", bySynchronousCall},
                         {"Session", bySession},
                         {"CallOnAll", byCallOnAll}};

class WaitInACallback : public ::testing::TestWithParam<Way> {};

TEST_P(WaitInACallback, EndsThoughAllThreadsAreInCallbacks) {
  std::atomic<int64_t> sum{0};
  endsInTime([&] {
    std::vector<PendingCall> calls;
    for (int i = 0; i < kMoreThanThreads; ++i) {
      calls.push_back(identity(sharedSubject().object(), i, [&](const Outcome& outcome) {
        sum += GetParam().wait(sharedManager(), sharedSubject().object(), outcome.value().toInt());
      }));
    }
    for (const PendingCall& call : calls) call.get();
  });
  EXPECT_EQ(sum, kMoreThanThreads * (kMoreThanThreads - 1) / 2);
}

INSTANTIATE_TEST_SUITE_P(By, WaitInACallback, ::testing::ValuesIn(kWays),
                         [](const auto& test) { return std::string(test.param.name); });

/// Waits that are nested in each other's callbacks.
struct Nest {
  std::atomic<int> waiting{0};
  std::atomic<int> mostWaiting{0};
  std::atomic<int> refused{0};

  /// Waits for a call whose callback does the same, and so on, `depth` times.
  static void wait(const std::shared_ptr<Nest>& nest, const ReplicatedObj& object, int depth) {
    const PendingCall call = identity(object, depth, [=](const Outcome& outcome) {
      if (outcome.ok() && depth > 1) wait(nest, object, depth - 1);
    });
    const int now = ++nest->waiting;
    // The callback of the call may have counted already, on another thread.
    int most = nest->mostWaiting;
    while (most < now && !nest->mostWaiting.compare_exchange_weak(most, now)) {
    }
    try {
      call.get();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("wait already"), std::string::npos) << error.what();
      ++nest->refused;
      call.cancel();
    }
    --nest->waiting;
  }
};

TEST(CallbackWait, MayBeNestedDeeperThanThereAreThreads) {
  endsInTime([] {
    const auto nest = std::make_shared<Nest>();
    Nest::wait(nest, sharedSubject().object(), 100);
    EXPECT_EQ(nest->mostWaiting, 100);
    EXPECT_EQ(nest->refused, 0);
  });
}

TEST(CallbackWait, IsRefusedWhereTooManyCallbacksWait) {
  endsInTime([] {
    const auto nest = std::make_shared<Nest>();
    Nest::wait(nest, sharedSubject().object(), 300);
    // A call ends before its callback has returned, which waits for the next one.
    ASSERT_TRUE(waitUntil([&] { return nest->waiting == 0; }));
    EXPECT_GE(nest->refused, 1);
    // One in no callback, 256 in callbacks, and those that are refused, which may be several at a
    // time.
    EXPECT_GE(nest->mostWaiting, 258);
    EXPECT_LE(nest->mostWaiting, 257 + nest->refused);
    // The threads serve as before.
    EXPECT_EQ(sharedSubject().object().callAsync({"identity", 7}).get().toInt(), 7);
  });
}

TEST(CallbackWait, ForTheCallsOwnOutcomeIsRefused) {
  endsInTime([] {
    std::promise<PendingCall> promise;
    std::shared_future<PendingCall> own = promise.get_future().share();
    std::string refusal;
    std::string refusalWithLimit;
    bool ready = true;
    promise.set_value(identity(sharedSubject().object(), 1, [&](const Outcome&) {
      refusal = refusalOf([&] { own.get().get(); });
      refusalWithLimit = refusalOf([&] { own.get().wait_for(milliseconds(60'000)); });
      ready = own.get().ready();
    }));
    EXPECT_EQ(own.get().get().toInt(), 1);
    EXPECT_NE(refusal.find("its own call"), std::string::npos) << refusal;
    EXPECT_EQ(refusalWithLimit, refusal);
    EXPECT_FALSE(ready);
  });
}

TEST(CallbackWait, OfCallbacksForEachOtherIsRefusedForOneOfThem) {
  endsInTime([] {
    constexpr size_t kRing = 5;
    std::promise<PendingCall> promises[kRing];
    std::shared_future<PendingCall> calls[kRing];
    std::string refusals[kRing];
    for (size_t i = 0; i < kRing; ++i) calls[i] = promises[i].get_future().share();
    for (size_t i = 0; i < kRing; ++i) {
      promises[i].set_value(identity(sharedSubject().object(), 1, [&, i](const Outcome&) {
        refusals[i] = refusalOf([&] { calls[(i + 1) % kRing].get().wait(); });
      }));
    }
    for (const auto& call : calls) call.get().wait();
    size_t refused = 0;
    for (const std::string& each : refusals) refused += each.empty() ? 0 : 1;
    EXPECT_EQ(refused, 1u);
  });
}

TEST(CallbackWait, ForTheCallWhoseCallbackEndsTheManagerIsRefused) {
  endsInTime([] {
    OwnPool pool;
    std::promise<PendingCall> promise;
    std::shared_future<PendingCall> ending = promise.get_future().share();
    std::promise<void> waits;
    std::string refusal;
    const PendingCall waiting = identity(pool.subject().object(), 1, [&](const Outcome&) {
      waits.set_value();
      refusal = refusalOf([&] { ending.get().wait(); });
    });
    waits.get_future().wait();
    promise.set_value(
        identity(pool.subject().object(), 2, [&](const Outcome&) { pool.endManager(); }));
    ending.get().wait();
    waiting.wait();
    EXPECT_NE(refusal.find("wait for each other"), std::string::npos) << refusal;
  });
}

TEST(CallbackWait, EndsWhileTheManagerEnds) {
  endsInTime([] {
    OwnPool pool(1);
    const ReplicatedObj object = pool.subject().object();
    const Gate gate;
    std::vector<at::IValue> arguments = gate.arguments();
    arguments.insert(arguments.begin(), "wait_at");
    const PendingCall running = object.callAsync(arguments);
    std::atomic<int> ended{0};
    std::vector<PendingCall> calls(kMoreThanThreads);
    std::vector<std::promise<void>> callbacks(kMoreThanThreads);
    // The first ones of the queue wait for the later ones, in turn by the call and by other means.
    for (size_t i = calls.size(); i-- > 0;) {
      calls[i] = identity(object, 1, [&, i](const Outcome& outcome) {
        EXPECT_FALSE(outcome.ok());
        const size_t earlier = calls.size() - 1 - i;
        if (earlier < i && i % 2 == 0) calls[earlier].wait();
        if (earlier < i && i % 2 == 1) callbacks[earlier].get_future().wait();
        callbacks[i].set_value();
        ++ended;
      });
    }
    gate.arrival();
    pool.endManager();
    EXPECT_EQ(ended, kMoreThanThreads);
    running.wait();
  });
}

TEST(CallbackWait, InCallbacksOfCallsPastTheirDeadlineEnds) {
  endsInTime([] {
    const Gate gate;
    std::vector<at::IValue> arguments = gate.arguments();
    arguments.insert(arguments.begin(), "wait_at");
    std::vector<PendingCall> blocking;
    for (int i = 0; i < 4; ++i) blocking.push_back(sharedSubject().object().callAsync(arguments));
    // One waits for the other, whose deadline passes later, while no call can start.
    CallOptions options;
    options.deadline = milliseconds(300);
    std::promise<void> second;
    options.deadline = milliseconds(600);
    const PendingCall later = sharedSubject().object().callAsync(
        {"identity", 2},
        [&](const Outcome& outcome) {
          EXPECT_FALSE(outcome.ok());
          second.set_value();
        },
        {}, options);
    options.deadline = milliseconds(300);
    const PendingCall earlier = sharedSubject().object().callAsync(
        {"identity", 1},
        [&](const Outcome& outcome) {
          EXPECT_FALSE(outcome.ok());
          second.get_future().wait();
          later.wait();
        },
        {}, options);
    earlier.wait();
    gate.open();
    for (const PendingCall& each : blocking) each.wait();
  });
}

TEST(CallbackWait, OfRandomGraphsAlwaysEnds) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    endsInTime([&] {
      std::minstd_rand random(seed);
      const auto any = [&](size_t count) { return random() % count; };
      constexpr size_t kCalls = 40;
      std::vector<std::promise<PendingCall>> promises(kCalls);
      std::vector<std::shared_future<PendingCall>> calls;
      std::vector<std::atomic<bool>> begun(kCalls);
      for (auto& each : promises) calls.push_back(each.get_future().share());
      std::atomic<size_t> callbacks{0};
      for (size_t i = 0; i < kCalls; ++i) {
        const size_t other = any(kCalls);
        const size_t kind = any(5);
        const size_t way = any(std::size(kWays));
        promises[i].set_value(
            identity(sharedSubject().object(), 1, [=, &calls, &begun, &callbacks](const Outcome&) {
              begun[i] = true;
              // Waits that form a cycle are refused; those by other means must not form one.
              if (kind == 0) refusalOf([&] { calls[other].get().wait(); });
              if (kind == 1) refusalOf([&] { calls[other].get().wait_for(milliseconds(50)); });
              while (kind == 2 && !begun[other]) ::usleep(100);
              if (kind == 3) {
                EXPECT_EQ(kWays[way].wait(sharedManager(), sharedSubject().object(), 7), 7);
              }
              ++callbacks;
            }));
      }
      for (const auto& call : calls) call.get().wait();
      EXPECT_EQ(callbacks, kCalls);
    });
  }
}

}  // namespace
}  // namespace isopool::tests
