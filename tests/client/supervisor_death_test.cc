// SPDX-License-Identifier: BSD-3-Clause
// Deaths of the zygote and the supervisor.
#include <signal.h>

#include <fstream>
#include <future>
#include <optional>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

/// The outcome of a use: "answered", the name of the error, or its text.
std::string outcomeOf(const std::function<void()>& use) {
  try {
    use();
    return "answered";
  } catch (const SupervisorLost&) {
    return "SupervisorLost";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// ---- zygote ----------------------------------------------------------------------------------

TEST(ZygoteDeath, IsNotSeenAndTheNextDeadWorkersAreReplaced) {
  OwnPool pool;
  const pid_t zygote = pool.tree().zygote();
  const pid_t worker = pool.processOf(0);
  ASSERT_NE(zygote, worker);
  ASSERT_NE(zygote, pool.processOf(1));
  ASSERT_EQ(::kill(zygote, SIGKILL), 0);
  for (int i = 0; i < 20; ++i) EXPECT_GT(pool.subject().number("pid"), 0);
  EXPECT_EQ(pool.processOf(0), worker);
  // More deaths than there are spares, so that a new zygote has to fork.
  for (int round = 0; round < 4; ++round) {
    const auto slot = static_cast<size_t>(round % 2);
    const pid_t victim = pool.processOf(slot);
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    EXPECT_TRUE(waitUntil([&] {
      const pid_t now = pool.processOf(slot);
      return now != -1 && now != victim;
    }));
    InterpreterSession session =
        pool.subject().object().acquireSession(&pool.manager().allInstances()[slot]);
    EXPECT_EQ(session.self({"pid"}).toIValue().toInt(), pool.processOf(slot));
  }
}

TEST(ZygoteDeath, BySilenceIsNotSeenEither) {
  OwnPool pool(1, {"ISOPOOL_FORK_TIMEOUT=500ms"});
  ASSERT_EQ(::kill(pool.tree().zygote(), SIGSTOP), 0);
  for (int round = 0; round < 3; ++round) {
    const int64_t victim = pool.subject().number("pid");
    ASSERT_EQ(::kill(static_cast<pid_t>(victim), SIGKILL), 0);
    EXPECT_NE(pool.subject().number("pid"), victim);
  }
}

// ---- supervisor ------------------------------------------------------------------------------

TEST(SupervisorDeath, EndsEveryCallAndEveryProcess) {
  OwnPool pool;
  const Gate gates[2];
  std::vector<std::future<std::string>> calls;
  for (const Gate& gate : gates) {
    calls.push_back(std::async(std::launch::async, [&] {
      return outcomeOf([&] { pool.subject().ask("wait_at", gate.arguments()); });
    }));
    gate.arrival();
  }
  for (int i = 0; i < 4; ++i) {  // these calls wait behind the others
    calls.push_back(std::async(std::launch::async,
                               [&] { return outcomeOf([&] { pool.subject().ask("pid"); }); }));
  }
  EXPECT_EQ(calls.back().wait_for(milliseconds(20)), std::future_status::timeout);
  ASSERT_EQ(::kill(pool.tree().supervisor(), SIGKILL), 0);
  EXPECT_TRUE(pool.tree().goneWithin(kPatience));
  for (auto& call : calls) {
    ASSERT_EQ(call.wait_for(kPatience), std::future_status::ready);
    EXPECT_EQ(call.get(), "SupervisorLost");
  }
  EXPECT_EQ(outcomeOf([&] { pool.subject().ask("pid"); }), "SupervisorLost");
  EXPECT_EQ(outcomeOf([&] { pool.manager().acquireOne(); }), "SupervisorLost");
  EXPECT_EQ(outcomeOf([&] { pool.manager().loadPackage(packagePath()); }), "SupervisorLost");
}

TEST(SupervisorDeath, EndsStepsOfSessionsTheSameWay) {
  OwnPool pool(1);
  const Gate gate;
  InterpreterSession session = pool.subject().object().acquireSession();
  auto step = std::async(std::launch::async, [&, arguments = gate.arguments()] {
    return outcomeOf([&] { session.self({at::IValue("wait_at"), arguments[0], arguments[1]}); });
  });
  gate.arrival();
  ASSERT_EQ(::kill(pool.tree().supervisor(), SIGKILL), 0);
  ASSERT_EQ(step.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(step.get(), "SupervisorLost");
  EXPECT_EQ(outcomeOf([&] { session.global("math", "pi"); }), "SupervisorLost");
}

TEST(SupervisorDeath, DoesNotPreventANewManager) {
  // Both managers have the same environment, so the second one would share the dead supervisor.
  const ProcessMark mark;
  const ScopedVariable variable(mark.variable());
  const ProcessTree tree(mark);
  {
    InterpreterManager first(1);
    ASSERT_EQ(::kill(tree.supervisor(), SIGKILL), 0);
    ASSERT_TRUE(tree.goneWithin(kPatience));
    EXPECT_EQ(outcomeOf([&] { first.acquireOne().global("math", "pi"); }), "SupervisorLost");
    InterpreterManager second(1);
    EXPECT_GT(Subject(second).number("pid"), 0);
    EXPECT_EQ(outcomeOf([&] { first.acquireOne(); }), "SupervisorLost");
  }
  EXPECT_TRUE(tree.goneWithin(kPatience));
}

TEST(SupervisorDeath, OfOneDoesNotTouchAnother) {
  OwnPool one(1);
  OwnPool other(1);
  const int64_t process = other.subject().number("pid");
  ASSERT_EQ(::kill(one.tree().supervisor(), SIGKILL), 0);
  EXPECT_TRUE(one.tree().goneWithin(kPatience));
  EXPECT_EQ(other.subject().number("pid"), process);
}

// The first start of this supervisor never ends; later ones are as usual.
TEST(SupervisorStart, OfOneEnvironmentIsNotWaitedForByAnother) {
  const std::filesystem::path folder = testFolder() / "slow_start";
  std::filesystem::create_directory(folder);
  const std::filesystem::path program = folder / "supervisor";
  std::ofstream(program) << "#!/bin/sh\n"
                            "cd '"
                         << folder.string()
                         << "'\n"
                            "if mkdir begun 2>/dev/null; then\n"
                            "  sleep 1000 &\n"
                            "  echo $! >unfinished && mv unfinished process\n"
                            "else\n"
                            "  exec '" ISOPOOLD
                            "' \"$@\"\n"
                            "fi\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const ScopedVariable variable("ISOPOOL_SUPERVISOR=" + program.string());
  auto slow = std::async(std::launch::async,
                         [] { return outcomeOf([] { InterpreterManager manager(1); }); });
  pid_t process = 0;
  ASSERT_TRUE(waitUntil([&] { return bool(std::ifstream(folder / "process") >> process); }));
  {
    InterpreterManager other(1, std::make_shared<PathEnvironment>(folder.string()));
    EXPECT_GT(Subject(other).number("pid"), 0);
  }
  EXPECT_EQ(slow.wait_for(milliseconds(0)), std::future_status::timeout);
  ::kill(process, SIGKILL);
  EXPECT_EQ(slow.get(), "SupervisorLost");
}

TEST(SupervisorDeath, ByATermSignalIsInOrder) {
  OwnPool pool(1);
  ASSERT_EQ(::kill(pool.tree().supervisor(), SIGTERM), 0);
  EXPECT_TRUE(pool.tree().goneWithin(kPatience));
  EXPECT_EQ(outcomeOf([&] { pool.subject().ask("pid"); }), "SupervisorLost");
}

TEST(SupervisorDeath, WhileItIsOnlyStoppedCallsGoOnAndDeadlinesHold) {
  OwnPool pool(2);
  const pid_t supervisor = pool.tree().supervisor();
  ASSERT_EQ(::kill(supervisor, SIGSTOP), 0);
  for (int i = 0; i < 20; ++i) EXPECT_GT(pool.subject().number("pid"), 0);
  // A worker dies and is not replaced: its call is lost at once, the other worker serves.
  EXPECT_THROW(pool.subject().ask("die", {SIGKILL}), WorkerLost);
  EXPECT_GT(pool.subject().number("pid"), 0);
  EXPECT_THROW(pool.subject().ask("die", {SIGKILL}), WorkerLost);
  // No worker is left.
  CallOptions options;
  options.deadline = milliseconds(200);
  const auto began = Clock::now();
  EXPECT_THROW(pool.subject().ask("pid", {}, options), DeadlineExceeded);
  EXPECT_LT(Clock::now() - began, milliseconds(500));
  // The supervisor continues and replaces the workers.
  ASSERT_EQ(::kill(supervisor, SIGCONT), 0);
  EXPECT_GT(pool.subject().number("pid"), 0);
}

TEST(SupervisorDeath, WhileItIsOnlyStoppedAResultThatNeedsMoreMemoryWaits) {
  OwnPool pool(1);
  const pid_t worker = static_cast<pid_t>(pool.subject().number("pid"));
  const pid_t supervisor = pool.tree().supervisor();
  ASSERT_EQ(::kill(supervisor, SIGSTOP), 0);
  constexpr int64_t kNumbers = 3'000'000;
  auto call = std::async(std::launch::async,
                         [&] { return pool.subject().tensor("zeros", {kNumbers}).numel(); });
  // Longer than a result waits for room at a limit.
  EXPECT_EQ(call.wait_for(milliseconds(3000)), std::future_status::timeout);
  ASSERT_EQ(::kill(supervisor, SIGCONT), 0);
  EXPECT_EQ(call.get(), kNumbers);
  EXPECT_EQ(pool.subject().number("pid"), worker);
}

// These are more messages than fit into a socket's buffer.
TEST(SupervisorDeath, WhileItIsOnlyStoppedPackagesComeAndGoWithoutAWait) {
  OwnPool pool(1);
  // A package that no other test holds.
  const std::string file = packagePath("resources.pt");
  constexpr int kPackages = 600;
  const pid_t supervisor = pool.tree().supervisor();
  ASSERT_EQ(::kill(supervisor, SIGSTOP), 0);
  const auto began = Clock::now();
  std::optional<Package> last;
  int loaded = 0;
  for (; loaded < kPackages && Clock::now() - began < milliseconds(20'000); ++loaded) {
    last.reset();
    last = pool.manager().loadPackage(file);
  }
  EXPECT_EQ(loaded, kPackages);
  ASSERT_EQ(::kill(supervisor, SIGCONT), 0);
  EXPECT_EQ(outcomeOf([&] { last->acquireSession(); }), "answered");
  EXPECT_EQ(outcomeOf([&] { pool.subject().ask("pid"); }), "answered");
}

TEST(SupervisorDeath, WhileItIsStoppedEndsEverythingToo) {
  OwnPool pool(1);
  const pid_t supervisor = pool.tree().supervisor();
  ASSERT_EQ(::kill(supervisor, SIGSTOP), 0);
  ASSERT_EQ(::kill(supervisor, SIGKILL), 0);
  EXPECT_TRUE(pool.tree().goneWithin(kPatience));
  EXPECT_EQ(outcomeOf([&] { pool.subject().ask("pid"); }), "SupervisorLost");
}

TEST(SupervisorDeath, FollowsTheManagersEndEvenIfItIsStopped) {
  OwnPool pool(1);
  ASSERT_EQ(::kill(pool.tree().supervisor(), SIGSTOP), 0);
  const auto began = Clock::now();
  pool.endManager();
  EXPECT_LT(Clock::now() - began, milliseconds(2000));
  EXPECT_TRUE(pool.tree().goneWithin(kPatience));
}

}  // namespace
}  // namespace isopool::tests
