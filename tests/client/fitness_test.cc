// SPDX-License-Identifier: BSD-3-Clause
// What one program's code leaves behind in a worker that several programs use, and how this affects
// the other programs.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>

#include "ipc/control/operator_messages.h"
#include "testing/sanitizers.h"
#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

// `act` of each takes what the next caller needs, with the calls that a model has for it.
constexpr const char* kPoison = R"(
import builtins
import ctypes
import mmap
import os
import resource
import signal
import struct
import sys
import threading
import time
import types

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

forever = threading.Event()


def descriptors():
    while True:
        try:
            os.dup(0)
        except OSError:
            return


def limit():
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def time_limit():
    resource.setrlimit(resource.RLIMIT_CPU, (3600, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def hard_limit():
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    resource.setrlimit(resource.RLIMIT_STACK, (limit, limit))


def memory_limit():
    for line in open("/proc/self/status"):
        if line.startswith("VmData:"):
            data = int(line.split()[1]) << 10
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (data + (64 << 20), hard))


leaked = []


def memory():
    size = 64 << 20
    while size >= 1 << 16:
        try:
            leaked.append(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        except OSError:
            size //= 2
    # Frees what this call's own answer needs.
    leaked.pop().close()


def threads():
    while True:
        try:
            threading.Thread(target=forever.wait, daemon=True).start()
        except RuntimeError:
            return


def zombies():
    while True:
        try:
            if os.fork() == 0:
                os._exit(0)
        except OSError:
            return


def two_hundred_zombies():
    for _ in range(200):
        if os.fork() == 0:
            os._exit(0)


def landlock():
    # No program may be executed.
    libc = ctypes.CDLL(None, use_errno=True)
    handled = ctypes.c_uint64(1)
    rules = libc.syscall(444, ctypes.byref(handled), 8, 0)
    libc.prctl(38, 1, 0, 0, 0)
    if rules == -1 or libc.syscall(446, rules, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock")


def no_executable_memory():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(65, ctypes.c_ulong(1), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def own_descriptors():
    null = os.open("/dev/null", os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.dup2(null, int(name))
        except OSError:
            pass


def keep(x):
    global kept
    kept = x


def all_descriptors():
    os.closerange(3, 4096)


def raw_fork():
    """The child returns from the call, too."""
    if ctypes.CDLL(None).syscall(220 if os.uname().machine == "aarch64" else 56, 17, 0, 0, 0, 0) == 0:
        time.sleep(0.05)


def another_root():
    os.chroot(os.path.dirname(__import__("tempfile").mkdtemp()))


def another_user_for_files():
    ctypes.CDLL(None).setfsuid(65534)


def another_group():
    os.setegid(65534)


def another_group_for_files():
    ctypes.CDLL(None).setfsgid(65534)


def other_groups():
    os.setgroups([65534])


def another_user():
    os.setresuid(65534, 65534, 0)


def fewer_capabilities():
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", 0x20080522, 0)
    if libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def one_capability_less():
    """CAP_CHOWN, which nothing here needs."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", 0x20080522, 0)
    sets = ctypes.create_string_buffer(24)
    libc.capget(header, sets)
    if libc.capset(header, struct.pack("6I", *(each & ~1 for each in struct.unpack("6I", sets.raw)))) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def fewer_capabilities_of_programs():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(24, ctypes.c_ulong(0), 0, 0, 0) != 0:  # PR_CAPBSET_DROP
        raise OSError(ctypes.get_errno(), "prctl")


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def filter():
    # socket() fails with EPERM, all else is allowed.
    code = b"".join(
        struct.pack("HBBI", *each)
        for each in ((0x20, 0, 0, 0), (0x15, 0, 1, 41), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.byref(Program(4, code)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def filter_in_thread():
    done = threading.Event()
    errors = []

    def run():
        try:
            filter()
        except OSError as error:
            errors.append(error)
        done.set()
        forever.wait()

    threading.Thread(target=run, daemon=True).start()
    done.wait()
    if errors:
        raise errors[0]


def remove_builtin():
    del builtins.isinstance


def spoil_builtin():
    builtins.len = None


def remove_modules():
    sys.modules.clear()


def own_builtins():
    builtins.print = lambda *words: None
    builtins._ = str
    sys.modules["collections"] = types.ModuleType("collections")


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        raise RuntimeError("a function mode of another program")


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        raise RuntimeError("a dispatch mode of another program")


def enter_function_mode():
    FunctionMode().__enter__()


def enter_dispatch_mode():
    DispatchMode().__enter__()


def choose_device():
    torch.set_default_device("meta")


def kind_of_sum():
    try:
        return str((torch.ones(2) + 1).device)
    except RuntimeError as error:
        return str(error)


def close_streams():
    os.close(1)
    os.close(2)


def written_beside_a_print(path):
    with open(path, "w+") as file:
        os.write(1, b"a line of a log\n")
        os.write(2, b"another line\n")
        file.write("data")
        file.seek(0)
        return file.read()


def raise_now_and_then():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1, 0.02)


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return os.getpid()


def hook_modules():
    torch.nn.modules.module.register_module_forward_pre_hook(lambda module, inputs: None)


def hook_audits():
    sys.addaudithook(lambda event, arguments: None)


def hold_the_lock_soon():
    def hold():
        time.sleep(0.3)
        ctypes.PyDLL(None).sleep(3600)

    threading.Thread(target=hold, daemon=True).start()


def trace():
    def count(frame, event, argument):
        global traced
        traced += 1

    sys.settrace(count)
    sys.setprofile(count)


def times_traced():
    return traced


traced = 0


def raise_after_this_call(done):
    caller = threading.get_ident()

    def run():
        while caller in sys._current_frames():
            time.sleep(0.001)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(caller), ctypes.py_object(KeyboardInterrupt))
        open(done, "w").close()

    threading.Thread(target=run, daemon=True).start()


def nothing():
    return
)";

class SharedFitness : public AttachedManagers {
 protected:
  /// Runs this function of the module in the only worker; the program keeps its session there.
  /// Another program has attached before and has called the worker.
  void poisonBy(const std::string& function, const std::vector<at::IValue>& arguments = {}) {
    other_ = attach(1);
    subject_.emplace(*other_);
    worker_ = subject_->number("pid");
    poisoner_ = attach(1);
    poisoner_->registerModuleSource("poison", kPoison);
    session_.emplace(poisoner_->acquireOne());
    session_->global("poison", function.c_str())(at::ArrayRef<at::IValue>(arguments));
  }

  /// All calls of the other program succeed, soon in another worker. The first program's session
  /// ends with an error that contains `reason`.
  void expectReplaced(const std::string& reason) {
    int64_t now = worker_;
    EXPECT_TRUE(waitUntil([&] {
      now = subject_->number("pid");
      return now != worker_;
    })) << "the worker is not replaced";
    EXPECT_EQ(subject_->number("pid"), now);
    EXPECT_TRUE(supervisor().waitForReport(
        [](const ipc::Report& report) { return report.unfit == 1 && report.restarts == 1; }));
    const ipc::Report report = supervisor().report();
    ASSERT_FALSE(report.slots.empty());
    EXPECT_NE(report.slots.front().lastDeath.find(reason), std::string::npos)
        << report.slots.front().lastDeath;
    try {
      session_->global("poison", "nothing");
      ADD_FAILURE() << "the session lives on";
    } catch (const WorkerLost& lost) {
      EXPECT_NE(lost.crashLog().find(reason), std::string::npos) << lost.crashLog();
      EXPECT_EQ(lost.exitCode(), 71);
      EXPECT_FALSE(lost.started());
    }
    session_.reset();
  }

  std::unique_ptr<InterpreterManager> other_;
  std::optional<Subject> subject_;
  int64_t worker_ = -1;
  std::unique_ptr<InterpreterManager> poisoner_;
  std::optional<InterpreterSession> session_;
};

TEST_F(SharedFitness, AWorkerWithoutDescriptorsIsReplacedBeforeAnotherProgramsCall) {
  const ScopedVariable files("ISOPOOL_WORKER_FILES=256");
  serve({"--workers", "1"});
  poisonBy("descriptors");
  expectReplaced("it can open 0 more descriptors (Too many open files)");
}

class SharedFitnessAtOnce : public SharedFitness,
                            public ::testing::WithParamInterface<const char*> {};

// What costs a microsecond to look for is looked for at each change of the program.
TEST_P(SharedFitnessAtOnce, NoCallOfAnotherProgramRunsInTheSpoiledWorker) {
  const ScopedVariable files("ISOPOOL_WORKER_FILES=256");
  serve({"--workers", "1"});
  poisonBy(GetParam());
  EXPECT_NE(subject_->number("pid"), worker_);
  session_.reset();
}

INSTANTIATE_TEST_SUITE_P(By, SharedFitnessAtOnce,
                         ::testing::Values("descriptors", "limit", "hard_limit", "time_limit",
                                           "remove_builtin", "own_descriptors"),
                         [](const auto& each) { return std::string(each.param); });

TEST_F(SharedFitness, AWorkerWithoutDescriptorsIsReplacedWhenAnotherProgramAttaches) {
  const ScopedVariable files("ISOPOOL_WORKER_FILES=256");
  serve({"--workers", "1"});
  poisonBy("descriptors");
  const auto third = attach(1);
  EXPECT_NO_THROW(Subject(*third).number("pid"));
  expectReplaced("more descriptors (Too many open files)");
}

// A worker can start no thread if the limit of processes is reached. The kernel counts all
// processes of the user on the machine for it.
size_t tasksOfThisUser() {
  size_t tasks = 0;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    struct stat status {};
    const std::string folder = process.path() / "task";
    if (::stat(folder.c_str(), &status) != 0 || status.st_uid != ::getuid()) continue;
    std::error_code gone;
    for (auto each = std::filesystem::directory_iterator(folder, gone);
         each != std::filesystem::directory_iterator(); each.increment(gone)) {
      ++tasks;
    }
  }
  return tasks;
}

TEST_F(SharedFitness, AProcessThatIsForkedWithoutHandlersAnswersNoCall) {
  serve({"--workers", "1"});
  for (int i = 0; i < 5; ++i) {
    poisonBy("raw_fork");
    for (int call = 0; call < 100; ++call) EXPECT_EQ(subject_->number("pid"), worker_);
    session_.reset();
    poisoner_.reset();
  }
  EXPECT_EQ(supervisor().report().restarts, 0u);
}

// Without another program nothing looks for them before a call.
TEST(Fitness, AWorkerWhoseDescriptorsAreClosedIsLostToTheProgramThatClosedThem) {
  InterpreterManager manager(1);
  manager.registerModuleSource("poison", kPoison);
  InterpreterSession session = manager.acquireOne();
  const at::Tensor x = empty({40'000});
  session.global("poison", "keep")({x});
  session.global("poison", "all_descriptors")(at::ArrayRef<at::IValue>());
  try {
    // The worker maps the memory once more, because the model has kept it.
    session.global("poison", "keep")({x});
    ADD_FAILURE() << "the worker lives on";
  } catch (const WorkerLost& lost) {
    EXPECT_EQ(lost.exitCode(), 71) << lost.what();
    EXPECT_FALSE(lost.started());
  }
}

// The connection to the supervisor, by which memory for larger results is asked for, is closed.
TEST(Fitness, AWorkerThatCanNotAskForMemoryIsLostToTheProgramThatClosedItsDescriptors) {
  InterpreterManager manager(1);
  manager.registerModuleSource("poison", kPoison);
  InterpreterSession session = manager.acquireOne();
  session.global("poison", "all_descriptors")(at::ArrayRef<at::IValue>());
  try {
    session.global("torch", "ones")({int64_t{1} << 26});
    ADD_FAILURE() << "the worker lives on";
  } catch (const WorkerLost& lost) {
    EXPECT_EQ(lost.exitCode(), 71) << lost.what();
    EXPECT_TRUE(lost.started());
  }
}

class SharedFitnessOfAccess : public SharedFitness,
                              public ::testing::WithParamInterface<const char*> {};

TEST_P(SharedFitnessOfAccess, AWorkerThatMayDoLessIsReplacedBeforeAnotherProgramsCall) {
  const std::string function = GetParam();
  if (::getuid() != 0 && function != "landlock" && function != "no_executable_memory") {
    GTEST_SKIP() << "only root can change its user and its root, and has capabilities to drop";
  }
  serve({"--workers", "1"});
  try {
    poisonBy(function);
  } catch (const Error& error) {
    GTEST_SKIP() << "the kernel does not have it: " << error.what();
  }
  EXPECT_NE(subject_->number("pid"), worker_);
  expectReplaced(
      function == "no_executable_memory" ? "user code changed its refusal of executable memory"
      : function == "another_root" ? "user code changed its "  // working folder, which is not there
      : function == "landlock"     ? "user code restricted what this process may access"
                               : "user code changed this process's user, groups or capabilities");
}

INSTANTIATE_TEST_SUITE_P(By, SharedFitnessOfAccess,
                         ::testing::Values("landlock", "another_user", "another_user_for_files",
                                           "another_group", "another_group_for_files",
                                           "other_groups", "fewer_capabilities",
                                           "one_capability_less", "another_root",
                                           "no_executable_memory"),
                         [](const auto& each) { return std::string(each.param); });

class SharedFitnessOfAUser : public SharedFitness,
                             public ::testing::WithParamInterface<const char*> {};

TEST_P(SharedFitnessOfAUser, AWorkerThatCanStartNoThreadIsReplacedBeforeAnotherProgramsCall) {
  if (::getuid() == 0) GTEST_SKIP() << "the kernel does not limit root's processes";
  const ScopedVariable processes("ISOPOOL_WORKER_PROCESSES=" +
                                 std::to_string(tasksOfThisUser() + 300));
  serve({"--workers", "1"});
  poisonBy(GetParam());
  expectReplaced("it cannot start a thread");
}

INSTANTIATE_TEST_SUITE_P(By, SharedFitnessOfAUser, ::testing::Values("threads", "zombies"));

TEST_F(SharedFitness, AWorkerWithALoweredLimitIsReplacedBeforeAnotherProgramsCall) {
  serve({"--workers", "1"});
  poisonBy("limit");
  expectReplaced("user code lowered RLIMIT_NOFILE to 20");
}

TEST_F(SharedFitness, AWorkerWithALoweredHardLimitIsReplacedBeforeAnotherProgramsCall) {
  serve({"--workers", "1"});
  poisonBy("hard_limit");
  expectReplaced("user code lowered the hard limit RLIMIT_STACK to ");
}

TEST_F(SharedFitness, AWorkerWhoseProgramsGetFewerCapabilitiesIsReplacedBeforeAnotherProgramsCall) {
  if (::getuid() != 0) GTEST_SKIP() << "only root has capabilities to drop";
  serve({"--workers", "1"});
  poisonBy("fewer_capabilities_of_programs");
  expectReplaced("user code changed the capabilities of programs that it starts");
}

TEST_F(SharedFitness, AWorkerWithALoweredLimitOfMemoryIsReplacedBeforeAnotherProgramsCall) {
  serve({"--workers", "1"});
  poisonBy("memory_limit");
  expectReplaced("user code lowered RLIMIT_DATA to ");
}

TEST_F(SharedFitness, AWorkerWithoutMemoryIsReplacedBeforeAnotherProgramsCall) {
  if (kUnderAddressSanitizer) GTEST_SKIP() << "the sanitizer's memory is not limited";
  const ScopedVariable memory("ISOPOOL_WORKER_MEMORY=512MiB");
  serve({"--workers", "1"});
  poisonBy("memory");
  expectReplaced("it has no memory left (RLIMIT_DATA is ");
}

TEST_F(SharedFitness, AWorkerWithAFilterOfSystemCallsIsReplacedBeforeAnotherProgramsCall) {
  serve({"--workers", "1"});
  poisonBy("filter");
  expectReplaced("user code installed a system call filter");
}

// Such a filter keeps the worker from closing the sandbox: every program's first call would fail.
TEST_F(SharedFitness, AWorkerWithAThreadsFilterIsReplacedBeforeAnotherProgramsFirstCall) {
  const ScopedVariable sandbox("ISOPOOL_SANDBOX=strict");
  serve({"--workers", "1"});
  other_ = attach(1);
  subject_.emplace(*other_);
  poisoner_ = attach(1);
  poisoner_->registerModuleSource("poison", kPoison + std::string("filter_in_thread()\n"));
  session_.emplace(poisoner_->acquireOne());
  worker_ = poisoner_->allInstances()[0].processId().value_or(-1);
  session_->global("poison", "nothing");
  EXPECT_NO_THROW(subject_->number("pid"));
  expectReplaced("a thread of user code has a system call filter");
}

TEST_F(SharedFitness, AWorkerWithManyProcessesThatEndedIsReplacedBeforeAnotherProgramsCall) {
  serve({"--workers", "1"});
  poisonBy("two_hundred_zombies");
  expectReplaced("processes that its code has started have ended, and its code has not waited");
}

TEST_F(SharedFitness, AWorkerWithoutABuiltInNameIsReplacedBeforeAnotherProgramsCall) {
  serve({"--workers", "1"});
  poisonBy("remove_builtin");
  expectReplaced("user code removed or spoiled Python's built-in isinstance");
}

TEST_F(SharedFitness, AWorkerWithABuiltInFunctionThatIsNoneIsReplacedBeforeAnotherProgramsCall) {
  serve({"--workers", "1"});
  poisonBy("spoil_builtin");
  expectReplaced("user code removed or spoiled Python's built-in len");
}

TEST_F(SharedFitness, AWorkerWithoutItsModulesIsReplacedBeforeAnotherProgramsCall) {
  serve({"--workers", "1"});
  poisonBy("remove_modules");
  expectReplaced("from sys.modules");
}

TEST_F(SharedFitness, BuiltInNamesAndModulesThatUserCodeReplacesAreShared) {
  serve({"--workers", "1"});
  poisonBy("own_builtins");
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(subject_->number("pid"), worker_);
    ASSERT_NO_THROW(session_->global("poison", "nothing"));
  }
  EXPECT_EQ(supervisor().report().unfit, 0u);
}

TEST_F(SharedFitness, AnExceptionThatOneProgramRaisesInTheWorkersThreadReachesNoOtherProgram) {
  serve({"--workers", "1"});
  const std::filesystem::path raised = testFolder() / "raised";
  poisonBy("raise_after_this_call", {raised.string()});
  ASSERT_TRUE(waitUntil([&] { return std::filesystem::exists(raised); }));
  EXPECT_EQ(subject_->number("pid"), worker_);
}

class SharedModes : public SharedFitness,
                    public ::testing::WithParamInterface<std::pair<const char*, const char*>> {
 protected:
  static std::string kindOfSum(InterpreterSession& session) {
    return session.global("poison", "kind_of_sum")(at::ArrayRef<Obj>()).toIValue().toStringRef();
  }
};

TEST_P(SharedModes, ThatOneProgramHasEnteredAreOfItsOwnCallsOnly) {
  serve({"--workers", "1"});
  poisonBy(GetParam().first);
  const auto third = attach(1);
  third->registerModuleSource("poison", kPoison);
  InterpreterSession session = third->acquireOne();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(kindOfSum(session), "cpu");
    EXPECT_EQ(kindOfSum(*session_), GetParam().second);
  }
  // Nor do they outlive the program.
  session_.reset();
  poisoner_.reset();
  EXPECT_EQ(kindOfSum(session), "cpu");
  EXPECT_EQ(subject_->number("pid"), worker_);
}

INSTANTIATE_TEST_SUITE_P(
    By, SharedModes,
    ::testing::Values(std::pair{"enter_function_mode", "a function mode of another program"},
                      std::pair{"enter_dispatch_mode", "a dispatch mode of another program"},
                      std::pair{"choose_device", "meta"}),
    [](const auto& each) { return std::string(each.param.first); });

TEST_F(SharedFitness, AStandardStreamThatOneProgramClosesIsNoFileOfAnother) {
  serve({"--workers", "1"});
  poisonBy("close_streams");
  const auto third = attach(1);
  third->registerModuleSource("poison", kPoison);
  const std::string path = (testFolder() / "file").string();
  InterpreterSession session = third->acquireOne();
  EXPECT_EQ(session.global("poison", "written_beside_a_print")({path}).toIValue().toStringRef(),
            "data");
  EXPECT_EQ(subject_->number("pid"), worker_);
}

TEST_F(SharedFitness, SignalHandlersAndTimersEndWithTheirProgram) {
  serve({"--workers", "1"});
  poisonBy("raise_now_and_then");
  session_.reset();
  poisoner_.reset();
  const auto third = attach(1);
  third->registerModuleSource("poison", kPoison);
  InterpreterSession session = third->acquireOne();
  EXPECT_EQ(session.global("poison", "spin")({1.2}).toIValue().toInt(), worker_);
}

TEST_F(SharedFitness, AThreadThatHoldsTheInterpretersLockCostsItsWorkerOnly) {
  if (!std::filesystem::exists("/proc/self/schedstat")) {
    GTEST_SKIP() << "this kernel does not say how long a thread waits (CONFIG_SCHED_INFO)";
  }
  serve({"--workers", "1"});
  poisonBy("hold_the_lock_soon");
  session_.reset();
  poisoner_.reset();
  const auto isReplaced = [this] {
    CallOptions options;
    options.deadline = std::chrono::seconds(60);
    return subject_->ask("pid", {}, options).toInt() != worker_;
  };
  EXPECT_TRUE(waitUntil(isReplaced));
  EXPECT_TRUE(waitUntil([this] {
    return supervisor().log().find("probably holds Python's global lock") != std::string::npos;
  })) << supervisor().log();
}

class SharedHooks : public SharedFitness, public ::testing::WithParamInterface<const char*> {};

TEST_P(SharedHooks, EndWithTheirProgramAndSessionsOfOthersGoOn) {
  serve({"--workers", "1"});
  poisonBy(GetParam());
  const auto third = attach(1);
  third->registerModuleSource("poison", kPoison);
  InterpreterSession session = third->acquireOne();
  const Obj held = session.global("poison", "spin");
  session_.reset();
  poisoner_.reset();
  EXPECT_TRUE(waitUntil([&] { return subject_->number("pid") != worker_; }));
  EXPECT_EQ(held({0.0}).toIValue().toInt(), worker_);
  EXPECT_EQ(supervisor().report().restarts, 0u);
}

INSTANTIATE_TEST_SUITE_P(By, SharedHooks, ::testing::Values("hook_modules", "hook_audits"),
                         [](const auto& each) { return std::string(each.param); });

TEST_F(SharedFitness, ATraceFunctionOfOneProgramIsCalledInItsOwnCallsOnly) {
  serve({"--workers", "1"});
  poisonBy("trace");
  const auto timesTraced = [this] {
    return session_->global("poison", "times_traced")(at::ArrayRef<Obj>()).toIValue().toInt();
  };
  const int64_t before = timesTraced();
  const int64_t after = timesTraced();
  EXPECT_GT(after, before);
  for (int i = 0; i < 10; ++i) subject_->number("pid");
  EXPECT_EQ(timesTraced() - after, after - before);
  session_.reset();
  poisoner_.reset();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(subject_->number("pid"), worker_);
}

// Each starts a process while a module is loaded, and stores its number.
struct Left {
  const char* name;
  const char* source;
};

constexpr Left kLeft[] = {{"Child", R"(
import os, signal, sys
pid = os.fork()
if pid == 0: signal.pause()
)"},
                          {"Daemon", R"(
import os, signal
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write, b'%d ' % os.getpid())
        signal.pause()
    os._exit(0)
os.wait()
pid = int(os.read(read, 20))
)"},
                          // The number of the signal at its end is 0: wait() does not see it.
                          {"ChildWithoutASignal", R"(
import ctypes, signal
pid = ctypes.CDLL(None).syscall(56, 0, 0, 0, 0, 0)
if pid == 0: signal.pause()
)"}};

class SharedFitnessOfTrees : public SharedFitness, public ::testing::WithParamInterface<Left> {
 protected:
  SharedFitnessOfTrees() : sandbox_("ISOPOOL_SANDBOX=strict") {}

  void leaveAProcess() {
    serve({"--workers", "1"});
    other_ = attach(1);
    subject_.emplace(*other_);
    poisoner_ = attach(1);
    poisoner_->registerModuleSource("left", GetParam().source);
    session_.emplace(poisoner_->acquireOne());
    worker_ = poisoner_->allInstances()[0].processId().value_or(-1);
    left_ = static_cast<pid_t>(session_->global("left", "pid").toIValue().toInt());
    ASSERT_GT(left_, 0);
    ASSERT_EQ(::kill(left_, 0), 0);
  }
  void expectEnded() {
    EXPECT_TRUE(waitUntil([&] { return ::kill(left_, 0) == -1 && errno == ESRCH; }))
        << "process " << left_ << " runs on";
  }

  const ScopedVariable sandbox_;
  pid_t left_ = -1;
};

TEST_P(SharedFitnessOfTrees, AWorkerWithAProcessOfOneProgramServesNoOtherProgram) {
  leaveAProcess();
  EXPECT_NO_THROW(subject_->number("pid"));
  EXPECT_NE(subject_->number("pid"), worker_);
  expectEnded();
  EXPECT_EQ(supervisor().report().unfit, 1u);
}

TEST_P(SharedFitnessOfTrees, AWorkerIsReplacedWhenTheProgramLeavesThatLeftAProcess) {
  leaveAProcess();
  session_.reset();
  poisoner_.reset();
  expectEnded();
  EXPECT_TRUE(supervisor().waitForReport(
      [](const ipc::Report& report) { return report.unfit == 1 && report.restarts == 1; }));
  EXPECT_GT(subject_->number("pid"), 0);
}

TEST_P(SharedFitnessOfTrees, AProgramKeepsItsWorkerWithItsProcess) {
  leaveAProcess();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(session_->global("left", "pid").toIValue().toInt(), left_);
  EXPECT_EQ(::kill(left_, 0), 0);
  EXPECT_EQ(supervisor().report().unfit, 0u);
  // The fixture kills supervisor and guardian at once, which a process with a session of its own
  // survives.
  ::kill(left_, SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(Left, SharedFitnessOfTrees, ::testing::ValuesIn(kLeft),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_F(SharedFitness, AWorkerOfSoundCodeServesAllProgramsOn) {
  serve({"--workers", "1"});
  poisonBy("nothing");
  const auto end = std::chrono::steady_clock::now() + milliseconds(400);
  while (std::chrono::steady_clock::now() < end) {
    session_->global("poison", "nothing")(at::ArrayRef<Obj>());
    EXPECT_EQ(subject_->number("pid"), worker_);
  }
  EXPECT_EQ(supervisor().report().unfit, 0u);
  session_.reset();
}

}  // namespace
}  // namespace isopool::tests
