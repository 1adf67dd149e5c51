// SPDX-License-Identifier: BSD-3-Clause
// Memory that a client or a worker has returned to the system: who is asked to unmap it, when its
// number and its bytes may be used again, and that nobody is believed about it.
#include <gtest/gtest.h>

#include <fstream>

#include "base/system_call.h"
#include "ipc/memory/memory_object.h"
#include "tests/supervisor/private_pool.h"

namespace isopool::tests {
namespace {

using Numbers = std::vector<uint32_t>;

class RetiredSegment : public testing::Test {
 protected:
  explicit RetiredSegment(std::vector<std::string> flags = {}) : pool_(std::move(flags)) {
    pool_.begin();
    pool_.openPool(1, 1);
    EXPECT_NE(pool_.waitForSpare(), 0u);
    worker_ = pool_.serving(1, 0);
    pool_.send(ipc::DeclareInputSegment{1, ipc::kPageBytes}, {segment_.get()});
  }

  uint64_t outputBytes() {
    for (const ipc::WorkerStatistics& each : pool_.statistics().workers) {
      if (each.epoch == worker_) return each.outputBytes;
    }
    return 0;
  }
  bool isGranted(const std::string& segments) {
    return pool_.waitFor([&] { return pool_.call(worker_, "!segments") == segments; });
  }
  bool releases(const Numbers& numbers) {
    return pool_.waitFor([&] { return pool_.releasedInputs() == numbers; });
  }

