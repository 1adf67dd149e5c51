// SPDX-License-Identifier: BSD-3-Clause
// Results of Python generators, item by item.
#include <signal.h>

#include <fstream>
#include <iterator>
#include <tuple>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

std::string contentsOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Stream : public ::testing::Test {
 protected:
  Stream() { sharedManager(); }
  static std::string logPath(const char* name) { return testFolder() / name; }
  static ResultStream open(const std::string& method, std::vector<at::IValue> more = {}) {
    more.insert(more.begin(), method);
    return sharedSubject().object().stream(std::move(more));
  }
};

TEST_F(Stream, GivesTheItemsOfAGeneratorAndEnds) {
  ResultStream stream = open("count_to", {3});
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(stream.next()->toInt(), i);
  EXPECT_FALSE(stream.next());
  EXPECT_FALSE(stream.next()) << "it stays at its end";
}

TEST_F(Stream, CanBeReadByARangeFor) {
  int64_t sum = 0;
  for (const at::IValue& item : open("count_to", {100})) sum += item.toInt();
  EXPECT_EQ(sum, 4950);
}

TEST_F(Stream, OfTenThousandItemsGivesEach) {
  ResultStream stream = open("count_to", {10'000});
  int64_t count = 0;
  while (const auto item = stream.next()) {
    ASSERT_EQ(item->toInt(), count);
    ++count;
  }
  EXPECT_EQ(count, 10'000);
}

TEST_F(Stream, RunsItsGeneratorOnlyWhenAskedForAnItem) {
  const std::string log = logPath("stream-pull");
  ResultStream stream = open("noted", {log});
  EXPECT_EQ(contentsOf(log), "") << "a generator does not begin before the first next()";
  stream.next();
  stream.next();
  sharedSubject().number("pid");
  EXPECT_EQ(contentsOf(log), "0\n1\n");
}

TEST_F(Stream, OfAnInfiniteGeneratorEndsWhenItIsClosedAndItsFinallyRuns) {
  const std::string log = logPath("stream-infinite");
  {
    ResultStream stream = open("noted", {log});
    for (int i = 0; i < 5; ++i) stream.next();
  }
  EXPECT_TRUE(waitUntil([&] { return contentsOf(log) == "0\n1\n2\n3\n4\nfinally\n"; }))
      << contentsOf(log);
}

TEST_F(Stream, ThatIsClosedHasNoMoreItems) {
  ResultStream stream = open("count_to", {3});
  stream.next();
  stream.close();
  EXPECT_FALSE(stream.next());
  ResultStream other = open("count_to", {3});
  stream = std::move(other);
  EXPECT_EQ(stream.next()->toInt(), 0);
  EXPECT_FALSE(ResultStream().next());
}

TEST_F(Stream, ThrowsWhatTheGeneratorRaisesAndIsThenAtItsEnd) {
  ResultStream stream = open("count_and_fail", {2});
  EXPECT_EQ(stream.next()->toInt(), 0);
  EXPECT_EQ(stream.next()->toInt(), 1);
  try {
    stream.next();
    FAIL() << "nothing was thrown";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "LookupError");
    EXPECT_NE(error.traceback().find("count_and_fail"), std::string::npos) << error.traceback();
  }
  EXPECT_FALSE(stream.next());
}

TEST_F(Stream, OfAnyIterable) {
  ResultStream list = open("identity", {c10::List<int64_t>({4, 5})});
  EXPECT_EQ(list.next()->toInt(), 4);
  EXPECT_EQ(list.next()->toInt(), 5);
  EXPECT_FALSE(list.next());
  ResultStream tensor = open("identity", {at::eye(2)});
  EXPECT_TRUE(tensor.next()->toTensor().equal(at::eye(2)[0]));
  ResultStream none = open("nothing");
  try {
    none.next();
    FAIL() << "None has no items";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "TypeError");
  }
}

TEST_F(Stream, ItemsCanBeConvertedPermissively) {
  CallOptions options;
  options.permissive = true;
  ResultStream stream = sharedSubject().object().stream({"mixed_items"}, {}, options);
  const auto item = stream.next()->toList();
  EXPECT_EQ(item.get(0).toInt(), 1);
  EXPECT_EQ(item.get(1).toStringRef(), "two");
  ResultStream strict = open("mixed_items");
  EXPECT_THROW(strict.next(), Error);
}

TEST_F(Stream, ErrorsOfTheCallItselfAreThrownAtOnce) {
  EXPECT_THROW(open("fail", {1}), RemoteError);
  EXPECT_THROW(std::ignore = ReplicatedObj().stream({}), Error);
  EXPECT_THROW(open("identity", {at::eye(3).to_sparse()}), Error);
}

TEST_F(Stream, TwoAreInterleavedWithEachOtherAndWithCalls) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  ResultStream one = subject.object().stream({"count_to", 50});
  ResultStream two = subject.object().stream({"count_to", 50});
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(one.next()->toInt(), i);
    EXPECT_EQ(subject.number("identity", {i}), i) << "the worker serves calls between items";
    EXPECT_EQ(two.next()->toInt(), i);
  }
  EXPECT_EQ(manager.statistics().workers.at(0).sessions, 2u);
  EXPECT_FALSE(one.next());
  EXPECT_FALSE(two.next());
  EXPECT_EQ(manager.statistics().workers.at(0).sessions, 0u);
}

