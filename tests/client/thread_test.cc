// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest-spi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

/// Starts a thread. If it throws, this test fails; an uncaught exception would end all tests.
std::thread startThread(std::function<void()> work) {
  return std::thread([work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "a thread threw: " << error.what();
    }
  });
}

void inThreads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.push_back(startThread([&work, i] { work(i); }));
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, ThatThrowFailTheirTestAndEndNoOther) {
  std::atomic<int> begun{0};
  EXPECT_NONFATAL_FAILURE_ON_ALL_THREADS(inThreads(2,
                                                   [&](int thread) {
                                                     ++begun;
                                                     if (thread == 1) {
                                                       throw std::runtime_error("as was wanted");
                                                     }
                                                   }),
                                         "as was wanted");
  EXPECT_EQ(begun, 2);
}

TEST(Threads, SixteenOnOneObjectWithTwoWorkersEachGetTheirOwnAnswers) {
  std::atomic<int> right{0};
  sharedSubject();
  inThreads(16, [&](int thread) {
    for (int i = 0; i < 100; ++i) {
      const double value = thread * 1000 + i;
      const bool isInSharedMemory = i % 2 == 0;
      at::Tensor x = isInSharedMemory ? empty({2000}) : at::empty({2000});
      x.fill_(value);
      if (sharedSubject().tensor("add_one", {x}).eq(value + 1).all().item<bool>()) ++right;
    }
  });
  EXPECT_EQ(right, 1600);
}

// A thread that calls again at once may overtake waiting threads, up to a bound.
TEST(Threads, ThatCallOneWorkerWithoutAPauseAllGetTurns) {
  OwnPool pool(1);
  constexpr int kThreads = 12;
  constexpr int kTurns = 50;
  std::array<std::atomic<int>, kThreads> turns{};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(startThread([&, i] {
      while (!over) {
        pool.subject().ask("pid");
        ++turns[static_cast<size_t>(i)];
      }
    }));
  }
  const bool all = waitUntil(
      [&] {
        return std::all_of(turns.begin(), turns.end(),
                           [](const auto& each) { return each >= kTurns; });
      },
      milliseconds(8'000));
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(all) << "the least: " << *std::min_element(turns.begin(), turns.end());
}

TEST(Threads, AllCanGetErrorsAtOnce) {
  std::atomic<int> right{0};
  sharedSubject();
  inThreads(8, [&](int thread) {
    const bool fails = thread % 2 == 0;
    for (int i = 0; i < 50; ++i) {
      try {
        sharedSubject().ask(fails ? "fail" : "leave", {1});
      } catch (const RemoteError& error) {
        if (error.pythonType() == (fails ? "ValueError" : "SystemExit")) ++right;
      }
    }
  });
  EXPECT_EQ(right, 400);
}

TEST(Threads, AllGetATurnWhenCallsAreLong) {
  std::atomic<int> served{0};
  sharedSubject();
  inThreads(16, [&](int) {
    if (sharedSubject().number("work", {5}) > 0) ++served;
  });
  EXPECT_EQ(served, 16);
}

TEST(Threads, ResultsAreReadAndLetGoOnOtherThreads) {
  std::vector<at::Tensor> results(64);
  sharedSubject();
  inThreads(8, [&](int thread) {
    for (int i = 0; i < 8; ++i) {
      results[static_cast<size_t>(thread * 8 + i)] = sharedSubject().tensor("matrix", {100});
    }
  });
  const at::Tensor expected = at::arange(10'000, at::kFloat).view({100, 100});
  std::atomic<int> right{0};
  inThreads(8, [&](int thread) {
    for (int i = 0; i < 8; ++i) {
      at::Tensor& result = results[static_cast<size_t>(((thread + 3) % 8) * 8 + i)];
      if (result.equal(expected)) ++right;
      result.reset();
    }
  });
  EXPECT_EQ(right, 64);
}

TEST(Threads, ManagersComeAndGoBesideEachOther) {
  sharedManager();
  std::atomic<int> right{0};
  inThreads(4, [&](int) {
    for (int i = 0; i < 5; ++i) {
      InterpreterManager manager(1);
      if (Subject(manager).number("pid") > 0) ++right;
    }
  });
  EXPECT_EQ(right, 20);
}

TEST(Threads, PackagesAndObjectsComeAndGoBesideCalls) {
  sharedSubject();
  std::atomic<bool> stop{false};
  std::thread caller = startThread([&] {
    while (!stop) EXPECT_GT(sharedSubject().number("pid"), 0);
  });
  const std::string files[] = {packagePath("one.pt"), packagePath("two.pt")};
  inThreads(4, [&](int thread) {
    for (int i = 0; i < 10; ++i) {
      Package package = sharedManager().loadPackage(files[(thread + i) % 2]);
      EXPECT_EQ(package.loadPickle("model", "model.pkl")({at::ones({1, 2})}).toTensor().numel(), 2);
    }
  });
  stop = true;
  caller.join();
}

// The last use by one thread ends while the first use by another thread begins.
TEST(Threads, LoadAndDropOneFileAtOnceAndKeepTheirSupervisor) {
  OwnPool pool(1);
  const std::string file = packagePath("one.pt");
  // The program's other supervisor holds the file too, so the file keeps its number when it is
  // unloaded here.
  OwnPool other(1, {"OTHER_ENVIRONMENT=1"});
  const Package held = other.manager().loadPackage(file);
  std::atomic<int> failed{0};
  inThreads(8, [&](int) {
    for (int i = 0; i < 200; ++i) {
      try {
        pool.manager().loadPackage(file);
      } catch (const std::exception& error) {
        if (++failed == 1) ADD_FAILURE() << "round " << i << ": " << error.what();
      }
    }
  });
  EXPECT_EQ(failed, 0);
  EXPECT_GT(pool.subject().number("pid"), 0);
}

TEST(Threads, AManagerThatEndsUnderCallsEndsThemWithAnError) {
  sharedManager();
  auto manager = std::make_unique<InterpreterManager>(2);
  const Subject subject(*manager);
  std::atomic<int> answered{0};
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.push_back(startThread([&] {
      try {
        for (;;) {
          subject.ask("add_one", {at::ones({1000})});
          ++answered;
        }
      } catch (const Error&) {
        ++ended;
      }
    }));
  }
  EXPECT_TRUE(waitUntil([&] { return answered > 100; }));
  manager.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, 6);
}