  base::Fd segment_ = ipc::createMemoryObject("test", ipc::kPageBytes);
  PrivatePool pool_;
  uint64_t worker_ = 0;
};

TEST_F(RetiredSegment, ForInputsIsReleasedWhenEveryWorkerHasUnmappedItAndItsNumberComesAgain) {
  pool_.send(ipc::RetireInputSegment{1});
  EXPECT_TRUE(releases({1}));
  EXPECT_TRUE(pool_.waitFor([&] { return pool_.call(worker_, "!known") == "#1~1"; }));
  pool_.send(ipc::DeclareInputSegment{1, ipc::kPageBytes}, {segment_.get()});
  EXPECT_TRUE(pool_.waitFor([&] { return pool_.call(worker_, "!known") == "#1~1#1"; }));
}

TEST_F(RetiredSegment, ForInputsWaitsForABusyWorkerAndNotForADeadOne) {
  ASSERT_TRUE(pool_.waitFor([&] { return pool_.call(worker_, "!known") == "#1"; }));
  ASSERT_TRUE(pool_.begins(worker_, "!hang"));
  pool_.send(ipc::RetireInputSegment{1});
  EXPECT_FALSE(pool_.waitFor([&] { return !pool_.releasedInputs().empty(); }, milliseconds(300)));
  pool_.killAndReport(worker_);
  EXPECT_TRUE(releases({1}));
}

TEST_F(RetiredSegment, ForInputsIsNotSentToLaterWorkers) {
  pool_.send(ipc::RetireInputSegment{1});
  ASSERT_TRUE(releases({1}));
  pool_.killAndReport(worker_);
  ASSERT_TRUE(pool_.waitFor([&] { return pool_.serving(1, 0) != worker_; }));
  pool_.killAndReport(pool_.serving(1, 0));
  const uint64_t later = pool_.waitForSpare();
  EXPECT_EQ(pool_.call(later, "!known"), "");
}

TEST_F(RetiredSegment, ForInputsMustNotBeDeclaredAgainBeforeItIsReleased) {
  ASSERT_TRUE(pool_.waitFor([&] { return pool_.call(worker_, "!known") == "#1"; }));
  ASSERT_TRUE(pool_.begins(worker_, "!hang"));
  pool_.send(ipc::RetireInputSegment{1});
  pool_.send(ipc::DeclareInputSegment{1, ipc::kPageBytes}, {segment_.get()});
  EXPECT_TRUE(pool_.waitForEnd());
  EXPECT_NE(pool_.failure().value_or("").find("declared twice"), std::string::npos);
}

TEST_F(RetiredSegment, ThatWasNeverDeclaredEndsTheConnection) {
  pool_.send(ipc::RetireInputSegment{2});
  EXPECT_TRUE(pool_.waitForEnd());
  EXPECT_NE(pool_.failure().value_or("").find("not declared"), std::string::npos);
}

TEST_F(RetiredSegment, ForResultsCountsUntilTheClientHasUnmappedIt) {
  pool_.call(worker_, "!want 1000");
  ASSERT_TRUE(isGranted("2:8388608;"));
  pool_.call(worker_, "!retire 2");
  ASSERT_TRUE(pool_.waitFor([&] { return pool_.toUnmap().size() == 1; }));
  EXPECT_EQ(pool_.toUnmap()[0].segment, 2u);
  EXPECT_EQ(pool_.toUnmap()[0].epoch, worker_);
  EXPECT_EQ(outputBytes(), 12u << 20);
  pool_.send(ipc::OutputSegmentUnmapped{worker_, 2});
  EXPECT_EQ(outputBytes(), 4u << 20);
}

TEST_F(RetiredSegment, ForResultsCountsWhileAnyProcessCanWriteToIt) {
  pool_.call(worker_, "!want 1000");
  ASSERT_TRUE(isGranted("2:8388608;"));
  ASSERT_TRUE(pool_.waitFor([&] { return !pool_.worker(worker_).segmentObjects.empty(); }));
  const base::Fd& object = pool_.worker(worker_).segmentObjects[0];
  {
    const ipc::Mapping mapping =
        ipc::mapShared(object, 0, 8u << 20, ipc::Access::kReadWrite, ipc::Prefault::kNo);
    pool_.call(worker_, "!retire 2");
    ASSERT_TRUE(pool_.waitFor([&] { return pool_.toUnmap().size() == 1; }));
    pool_.send(ipc::OutputSegmentUnmapped{worker_, 2});  // a lie
    EXPECT_EQ(outputBytes(), 12u << 20);
    EXPECT_EQ(ipc::heldBytes(object), 0u) << "the supervisor has returned its pages";
  }
  pool_.call(worker_, "!want 1000");
  ASSERT_TRUE(isGranted("2:8388608;3:8388608;"));
  EXPECT_EQ(outputBytes(), 12u << 20) << "the kernel shows that it is unmapped now";
  EXPECT_THROW(ipc::mapShared(object, 0, 8u << 20, ipc::Access::kReadWrite, ipc::Prefault::kNo),
               base::SystemCallError);
}

class RetiredSegmentAtTheLimit : public RetiredSegment {
 protected:
  RetiredSegmentAtTheLimit() : RetiredSegment({"--output-arena-limit", "16MiB"}) {}
};

TEST_F(RetiredSegmentAtTheLimit, LetsARequestWaitUntilTheClientHasUnmappedIt) {
  pool_.call(worker_, "!want 10000000");
  ASSERT_TRUE(isGranted("2:10485760;"));
  pool_.call(worker_, "!retire 2");
  pool_.call(worker_, "!want 9000000");
  ASSERT_TRUE(pool_.waitFor([&] { return pool_.toUnmap().size() == 1; }));
  pool_.statistics();
  EXPECT_EQ(pool_.call(worker_, "!segments"), "2:10485760;") << "neither granted nor refused";
  pool_.send(ipc::OutputSegmentUnmapped{worker_, 2});
  EXPECT_TRUE(isGranted("2:10485760;3:10485760;"));
}

TEST_F(RetiredSegmentAtTheLimit, OfADeadWorkerIsGoneWithIt) {
  pool_.call(worker_, "!want 10000000");
  ASSERT_TRUE(isGranted("2:10485760;"));
  pool_.call(worker_, "!retire 2");
  ASSERT_TRUE(pool_.waitFor([&] { return pool_.toUnmap().size() == 1; }));
  pool_.killAndReport(worker_);
  ASSERT_TRUE(pool_.waitFor([&] { return pool_.serving(1, 0) != worker_; }));
  pool_.send(ipc::OutputSegmentUnmapped{worker_, 2});  // it comes too late and changes nothing
  worker_ = pool_.serving(1, 0);
  EXPECT_EQ(outputBytes(), 4u << 20);
}

TEST_F(RetiredSegment, ForResultsThatTheWorkerDoesNotHaveLosesTheWorker) {
  for (const char* lie : {"!retire 1", "!retire 99"}) {
    pool_.post(worker_, lie);
    ASSERT_TRUE(pool_.waitFor([&] { return pool_.serving(1, 0) != worker_; })) << lie;
    worker_ = pool_.serving(1, 0);
  }
}

TEST_F(RetiredSegment, TrimReachesEveryWorkerOfTheClient) {
  pool_.send(ipc::TrimMemory{});
  EXPECT_TRUE(isGranted("trim;"));
}

}  // namespace
}  // namespace isopool::tests
