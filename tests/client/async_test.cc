// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous calls: outcomes, order, cancelling, deadlines, and every order of destruction.
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

CallOptions within(milliseconds time) {
  CallOptions options;
  options.deadline = time;
  return options;
}

template <typename Expected>
bool endedWith(const PendingCall& call) {
  try {
    call.get();
  } catch (const Expected&) {
    return true;
  } catch (...) {
  }
  return false;
}

/// Cancelled::started() of what `call` throws; nothing if it does not throw Cancelled.
template <typename Call>
std::optional<bool> startedBeforeCancelled(Call&& call) {
  try {
    call();
  } catch (const Cancelled& error) {
    return error.started();
  }
  return std::nullopt;
}

int linesOf(const std::string& path) {
  std::ifstream file(path);
  return static_cast<int>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
}

PendingCall begin(const Subject& subject, std::vector<at::IValue> words, CallOptions options = {}) {
  return subject.object().callAsync(std::move(words), Named{}, options);
}

std::vector<at::IValue> words(const std::string& method, const std::vector<at::IValue>& more) {
  std::vector<at::IValue> all{method};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class Async : public ::testing::Test {
 protected:
  Async() { sharedManager(); }
};

/// A pool of one worker, so that a call is queued exactly when this worker is busy.
class AsyncQueue : public Async {
 protected:
  WorkerStatistics worker() const { return manager_.statistics().workers.at(0); }
  /// Makes short calls. The pool measures their time, so it then publishes a second call to a
  /// worker that still runs one.
  void makeCallsShort() {
    for (int i = 0; i < 50; ++i) subject_.number("pid");
  }
  PendingCall occupy(const Gate& gate) {
    return begin(subject_, words("wait_at", gate.arguments()));
  }

  InterpreterManager manager_{1};
  Subject subject_{manager_};
};

TEST_F(Async, ACallReturnsTheResultOfTheSynchronousCall) {
  const at::Tensor x = empty({1000}).fill_(1);
  const PendingCall call = begin(sharedSubject(), {"add_one", x});
  EXPECT_TRUE(call.get().toTensor().eq(2).all().item<bool>());
  EXPECT_TRUE(call.ready());
  EXPECT_TRUE(call.get().toTensor().eq(2).all().item<bool>()) << "it can be asked again";
  const PendingCall named = sharedSubject().object().callAsync({"sums", x}, Named{{"scale", 2.0}});
  EXPECT_EQ(named.get().toDouble(), 2000);
}

TEST_F(Async, FiveThousandInFlightOnTwoWorkersAreAllAnsweredRight) {
  std::vector<PendingCall> calls;
  for (int i = 0; i < 5000; ++i) {
    calls.push_back(begin(sharedSubject(), {"identity", int64_t{i}}));
  }
  const size_t threads = static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
  EXPECT_LT(threads, 32u) << "in flight calls have no thread each";
  int right = 0;
  for (int i = 0; i < 5000; ++i) right += calls[static_cast<size_t>(i)].get().toInt() == i ? 1 : 0;
  EXPECT_EQ(right, 5000);
}

TEST_F(Async, ErrorsAreThoseOfTheSameCall) {
  const PendingCall call = begin(sharedSubject(), {"fail", 1});
  try {
    call.get();
    FAIL() << "nothing was thrown";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "ValueError");
  }
  EXPECT_TRUE(endedWith<RemoteError>(call)) << "each time";
  EXPECT_TRUE(endedWith<Error>(begin(sharedSubject(), {"identity", at::eye(3).to_sparse()})));
}

TEST_F(Async, OptionsAreThoseOfTheSameCall) {
  CallOptions options;
  options.permissive = true;
  const auto mixed = begin(sharedSubject(), {"mixed"}, options).get().toList();
  EXPECT_EQ(mixed.get(1).toStringRef(), "two");
  EXPECT_TRUE(endedWith<Error>(begin(sharedSubject(), {"mixed"})));
}

TEST_F(Async, NullObjectsAndNullCallsThrowAtOnce) {
  EXPECT_THROW(ReplicatedObj().callAsync({}), Error);
  EXPECT_THROW(PendingCall().get(), Error);
  EXPECT_THROW(PendingCall().cancel(), Error);
  EXPECT_FALSE(PendingCall().valid());
}

