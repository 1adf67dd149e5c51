// SPDX-License-Identifier: BSD-3-Clause
// A forked child has private copies of the tensors that its parent has in memory shared with
// workers, as of all other memory.
#include <ATen/Parallel.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSize = 100'000;

// Without an operation of torch: in a forked child a lock of torch's may be held by a thread that
// is not there.
bool isAll(const at::Tensor& x, double value) {
  const float* data = x.const_data_ptr<float>();
  return std::all_of(data, data + x.numel(),
                     [&](float each) { return each == static_cast<float>(value); });
}

at::Tensor shared(double value, int64_t size = kSize) { return empty({size}).fill_(value); }

/// A child process that runs `inChild` and exits with its result. The two have a pipe each to wait
/// for each other.
class Forked {
 public:
  using InChild = std::function<int(Forked&)>;

  explicit Forked(const InChild& inChild) {
    EXPECT_EQ(::pipe(toParent_), 0);
    EXPECT_EQ(::pipe(toChild_), 0);
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(toChild_[0]);
      ::close(toParent_[1]);
      return;
    }
    ::close(toChild_[1]);
    ::close(toParent_[0]);
    int result = 99;
    at::set_num_threads(1);  // the threads of the parent's OpenMP are not there
    try {
      result = inChild(*this);
    } catch (...) {
    }
    ::_exit(result);
  }
  ~Forked() {
    if (pid_ > 0) status();
    for (const int end : {toChild_[1], toParent_[0]}) ::close(end);
  }

  void tell() { EXPECT_EQ(::write(pid_ == 0 ? toParent_[1] : toChild_[1], "x", 1), 1); }
  /// False if the other process has ended.
  bool await() {
    char word = 0;
    return ::read(pid_ == 0 ? toChild_[0] : toParent_[0], &word, 1) == 1;
  }
  /// As waitpid() returns it.
  int status() {
    int status = -1;
    EXPECT_GT(::waitpid(std::exchange(pid_, -1), &status, 0), 0);
    return status;
  }
  int exitCode() {
    const int ended = status();
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -WTERMSIG(ended);
  }

 private:
  int toParent_[2] = {-1, -1};
  int toChild_[2] = {-1, -1};
  pid_t pid_ = -1;
};

/// All kinds of tensors that a program has from this library, each with another value.
std::vector<at::Tensor> tensorsOfEveryKind(OwnPool& pool) {
  std::vector<at::Tensor> all;
  all.push_back(shared(1));
  all.push_back(shared(2, 4));
  {
    const SharedMemoryGuard guard;
    all.push_back(at::full({kSize}, 3.0f));
  }
  all.push_back(shared(4).slice(0, 100, 200));
  all.push_back(pool.subject().tensor("add_one", {shared(4)}));           // a worker's memory
  all.push_back(pool.subject().tensor("add_one", {at::full({3}, 5.f)}));  // copied with the answer
  all.push_back(pool.subject().tensor("identity", {shared(7)}));
  InterpreterSession session = pool.manager().acquireOne();
  const ReplicatedObj moved =
      session.createMovable(session.global("torch", "full")({std::vector<int64_t>{kSize}, 8.0}));
  all.push_back(moved.acquireSession().self.toIValue().toTensor());
  // Stored bytes of a package, mapped for this answer.
  all.push_back(pool.subject().tensor("return_weight"));
  all.back() = all.back().detach();
  all.back().fill_(9);
  return all;
}

int firstThatIsNot(const std::vector<at::Tensor>& tensors, double difference) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!isAll(tensors[i], static_cast<double>(i + 1) + difference)) return static_cast<int>(i + 1);
  }
  return 0;
}

TEST(ForkedMemory, IsTheChildsOwn) {
  OwnPool pool(2);
  const std::vector<at::Tensor> tensors = tensorsOfEveryKind(pool);
  ASSERT_EQ(firstThatIsNot(tensors, 0), 0);
  Forked child([&](Forked& parent) {
    if (const int wrong = firstThatIsNot(tensors, 0); wrong != 0) return wrong;
    for (const at::Tensor& each : tensors) each.add_(100);
    parent.tell();
    if (!parent.await()) return 50;
    const int wrong = firstThatIsNot(tensors, 100);
    return wrong == 0 ? 0 : wrong + 50;
  });
  ASSERT_TRUE(child.await());
  EXPECT_EQ(firstThatIsNot(tensors, 0), 0) << "the child has written to it";
  for (const at::Tensor& each : tensors) each.sub_(200);
  child.tell();
  EXPECT_EQ(child.exitCode(), 0) << "the tensor with this number, plus 50 after the parent's write";
  EXPECT_EQ(firstThatIsNot(tensors, -200), 0);
}

TEST(ForkedMemory, StaysWhenTheParentCallsOnAndUsesItsBlocksAgain) {
  OwnPool pool(1);
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> results;
  for (int i = 0; i < 20; ++i) {
    inputs.push_back(shared(i));
    results.push_back(pool.subject().tensor("add_one", {inputs.back()}));
  }
  Forked child([&](Forked& parent) {
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 20; ++i) {
        if (!isAll(inputs[i], i)) return 1;
        if (!isAll(results[i], i + 1)) return 2;
      }
      parent.tell();
      if (!parent.await()) return 3;
    }
    return 0;
  });
  inputs.clear();
  results.clear();
  while (child.await()) {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(isAll(pool.subject().tensor("add_one", {shared(1000 + i)}), 1001 + i));
    }
    child.tell();
  }
  EXPECT_EQ(child.exitCode(), 0);
}

