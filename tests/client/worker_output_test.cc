// SPDX-License-Identifier: BSD-3-Clause
// What workers print, and what the supervisor of a private pool logs, reaches the program's logger.
#include <signal.h>

#include <algorithm>
#include <mutex>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

/// A pool whose logger keeps its lines. What goes to this process's standard streams meanwhile is
/// kept, too: it should be nothing.
class WorkerOutput : public ::testing::Test {
 protected:
  WorkerOutput() {
    packagePath();  // the script that makes the package prints, too
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
  }
  ~WorkerOutput() override {
    if (captures_) captured();
  }

  PoolOptions options() {
    PoolOptions options;
    options.workers = 1;
    options.logger = [this](LogLevel level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(level, text);
    };
    return options;
  }
  bool logged(LogLevel level, const std::string& line) {
    return waitUntil([&] {
      const std::lock_guard lock(mutex_);
      return std::find(lines_.begin(), lines_.end(), std::pair(level, line)) != lines_.end();
    });
  }
  std::string all() {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const auto& [level, line] : lines_) text += line + "\n";
    return text;
  }
  /// What has gone to the standard streams.
  std::string captured() {
    captures_ = false;
    return testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  }

 private:
  bool captures_ = true;
  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

TEST_F(WorkerOutput, ReachesTheLoggerWithItsWorkerAndItsModelAndNothingElse) {
  InterpreterManager manager(options());
  const Subject subject(manager);
  const std::string writer = "worker 0 (pid " + std::to_string(subject.number("pid")) +
                             ", model subject.pt:model/model.pkl): ";
  subject.ask("say", {"to the output"});
  EXPECT_TRUE(logged(LogLevel::kInfo, writer + "to the output")) << all();
  subject.ask("complain", {"to the error stream"});
  EXPECT_TRUE(logged(LogLevel::kInfo, writer + "to the error stream")) << all();
  // A line like one of the log's own stays text of the worker.
  const std::string forged = R"({"level":"error","message":"forged"})";
  subject.ask("say", {forged});
  EXPECT_TRUE(logged(LogLevel::kInfo, writer + forged)) << all();
  EXPECT_EQ(captured(), "");
}

TEST_F(WorkerOutput, OfADyingWorkerIsComplete) {
  InterpreterManager manager(options());
  const Subject subject(manager);
  const auto worker = static_cast<pid_t>(subject.number("pid"));
  // It does not end its line.
  subject.ask("say", {"the last words", ""});
  ::kill(worker, SIGKILL);
  const auto ends = [&](const std::string& end) {
    return waitUntil([&] { return all().find(end) != std::string::npos; });
  };
  EXPECT_TRUE(ends("(pid " + std::to_string(worker) +
                   ", model subject.pt:model/model.pkl): the last words\n"))
      << all();
  EXPECT_TRUE(ends("isopoold: worker 0 (pid " + std::to_string(worker) + ") of pool 1 died"))
      << all();
  EXPECT_EQ(captured(), "");
}

TEST_F(WorkerOutput, GoesToTheLoggerOfItsOwnPool) {
  InterpreterManager manager(options());
  std::string ofOther;
  std::mutex mutex;
  PoolOptions otherOptions = options();
  otherOptions.logger = [&](LogLevel, std::string_view text) {
    const std::lock_guard lock(mutex);
    ofOther += std::string(text) + "\n";
  };
  InterpreterManager other(otherOptions);
  Subject(manager).ask("say", {"of the one pool"});
  Subject(other).ask("say", {"of the other pool"});
  const auto has = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    return ofOther.find(text) != std::string::npos;
  };
  EXPECT_TRUE(waitUntil([&] { return has("of the other pool"); }));
  EXPECT_TRUE(waitUntil([&] { return all().find("of the one pool") != std::string::npos; }));
  EXPECT_FALSE(has("of the one pool"));
  EXPECT_EQ(all().find("of the other pool"), std::string::npos);
}

TEST_F(WorkerOutput, WithoutALoggerGoesToTheStreamsOfTheProgram) {
  PoolOptions silent;
  silent.workers = 1;
  silent.variables = {{"ISOTEST_STREAMS", "inherited"}};  // a supervisor of its own
  InterpreterManager manager(silent);
  Subject(manager).ask("say", {"to the program's output"});
  EXPECT_NE(captured().find("to the program's output\n"), std::string::npos);
}

}  // namespace
}  // namespace isopool::tests