TEST_F(Async, TheCallersModesAreInForce) {
  std::vector<PendingCall> calls;
  {
    const c10::NoGradGuard guard;
    calls.push_back(begin(sharedSubject(), {"modes"}));
  }
  {
    const c10::InferenceMode guard;
    calls.push_back(begin(sharedSubject(), {"modes"}));
    calls.push_back(begin(sharedSubject(), {"add_one", at::ones({2000})}));
  }
  calls.push_back(begin(sharedSubject(), {"modes"}));
  const auto modes = [&](size_t i) {
    const auto tuple = calls[i].get().toTuple();
    return std::make_pair(tuple->elements()[0].toBool(), tuple->elements()[1].toBool());
  };
  EXPECT_EQ(modes(0), std::make_pair(false, false));
  EXPECT_EQ(modes(1), std::make_pair(false, true));
  EXPECT_TRUE(calls[2].get().toTensor().is_inference()) << "as the synchronous call's result";
  EXPECT_EQ(modes(3), std::make_pair(true, false));
}

TEST_F(Async, ACallbackIsCalledOnceOnAnotherThreadBeforeGetReturns) {
  std::atomic<int> calls{0};
  std::atomic<bool> elsewhere{false};
  const auto here = std::this_thread::get_id();
  const PendingCall call =
      sharedSubject().object().callAsync({"identity", 7}, [&](const Outcome& outcome) {
        elsewhere = std::this_thread::get_id() != here;
        calls += outcome.ok() && outcome.value().toInt() == 7 ? 1 : 100;
      });
  EXPECT_EQ(call.get().toInt(), 7);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(elsewhere);
}

TEST_F(Async, ACallbackMayBeMoveOnlyAndGetsErrors) {
  auto promise = std::make_unique<std::promise<std::string>>();
  auto future = promise->get_future();
  sharedSubject().object().callAsync({"fail", 1},
                                     [promise = std::move(promise)](const Outcome& outcome) {
                                       try {
                                         outcome.value();
                                       } catch (const RemoteError& error) {
                                         promise->set_value(error.pythonType());
                                       }
                                     });
  EXPECT_EQ(future.get(), "ValueError");
}

TEST_F(Async, ACallbackMayMakeCallsOfBothKinds) {
  std::promise<int64_t> sum;
  sharedSubject().object().callAsync({"identity", 1}, [&](const Outcome& first) {
    const int64_t one = first.value().toInt();
    const int64_t two = sharedSubject().number("identity", {2});
    sharedSubject().object().callAsync({"identity", 3}, [&sum, one, two](const Outcome& third) {
      sum.set_value(one + two + third.value().toInt());
    });
  });
  EXPECT_EQ(sum.get_future().get(), 6);
}

TEST_F(Async, AnExceptionOfACallbackIsOnlyLogged) {
  std::mutex mutex;
  std::string logged;
  setLogger([&](LogLevel level, std::string_view text) {
    const std::lock_guard lock(mutex);
    if (level == LogLevel::kError) logged = text;
  });
  const PendingCall call = sharedSubject().object().callAsync(
      {"identity", 1}, [](const Outcome&) { throw std::runtime_error("of the callback"); });
  EXPECT_EQ(call.get().toInt(), 1);
  setLogger(nullptr);
  const std::lock_guard lock(mutex);
  EXPECT_NE(logged.find("of the callback"), std::string::npos) << logged;
}

TEST_F(AsyncQueue, QueuedCallsRunOnceEach) {
  const Gate gate;
  const PendingCall first = occupy(gate);
  gate.arrival();
  const std::string log = testFolder() / "async-line";
  std::vector<PendingCall> calls;
  for (int i = 0; i < 40; ++i) calls.push_back(begin(subject_, {"log", log, std::to_string(i)}));
  EXPECT_GE(manager_.statistics().asyncCallsQueued, 39u) << "there is not one thread for each call";
  gate.open();
  for (const PendingCall& call : calls) call.get();
  std::ifstream file(log);
  std::set<int> ran;
  for (int number = 0; file >> number;) EXPECT_TRUE(ran.insert(number).second) << number;
  EXPECT_EQ(ran.size(), 40u);
}

