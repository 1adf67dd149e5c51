// SPDX-License-Identifier: BSD-3-Clause
// A program that has no free file descriptor: it can't receive what its supervisor sends with one,
// a further segment for results or a new worker. It must not judge its workers by what it has not
// read, and its calls end.
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <future>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

/// A matrix of this many rows and columns needs a further segment: 36 MB.
constexpr int64_t kLarge = 3000;

/// As long as it lives, this process gets no further descriptor.
class NoFreeDescriptor {
 public:
  NoFreeDescriptor() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &former_), 0);
    const rlimit few{3, former_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~NoFreeDescriptor() { end(); }
  NoFreeDescriptor(const NoFreeDescriptor&) = delete;
  NoFreeDescriptor& operator=(const NoFreeDescriptor&) = delete;
  void end() const { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &former_), 0); }

 private:
  rlimit former_{};
};

/// The text of the Failure that `use` throws.
template <typename Failure>
std::string textOf(const std::function<void()>& use) {
  try {
    use();
    ADD_FAILURE() << "nothing failed";
  } catch (const Failure& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
  }
  return "";
}

class WithoutDescriptors : public ::testing::Test {
 protected:
  void SetUp() override {
    sharedManager();  // its control thread is not to start in between
    for (size_t slot = 0; slot < 2; ++slot) workers_.push_back(pool_.processOf(slot));
  }
  void TearDown() override { setLogger(nullptr); }
  static void expectCause(const std::string& text) {
    for (const char* part : {"RLIMIT_NOFILE", "close files", "ulimit -n"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
    }
  }
  void expectTheSameWorkers() {
    for (size_t slot = 0; slot < 2; ++slot) EXPECT_EQ(pool_.processOf(slot), workers_[slot]);
    EXPECT_EQ(pool_.manager().statistics().workersReplaced, 0u);
  }
  void killWorkers() {
    for (const pid_t worker : workers_) {
      EXPECT_EQ(::kill(worker, SIGKILL), 0);
      EXPECT_TRUE(waitUntil([&] { return ::kill(worker, 0) != 0; }));
    }
  }
  const Subject& subject() const { return pool_.subject(); }
  InterpreterManager& manager() { return pool_.manager(); }

 private:
  OwnPool pool_;
  std::vector<pid_t> workers_;
};

TEST_F(WithoutDescriptors, AResultInANewSegmentIsLostAndItsWorkerIsNotBlamed) {
  const NoFreeDescriptor scarcity;
  for (int i = 0; i < 2; ++i) {
    expectCause(textOf<ArenaFull>([&] { subject().tensor("matrix", {kLarge}); }));
  }
  EXPECT_GT(subject().number("pid"), 0);
  scarcity.end();
  EXPECT_EQ(subject().tensor("matrix", {kLarge}).numel(), kLarge * kLarge);
  expectTheSameWorkers();
}

TEST_F(WithoutDescriptors, ADeadlineEndsTheWaitForAResultAndNamesTheCause) {
  const NoFreeDescriptor scarcity;
  CallOptions options;
  options.deadline = milliseconds(1500);
  const std::string text =
      textOf<DeadlineExceeded>([&] { subject().ask("matrix", {kLarge}, options); });
  expectCause(text);
  scarcity.end();
  EXPECT_EQ(subject().tensor("matrix", {kLarge}).numel(), kLarge * kLarge);
  expectTheSameWorkers();
}

TEST_F(WithoutDescriptors, AResultIsReadWhenTheProgramHasDescriptorsAgain) {
  const NoFreeDescriptor scarcity;
  auto call = std::async(std::launch::async, [&] { return subject().tensor("matrix", {kLarge}); });
  // Longer than a message of the supervisor is usually under way.
  CallOptions options;
  options.deadline = milliseconds(1500);
  textOf<DeadlineExceeded>([&] { subject().ask("matrix", {kLarge}, options); });
  scarcity.end();
  EXPECT_EQ(call.get().numel(), kLarge * kLarge);
  expectTheSameWorkers();
}

TEST_F(WithoutDescriptors, ALongAnswerInANewSegmentIsLostAndItsWorkerIsNotBlamed) {
  InterpreterSession session = subject().object().acquireSession();
  const Obj multiply = session.global("operator", "mul");
  const NoFreeDescriptor scarcity;
  const auto make = [&] { return multiply({"long ", 8'000'000}).toIValue().toStringRef(); };
  expectCause(textOf<ArenaFull>(make));
  EXPECT_GT(session.self({"pid"}).toIValue().toInt(), 0);
  scarcity.end();
  EXPECT_EQ(make().size(), 40'000'000u);
  expectTheSameWorkers();
}

TEST_F(WithoutDescriptors, CallsAndSessionsOfAPoolWhoseWorkersAllDiedEndAndNameTheCause) {
  const NoFreeDescriptor scarcity;
  killWorkers();
  expectCause(textOf<PoolUnavailable>([&] { subject().ask("pid"); }));
  expectCause(textOf<PoolUnavailable>([&] { subject().object().callAsync({"pid"}).get(); }));
  expectCause(textOf<PoolUnavailable>([&] { subject().object().acquireSession(); }));
  expectCause(textOf<PoolUnavailable>([&] { manager().callOnAll("os", "getpid"); }));
  CallOptions options;
  options.deadline = milliseconds(1000);
  expectCause(textOf<DeadlineExceeded>([&] { subject().ask("pid", {}, options); }));
  scarcity.end();
  EXPECT_GT(subject().number("pid"), 0);
}

TEST_F(WithoutDescriptors, ACallIsMadeWhenTheProgramCanReceiveANewWorkerInTime) {
  std::atomic<bool> unread{false};
  setLogger([&](LogLevel, std::string_view text) {
    if (text.find("messages of the supervisor are not read") != std::string_view::npos) {
      unread = true;
    }
  });
  const NoFreeDescriptor scarcity;
  killWorkers();
  auto call = std::async(std::launch::async, [&] { return subject().number("pid"); });
  EXPECT_TRUE(waitUntil([&] { return unread.load(); }));
  scarcity.end();
  EXPECT_GT(call.get(), 0);
}

}  // namespace
}  // namespace isopool::tests
