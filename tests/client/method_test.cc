// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>

#include <future>
#include <set>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

const ReplicatedObj& subject() { return sharedSubject().object(); }

TEST(MethodByName, IsCalledWithItsArguments) {
  const Method sums = subject().method("sums");
  EXPECT_EQ(sums.name(), "sums");
  const at::Tensor x = at::ones({4});
  EXPECT_EQ(sums({x}).toDouble(), 4.0);
  EXPECT_EQ(sums.call({x}, {{"scale", 2.0}, {"shift", 1.0}}).toDouble(), 9.0);
}

TEST(MethodByName, TensorsAreNotCopied) {
  const Method identity = subject().method("identity");
  const at::Tensor x = empty({1 << 20}).fill_(3);
  const CopyCounters before = copyCounters();
  const at::Tensor result = identity({x}).toTensor();
  EXPECT_EQ(result.data_ptr(), x.data_ptr());
  EXPECT_EQ((copyCounters() - before).total(), 0u);
}

TEST(MethodByName, ThatDoesNotExistIsAnAttributeError) {
  const Method missing = subject().method("no_such_method");
  try {
    (void)missing({});
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "AttributeError");
    EXPECT_NE(error.message().find("no_such_method"), std::string::npos);
  }
  EXPECT_THROW((void)missing.stream({}), RemoteError);
  EXPECT_THROW(missing.callAsync({}).get(), RemoteError);
  EXPECT_THROW((void)subject().method(""), Error);
  EXPECT_THROW((void)ReplicatedObj().method("pid"), Error);
}

TEST(MethodByName, RunsAsynchronouslyWithEachKindOfCompletion) {
  const Method pid = subject().method("pid");
  EXPECT_GT(pid.callAsync({}).get().toInt(), 0);
  std::promise<int64_t> fromCallback;
  pid.callAsync({},
                [&](const Outcome& outcome) { fromCallback.set_value(outcome.value().toInt()); });
  EXPECT_GT(fromCallback.get_future().get(), 0);
  CompletionQueue queue;
  pid.callAsync({}, queue, 7);
  std::vector<Completed> completed;
  EXPECT_TRUE(waitUntil([&] {
    for (Completed& each : queue.take()) completed.push_back(std::move(each));
    return !completed.empty();
  }));
  ASSERT_EQ(completed.size(), 1u);
  EXPECT_EQ(completed[0].tag, 7u);
  EXPECT_GT(completed[0].outcome.value().toInt(), 0);
}

TEST(MethodByName, StreamsItsItems) {
  int64_t next = 0;
  for (const at::IValue& item : subject().method("count_to").stream({5})) {
    EXPECT_EQ(item.toInt(), next++);
  }
  EXPECT_EQ(next, 5);
}

TEST(MethodByName, RunsOnEveryWorker) {
  const auto results = subject().method("pid").callOnAll({});
  std::set<int64_t> pids;
  for (const at::IValue& each : results) pids.insert(each.toInt());
  EXPECT_EQ(pids.size(), sharedManager().allInstances().size());
}

TEST(MethodByName, HasADeadlineAndIsRetriedIfItMayBe) {
  const OwnPool pool(2);
  const ReplicatedObj& object = pool.subject().object();
  CallOptions soon;
  soon.deadline = milliseconds(100);
  const Gate gate;
  EXPECT_THROW((void)object.method("wait_at").call(gate.arguments(), {}, soon), DeadlineExceeded);
  const std::string mark = testFolder() / "method-died-once";
  CallOptions idempotent;
  idempotent.idempotent = true;
  EXPECT_NO_THROW((void)object.method("die_once").call({mark}, {}, idempotent));
  EXPECT_THROW((void)object.method("die")({SIGKILL}), WorkerLost);
  EXPECT_GT(object.method("pid")({}).toInt(), 0);
}

TEST(MethodByName, KeepsTheObjectAlive) {
  InterpreterManager manager(1);
  const Method pid =
      manager.loadPackage(packagePath()).loadPickle("model", "model.pkl").method("pid");
  EXPECT_GT(pid({}).toInt(), 0);
}

TEST(MethodByName, IsRecordedAsACall) {
  std::vector<CallKind> kinds;
  setCallObserver([&](const CallRecord& record) { kinds.push_back(record.kind); });
  (void)subject().method("pid")({});
  setCallObserver(nullptr);
  EXPECT_EQ(kinds, std::vector<CallKind>{CallKind::kCall});
}

}  // namespace
}  // namespace isopool::tests
