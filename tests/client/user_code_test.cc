// SPDX-License-Identifier: BSD-3-Clause
// What user code may do inside a worker. Each test really does it.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tests/client/values.h"

namespace isopool::tests {
namespace {

/// A pool whose workers may die.
class UserCode : public ::testing::Test {
 protected:
  UserCode() { sharedManager(); }

  pid_t processOf(size_t slot) { return manager_.allInstances()[slot].processId().value_or(-1); }
  InterpreterSession sessionOn(size_t slot) {
    return subject_.object().acquireSession(&manager_.allInstances()[slot]);
  }
  /// Calls the model on a given worker.
  at::IValue askOn(size_t slot, std::vector<at::IValue> words) {
    return sessionOn(slot).self(at::ArrayRef<at::IValue>(words)).toIValue();
  }
  /// Expects a healthy pool: both workers answer, and the next call too.
  void expectWhole() {
    for (size_t slot = 0; slot < manager_.allInstances().size(); ++slot) {
      EXPECT_TRUE(waitUntil([&] { return processOf(slot) != -1; })) << "slot " << slot;
      EXPECT_EQ(askOn(slot, {"slot"}).toInt(), static_cast<int64_t>(slot));
    }
    EXPECT_GT(subject_.number("pid"), 0);
  }
  RemoteError errorOf(std::vector<at::IValue> words) {
    const pid_t process = processOf(0);
    try {
      askOn(0, words);
    } catch (const RemoteError& error) {
      EXPECT_EQ(askOn(0, {"pid"}).toInt(), process) << "the worker did not survive";
      return error;
    }
    ADD_FAILURE() << words[0] << " did not raise";
    return {"", "", "", "", ""};
  }
  WorkerLost lossOf(std::vector<at::IValue> words) {
    try {
      askOn(0, words);
      ADD_FAILURE() << words[0] << " killed no worker";
    } catch (const WorkerLost& lost) {
      EXPECT_TRUE(lost.started());
      expectWhole();
      return lost;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "another error: " << error.what();
    }
    return {WorkerLost::Death{}, false};
  }

