// SPDX-License-Identifier: BSD-3-Clause
// client_test_program MODE PACKAGE: a user's program. It prints "ready" when its pool has answered,
// and ends at the end of its standard input.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "isopool/isopool.h"

namespace {

struct Pool {
  explicit Pool(const char* package)
      : manager(2), object(manager.loadPackage(package).loadPickle("model", "model.pkl")) {}
  isopool::InterpreterManager manager;
  isopool::ReplicatedObj object;
};

std::unique_ptr<Pool> pool;
at::Tensor result;

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void waitForEndOfInput() {
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

void begin(const char* package) {
  pool = std::make_unique<Pool>(package);
  pool->object({"pid"});
}

// Prints "ready", waits for the end of the input, then destroys the pool.
int serve() {
  say("ready");
  waitForEndOfInput();
  pool.reset();
  return 0;
}

int rest(const char* package) {
  begin(package);
  return serve();
}

int load(const char* package) {
  begin(package);
  std::atomic<bool> stop{false};
  std::atomic<int> answers{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const at::Tensor x = isopool::empty({100'000}).fill_(1);
      while (!stop) {
        pool->object({"add_one", x});
        if (++answers == 20) say("ready");
      }
    });
  }
  waitForEndOfInput();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  pool.reset();
  return 0;
}

// The manager is never destroyed.
int leave(const char* package, void (*way)(int)) {
  begin(package);
  say("ready");
  waitForEndOfInput();
  static Pool* const forgotten = pool.release();
  (void)forgotten;
  way(0);
  return 1;
}

// The manager is destroyed with the static objects.
int staticManager(const char* package) {
  begin(package);
  say("ready");
  waitForEndOfInput();
  return 0;
}

int resultOutlivesMain(const char* package) {
  begin(package);
  result = pool->object({"add_one", at::ones({100'000})}).toTensor();
  return serve();
}

int sayInTheModel(const char* package) {
  begin(package);
  pool->object({"say", "printed by the model"});
  return serve();
}

// Python's output appears as soon as it is printed, between the lines of the program.
int printInTurn(const char* package) {
  begin(package);
  isopool::InterpreterSession session = pool->manager.acquireOne();
  const isopool::Obj print = session.global("builtins", "print");
  print({"first", "from Python"});
  say("second from the program");
  print.callKwargs({"third from "}, {{"end", ""}});
  say("Python and the program");
  session.global("sys", "stdout").attr("write")({"fourth from Python\n"});
  say("fifth from the program");
  return serve();
}

// From a manager's start to its end, a signal handler interrupts the program's system calls each
// millisecond.
int interrupted(const char* package) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval each{{0, 1000}, {0, 1000}};
  ::setitimer(ITIMER_REAL, &each, nullptr);
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    begin(package);
    const at::Tensor large = isopool::empty({25'000'000}).fill_(1);
    sum += pool->object({"add_one", large}).toTensor()[0].item<double>();
    pool.reset();
  }
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  say("sum: " + std::to_string(sum));
  return 0;
}

// A child ends by exit(), which runs the destructors of its parent's static objects.
int exitingFork(const char* package) {
  static isopool::InterpreterManager manager(2);
  static isopool::Package loaded = manager.loadPackage(package);
  static isopool::ReplicatedObj object = loaded.loadPickle("model", "model.pkl");
  object({"pid"});
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      std::exit(0);
    }
    int status = -1;
    while (::waitpid(child, &status, 0) == -1 && errno == EINTR) {
    }
    if (status != 0) say("a child ended with status " + std::to_string(status));
    if (object({"add_one", at::ones({3})}).toTensor()[0].item<double>() != 2) say("wrong");
  }
  say("done");
  return 0;
}

// A thread reaps every child process, as in some servers.
int reaping(const char* package) {
  std::atomic<bool> stop{false};
  std::thread reaper([&] {
    while (!stop) {
      if (::waitpid(-1, nullptr, WNOHANG) < 0) std::this_thread::yield();
    }
  });
  begin(package);
  stop = true;
  reaper.join();
  return serve();
}

int children(const char* package) {
  begin(package);
  const bool none = ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
  say(none ? "no child" : "a child");
  return serve();
}

int threads(const char* package) {
  std::atomic<bool> stop{false};
  std::atomic<int> busy{0};
  std::vector<std::thread> workers;
  for (int i = 0; i < 16; ++i) {
    workers.emplace_back([&] {
      ++busy;
      while (!stop) {
        at::rand({1000});
        ::usleep(1000);
      }
    });
  }
  while (busy < 16) std::this_thread::yield();
  begin(package);
  stop = true;
  for (std::thread& worker : workers) worker.join();
  return serve();
}

// Descriptors 0, 1 and 2 are closed, as in some daemons, so our descriptors may get these numbers.
int noStreams(const char* package) {
  for (int fd = 0; fd <= 2; ++fd) ::close(fd);
  begin(package);
  const at::Tensor y = pool->object({"add_one", at::ones({100'000})}).toTensor();
  pool->object({"say", "into nowhere"});
  const isopool::CompletionQueue queue;
  for (int fd = 0; fd <= 2; ++fd) {
    // The program's output must not reach one of our descriptors.
    if (::fcntl(fd, F_GETFD) != -1) return 3;
  }
  pool.reset();
  return y.eq(2).all().item<bool>() ? 0 : 1;
}

// The outcome of a call whose worker dies, and of the next call.
int loseAWorker(const char* package) {
  begin(package);
  try {
    pool->object({"die", SIGKILL});
    say("the call was answered");
  } catch (const isopool::SupervisorLost& error) {
    say(std::string("SupervisorLost: ") + error.what());
  } catch (const isopool::WorkerLost&) {
    say("WorkerLost");
  }
  pool->object({"pid"});
  return serve();
}

// Limits the address space to a size that the default input arena alone would fill.
int limitedAddressSpace(const char* package) {
  const rlimit limit{size_t{24} << 30, size_t{24} << 30};
  ::setrlimit(RLIMIT_AS, &limit);
  std::string warning;
  isopool::setLogger([&](isopool::LogLevel, std::string_view text) { warning += text; });
  const at::Tensor x = isopool::empty({100'000}).fill_(1);
  say(std::string("shared: ") + std::to_string(isopool::isShared(x)));
  say("warned: " + warning);
  begin(package);
  const at::Tensor y = pool->object({"add_one", x}).toTensor();
  say("answer: " + std::to_string(y[99'999].item<int>()));
  return serve();
}

// A child of a child, and so on: each makes its own shared memory.
int makesSharedMemoryInForks(int deeper) {
  const at::Tensor x = isopool::empty({1000}).fill_(deeper);
  if (!isopool::isShared(x)) return 1;
  if (deeper == 0) return 0;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(makesSharedMemoryInForks(deeper - 1));
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

// Says what a forked child has of a tensor in shared memory, and what the program is told.
int forkWithTensors() {
  std::string warnings;
  isopool::setLogger(
      [&](isopool::LogLevel, std::string_view text) { warnings += std::string(text) + "\n"; });
  at::Tensor x = isopool::empty({1 << 20}).fill_(1);
  int toChild[2];
  if (!isopool::isShared(x) || ::pipe(toChild) != 0) return 1;
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    if (::read(toChild[0], &byte, 1) != 1) ::_exit(99);
    ::_exit(x[12345].item<int>());
  }
  x.fill_(2);
  if (::write(toChild[1], "x", 1) != 1) return 1;
  int status = 0;
  ::waitpid(child, &status, 0);
  std::string seen = "the child ended by another way";
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) seen = "the child ended by SIGSEGV";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1) seen = "the child has a copy";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) seen = "the child shares it";
  if (warnings.empty()) {
    seen += "; no warning";
  } else {
    seen += warnings.find("ISOPOOL_FORK_COPY_LIMIT") != std::string::npos
                ? "; a warning names ISOPOOL_FORK_COPY_LIMIT"
                : "; " + warnings;
  }
  say(seen);
  isopool::setLogger(nullptr);
  return 0;
}

int forking(const char* package) {
  begin(package);
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  say("ready");
  say(std::to_string(child));
  waitForEndOfInput();
  return 0;
}

// Under ISOPOOL_INPUT_ARENA_LIMIT=16MiB.
int limit(const char* package) {
  begin(package);
  std::vector<at::Tensor> held;
  int shared = 0;
  for (int i = 0; i < 40; ++i) {
    held.push_back(isopool::empty({1 << 20}, at::kByte).fill_(1));
    if (isopool::isShared(held.back())) ++shared;
  }
  say("some are shared: " + std::to_string(shared > 0 && shared <= 16));
  say("the last one is: " + std::to_string(isopool::isShared(held.back())));
  try {
    pool->object({"identity", at::ones({1 << 20})});
    say("it was accepted");
  } catch (const isopool::ArenaFull& error) {
    say(std::string("ArenaFull: ") + error.what());
  }
  try {
    isopool::CallOptions options;
    options.deadline = std::chrono::milliseconds(50);
    (void)pool->object.call({"identity", at::ones({1 << 20})}, {}, options);
    say("it was accepted");
  } catch (const isopool::DeadlineExceeded& error) {
    say((error.started() ? "started: " : "not started: ") + std::string(error.what()));
  } catch (const isopool::Error& error) {
    say(error.what());
  }
  held.clear();
  const at::Tensor y = pool->object({"add_one", at::ones({1 << 20})}).toTensor();
  say("after letting go: " + std::to_string(y[5].item<int>()));
  return serve();
}

// Under ISOPOOL_INPUT_ARENA_LIMIT=100MiB, one tensor alive at a time.
int oneAtATime(const char* package) {
  begin(package);
  for (const int64_t megabytes : {20, 30, 40, 50, 60, 90, 50}) {
    try {
      const int64_t count = megabytes * 1'000'000;
      const at::Tensor ordinary = at::ones({count}, at::kByte);
      (void)pool->object({"sums", ordinary});
      const at::Tensor x = isopool::empty({count}, at::kByte).fill_(1);
      say(std::to_string(megabytes) + ": " + std::to_string(isopool::isShared(x)));
    } catch (const isopool::Error& error) {
      say(std::to_string(megabytes) + ": " + error.what());
    }
  }
  return serve();
}

int makeEmpty() {
  try {
    isopool::empty({1000});
    say("no error");
  } catch (const std::exception& error) {
    say(error.what());
  }
  waitForEndOfInput();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const char* package = argc > 2 ? argv[2] : "";
  const std::map<std::string, std::function<int()>> modes = {
      {"rest", [&] { return rest(package); }},
      {"load", [&] { return load(package); }},
      {"exit", [&] { return leave(package, &std::exit); }},
      {"quick_exit", [&] { return leave(package, &std::quick_exit); }},
      {"static_manager", [&] { return staticManager(package); }},
      {"result_outlives_main", [&] { return resultOutlivesMain(package); }},
      {"say", [&] { return sayInTheModel(package); }},
      {"print_in_turn", [&] { return printInTurn(package); }},
      {"interrupted", [&] { return interrupted(package); }},
      {"exiting_fork", [&] { return exitingFork(package); }},
      {"reaping", [&] { return reaping(package); }},
      {"children", [&] { return children(package); }},
      {"threads", [&] { return threads(package); }},
      {"lose_a_worker", [&] { return loseAWorker(package); }},
      {"no_streams", [&] { return noStreams(package); }},
      {"limited_address_space", [&] { return limitedAddressSpace(package); }},
      {"forks_of_forks", [&] { return makesSharedMemoryInForks(8); }},
      {"fork", [&] { return forking(package); }},
      {"fork_with_tensors", [&] { return forkWithTensors(); }},
      {"limit", [&] { return limit(package); }},
      {"one_at_a_time", [&] { return oneAtATime(package); }},
      {"empty", [&] { return makeEmpty(); }},
  };
  const auto found = modes.find(mode);
  return found == modes.end() ? 2 : found->second();
}
