// SPDX-License-Identifier: BSD-3-Clause
// What one program's code turns on in a worker's thread or process and leaves on, and what other
// programs see of it in their calls.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "ipc/control/operator_messages.h"
#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

constexpr const char* kLeaver = R"(
import asyncio
import contextvars
import ctypes
import decimal
import io
import locale
import os
import platform
import signal
import sys
import threading

import torch

libc = ctypes.CDLL(None, use_errno=True)
libm = ctypes.CDLL("libm.so.6")
UPWARD = 0x400000 if platform.machine() == "aarch64" else 0x800
IOPRIO_SET, IOPRIO_GET = (30, 31) if platform.machine() == "aarch64" else (251, 252)
SET_MEMPOLICY, GET_MEMPOLICY = (237, 236) if platform.machine() == "aarch64" else (238, 239)
variable = contextvars.ContextVar("variable", default="default")


def rounding():
    libm.fesetround(UPWARD)


def inference():
    global mode
    mode = torch.inference_mode()  # its end ends the mode
    mode.__enter__()


def no_grad():
    torch.set_grad_enabled(False)


def keys():
    torch._C._dispatch_tls_set_dispatch_key_excluded("CPU", True)


def transform():
    torch._C._functorch._grad_increment_nesting()


def autocast():
    torch.autocast("cpu", dtype=torch.bfloat16).__enter__()


def autocast_nesting():
    torch.autocast_increment_nesting()


def locked_memory():
    if libc.mlockall(2) != 0:  # MCL_FUTURE
        raise OSError(ctypes.get_errno(), "mlockall")


def hooks():
    torch.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: each * 0).__enter__()


def tracing():
    """Left on as by code that a trace waits for."""
    inside = []

    def function(x):
        inside.append(torch._C._get_tracing_state())
        return x + 1

    torch.jit.trace(function, (torch.ones(2),), check_trace=False)
    torch._C._set_tracing_state(inside[0])


def suspended_in(context):
    global suspended

    def generator():
        with context:
            yield

    suspended = generator()
    next(suspended)


def optimisation():
    suspended_in(torch.jit.optimized_execution(False))


def skipped_data():
    suspended_in(torch.serialization.skip_data())


def context():
    decimal.getcontext().prec = 3
    variable.set("another")


def loop():
    asyncio._set_running_loop(asyncio.new_event_loop())


def recursion():
    sys.setrecursionlimit(150)


def folder():
    os.chdir("/")


def umask():
    os.umask(0o777)


def blocked():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


def processors():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def formats():
    locale.setlocale(locale.LC_ALL, "C.UTF-8" if locale.setlocale(locale.LC_ALL) == "C" else "C")


def slack():
    libc.prctl(29, ctypes.c_ulong(10**9))


def stack_size():
    threading.stack_size(1 << 20)


def new_threads():
    attributes = ctypes.create_string_buffer(64)
    libc.pthread_getattr_default_np(attributes)
    libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 18))
    libc.pthread_attr_setguardsize(attributes, ctypes.c_size_t(0))
    if libc.pthread_setattr_default_np(attributes) != 0:
        raise OSError("pthread_setattr_default_np")


def priority():
    os.nice(5)


def io_priority():
    libc.syscall(IOPRIO_SET, 1, 0, 3 << 13)  # the class idle


def scheduling():
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def memory_policy():
    nodes = ctypes.c_ulong(1)
    libc.syscall(SET_MEMPOLICY, 2, ctypes.byref(nodes), 64)  # MPOL_BIND


def personality():
    libc.personality(0x0040000)  # ADDR_NO_RANDOMIZE


def no_death_signal():
    libc.prctl(1, 0)


def dumpable():
    libc.prctl(4, 0)


def kept_capabilities():
    libc.prctl(8, ctypes.c_ulong(1), 0, 0, 0)  # PR_SET_KEEPCAPS


def huge_pages():
    libc.prctl(41, 1, 0, 0, 0)


def digits():
    sys.set_int_max_str_digits(640)


def switches():
    sys.setswitchinterval(5.0)


def thread_locale():
    libc.newlocale.restype = ctypes.c_void_p
    libc.uselocale.restype = ctypes.c_void_p
    libc.uselocale(ctypes.c_void_p(libc.newlocale(0x1FBF, b"POSIX", None)))


