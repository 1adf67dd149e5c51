// SPDX-License-Identifier: BSD-3-Clause
// The limit that the operator of a shared supervisor sets for the time of a call.
#include <filesystem>
#include <future>

#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

class SharedCallTime : public AttachedManagers {
 protected:
  // The limit is long: it also counts the loading of the subject, on a loaded machine too. The
  // grace period is long so that the caller gets its error before the worker dies.
  void serveLimited() { serve({"--workers", "1", "--client-call-time", "2s", "--grace", "5s"}); }

  template <typename Act>
  static std::string limitMetBy(Act&& act) {
    try {
      act();
    } catch (const LimitExceeded& error) {
      return error.what();
    }
    return "no limit was met";
  }
  static bool namesTheLimit(const std::string& text) {
    return text.find("limits.call_time, ISOPOOL_CLIENT_CALL_TIME") != std::string::npos;
  }
};

TEST_F(SharedCallTime, ACallWithoutADeadlineEndsWithLimitExceeded) {
  serveLimited();
  const auto manager = attach(1);
  const Subject subject(*manager);
  const int64_t first = subject.number("pid");
  const Gate gate;
  const std::string text = limitMetBy([&] { subject.ask("wait_at", gate.arguments()); });
  EXPECT_TRUE(namesTheLimit(text)) << text;
  // After the grace period another worker serves.
  EXPECT_NE(subject.number("pid"), first);
}

TEST_F(SharedCallTime, AnIdempotentCallIsNotRunAgain) {
  serveLimited();
  const auto manager = attach(1);
  const Subject subject(*manager);
  const std::string log = testFolder() / "idempotent_over_time.txt";
  CallOptions options;
  options.idempotent = true;
  // The call never returns. It writes to the log each time that it is started.
  const std::string text = limitMetBy([&] { subject.ask("log_and_hang", {log}, options); });
  EXPECT_TRUE(namesTheLimit(text)) << text;
  subject.number("pid");
  EXPECT_EQ(std::filesystem::file_size(log), 6u);
}

TEST_F(SharedCallTime, AStepOfASessionEndsWithLimitExceeded) {
  serveLimited();
  const auto manager = attach(1);
  const Subject subject(*manager);
  InterpreterSession session = subject.object().acquireSession();
  const Gate gate;
  const std::string text = limitMetBy([&] { session.self.attr("wait_at")(gate.arguments()); });
  EXPECT_TRUE(namesTheLimit(text)) << text;
}

TEST_F(SharedCallTime, AnItemOfAStreamEndsWithLimitExceeded) {
  serveLimited();
  const auto manager = attach(1);
  const Subject subject(*manager);
  ResultStream stream = subject.object().stream({"count_and_hang", 1});
  ASSERT_TRUE(stream.next().has_value());
  const std::string text = limitMetBy([&] { stream.next(); });
  EXPECT_TRUE(namesTheLimit(text)) << text;
}

TEST_F(SharedCallTime, OneProgramsEndlessCallsLeaveAnothersToBeServed) {
  serve({"--workers", "1", "--client-call-time", "2s", "--grace", "50ms"});
  const auto greedy = attach(1);
  const Subject endless(*greedy);
  const auto modest = attach(1);
  const Subject subject(*modest);
  const Gate gate;
  auto running = std::async(std::launch::async, [&] {
    for (int i = 0; i < 3; ++i) {
      try {
        endless.ask("wait_at", gate.arguments());
      } catch (const LimitExceeded&) {
      } catch (const WorkerLost&) {
      }
    }
  });
  gate.arrival();
  for (int i = 0; i < 5; ++i) EXPECT_NO_THROW(subject.number("pid"));
  running.get();
}

}  // namespace
}  // namespace isopool::tests