TEST_F(AsyncQueue, AQueuedCallCanBeCancelledAndNeverRuns) {
  const Gate gate;
  const PendingCall running = occupy(gate);
  gate.arrival();
  const std::string log = testFolder() / "async-cancelled";
  std::vector<PendingCall> calls;
  for (int i = 0; i < 10; ++i) calls.push_back(begin(subject_, {"log", log, "ran"}));
  EXPECT_GE(manager_.statistics().asyncCallsQueued, 8u);
  for (const PendingCall& call : calls) EXPECT_TRUE(call.cancel());
  for (const PendingCall& call : calls) {
    EXPECT_TRUE(call.ready());
    EXPECT_TRUE(endedWith<Cancelled>(call));
    EXPECT_FALSE(call.cancel()) << "it has an outcome";
  }
  EXPECT_EQ(manager_.statistics().asyncCallsQueued, 0u);
  gate.open();
  running.get();
  subject_.number("pid");
  EXPECT_EQ(linesOf(log), 0);
}

TEST_F(AsyncQueue, APublishedCallCanBeCancelledBeforeItStarts) {
  makeCallsShort();
  const Gate gate;
  const PendingCall running = occupy(gate);
  gate.arrival();
  const std::string log = testFolder() / "async-published";
  std::atomic<int> outcomes{0};
  const PendingCall next = subject_.object().callAsync(
      {"log", log, "ran"}, [&](const Outcome& outcome) { outcomes += outcome.ok() ? 100 : 1; });
  EXPECT_TRUE(waitUntil([&] { return worker().callsInFlight == 2; })) << "it is in the ring";
  EXPECT_TRUE(next.cancel());
  EXPECT_TRUE(endedWith<Cancelled>(next));
  EXPECT_TRUE(waitUntil([&] { return worker().callsInFlight == 1; })) << "no thread waits for it";
  gate.open();
  running.get();
  subject_.number("pid");
  EXPECT_EQ(linesOf(log), 0);
  EXPECT_EQ(outcomes, 1);
}

TEST_F(AsyncQueue, ACallThatRunsOrHasRunCannotBeCancelled) {
  const Gate gate;
  const PendingCall running = occupy(gate);
  const pid_t worker = gate.arrival();
  EXPECT_FALSE(running.cancel());
  EXPECT_FALSE(running.ready());
  gate.open();
  EXPECT_EQ(running.get().toInt(), worker);
  EXPECT_FALSE(running.cancel());
  EXPECT_EQ(subject_.number("pid"), worker) << "no worker was killed";
}

TEST_F(AsyncQueue, ACallThatRunsIsStoppedWithItsWorker) {
  const Gate gate;
  const PendingCall running = occupy(gate);
  const pid_t worker = gate.arrival();
  const PendingCall next = subject_.object().callAsync({"pid"});
  EXPECT_TRUE(running.stop());
  EXPECT_EQ(startedBeforeCancelled([&] { running.get(); }), true);
  EXPECT_FALSE(running.stop()) << "it has an outcome";
  EXPECT_NE(next.get().toInt(), worker) << "the call behind it runs in the next worker";
}

TEST_F(AsyncQueue, ACallThatIsStoppedBeforeItStartsDoesNotRun) {
  const Gate gate;
  const PendingCall running = occupy(gate);
  const pid_t worker = gate.arrival();
  const PendingCall queued = subject_.object().callAsync({"pid"});
  EXPECT_TRUE(queued.stop());
  EXPECT_EQ(startedBeforeCancelled([&] { queued.get(); }), false);
  gate.open();
  EXPECT_EQ(running.get().toInt(), worker);
  EXPECT_EQ(subject_.number("pid"), worker) << "no worker was killed";
}

TEST_F(AsyncQueue, ACallThatWaitsForItsTurnIsMadeOnTheCallersThread) {
  std::atomic<int> outcomes{0};
  std::thread::id where;
  int inlined = 0;
  for (int i = 0; i < 200; ++i) {
    const PendingCall call =
        subject_.object().callAsync({"identity", int64_t{i}}, [&](const Outcome&) {
          where = std::this_thread::get_id();
          ++outcomes;
        });
    const bool ran = call.runInline();
    EXPECT_EQ(call.get().toInt(), i);
    if (ran) {
      EXPECT_EQ(where, std::this_thread::get_id());
    }
    inlined += ran ? 1 : 0;
    EXPECT_FALSE(call.runInline()) << "it has an outcome";
  }
  EXPECT_EQ(outcomes, 200);
  EXPECT_GT(inlined, 0);
}