def pending():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.kill(os.getpid(), signal.SIGINT)


def nonblocking():
    os.set_blocking(2, False)


def gradient():
    try:
        weight = torch.ones(2, requires_grad=True)
        (weight * weight).sum().backward()
        return weight.grad.tolist()
    except Exception as error:
        return str(error)


def saved_in_full():
    file = io.BytesIO()
    torch.save(torch.ones(3), file)
    # With skip_data() the file only has room for the numbers.
    return b"\0\0\x80?" * 3 in file.getvalue()


def products_in_autocast():
    """Of a weight that changes in between: autocast forgets what it has cast at the end of its context."""
    weight = torch.nn.Parameter(torch.ones(4, 4))
    values = []
    for factor in (1.0, 2.0):
        with torch.no_grad():
            weight.fill_(factor)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            values.append(float((torch.ones(1, 4) @ weight)[0, 0]))
    return values


def loop_runs():
    try:
        asyncio.get_running_loop()
        return True
    except RuntimeError:
        return False


def memory_policy_now():
    mode = ctypes.c_int(-1)
    libc.syscall(GET_MEMPOLICY, ctypes.byref(mode), None, 0, None, 0)
    return mode.value


def death_signal_now():
    number = ctypes.c_int(-1)
    libc.prctl(2, ctypes.byref(number))
    return number.value


def new_threads_now():
    attributes = ctypes.create_string_buffer(64)
    libc.pthread_getattr_default_np(attributes)
    sizes = (ctypes.c_size_t(), ctypes.c_size_t())
    libc.pthread_attr_getstacksize(attributes, ctypes.byref(sizes[0]))
    libc.pthread_attr_getguardsize(attributes, ctypes.byref(sizes[1]))
    return [each.value for each in sizes]


def state():
    mask = os.umask(0)
    os.umask(mask)
    stack = threading.stack_size()  # and sets it to the default
    threading.stack_size(stack)
    return str((
        libm.fegetround(),
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        gradient(),
        products_in_autocast(),
        torch.jit.is_tracing(),
        torch._C._get_graph_executor_optimize(),
        saved_in_full(),
        new_threads_now(),
        torch.is_autocast_enabled("cpu"),
        decimal.getcontext().prec,
        variable.get(),
        loop_runs(),
        sys.getrecursionlimit(),
        os.getcwd(),
        mask,
        sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        sorted(os.sched_getaffinity(0)),
        locale.setlocale(locale.LC_ALL),
        libc.prctl(30),
        stack,
        os.getpriority(os.PRIO_PROCESS, 0),
        libc.syscall(IOPRIO_GET, 1, 0),
        os.sched_getscheduler(0),
        memory_policy_now(),
        libc.personality(0xFFFFFFFF),
        death_signal_now(),
        libc.prctl(3),
        libc.prctl(42, 0, 0, 0, 0),
        libc.prctl(27, 0, 0, 0, 0),  # PR_GET_SECUREBITS
        os.get_blocking(2),
        sys.get_int_max_str_digits(),
        sys.getswitchinterval(),
        locale.nl_langinfo(locale.CODESET),
    ))
)";

class LeftState : public AttachedManagers, public ::testing::WithParamInterface<const char*> {
 protected:
  static std::string stateIn(InterpreterSession& session) {
    return session.global("leaver", "state")(at::ArrayRef<Obj>()).toIValue().toStringRef();
  }
};

TEST_P(LeftState, IsNotThatOfAnotherProgramsCalls) {
  serve({"--workers", "1"});
  const auto manager = attach(1);
  manager->registerModuleSource("leaver", kLeaver);
  InterpreterSession session = manager->acquireOne();
  const std::string before = stateIn(session);
  auto leaving = attach(1);
  leaving->registerModuleSource("leaver", kLeaver);
  {
    InterpreterSession left = leaving->acquireOne();
    left.global("leaver", GetParam())(at::ArrayRef<Obj>());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(stateIn(session), before);
      EXPECT_NO_THROW(left.global("leaver", "state"));
    }
  }
  // Nor does it outlive the program.
  leaving.reset();
  EXPECT_EQ(stateIn(session), before);
  EXPECT_EQ(supervisor().report().restarts, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Of, LeftState,
    ::testing::Values("rounding", "inference", "no_grad", "keys", "transform", "hooks", "tracing",
                      "optimisation", "skipped_data", "autocast", "autocast_nesting",
                      "locked_memory", "context", "loop", "recursion", "folder", "umask", "blocked",
                      "processors", "formats", "slack", "stack_size", "priority", "io_priority",
                      "scheduling", "memory_policy", "personality", "no_death_signal", "dumpable",
                      "kept_capabilities", "new_threads", "huge_pages", "nonblocking", "digits",
                      "switches", "thread_locale", "pending"),
    [](const auto& each) { return std::string(each.param); });

