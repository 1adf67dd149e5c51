// SPDX-License-Identifier: BSD-3-Clause
#include <caffe2/serialize/file_adapter.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

ReplicatedObj newObject() {
  return sharedManager().loadPackage(packagePath()).loadPickle("model", "model.pkl");
}

InterpreterSession sessionOn(size_t slot) {
  return sharedManager().allInstances()[slot].acquireSession();
}

bool same(InterpreterSession& session, const Obj& one, const Obj& other) {
  return session.global("operator", "is_")({one, other}).toIValue().toBool();
}

TEST(Replica, ToObjGivesTheSamePythonObjectEachTime) {
  const ReplicatedObj object = newObject();
  InterpreterSession session = sessionOn(0);
  const Obj first = object.toObj(&session);
  EXPECT_TRUE(same(session, first, object.toObj(&session)));
  InterpreterSession other = object.acquireSession(&sharedManager().allInstances()[0]);
  EXPECT_TRUE(same(session, first, other.self));
}

TEST(Replica, ToObjRefusesNullAndForeignSessions) {
  const ReplicatedObj object = newObject();
  EXPECT_THROW(object.toObj(nullptr), Error);
  InterpreterManager stranger(1);
  InterpreterSession session = stranger.acquireOne();
  EXPECT_THROW(object.toObj(&session), Error);
  EXPECT_THROW(ReplicatedObj().toObj(&session), Error);
}

TEST(Replica, UnloadedFromOneWorkerIsUnpickledAnewThereAlone) {
  ReplicatedObj object = newObject();
  InterpreterSession here = sessionOn(0);
  InterpreterSession there = sessionOn(1);
  const Obj oldHere = object.toObj(&here);
  const Obj oldThere = object.toObj(&there);
  object.unload(&sharedManager().allInstances()[0]);
  EXPECT_FALSE(same(here, oldHere, object.toObj(&here)));
  EXPECT_TRUE(same(there, oldThere, object.toObj(&there)));
}

TEST(Replica, UnloadedEverywhereTheOldObjsLiveOn) {
  ReplicatedObj object = newObject();
  InterpreterSession session = sessionOn(0);
  const Obj old = object.toObj(&session);
  session.global("builtins",
                 "setattr")({old, session.fromIValue("scratch"), session.fromIValue(7)});
  object.unload();
  EXPECT_EQ(old.attr("scratch").toIValue().toInt(), 7);
  EXPECT_FALSE(object.toObj(&session).hasattr("scratch"));
  EXPECT_GT(Subject(object).number("pid"), 0);
}

TEST(Replica, CallsNeverFailBecauseAnotherThreadUnloads) {
  const ReplicatedObj object = newObject();
  std::atomic<bool> stop{false};
  std::atomic<int> calls{0};
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      while (!stop) {
        try {
          Subject(object).number("pid");
          object.acquireSession().self.hasattr("forward");
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
          ++failures;
        }
        ++calls;
      }
    });
  }
  ReplicatedObj copy = object;
  for (int i = 0; i < 100 && failures == 0; ++i) {
    const int before = calls;
    copy.unload();
    EXPECT_TRUE(waitUntil([&] { return calls > before; }));
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures, 0);
}

TEST(Replica, UnloadRefusesAnInterpreterOfAnotherManager) {
  ReplicatedObj object = newObject();
  InterpreterManager stranger(1);
  EXPECT_THROW(object.unload(&stranger.allInstances()[0]), Error);
}

TEST(Session, OwnsWhatCameOutOfItAndNothingElse) {
  InterpreterSession session = sessionOn(0);
  InterpreterSession other = sessionOn(0);
  const Obj value = session.fromIValue("text");
  EXPECT_TRUE(session.isOwner(value));
  EXPECT_TRUE(session.isOwner(value.attr("upper")(at::ArrayRef<Obj>())));
  EXPECT_FALSE(other.isOwner(value));
  EXPECT_FALSE(session.isOwner(Obj()));
  // The object belongs to the same worker, so another session can use it.
  EXPECT_EQ(other.global("builtins", "len")({value}).toIValue().toInt(), 4);
}

TEST(Manager, LimitedToSomeWorkersIgnoresTheOthersUntilRestored) {
  InterpreterManager manager(2);
  const Subject subject(manager);
  const auto pidsOfManyThreads = [&] {
    std::vector<std::thread> threads;
    std::vector<std::set<int64_t>> seen(4);
    for (std::set<int64_t>& mine : seen) {
      threads.emplace_back([&] {
        for (int i = 0; i < 25; ++i) mine.insert(subject.number("pid"));
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::set<int64_t> all;
    for (const auto& mine : seen) all.insert(mine.begin(), mine.end());
    return all;
  };
  manager.debugLimitInterpreters(1);
  EXPECT_EQ(pidsOfManyThreads(), std::set<int64_t>{*manager.allInstances()[0].processId()});
  EXPECT_EQ(manager.acquireOne().global("os", "getpid")(at::ArrayRef<Obj>()).toIValue().toInt(),
            *manager.allInstances()[0].processId());

  manager.debugLimitInterpreters(2);
  // One call waits in each worker, so both workers are in use.
  const Gate gate;
  std::thread waiting([&] { subject.ask("wait_at", gate.arguments()); });
  ASSERT_TRUE(waitUntil([&] { return gate.arrival() != 0; }));
  EXPECT_NE(subject.number("pid"), gate.arrival());
  gate.open();
  waiting.join();

  EXPECT_THROW(manager.debugLimitInterpreters(0), c10::Error);
  EXPECT_THROW(manager.debugLimitInterpreters(3), c10::Error);
}

/// Reads a file in parts of any size. From a given position on it reads nothing.
class Reader final : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit Reader(const std::string& path, size_t end = SIZE_MAX) : file_(path), end_(end) {}
  size_t size() const override { return file_.size(); }
  size_t read(uint64_t position, void* buffer, size_t count, const char* what) const override {
    if (position >= end_) return 0;
    return file_.read(position, buffer, std::min<size_t>(count, 1000), what);
  }

 private:
  caffe2::serialize::FileAdapter file_;
  size_t end_;
};

TEST(Package, ComesFromAReaderAsWellAsFromAPath) {
  auto reader = std::make_shared<Reader>(packagePath());
  Package package = sharedManager().loadPackage(reader);
  EXPECT_EQ(reader.use_count(), 1);
  EXPECT_GT(Subject(package.loadPickle("model", "model.pkl")).number("pid"), 0);
}

TEST(Package, OfATruncatedOrNullReaderIsRefused) {
  EXPECT_THROW(sharedManager().loadPackage(std::make_shared<Reader>(packagePath(), 5000)),
               c10::Error);
  EXPECT_THROW(
      sharedManager().loadPackage(std::shared_ptr<caffe2::serialize::ReadAdapterInterface>()),
      c10::Error);
}

}  // namespace
}  // namespace isopool::tests