  InterpreterManager manager_{2};
  Subject subject_{
      manager_.loadPackage(packagePath("user_code.pt")).loadPickle("model", "model.pkl")};
};

bool isGone(pid_t process) { return ::kill(process, 0) == -1 && errno == ESRCH; }

// ---- libraries -------------------------------------------------------------------------------

TEST_F(UserCode, UsesTheLibrariesOfItsPython) {
  for (const char* name : {"numpy", "PIL.Image", "transformers", "torch.distributed",
                           "torch.multiprocessing", "torch._inductor", "torch.export"}) {
    const std::string reason = subject_.text("can_import", {name});
    const std::string root = std::string(name).substr(0, std::string(name).find('.'));
    // A library that is not installed is skipped.
    if (contains(reason, "No module named '" + root + "'") && root != "torch") {
      std::printf("not installed and not tried: %s\n", root.c_str());
      continue;
    }
    EXPECT_EQ(reason, "") << name;
  }
}

TEST_F(UserCode, DrawsPictures) {
  if (subject_.text("can_import", {"PIL.Image"}) != "") GTEST_SKIP() << "there is no PIL";
  EXPECT_EQ(shown(subject_.ask("picture")), "((4, 2), (255, 0, 7))");
}

TEST_F(UserCode, UsesTorchDistributed) {
  EXPECT_EQ(shown(subject_.ask("gloo_alone", {testFolder().string()})), "Float [3] [1, 1, 1]");
}

TEST_F(UserCode, RegistersOperatorsInEachWorkerByItself) {
  for (const size_t slot : {0, 1, 0}) {
    EXPECT_EQ(shown(askOn(slot, {"custom_operator", at::ones({2})})), "Float [2] [5, 5]");
    EXPECT_EQ(shown(askOn(slot, {"custom_op_by_decorator", at::ones({2})})), "Float [2] [-1, -1]");
  }
}

TEST_F(UserCode, ScriptsModules) {
  EXPECT_EQ(shown(subject_.ask("scripted", {at::ones({3, 8})})), "(3, 8)");
}

// ---- compilers -------------------------------------------------------------------------------

TEST(Compiler, OfTorchWorksInEachWorkerAndTheSecondFindsWhatTheFirstMade) {
  // The cache folder is new, so every graph in it was compiled by this test.
  const std::string folder = testFolder() / "inductor";
  OwnPool pool(2, {"TORCHINDUCTOR_CACHE_DIR=" + folder});
  const Subject subject(
      pool.manager().loadPackage(packagePath("user_code.pt")).loadPickle("model", "model.pkl"));
  const at::Tensor x = at::rand({4, 8});
  std::vector<std::string> graphs;
  for (size_t slot = 0; slot < 2; ++slot) {
    InterpreterSession session =
        subject.object().acquireSession(&pool.manager().allInstances()[slot]);
    EXPECT_EQ(session.self({"cache_folder"}).toIValue().toStringRef(), folder);
    for (const char* what : {"compiled", "compiled_global"}) {
      std::vector<at::IValue> words = {what, x};
      const at::IValue both = session.self(at::ArrayRef<at::IValue>(words)).toIValue();
      const auto& results = both.toTupleRef().elements();
      EXPECT_TRUE(at::allclose(results[0].toTensor(), results[1].toTensor())) << what;
    }
    graphs.push_back(shown(session.self({"compiled_graphs"}).toIValue()));
  }
  EXPECT_EQ(graphs[0], "(2, 0)") << "compiled, found";
  EXPECT_EQ(graphs[1], "(0, 2)");
}

TEST(Compiler, HasProcessesThatEndWithTheirWorker) {
  // Without a spare, which may start at any time: the test counts processes.
  OwnPool pool(1, {"TORCHINDUCTOR_COMPILE_THREADS=2", "ISOPOOL_SPARES=0"});
  const Subject subject(
      pool.manager().loadPackage(packagePath("user_code.pt")).loadPickle("model", "model.pkl"));
  const size_t before = pool.tree().all().size();
  const at::IValue answer = subject.ask("compile_in_processes");
  EXPECT_EQ(answer.toTupleRef().elements()[0].toInt(), 3);
  const auto process = static_cast<pid_t>(answer.toTupleRef().elements()[1].toInt());
  EXPECT_EQ(::kill(process, 0), 0);
  EXPECT_GT(pool.tree().all().size(), before);
  ASSERT_EQ(::kill(pool.processOf(0), SIGKILL), 0);
  EXPECT_GT(subject.number("pid"), 0);
  EXPECT_TRUE(waitUntil([&] { return isGone(process) && pool.tree().all().size() <= before; }))
      << pool.tree().all().size() << " processes, before " << before;
}

// ---- threads and processes -------------------------------------------------------------------

TEST_F(UserCode, RaisesTorchsNumberOfThreadsAndNothingHangs) {
  const at::IValue one = askOn(0, {"parallel_work", 300});
  EXPECT_EQ(askOn(0, {"set_threads", 4}).toInt(), 4);
  for (int i = 0; i < 3; ++i) {
    const at::IValue four = askOn(0, {"parallel_work", 300});
    for (size_t k = 0; k < 2; ++k) {
      const double expected = one.toTupleRef().elements()[k].toDouble();
      EXPECT_NEAR(four.toTupleRef().elements()[k].toDouble(), expected, 1e-9 * expected);
    }
    EXPECT_GE(four.toTupleRef().elements()[2].toInt(), 4) << "threads that run at the same time";
  }
  EXPECT_EQ(askOn(0, {"set_threads", 1}).toInt(), 1);
  askOn(0, {"parallel_work", 300});
  EXPECT_EQ(one.toTupleRef().elements()[2].toInt(), 1) << "a worker begins with one";
}

TEST_F(UserCode, MayLeaveATraceOrAProfileFunction) {
  for (const char* how : {"settrace", "setprofile", "cProfile"}) {
    subject_.ask("leave_traced", {how});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(subject_.number("sum_of_range", {100}), 4950) << how;
    subject_.ask("end_traces");
  }
}

TEST_F(UserCode, HasThreads) {
  EXPECT_EQ(subject_.number("pool_of_threads", {8}), 28'000);
  EXPECT_EQ(errorOf({"thread_error"}).pythonType(), "ZeroDivisionError");
  EXPECT_EQ(subject_.text("silent_thread"), "went on");
}

TEST_F(UserCode, RunsPrograms) { EXPECT_EQ(shown(subject_.ask("run_program")), "(\"42\", 5)"); }

TEST_F(UserCode, HasPoolsOfProcessesOfEveryKind) {
  for (const char* method : {"fork", "spawn", "forkserver"}) {
    EXPECT_EQ(shown(subject_.ask("processes", {method})), "List[int] [1, 2, 3]") << method;
  }
  EXPECT_EQ(subject_.number("executor_of_processes"), 4);
}

TEST_F(UserCode, LeavesNothingOfItsProcessesAndThreadsBehindItsWorker) {
  std::vector<pid_t> processes;
  for (const bool ownSession : {false, true}) {
    processes.push_back(static_cast<pid_t>(askOn(0, {"start_sleeper", ownSession}).toInt()));
  }
  processes.push_back(static_cast<pid_t>(askOn(0, {"start_sleeping_thread"}).toInt()));
  for (const pid_t process : processes) EXPECT_FALSE(isGone(process));
  EXPECT_EQ(lossOf({"exit_now", 3}).exitCode(), 3);
  for (const pid_t process : processes) EXPECT_TRUE(waitUntil([&] { return isGone(process); }));
}

// ---- ways to end -----------------------------------------------------------------------------

TEST_F(UserCode, CausesAnErrorIfItCallsExit) {
  for (const auto& words :
       std::vector<std::vector<at::IValue>>{{"leave", 0}, {"leave", 3}, {"leave_in_words"}}) {
    EXPECT_EQ(errorOf(words).pythonType(), "SystemExit");
  }
  EXPECT_TRUE(contains(errorOf({"leave", 3}).message(), "exit code 3"));
  EXPECT_TRUE(contains(errorOf({"leave_in_words"}).message(), "no reason"));
}

TEST_F(UserCode, CausesWorkerLostWithTheExitCodeIfItEndsTheProcess) {
  const WorkerLost lost = lossOf({"exit_now", 3});
  EXPECT_EQ(lost.exitCode(), 3);
  EXPECT_EQ(lost.signal(), 0);
}

TEST_F(UserCode, CausesWorkerLostWithSignalAndStackIfItCrashes) {
  const WorkerLost crashed = lossOf({"crash"});
  EXPECT_EQ(crashed.signal(), SIGSEGV);
  EXPECT_TRUE(contains(crashed.crashLog(), " in crash")) << crashed.crashLog();
  const WorkerLost inThread = lossOf({"crash_in_thread"});
  EXPECT_EQ(inThread.signal(), SIGSEGV);
  EXPECT_TRUE(contains(inThread.crashLog(), " in crash_in_thread")) << inThread.crashLog();
  const WorkerLost aborted = lossOf({"abort"});
  EXPECT_EQ(aborted.signal(), SIGABRT);
  EXPECT_TRUE(contains(aborted.crashLog(), " in abort")) << aborted.crashLog();
}

TEST_F(UserCode, ThatRecursesWithoutEndIsAnErrorInPythonAndALostWorkerInC) {
  EXPECT_EQ(errorOf({"recurse"}).pythonType(), "RecursionError");
  const WorkerLost lost = lossOf({"recurse_in_c"});
  EXPECT_EQ(lost.signal(), SIGSEGV);
  EXPECT_TRUE(contains(lost.crashLog(), " in recurse_in_c")) << lost.crashLog();
}

TEST_F(UserCode, ThatAsksForTooMuchMemoryIsAnError) {
  EXPECT_EQ(errorOf({"too_large_bytes"}).pythonType(), "MemoryError");
  const RemoteError tensor = errorOf({"too_large_a_tensor"});
  EXPECT_EQ(tensor.pythonType(), "RuntimeError");
  EXPECT_TRUE(contains(tensor.message(), "allocate")) << tensor.message();
}

TEST_F(UserCode, ThatRunsAwayWithMemoryUnderALimitIsAnErrorAndTheWorkerServesOn) {
  constexpr int64_t kAllowed = 200 << 20;
  EXPECT_EQ(errorOf({"run_away", kAllowed}).pythonType(), "MemoryError");
  const RemoteError inTorch = errorOf({"run_away_in_torch", kAllowed});
  EXPECT_EQ(inTorch.pythonType(), "RuntimeError");
  EXPECT_TRUE(contains(inTorch.message(), "allocate")) << inTorch.message();
  EXPECT_EQ(shown(askOn(0, {"custom_operator", at::ones({2})})), "Float [2] [5, 5]");
}

TEST_F(UserCode, ThatDividesByZeroInCIsAnError) {
  EXPECT_EQ(errorOf({"divide_by_zero_in_c"}).pythonType(), "RuntimeError");
}

TEST_F(UserCode, MayRaiseWhateverItLikes) {
  const RemoteError words = errorOf({"raise_in_many_words", 2'000'000});
  EXPECT_EQ(words.pythonType(), "ValueError");
  EXPECT_EQ(words.message().substr(0, 4), "\u00fc\u00fc");
  EXPECT_LT(words.message().size(), 100'000u);
  const RemoteError group = errorOf({"raise_group"});
  EXPECT_EQ(group.pythonType(), "ExceptionGroup");
  EXPECT_TRUE(contains(group.traceback(), "one \U0001f600")) << group.traceback();
  EXPECT_EQ(errorOf({"raise_no_text"}).message(), "");
  EXPECT_TRUE(contains(errorOf({"raise_class_of_its_own"}).pythonType(), "Odd\u00e9"));
  EXPECT_EQ(errorOf({"raise_generator_exit"}).pythonType(), "GeneratorExit");
}

TEST_F(UserCode, FindsItsNumberInTorchsVersionAlsoInAReplacement) {
  for (size_t slot = 0; slot < 2; ++slot) {
    InterpreterSession session = manager_.allInstances()[slot].acquireSession();
    EXPECT_EQ(session.global("torch.version", "interp").toIValue().toInt(),
              static_cast<int64_t>(slot));
  }
  for (size_t slot = 0; slot < 2; ++slot) {
    const pid_t victim = processOf(slot);
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    EXPECT_TRUE(waitUntil([&] { return processOf(slot) != -1 && processOf(slot) != victim; }));
    EXPECT_EQ(askOn(slot, {"slot"}).toInt(), static_cast<int64_t>(slot));
  }
}

}  // namespace
}  // namespace isopool::tests