TEST_F(AsyncQueue, ACallThatItsCallerDoesNotMakeIsMadeAlsoWhileOtherCallersMakeTheirs) {
  const auto makeSome = [&] {
    for (int i = 0; i < 20; ++i) subject_.object().callAsync({"pid"}).runInline();
  };
  for (int i = 0; i < 20; ++i) {
    makeSome();
    std::promise<int64_t> answered;
    const PendingCall call = subject_.object().callAsync(
        {"identity", int64_t{i}},
        [&](const Outcome& outcome) { answered.set_value(outcome.value().toInt()); });
    auto answer = answered.get_future();
    ASSERT_EQ(answer.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    EXPECT_EQ(answer.get(), i);
  }
}

TEST_F(AsyncQueue, ACallThatItsCallerMadeIsKeptByNothingElse) {
  CallOptions options;
  options.deadline = std::chrono::hours(1);
  int inlined = 0;
  for (int i = 0; i < 200; ++i) {
    at::Tensor result;
    bool ran = false;
    {
      const PendingCall call = subject_.object().callAsync(
          {"identity", at::zeros({100})}, std::unordered_map<std::string, at::IValue>(), options);
      ran = call.runInline();
      result = call.get().toTensor();
    }
    inlined += ran ? 1 : 0;
    EXPECT_TRUE(!ran || result.use_count() == 1) << "call " << i;
  }
  EXPECT_GT(inlined, 0);
}

TEST_F(AsyncQueue, AnInterruptedCallEndsWithItsWorker) {
  const Gate gate;
  const std::vector<at::IValue> args = words("wait_at", gate.arguments());
  CallOptions options;
  pid_t worker = 0;
  options.interrupted = [&] {
    if (worker == 0) worker = gate.arrival();
    return true;
  };
  const auto call = [&] { (void)subject_.object().call(args, {}, options); };
  EXPECT_EQ(startedBeforeCancelled(call), true);
  EXPECT_NE(subject_.number("pid"), worker);
}

TEST_F(AsyncQueue, ACallThatIsInterruptedInLineDoesNotRun) {
  const Gate gate;
  const PendingCall running = occupy(gate);
  const pid_t worker = gate.arrival();
  CallOptions options;
  options.interrupted = [] { return true; };
  const auto call = [&] { (void)subject_.object().call({"pid"}, {}, options); };
  EXPECT_EQ(startedBeforeCancelled(call), false);
  gate.open();
  EXPECT_EQ(running.get().toInt(), worker);
}

TEST_F(AsyncQueue, TheRunTimeOfACallDoesNotCountItsWait) {
  const Gate gate;
  const PendingCall running = occupy(gate);
  const pid_t worker = gate.arrival();
  CallOptions options;
  options.runTime = milliseconds(200);
  const PendingCall waiting = subject_.object().callAsync({"pid"}, {}, options);
  EXPECT_FALSE(waiting.wait_for(milliseconds(300)));
  gate.open();
  EXPECT_EQ(running.get().toInt(), worker);
  EXPECT_EQ(waiting.get().toInt(), worker);
}

TEST_F(AsyncQueue, ACallPastItsRunTimeIsKilled) {
  const Gate gate;
  const std::vector<at::IValue> args = words("wait_at", gate.arguments());
  CallOptions options;
  options.runTime = milliseconds(200);
  const PendingCall call = subject_.object().callAsync(args, {}, options);
  const pid_t worker = gate.arrival();
  EXPECT_TRUE(endedWith<DeadlineExceeded>(call));
  EXPECT_NE(subject_.number("pid"), worker);
}

TEST_F(AsyncQueue, EachCallHasOneOutcomeHoweverCancelsRaceWithIt) {
  std::atomic<int> outcomes{0};
  std::atomic<int> wrong{0};
  std::vector<PendingCall> calls;
  for (int i = 0; i < 2000; ++i) {
    calls.push_back(
        subject_.object().callAsync({"identity", int64_t{i}}, [&](const Outcome&) { ++outcomes; }));
  }
  std::vector<char> taken(calls.size(), 0);
  std::thread canceller([&] {
    for (size_t i = 0; i < calls.size(); i += 2) taken[i] = calls[i].cancel() ? 1 : 0;
  });
  std::thread other([&] {
    for (size_t i = 1; i < calls.size(); i += 2) taken[i] = calls[i].cancel() ? 1 : 0;
  });
  canceller.join();
  other.join();
  for (size_t i = 0; i < calls.size(); ++i) {
    if (taken[i] != 0) {
      wrong += endedWith<Cancelled>(calls[i]) ? 0 : 1;
    } else {
      wrong += calls[i].get().toInt() == static_cast<int64_t>(i) ? 0 : 1;
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(outcomes, 2000);
}

// The worker may report a call as withdrawn before the call's thread notices the cancellation.
TEST_F(AsyncQueue, CancelledCallsFreeTheirRingSlots) {
  makeCallsShort();
  int answered = 0;
  int cancelled = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<PendingCall> calls;
    for (int call = 0; call < 3; ++call) {
      calls.push_back(begin(subject_, {"identity", int64_t{i}}, within(kPatience)));
    }
    cancelled += calls.back().cancel() ? 1 : 0;
    for (int call = 0; call < 2; ++call)
      answered += calls[static_cast<size_t>(call)].get().toInt() == i;
    calls.back().wait();
  }
  EXPECT_EQ(answered, 1000);
  EXPECT_GT(cancelled, 0);
}

TEST_F(AsyncQueue, ADeadlineCountsWhileTheCallIsQueued) {
  const Gate gate;
  const PendingCall running = occupy(gate);
  gate.arrival();
  const std::string log = testFolder() / "async-overdue";
  std::vector<PendingCall> calls;
  for (int i = 0; i < 6; ++i) {
    calls.push_back(begin(subject_, {"log", log, "ran"}, within(milliseconds(100))));
  }
  for (const PendingCall& call : calls) {
    EXPECT_TRUE(call.wait_for(milliseconds(2000)));
    try {
      call.get();
      ADD_FAILURE() << "it returned";
    } catch (const DeadlineExceeded& error) {
      EXPECT_FALSE(error.started());
    }
  }
  EXPECT_FALSE(running.ready());
  gate.open();
  running.get();
  subject_.number("pid");
  EXPECT_EQ(linesOf(log), 0);
}

TEST_F(AsyncQueue, ADeadlineOfARunningCallKillsItsWorker) {
  const pid_t victim = worker().processId;
  const Gate gate;
  const PendingCall call =
      begin(subject_, words("wait_at", gate.arguments()), within(milliseconds(200)));
  EXPECT_EQ(gate.arrival(), victim);
  EXPECT_TRUE(endedWith<DeadlineExceeded>(call));
  EXPECT_TRUE(waitUntilDead(victim, kPatience));
  EXPECT_NE(begin(subject_, {"pid"}).get().toInt(), victim);
}

TEST_F(Async, EveryCallHasOneOutcomeIfWorkersAreKilledUnderLoad) {
  InterpreterManager manager(2);
  const Subject subject(manager);
  subject.number("pid");
  constexpr int kCalls = 6000;
  std::vector<std::atomic<int>> outcomes(kCalls);
  std::atomic<int> ended{0};
  std::atomic<int> wrong{0};
  std::atomic<int> lost{0};
  for (int i = 0; i < kCalls; ++i) {
    subject.object().callAsync({"identity", int64_t{i}}, [&, i](const Outcome& outcome) {
      ++outcomes[static_cast<size_t>(i)];
      try {
        if (outcome.value().toInt() != i) ++wrong;
      } catch (const WorkerLost& error) {
        ++lost;
        if (!error.started()) ++wrong;
      } catch (...) {
        ++wrong;
      }
      ++ended;
    });
  }
  for (int kill = 1; kill <= 4; ++kill) {
    ASSERT_TRUE(waitUntil([&] { return ended > kill * kCalls / 6; }));
    std::optional<int> victim;
    ASSERT_TRUE(waitUntil([&] {
      victim = manager.allInstances()[static_cast<size_t>(kill % 2)].processId();
      return victim.has_value();
    }));
    ::kill(*victim, SIGKILL);
  }
  ASSERT_TRUE(waitUntil([&] { return ended == kCalls; }, milliseconds(30'000)));
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(lost, 4) << "one call runs on a worker at a time";
  for (const auto& count : outcomes) EXPECT_EQ(count, 1);
}

TEST_F(Async, TheManagersEndSettlesEveryCall) {
  auto manager = std::make_unique<InterpreterManager>(1);
  std::optional<Subject> subject(*manager);
  const Gate gate;
  std::atomic<int> outcomes{0};
  std::atomic<int> values{0};
  std::vector<PendingCall> calls;
  const auto note = [&](const Outcome& outcome) {
    ++outcomes;
    values += outcome.ok() ? 1 : 0;
  };
  calls.push_back(subject->object().callAsync(words("wait_at", gate.arguments()), note));
  gate.arrival();
  for (int i = 0; i < 100; ++i) calls.push_back(subject->object().callAsync({"pid"}, note));
  manager.reset();
  EXPECT_EQ(outcomes, 101) << "all callbacks have returned before the destructor does";
  EXPECT_EQ(values, 0);
  for (const PendingCall& call : calls) EXPECT_TRUE(endedWith<Error>(call));
  EXPECT_THROW(subject->object().callAsync({"pid"}), Error);
}

TEST_F(Async, ACallbackMayEndTheManagerAndTheObject) {
  auto manager = std::make_unique<InterpreterManager>(2);
  auto subject = std::make_unique<Subject>(*manager);
  std::promise<void> ended;
  const Gate gate;
  const PendingCall running =
      subject->object().callAsync(words("wait_at", gate.arguments()), [&](const Outcome&) {});
  gate.arrival();
  const PendingCall call = subject->object().callAsync({"pid"}, [&](const Outcome&) {
    subject.reset();
    manager.reset();
    ended.set_value();
  });
  ASSERT_EQ(ended.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_GT(call.get().toInt(), 0);
  EXPECT_TRUE(endedWith<Error>(running));
}

TEST_F(Async, ThePendingCallAndTheObjectMayGoBeforeTheOutcome) {
  std::promise<int64_t> answer;
  {
    const Subject copy(sharedManager());
    copy.object().callAsync({"identity", 5}, [&](const Outcome& outcome) {
      answer.set_value(outcome.value().toInt());
    });
  }
  EXPECT_EQ(answer.get_future().get(), 5);
}

TEST_F(Async, ACompletionQueueIsReadableExactlyWhileItHasOutcomes) {
  CompletionQueue queue;
  const auto readable = [&](milliseconds patience) {
    pollfd watched{queue.fd(), POLLIN, 0};
    return ::poll(&watched, 1, static_cast<int>(patience.count())) == 1;
  };
  EXPECT_FALSE(readable(milliseconds(0)));
  EXPECT_TRUE(queue.take().empty());
  constexpr uint64_t kCalls = 500;
  for (uint64_t tag = 0; tag < kCalls; ++tag) {
    const std::string method = tag % 10 == 0 ? "fail" : "identity";
    sharedSubject().object().callAsync({method, static_cast<int64_t>(tag)}, queue, tag);
  }
  std::map<uint64_t, int> seen;
  while (seen.size() < kCalls && readable(kPatience)) {
    const std::vector<Completed> completed = queue.take();
    EXPECT_FALSE(completed.empty()) << "its descriptor was readable";
    for (const Completed& each : completed) {
      ++seen[each.tag];
      EXPECT_EQ(each.outcome.ok(), each.tag % 10 != 0);
      if (each.outcome.ok()) {
        EXPECT_EQ(each.outcome.value().toInt(), static_cast<int64_t>(each.tag));
      }
    }
  }
  EXPECT_EQ(seen.size(), kCalls);
  EXPECT_TRUE(
      std::all_of(seen.begin(), seen.end(), [](const auto& one) { return one.second == 1; }));
  EXPECT_FALSE(readable(milliseconds(0)));
}

TEST_F(Async, ACompletionQueueMayEndBeforeItsCalls) {
  const Gate gate;
  std::optional<CompletionQueue> queue(std::in_place);
  const PendingCall call =
      sharedSubject().object().callAsync(words("wait_at", gate.arguments()), *queue, 1);
  gate.arrival();
  queue.reset();
  gate.open();
  EXPECT_GT(call.get().toInt(), 0);
}

TEST_F(Async, AForkedChildGetsErrorsAndTheParentItsAnswer) {
  const Gate gate;
  const PendingCall call = begin(sharedSubject(), words("wait_at", gate.arguments()));
  gate.arrival();
  const pid_t child = ::fork();
  if (child == 0) {
    int wrong = 0;
    const auto refuses = [](const auto& use) {
      try {
        use();
      } catch (const Error&) {
        return 0;
      }
      return 1;
    };
    wrong += refuses([&] { call.get(); });
    wrong += refuses([&] { (void)call.ready(); });
    wrong += refuses([&] { call.cancel(); });
    wrong += refuses([&] { begin(sharedSubject(), {"pid"}); });
    ::_exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  gate.open();
  EXPECT_GT(call.get().toInt(), 0);
}

}  // namespace
}  // namespace isopool::tests