// ---- several managers ------------------------------------------------------------------------

TEST(Manager, ASecondOneSharesTheSupervisorAndHasWorkersOfItsOwn) {
  const ProcessMark mark;
  const ScopedVariable variable(mark.variable());
  const ProcessTree tree(mark);
  {
    InterpreterManager one(2);
    const pid_t supervisor = tree.supervisor();
    InterpreterManager other(2);
    std::set<int> processes;
    for (InterpreterManager* manager : {&one, &other}) {
      for (const Interpreter& each : manager->allInstances()) {
        processes.insert(each.processId().value_or(-1));
      }
    }
    EXPECT_EQ(processes.size(), 4u);
    EXPECT_EQ(processes.count(-1), 0u);
    EXPECT_EQ(tree.supervisors(), std::vector<pid_t>{supervisor});
  }
  EXPECT_TRUE(tree.goneWithin(kPatience));
}

TEST(Manager, EndsItsOwnWorkersOnly) {
  sharedManager();
  InterpreterManager stays(1);
  auto leaves = std::make_unique<InterpreterManager>(1);
  const Subject subject(stays);
  const int64_t process = subject.number("pid");
  const pid_t leaving = leaves->allInstances()[0].processId().value_or(-1);
  ASSERT_GT(leaving, 0);
  leaves.reset();
  EXPECT_TRUE(waitUntilDead(leaving, kPatience));
  EXPECT_EQ(subject.number("pid"), process);
}

size_t entriesOf(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

/// The number of isopool's mappings in this process. The input arena is never unmapped, so a test
/// runs a first round before it counts.
size_t ownMappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:isopool") != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST(Manager, LeavesNoDescriptorMappingOrThread) {
  sharedManager();
  const auto round = [] {
    InterpreterManager manager(2);
    const Subject subject(manager);
    subject.tensor("add_one", {at::ones({100'000})});
    subject.tensor("add_one", {empty({100'000}).fill_(1)});
  };
  for (int i = 0; i < 3; ++i) round();
  const auto descriptors = [] { return openDescriptors(::getpid()); };
  // The workers' deaths are reported a moment later: waits until the count is stable.
  size_t before = SIZE_MAX;
  EXPECT_TRUE(waitUntil([&] { return std::exchange(before, descriptors()) == before; }));
  const size_t threads = entriesOf("/proc/self/task");
  const size_t mappings = ownMappings();
  for (int i = 0; i < 15; ++i) round();
  EXPECT_TRUE(waitUntil([&] { return descriptors() <= before; }))
      << descriptors() << " descriptors, before " << before;
  EXPECT_TRUE(waitUntil([&] { return ownMappings() <= mappings; }))
      << ownMappings() << " mappings, before " << mappings;
  EXPECT_LE(entriesOf("/proc/self/task"), threads);
}

TEST(Manager, TheLastOneFreesAllResourcesOfItsSupervisor) {
  const auto round = [] {
    OwnPool pool(2);
    pool.subject().tensor("add_one", {empty({100'000}).fill_(1)});
  };
  round();
  const size_t descriptors = openDescriptors(::getpid());
  const size_t mappings = ownMappings();
  const size_t threads = entriesOf("/proc/self/task");
  round();
  EXPECT_EQ(openDescriptors(::getpid()), descriptors);
  EXPECT_EQ(ownMappings(), mappings);
  EXPECT_EQ(entriesOf("/proc/self/task"), threads);
}

}  // namespace
}  // namespace isopool::tests