constexpr const char* kManyThreads = R"(
import ctypes
import os
import platform

import numpy as np
import torch

libm = ctypes.CDLL("libm.so.6")
UPWARD = 0x400000 if platform.machine() == "aarch64" else 0x800


tasks = torch.jit.CompilationUnit("""
def divide(x: Tensor) -> Tensor:
    return x / 10

def divided_by_a_task(x: Tensor) -> Tensor:
    return torch.jit._wait(torch.jit._fork(divide, x))
""")


def values():
    """What several threads compute, each for a part: quotients that are rounded, and denormal numbers."""
    quotients = torch.full((1 << 20,), 7.0) / 10
    rows = np.full((256, 256), 0.1) @ np.full((256, 256), 0.1)
    return str((quotients.unique().tolist(), tasks.divided_by_a_task(torch.tensor(7.0)).item(),
                np.unique(rows).size, int(torch.count_nonzero(torch.full((1 << 20,), 1e-42) * 1))))


def rounding():
    libm.fesetround(UPWARD)
    values()


def denormals():
    torch.set_flush_denormal(True)
    values()


def more_for_a_while():
    libm.fesetround(UPWARD)
    number = torch.get_num_threads()
    torch.set_num_threads(number + 1)
    values()
    torch.set_num_threads(number)


def values_with_two():
    number = torch.get_num_threads()
    torch.set_num_threads(2)
    found = values()
    torch.set_num_threads(number)
    return found


def in_the_threads():
    """As a region of an extension does. The main thread goes back to its mode."""
    with open("/proc/self/maps") as maps:
        path = next(line.split()[5] for line in maps if "libgomp" in line)
    step = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: libm.fesetround(UPWARD))
    ctypes.CDLL(path).GOMP_parallel(step, None, 2, 0)
    libm.fesetround(0)


def after_a_fork():
    libm.fesetround(UPWARD)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    values()


def more_threads():
    libm.fesetround(UPWARD)
    torch.set_num_threads(3)
    values()
)";

std::string valuesIn(InterpreterSession& session, const char* function = "values") {
  return session.global("threads", function)(at::ArrayRef<Obj>()).toIValue().toStringRef();
}

class LeftThreads : public LeftState {};

TEST_P(LeftThreads, ComputeWithTheModesOfEachCall) {
  serve({"--workers", "1", "--worker-threads", "2"});
  auto leaving = attach(1);
  leaving->registerModuleSource("threads", kManyThreads);
  const auto manager = attach(1);
  manager->registerModuleSource("threads", kManyThreads);
  InterpreterSession session = manager->acquireOne();
  {
    InterpreterSession left = leaving->acquireOne();
    left.global("threads", GetParam())(at::ArrayRef<Obj>());
    EXPECT_EQ(valuesIn(session), "([0.699999988079071], 0.699999988079071, 1, 1048576)");
    EXPECT_NO_THROW(valuesIn(left));
    EXPECT_EQ(valuesIn(session), "([0.699999988079071], 0.699999988079071, 1, 1048576)");
  }
  leaving.reset();
  EXPECT_EQ(valuesIn(session), "([0.699999988079071], 0.699999988079071, 1, 1048576)");
  EXPECT_EQ(supervisor().report().restarts, 0u);
}

INSTANTIATE_TEST_SUITE_P(Of, LeftThreads,
                         ::testing::Values("rounding", "denormals", "more_threads",
                                           "in_the_threads", "after_a_fork"),
                         [](const auto& each) { return std::string(each.param); });