TEST_F(Stream, ATensorThatTheGeneratorDoesNotKeepIsNotCopied) {
  const CopyCounters before = copyCounters();
  ResultStream stream = open("tensors", {4, 100'000});
  float expected = 0;
  std::vector<at::Tensor> held;
  for (const at::IValue& item : stream) {
    held.push_back(item.toTensor());
    EXPECT_TRUE(held.back().eq(expected).all().item<bool>());
    expected += 1;
  }
  EXPECT_EQ(held.size(), 4u);
  EXPECT_EQ((copyCounters() - before).total(), 0u);
}

TEST_F(Stream, WhatTheGeneratorWritesLaterDoesNotReachAnItem) {
  ResultStream stream = open("kept_tensors", {100'000});
  const at::Tensor first = stream.next()->toTensor();
  const at::Tensor second = stream.next()->toTensor();
  EXPECT_TRUE(first.eq(0).all().item<bool>());
  EXPECT_TRUE(second.eq(1).all().item<bool>());
}

TEST_F(Stream, WhoseWorkerIsKilledThrowsWorkerLost) {
  InterpreterManager manager(2);
  const Subject subject(manager);
  ResultStream stream = subject.object().stream({"pids", 1000});
  const auto victim = static_cast<pid_t>(stream.next()->toInt());
  ::kill(victim, SIGKILL);
  try {
    // An item that was requested before the kill may still arrive.
    while (stream.next()) {
    }
    FAIL() << "it went on";
  } catch (const WorkerLost& lost) {
    EXPECT_EQ(lost.processId(), victim);
    EXPECT_EQ(lost.signal(), SIGKILL);
  }
  EXPECT_THROW(stream.next(), WorkerLost) << "also later";
  EXPECT_NE(subject.object().stream({"pids", 1}).next()->toInt(), victim);
}

TEST_F(Stream, ThatKillsItsWorkerInAnItemSaysThatItHadStarted) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  ResultStream stream = subject.object().stream({"count_and_die", 2});
  stream.next();
  stream.next();
  try {
    stream.next();
    FAIL() << "it went on";
  } catch (const WorkerLost& lost) {
    EXPECT_TRUE(lost.started());
  }
}

TEST_F(Stream, AnItemHasADeadline) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  CallOptions options;
  options.deadline = milliseconds(300);
  ResultStream stream = subject.object().stream({"count_and_hang", 2}, {}, options);
  EXPECT_EQ(stream.next()->toInt(), 0);
  EXPECT_EQ(stream.next()->toInt(), 1);
  EXPECT_THROW(stream.next(), DeadlineExceeded);
  EXPECT_THROW(stream.next(), Error);
  EXPECT_GT(subject.number("pid"), 0);
}

TEST_F(Stream, OutlivesItsObjectAndItsManagerWithAnError) {
  std::optional<InterpreterManager> manager(std::in_place, 1);
  ResultStream stream = [&] { return Subject(*manager).object().stream({"count_to", 10}); }();
  EXPECT_EQ(stream.next()->toInt(), 0);
  manager.reset();
  EXPECT_THROW(stream.next(), Error);
}

TEST_F(Stream, OfAnObjLeavesTheObjAsItIs) {
  InterpreterSession session = sharedManager().acquireOne();
  const Obj list = session.fromIValue(c10::List<int64_t>({1, 2, 3}));
  int64_t sum = 0;
  for (const at::IValue& item : ResultStream(list)) sum += item.toInt();
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(list.toIValue().toListRef().size(), 3u);
  EXPECT_THROW(ResultStream{session.fromIValue(1)}, RemoteError);
  EXPECT_THROW(ResultStream{Obj()}, Error);
}

}  // namespace
}  // namespace isopool::tests
