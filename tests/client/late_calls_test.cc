// SPDX-License-Identifier: BSD-3-Clause
// Uses of the library at each stage of a thread's and a process's end: each in a process of its
// own, a fork of this one, which itself never uses the library.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>
#include <tuple>

#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

constexpr int kStatus = 7;  // with which each process ends

SharedSupervisor* supervisor = nullptr;
const std::string* package = nullptr;  // like the supervisor's, usable until the process has ended

// ---- what is used ----------------------------------------------------------------------------

/// Everything that a process uses. Never destroyed, except by the use that is named so.
struct Objects {
  InterpreterManager manager;
  ReplicatedObj object;
  at::Tensor input;
  at::Tensor result;
  Obj obj;

  Objects()
      : manager(Address{supervisor->address()}, 1),
        object(manager.loadPackage(*package).loadPickle("model", "model.pkl")) {}

  // What a program does early.
  void useAll() {
    input = isopool::empty({100'000}).fill_(1);
    result = object({"add_one", input}).toTensor();
    obj = manager.acquireOne().global("math", "sqrt");
  }
};
Objects* objects = nullptr;

void expectTrue(bool holds, const char* what) {
  if (!holds) throw std::logic_error(std::string("wrong: ") + what);
}
void expectTwos(const at::Tensor& tensor) {
  const auto* numbers = tensor.const_data_ptr<float>();
  expectTrue(tensor.numel() == 100'000 && numbers[0] == 2 && numbers[99'999] == 2, "result");
}

void call() { expectTwos(objects->object({"add_one", objects->input}).toTensor()); }
void asynchronousCall() {
  expectTwos(objects->object.callAsync({"add_one", objects->input}).get().toTensor());
}
void callWithCallback() {
  std::promise<at::Tensor> answered;
  objects->object.callAsync({"add_one", objects->input}, [&](const Outcome& outcome) {
    try {
      answered.set_value(outcome.value().toTensor());
    } catch (...) {
      answered.set_exception(std::current_exception());
    }
  });
  expectTwos(answered.get_future().get());
}
void callOnAll() {
  expectTwos(objects->object.callOnAll({"add_one", objects->input}).at(0).toTensor());
}
void session() {
  expectTrue(objects->obj({4}).toIValue().toDouble() == 2, "result of an Obj");
  InterpreterSession opened = objects->manager.acquireOne();
  expectTrue(opened.global("math", "sqrt")({9}).toIValue().toDouble() == 3, "session's result");
}
void sharedMemory() {
  at::Tensor tensor = isopool::empty({100'000});
  expectTrue(isShared(tensor), "shared memory");
  tensor.mutable_data_ptr<float>()[99'999] = 1;
  const SharedMemoryGuard guard;
}
void destroyedResult() {
  expectTwos(objects->result);
  objects->result = at::Tensor();
  objects->input = at::Tensor();
  objects->obj = Obj();
}
void destroyedManager() {
  delete objects;
  objects = nullptr;
}
void newManager() {
  const Objects own;
  expectTrue(own.object({"pid"}).toInt() != ::getpid(), "worker's process");
}
void refusedCall() {
  try {
    objects->object({"add_one", at::IValue(c10::Device("cpu"))});
  } catch (const Error&) {
    return call();
  }
  expectTrue(false, "a value that can't cross was passed");
}

struct Use {
  const char* name;
  void (*run)();
};
constexpr Use kUses[] = {{"Call", call},
                         {"AsynchronousCall", asynchronousCall},
                         {"CallWithCallback", callWithCallback},
                         {"CallOnAll", callOnAll},
                         {"Session", session},
                         {"RefusedCall", refusedCall},
                         {"SharedMemory", sharedMemory},
                         {"DestroyedResult", destroyedResult},
                         {"DestroyedManager", destroyedManager},
                         {"NewManager", newManager}};

// ---- what is seen ----------------------------------------------------------------------------

/// Of the child, in memory that both processes share.
struct Seen {
  std::atomic<uint32_t> uses;    ///< so many ended, in any way
  std::atomic<uint32_t> errors;  ///< of them by isopool::Error
  std::atomic<bool> failed;      ///< one ended by anything else
  char text[400];
};
Seen* seen = nullptr;
const Use* use = nullptr;

void note(const std::exception& error) {
  std::snprintf(seen->text, sizeof seen->text, "%s", error.what());
}

void runUse() noexcept {
  try {
    use->run();
  } catch (const Error& error) {
    note(error);
    ++seen->errors;
  } catch (const std::exception& error) {
    note(error);
    seen->failed = true;
  }
  ++seen->uses;
}

// ---- stages ----------------------------------------------------------------------------------

/// Its destructor runs the use, if the object was armed.
class AtEnd {
 public:
  AtEnd() = default;
  ~AtEnd() {
    if (armed_) runUse();
  }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
  void arm() { armed_ = true; }

 private:
  bool armed_ = false;
};

AtEnd ofTheProgram;  // made before main()

void useAll() { objects->useAll(); }
void armThreadLocal() {
  thread_local AtEnd object;
  object.arm();
}
void armStatic() {
  static AtEnd object;
  object.arm();
}

/// The destructor of a key runs again while it sets a value: four rounds in glibc.
pthread_key_t key;
void atKeysEnd(void* round) {
  const auto number = reinterpret_cast<uintptr_t>(round);
  if (number > 1) {
    ::pthread_setspecific(key, reinterpret_cast<void*>(number - 1));
  } else {
    runUse();
  }
}
void armKey(uintptr_t rounds) {
  if (::pthread_key_create(&key, &atKeysEnd) != 0) std::abort();
  ::pthread_setspecific(key, reinterpret_cast<void*>(rounds));
}

void onThread(const std::function<void()>& body) { std::thread(body).join(); }

[[noreturn]] void exitOnAnotherThread() {
  std::thread([] { std::exit(kStatus); }).detach();
  for (;;) ::pause();
}

struct Stage {
  const char* name;
  void (*run)();  ///< returns, or ends the process
};
constexpr Stage kStages[] = {
    {"ThreadLocalFromBefore",
     [] {
       onThread([] {
         armThreadLocal();
         useAll();
       });
     }},
    {"ThreadLocalFromAfter",
     [] {
       onThread([] {
         useAll();
         armThreadLocal();
       });
     }},
    {"ThreadLocalOfAThreadWithoutUse",
     [] {
       useAll();
       onThread(armThreadLocal);
     }},
    {"KeyFromBefore",
     [] {
       onThread([] {
         armKey(1);
         useAll();
       });
     }},
    {"KeyFromAfter",
     [] {
       onThread([] {
         useAll();
         armKey(1);
       });
     }},
    {"KeyInItsLastRound",
     [] {
       onThread([] {
         useAll();
         armKey(4);
       });
     }},
    {"KeyOfAThreadWithoutUse",
     [] {
       useAll();
       onThread([] { armKey(1); });
     }},
    {"ThreadLocalOfExitFromBefore",
     [] {
       armThreadLocal();
       useAll();
     }},
    {"ThreadLocalOfExitFromAfter",
     [] {
       useAll();
       armThreadLocal();
     }},
    {"StaticFromBefore",
     [] {
       armStatic();
       useAll();
     }},
    {"StaticFromAfter",
     [] {
       useAll();
       armStatic();
     }},
    {"StaticOfTheProgram",
     [] {
       ofTheProgram.arm();
       useAll();
     }},
    {"StaticWithoutUse",  // on this thread
     [] {
       onThread(useAll);
       armStatic();
     }},
    {"HandlerOfExitFromBefore",
     [] {
       std::atexit(runUse);
       useAll();
     }},
    {"HandlerOfExitFromAfter",
     [] {
       useAll();
       std::atexit(runUse);
     }},
    {"HandlerOfExitOnAnotherThread",
     [] {
       std::atexit(runUse);
       useAll();
       exitOnAnotherThread();
     }},
    {"HandlerOfQuickExit",
     [] {
       std::at_quick_exit(runUse);
       useAll();
       std::quick_exit(kStatus);
     }},
    {"ThreadThatEndsDuringExit",
     [] {
       static std::promise<void> end;
       static std::thread thread([] {
         useAll();
         armThreadLocal();
         end.get_future().wait();
       });
       std::atexit([] {
         end.set_value();
         thread.join();
       });
     }},
    {"DetachedThreadThatEndsDuringExit",
     [] {
       static std::atomic<bool> ready{false};
       static std::atomic<bool> end{false};
       std::thread([] {
         useAll();
         armThreadLocal();
         ready = true;
         while (!end) ::usleep(100);
       }).detach();
       while (!ready) ::usleep(100);
       std::atexit([] {
         end = true;
         while (seen->uses == 0) ::usleep(100);
       });
     }},
};

/// A process that has used the library so far only as the stage says.
[[noreturn]] void runChild(const Stage& stage) {
  ::alarm(60);
  objects = new Objects;
  stage.run();
  std::exit(kStatus);
}

/// Runs `inChild` in a fork, which is to end with kStatus. False if it does not.
void expectGoodEnd(const std::function<void()>& inChild, bool used = true) {
  seen = static_cast<Seen*>(
      ::mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(seen, MAP_FAILED);
  const pid_t child = ::fork();
  if (child == 0) {
    inChild();
    ::_exit(99);
  }
  if (!waitUntilDead(child, milliseconds(30'000))) {
    ADD_FAILURE() << "it hangs";
    ::kill(child, SIGKILL);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFSIGNALED(status)) << "signal " << WTERMSIG(status);
  if (WIFEXITED(status)) {
    EXPECT_EQ(WEXITSTATUS(status), kStatus);
  }
  if (used) {
    EXPECT_GT(seen->uses.load(), 0u);
  }
  EXPECT_FALSE(seen->failed) << seen->text;
  EXPECT_EQ(seen->errors.load(), 0u) << seen->text;
  ::munmap(seen, sizeof(Seen));
}

class LateUse : public ::testing::TestWithParam<std::tuple<Stage, Use>> {
 public:
  static void SetUpTestSuite() {
    package = new std::string(packagePath());
    supervisor = new SharedSupervisor({"--workers", "2"});
  }
  static void TearDownTestSuite() {
    delete supervisor;
    supervisor = nullptr;
    delete package;
    package = nullptr;
  }
};

TEST_P(LateUse, WorksAndTheProgramEndsAsItWants) {
  use = &std::get<Use>(GetParam());
  expectGoodEnd([&] { runChild(std::get<Stage>(GetParam())); });
}

/// Its parameter is a use that a program can repeat, and that runs no operator of torch here: torch
/// itself destroys its operators during the exit, at::empty among them.
class UseUntilTheEnd : public LateUse {};

// The thread uses the library while the main thread destroys the static objects of all libraries.
TEST_P(UseUntilTheEnd, OfADetachedThreadDoesNotDisturbTheEnd) {
  use = &std::get<Use>(GetParam());
  for (int round = 0; round < 5 && !HasFailure(); ++round) {
    expectGoodEnd([] {
      ::alarm(60);
      objects = new Objects;
      useAll();
      std::thread([] {
        for (;;) runUse();
      }).detach();
      while (seen->uses < 3) ::usleep(100);
      std::exit(kStatus);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Each, UseUntilTheEnd,
                         ::testing::Combine(::testing::Values(kStages[0]),
                                            ::testing::ValuesIn(kUses, kUses + 6)),
                         [](const auto& test) {
                           return std::string(std::get<Use>(test.param).name);
                         });

INSTANTIATE_TEST_SUITE_P(
    Each, LateUse, ::testing::Combine(::testing::ValuesIn(kStages), ::testing::ValuesIn(kUses)),
    [](const auto& test) {
      return std::string(std::get<Stage>(test.param).name) + "_" + std::get<Use>(test.param).name;
    });

}  // namespace
}  // namespace isopool::tests