// The program's own modes go with each call.
TEST_F(AttachedManagers, ThreadsFlushDenormalNumbersInCallsOfAProgramThatDoesOnly) {
  serve({"--workers", "1", "--worker-threads", "2"});
  const auto manager = attach(1);
  manager->registerModuleSource("threads", kManyThreads);
  InterpreterSession session = manager->acquireOne();
  for (int i = 0; i < 3; ++i) {
    at::globalContext().setFlushDenormal(true);
    EXPECT_EQ(valuesIn(session), "([0.699999988079071], 0.699999988079071, 1, 0)");
    at::globalContext().setFlushDenormal(false);
    EXPECT_EQ(valuesIn(session), "([0.699999988079071], 0.699999988079071, 1, 1048576)");
  }
}

// An OpenMP keeps threads that it has made, also when it uses one again.
TEST_F(AttachedManagers, ThreadsThatAProgramHadForAWhileAreNoneOfAnother) {
  serve({"--workers", "1"});
  auto leaving = attach(1);
  leaving->registerModuleSource("threads", kManyThreads);
  const auto manager = attach(1);
  manager->registerModuleSource("threads", kManyThreads);
  InterpreterSession session = manager->acquireOne();
  InterpreterSession left = leaving->acquireOne();
  left.global("threads", "more_for_a_while")(at::ArrayRef<Obj>());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(valuesIn(session, "values_with_two"),
              "([0.699999988079071], 0.699999988079071, 1, 1048576)");
  }
}

constexpr const char* kGarbage = R"(
import ctypes
import decimal
import gc
import platform

import torch

libm = ctypes.CDLL("libm.so.6")
UPWARD = 0x400000 if platform.machine() == "aarch64" else 0x800


class Spoiler:
    def __init__(self):
        self.ring = self

    def __del__(self):
        decimal.setcontext(decimal.Context(prec=5))
        libm.fesetround(UPWARD)
        torch.set_grad_enabled(False)


def spoil():
    gc.disable()
    Spoiler()


def state():
    gc.collect()
    return str((decimal.getcontext().prec, libm.fegetround(), torch.is_grad_enabled()))
)";

// Python collects garbage in whichever call allocates.
TEST_F(AttachedManagers, DestructorsOfOneProgramsGarbageChangeNoModeOfAnother) {
  serve({"--workers", "1"});
  const auto manager = attach(1);
  manager->registerModuleSource("garbage", kGarbage);
  InterpreterSession session = manager->acquireOne();
  const auto state = [](InterpreterSession& of) {
    return of.global("garbage", "state")(at::ArrayRef<Obj>()).toIValue().toStringRef();
  };
  auto leaving = attach(1);
  leaving->registerModuleSource("garbage", kGarbage);
  {
    InterpreterSession left = leaving->acquireOne();
    left.global("garbage", "spoil")(at::ArrayRef<Obj>());
    EXPECT_EQ(state(session), "(28, 0, True)");
    EXPECT_EQ(state(session), "(28, 0, True)");
    left.global("garbage", "spoil")(at::ArrayRef<Obj>());
  }
  // Nor when the program leaves; also for programs that come later.
  leaving.reset();
  EXPECT_EQ(state(session), "(28, 0, True)");
  const auto later = attach(1);
  later->registerModuleSource("garbage", kGarbage);
  InterpreterSession late = later->acquireOne();
  EXPECT_EQ(state(late), "(28, 0, True)");
}

class OwnLeftState : public LeftState {};

// As in the program itself.
TEST_P(OwnLeftState, StaysForTheProgramsOwnCalls) {
  serve({"--workers", "1"});
  const auto manager = attach(1);
  const Subject other(*manager);
  const auto leaving = attach(1);
  leaving->registerModuleSource("leaver", kLeaver);
  InterpreterSession left = leaving->acquireOne();
  const std::string before = stateIn(left);
  left.global("leaver", GetParam())(at::ArrayRef<Obj>());
  const std::string after = stateIn(left);
  EXPECT_NE(after, before);
  other.number("pid");
  EXPECT_EQ(stateIn(left), after);
}

INSTANTIATE_TEST_SUITE_P(Of, OwnLeftState,
                         ::testing::Values("rounding", "hooks", "optimisation", "skipped_data",
                                           "context", "recursion", "stack_size"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace isopool::tests