TEST(ForkedMemory, IsNotSharedInTheChildAndCanBePassedToItsOwnManager) {
  OwnPool pool(1);
  const at::Tensor x = shared(1);
  const at::Tensor y = pool.subject().tensor("add_one", {x});
  Forked child([&](Forked&) {
    if (isShared(x) || isShared(y)) return 1;
    const at::Tensor own = shared(5);
    if (!isShared(own) || !isAll(own, 5)) return 2;
    return isAll(x, 1) && isAll(y, 2) ? 0 : 3;
  });
  EXPECT_EQ(child.exitCode(), 0);
  EXPECT_TRUE(isShared(x) && isShared(y));
}

TEST(ForkedMemory, OfAChildsChildIsItsOwnToo) {
  const at::Tensor x = shared(1);
  Forked child([&](Forked&) {
    const at::Tensor own = shared(2);
    Forked grandchild([&](Forked&) {
      if (!isAll(x, 1) || !isAll(own, 2)) return 1;
      x.fill_(8);
      own.fill_(8);
      return 0;
    });
    if (grandchild.exitCode() != 0) return 1;
    return isAll(x, 1) && isAll(own, 2) ? 0 : 2;
  });
  EXPECT_EQ(child.exitCode(), 0);
  EXPECT_TRUE(isAll(x, 1));
}

TEST(ForkedMemory, IsWholeWhileOtherThreadsCall) {
  OwnPool pool(2);
  std::atomic<bool> stop{false};
  std::atomic<int> calls{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&, i] {
      for (int n = 0; !stop; ++n) {
        const double value = i * 1000 + n % 1000;
        const at::Tensor y = pool.subject().tensor("add_one", {shared(value, 5000)});
        wrong += isAll(y, value + 1) ? 0 : 1;
        ++calls;
      }
    });
  }
  const at::Tensor x = shared(1, 5000);
  constexpr int kForks = 1000;
  int failed = 0;
  for (int i = 0; i < kForks; ++i) {
    const at::Tensor y = pool.subject().tensor("add_one", {shared(i, 5000)});
    Forked child([&](Forked&) { return isAll(x, 1) && isAll(y, i + 1) ? 0 : 1; });
    failed += child.exitCode() == 0 ? 0 : 1;
  }
  stop = true;
  for (std::thread& each : callers) each.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(wrong, 0);
  std::printf("%d forks beside %d calls\n", kForks, calls.load());
  // No lease and no block is left behind.
  EXPECT_TRUE(waitUntil([&] {
    uint64_t lent = 0;
    for (const WorkerStatistics& each : pool.manager().statistics().workers) {
      lent += each.outputBytesLent;
    }
    return lent == 0;
  }));
}

TEST(ForkedMemory, IsWholeWhenThreadsForkAtTheSameTime) {
  const at::Tensor x = shared(1);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) {
        Forked child([&](Forked&) { return isAll(x, 1) ? 0 : 1; });
        failed += child.exitCode() == 0 ? 0 : 1;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(failed, 0);
}

TEST(ForkedMemory, DoesNotMakeTheParentWaitForAChildThatIsKilledOrStopped) {
  const at::Tensor x = shared(1);
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::raise(i % 2 == 0 ? SIGKILL : SIGSTOP);
      ::_exit(0);
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
  }
  EXPECT_TRUE(isAll(x, 1));
}

// ---- the setting ------------------------------------------------------------------------------

/// The first line of the program that runs `scenario` of program.cc with this limit.
std::optional<std::string> lineOfProgram(const std::string& scenario, const std::string& limit) {
  Program program({PROGRAM, scenario}, {"ISOPOOL_FORK_COPY_LIMIT=" + limit});
  return program.readLine();
}

TEST(ForkedMemory, AboveTheLimitDoesNotExistInTheChild) {
  EXPECT_EQ(lineOfProgram("fork_with_tensors", "1MiB"),
            "the child ended by SIGSEGV; a warning names ISOPOOL_FORK_COPY_LIMIT");
}

TEST(ForkedMemory, WithinTheLimitIsCopied) {
  EXPECT_EQ(lineOfProgram("fork_with_tensors", "64MiB"), "the child has a copy; no warning");
}

TEST(ForkedMemory, StaysSharedIfTheLimitIsZero) {
  EXPECT_EQ(lineOfProgram("fork_with_tensors", "0"), "the child shares it; no warning");
}

// ---- the cost ---------------------------------------------------------------------------------

double secondsOf(int times, const std::function<void()>& act) {
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) act();
  return std::chrono::duration<double>(Clock::now() - begin).count() / times;
}

void forkAndExec() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/true", "true", nullptr);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
}

void spawn() {
  pid_t child = 0;
  char name[] = "true";
  char* const words[] = {name, nullptr};
  ASSERT_EQ(::posix_spawn(&child, "/bin/true", nullptr, nullptr, words, nullptr), 0);
  int status = 0;
  ::waitpid(child, &status, 0);
}

TEST(ForkedMemory, CostsAForkInProportionToItsSizeAndASpawnNothing) {
  sharedManager();
  const double spawnAlone = secondsOf(10, spawn);
  const double alone = secondsOf(10, forkAndExec);
  std::printf("fork and exec of /bin/true: %.2f ms; posix_spawn: %.2f ms\n", alone * 1e3,
              spawnAlone * 1e3);
  for (const int64_t megabytes : {1, 16, 256}) {
    const at::Tensor x = shared(1, megabytes << 18);
    ASSERT_TRUE(isShared(x));
    const double with = secondsOf(5, forkAndExec);
    const double spawned = secondsOf(5, spawn);
    std::printf("with %ld MiB of tensors: %.2f ms; posix_spawn: %.2f ms\n",
                static_cast<long>(megabytes), with * 1e3, spawned * 1e3);
    EXPECT_LT(spawned, 10 * spawnAlone + 0.01);
  }
}

}  // namespace
}  // namespace isopool::tests
