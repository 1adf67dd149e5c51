// SPDX-License-Identifier: BSD-3-Clause
// Deadlines of calls whose worker has not loaded the object yet: they hold, and neither a worker
// nor another call is lost.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <optional>
#include <ostream>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using Clock = std::chrono::steady_clock;

constexpr milliseconds kDeadline(200);
// By how much a deadline may be exceeded on a busy machine.
constexpr milliseconds kSlack(2000);

CallOptions withinDeadline() {
  CallOptions options;
  options.deadline = kDeadline;
  return options;
}

/// A pool of one worker, and an object that this worker has not loaded yet. Loading it takes until
/// the gate opens.
class ColdReplica : public ::testing::Test {
 protected:
  ColdReplica() {
    sharedManager();
    const auto names = gate_.arguments();
    manager_.registerModuleSource("loading", "log = '" + log_ + "'\narrived = '" +
                                                 names[0].toStringRef() + "'\ngate = '" +
                                                 names[1].toStringRef() + "'\n");
    gate_.open();
    object_ = manager_.loadPackage(packagePath()).loadPickle("model", "slow_to_load.pkl");
    object_->unload();
    for (const at::IValue& name : names) std::filesystem::remove(name.toStringRef());
    loadsBefore_ = loads();
  }

  pid_t process() { return manager_.allInstances()[0].processId().value_or(-1); }

  /// How often this pool's worker has begun to load the object since the test began.
  std::ptrdiff_t loads() {
    std::ifstream log(log_);
    return std::count(std::istream_iterator<pid_t>(log), {}, process()) - loadsBefore_;
  }

  /// The text of the DeadlineExceeded that `use` throws. Expects it in time, with started() false.
  static std::string overdue(const std::function<void()>& use) {
    const auto began = Clock::now();
    try {
      use();
    } catch (const DeadlineExceeded& error) {
      EXPECT_FALSE(error.started()) << error.what();
      EXPECT_LT(Clock::now() - began, kDeadline + kSlack);
      return error.what();
    }
    ADD_FAILURE() << "the deadline did not pass";
    return {};
  }

  const Gate gate_;
  const std::string log_ = testFolder() / ("loads-" + std::to_string(number_++));
  InterpreterManager manager_{1};
  std::optional<ReplicatedObj> object_;
  std::ptrdiff_t loadsBefore_ = 0;
  static inline int number_ = 0;
};

/// A way to use the object with a deadline.
struct Use {
  const char* name;
  std::function<void(const ReplicatedObj&)> with;
};

void PrintTo(const Use& use, std::ostream* out) { *out << use.name; }

class EachUseOfAColdReplica : public ColdReplica, public ::testing::WithParamInterface<Use> {};

TEST_P(EachUseOfAColdReplica, EndsAtItsDeadlineAndTheWorkerContinuesToLoad) {
  const pid_t worker = process();
  const std::string text = overdue([&] { GetParam().with(*object_); });
  EXPECT_NE(text.find(std::to_string(worker)), std::string::npos) << text;
  EXPECT_EQ(gate_.arrival(), worker);
  // This use has its own deadline. It waits behind a load for which no thread waits any more.
  overdue([&] { GetParam().with(*object_); });
  gate_.open();
  EXPECT_EQ((*object_)({}).toInt(), worker);
  EXPECT_EQ(loads(), 1);
  EXPECT_EQ(manager_.workersReplaced(), 0u);
}

TEST_P(EachUseOfAColdReplica, EndsAtItsDeadlineWhileAnotherThreadHasItLoaded) {
  const pid_t worker = process();
  // While calls are short, or seem so, the pool sends a second one to the busy worker.
  const ReplicatedObj other = manager_.loadPackage(packagePath()).loadPickle("model", "model.pkl");
  for (int i = 0; i < 100; ++i) (void)other({"identity", int64_t{i}});
  auto loading = std::async(std::launch::async, [&] { return (*object_)({}).toInt(); });
  ASSERT_EQ(gate_.arrival(), worker);
  auto use =
      std::async(std::launch::async, [&] { return overdue([&] { GetParam().with(*object_); }); });
  EXPECT_EQ(use.wait_for(kPatience), std::future_status::ready) << "it waits for the other thread";
  gate_.open();
  EXPECT_NE(use.get().find(std::to_string(worker)), std::string::npos);
  EXPECT_EQ(loading.get(), worker);
  EXPECT_EQ(loads(), 1);
  EXPECT_EQ(manager_.workersReplaced(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Uses, EachUseOfAColdReplica,
    ::testing::Values(
        Use{"Call",
            [](const ReplicatedObj& object) { (void)object.call({}, {}, withinDeadline()); }},
        Use{"AsynchronousCall",
            [](const ReplicatedObj& object) { object.callAsync({}, {}, withinDeadline()).get(); }},
        Use{"CallOnAll",
            [](const ReplicatedObj& object) { object.callOnAll({}, {}, withinDeadline()); }},
        Use{"Stream",
            [](const ReplicatedObj& object) { (void)object.stream({}, {}, withinDeadline()); }}),
    [](const auto& each) { return each.param.name; });

TEST_F(ColdReplica, DoesNotDelayCallsOfALoadedObject) {
  const Subject subject(manager_);
  const pid_t worker = process();
  auto loading = std::async(std::launch::async, [&] { return (*object_)({}).toInt(); });
  ASSERT_EQ(gate_.arrival(), worker);
  auto call = std::async(std::launch::async, [&] {
    return overdue([&] { subject.ask("pid", {}, withinDeadline()); });
  });
  EXPECT_EQ(call.wait_for(kPatience), std::future_status::ready) << "it waits for the other thread";
  gate_.open();
  EXPECT_EQ(loading.get(), worker);
  EXPECT_EQ(subject.number("pid"), worker);
  EXPECT_EQ(manager_.workersReplaced(), 0u);
}

}  // namespace
}  // namespace isopool::tests
