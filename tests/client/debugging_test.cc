// SPDX-License-Identifier: BSD-3-Clause
// What a user with a debugger needs: slow processes are not killed, breakpoints, traces.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <future>
#include <iterator>
#include <regex>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

std::string contentsOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

CallOptions within(milliseconds time) {
  CallOptions options;
  options.deadline = time;
  return options;
}

/// Connects to a Unix socket as `nc -U` does.
class SocketClient {
 public:
  explicit SocketClient(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  bool connected() const { return connected_; }
  void say(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(::write(fd_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  /// The text received up to the next prompt, or up to the end of the connection.
  std::string read() {
    std::string text;
    char byte = 0;
    while (text.size() < 6 || text.compare(text.size() - 6, 6, "(Pdb) ") != 0) {
      if (::read(fd_.get(), &byte, 1) != 1) break;
      text += byte;
    }
    return text;
  }

 private:
  base::Fd fd_;
  bool connected_ = false;
};

class NoKill : public ::testing::Test {
 protected:
  // Redirects the workers' error streams to a file: a breakpoint prints there how to connect.
  NoKill() : savedErrors_(::dup(STDERR_FILENO)) {
    errors_ = testFolder() / "no-kill-errors";
    std::ofstream(errors_, std::ios::trunc).put('\n');
    std::FILE* file = std::fopen(errors_.c_str(), "a");
    ::dup2(::fileno(file), STDERR_FILENO);
    std::fclose(file);
    pool_.emplace(1, std::vector<std::string>{"ISOPOOL_NO_KILL=1", "ISOPOOL_FORK_TIMEOUT=200ms"});
    ::dup2(savedErrors_.get(), STDERR_FILENO);
  }
  std::string breakpointSocket() {
    std::smatch found;
    std::string text;
    EXPECT_TRUE(waitUntil([&] {
      text = contentsOf(errors_);
      return std::regex_search(text, found, std::regex("connect with: nc -U (\\S+)\n"));
    })) << text;
    return found.empty() ? "" : found[1].str();
  }

  base::Fd savedErrors_;
  std::string errors_;
  std::optional<OwnPool> pool_;
};

TEST_F(NoKill, AWorkerStoppedPastItsDeadlineSurvives) {
  const pid_t worker = pool_->processOf(0);
  const Gate gate;
  auto call = std::async(std::launch::async, [&] {
    std::vector<at::IValue> arguments = gate.arguments();
    return pool_->subject().ask("wait_at", std::move(arguments), within(milliseconds(100))).toInt();
  });
  gate.arrival();
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  gate.open();
  // Longer than the deadline, and longer than an idle worker may leave a call in its ring.
  EXPECT_EQ(call.wait_for(milliseconds(1500)), std::future_status::timeout);
  ASSERT_EQ(::kill(worker, SIGCONT), 0);
  EXPECT_EQ(call.get(), worker);
  EXPECT_EQ(pool_->subject().number("pid"), worker);
}

TEST_F(NoKill, AStoppedZygoteIsNotReplaced) {
  const pid_t zygote = pool_->tree().zygote();
  ASSERT_EQ(::kill(zygote, SIGSTOP), 0);
  ::kill(pool_->processOf(0), SIGKILL);  // another worker or spare is to be forked
  EXPECT_FALSE(waitUntil([&] { return pool_->tree().zygote() != zygote; }, milliseconds(1500)))
      << "it was replaced after ISOPOOL_FORK_TIMEOUT";
  ASSERT_EQ(::kill(zygote, SIGCONT), 0);
  EXPECT_GT(pool_->subject().number("pid"), 0);
}

// A process of the same user that is not an ancestor of the worker, like a debugger.
TEST_F(NoKill, AWorkerCanBeTracedByAnotherProcessOfTheUser) {
  const pid_t worker = pool_->processOf(0);
  const pid_t tracer = ::fork();
  if (tracer == 0) {
    if (::ptrace(PTRACE_SEIZE, worker, nullptr, nullptr) != 0) ::_exit(errno);
    ::_exit(::ptrace(PTRACE_INTERRUPT, worker, nullptr, nullptr) == 0 &&
                    ::waitpid(worker, nullptr, __WALL) == worker
                ? 0
                : 255);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(tracer, &status, 0), tracer);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(pool_->subject().number("pid"), worker);
}

TEST_F(NoKill, ABreakpointIsReachedOverASocketAndTheCallContinues) {
  const pid_t worker = pool_->processOf(0);
  auto call = std::async(std::launch::async, [&] {
    return pool_->subject().ask("stop_at_breakpoint", {5}, within(milliseconds(100))).toInt();
  });
  const std::string path = breakpointSocket();
  EXPECT_NE(path.find(std::to_string(worker)), std::string::npos) << path;
  SocketClient debugger(path);
  ASSERT_TRUE(debugger.connected()) << path;
  EXPECT_NE(debugger.read().find("stop_at_breakpoint"), std::string::npos);
  debugger.say("p x + 1");
  EXPECT_EQ(debugger.read(), "6\n(Pdb) ");
  debugger.say("where");
  EXPECT_NE(debugger.read().find("forward"), std::string::npos);
  // The assignment is the last command: before Python 3.13 a later command may undo it.
  debugger.say("x = 100");
  debugger.read();
  EXPECT_FALSE(std::filesystem::exists(path)) << "no second debugger may connect";
  debugger.say("continue");
  EXPECT_EQ(call.get(), 200);
  EXPECT_EQ(debugger.read(), "") << "the worker has closed the connection";
  EXPECT_EQ(pool_->subject().number("pid"), worker);
}

TEST_F(NoKill, TheCallContinuesWhenTheDebuggerDisconnects) {
  auto call = std::async(std::launch::async,
                         [&] { return pool_->subject().number("stop_at_breakpoint", {5}); });
  {
    SocketClient debugger(breakpointSocket());
    debugger.read();
    debugger.say("b 1");  // so that the code could stop again
    debugger.read();
  }
  EXPECT_EQ(call.get(), 10);
}

TEST_F(NoKill, QuittingTheDebuggerEndsTheCallWithAnError) {
  auto call = std::async(std::launch::async, [&] {
    try {
      pool_->subject().number("stop_at_breakpoint", {5});
    } catch (const RemoteError& error) {
      return error.pythonType();
    }
    return std::string("no error");
  });
  SocketClient debugger(breakpointSocket());
  debugger.read();
  debugger.say("quit");
  EXPECT_EQ(call.get(), "bdb.BdbQuit");
  EXPECT_GT(pool_->subject().number("pid"), 0);
}

// ---- traces ----------------------------------------------------------------------------------

/// Runs tests/client/read_trace.py, which prints the properties of the trace.
std::string readTrace(const std::string& path) {
  Program python({PYTHON, TEST_SOURCE_DIR "/read_trace.py", path});
  std::string all;
  while (const auto line = python.readLine(kPatience)) all += *line + "\n";
  EXPECT_EQ(python.waitForEnd(kPatience), 0);
  return all;
}

class Traces : public ::testing::Test {
 protected:
  Traces() { sharedManager(); }
  InterpreterManager manager_{2};
  Subject subject_{manager_};
};

TEST_F(Traces, EachWorkersRangeIsInsideAndLinkedToItsCallersRange) {
  const std::string path = testFolder() / "trace.json";
  {
    Trace trace(manager_);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 10; ++j) subject_.number("work", {2});
        subject_.tensor("add_one", {at::ones({1000})});
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<PendingCall> calls;
    for (int i = 0; i < 5; ++i) calls.push_back(subject_.object().callAsync({"work", 1}));
    for (const PendingCall& call : calls) call.get();
    EXPECT_THROW(subject_.ask("fail", {1}), RemoteError);
    trace.write(path);
    EXPECT_THROW(trace.write(path), Error) << "once";
  }
  EXPECT_EQ(readTrace(path),
            "caller ranges 39\n"
            "joined by an arrow 39\n"
            "inside 39\n"
            "worker processes 2\n"
            "operators inside ranges yes\n"
            "raised 1\n");
}

TEST_F(Traces, AnUnwrittenTraceLeavesNoFile) {
  { const Trace trace(manager_); }
  EXPECT_GT(subject_.number("pid"), 0);
  const std::string path = testFolder() / "trace-again.json";
  Trace trace(manager_);
  subject_.number("pid");
  trace.write(path);
  EXPECT_NE(contentsOf(path).find("isopool call "), std::string::npos);
}

TEST_F(Traces, ADeadWorkersPartIsLostAndTheOthersAreKept) {
  const std::string path = testFolder() / "trace-death.json";
  Trace trace(manager_);
  EXPECT_THROW(subject_.ask("die", {9}), WorkerLost);
  subject_.number("pid");
  trace.write(path);
  const std::string text = contentsOf(path);
  EXPECT_NE(text.find("worker lost"), std::string::npos);
  EXPECT_NE(text.find("returned"), std::string::npos);
}

TEST_F(Traces, AFileThatCannotBeWrittenIsAnError) {
  Trace trace(manager_);
  EXPECT_THROW(trace.write("/nowhere/trace.json"), Error);
}

}  // namespace
}  // namespace isopool::tests
