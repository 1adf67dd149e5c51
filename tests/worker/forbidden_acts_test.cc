// SPDX-License-Identifier: BSD-3-Clause
// What a worker of the level strict tells of acts that are forbidden. The tests really try each
// act.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "ipc/control/worker_messages.h"
#include "tests/worker/sandboxed.h"
#include "worker/sandbox/kernel_protections.h"
#include "worker/sandbox/landlock_interface.h"

namespace isopool::tests {

namespace {

namespace fs = std::filesystem;
namespace landlock = worker::landlock;
using Status = ipc::CompletionStatus;

struct Forbidden {
  const char* name;
  const char* act;  ///< its name in the report
  const char* source;
  const char* type = "PermissionError";
  int landlock = 0;  ///< the version whose rules forbid it
};

std::ostream& operator<<(std::ostream& out, const Forbidden& forbidden) {
  return out << forbidden.name;
}

class ForbiddenAct : public Strict, public ::testing::WithParamInterface<Forbidden> {};

constexpr Forbidden kForbidden[] = {
    {"System", "start of a process (os.system)", "os.system('true')"},
    {"Subprocess", "start of a process (subprocess.Popen)",
     "import subprocess; subprocess.run(['true'])"},
    {"Fork", "start of a process (os.fork)", "os.fork()"},
    {"NativeFork", "start of a process (fork)", "native(libc.fork)"},
    {"Exec", "start of a process (os.exec)", "os.execv('/bin/true', ['true'])"},
    {"NativeExec", "system call execve", "call(59, 0, 0, 0)"},
    {"Socket", "system call socket", "socket.socket()"},
    {"UnixSocket", "system call socket", "socket.socket(socket.AF_UNIX)"},
    {"Kill", "system call kill", "os.kill(os.getppid(), 18)"},
    {"KillOfAll", "system call kill", "os.kill(-1, 18)"},
    {"KillOfAThread", "system call tgkill", "call(234, os.getppid(), os.getppid(), 18)"},
    {"KillByDescriptor", "system call pidfd_send_signal",
     "import signal; signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 18)"},
    {"SignalWhenReadable", "system call fcntl",
     "import fcntl; fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())"},
    {"Ptrace", "system call ptrace", "native(libc.ptrace, 16, os.getppid(), 0, 0)"},
    {"ReadingProcesses", "system call process_vm_readv", "call(310, os.getppid(), 0, 0, 0, 0, 0)"},
    {"Mount", "system call mount", "native(libc.mount, b'none', b'/mnt', b'tmpfs', 0, None)"},
    {"Unshare", "system call unshare", "native(libc.unshare, 0x10000000)"},
    {"CloneOfNamespaces", "system call clone", "call(56, 0x10000000 | 17, 0, 0, 0, 0)"},
    {"OtherUser", "system call setresuid", "os.setresuid(1, 1, 1)"},
    {"Limits", "system call prlimit64",
     "import resource; resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))", "ValueError"},
    {"Keys", "system call keyctl", "call(250, 0, 0, 0, 0, 0)"},
    {"Bpf", "system call bpf", "call(321, 0, 0, 0)"},
    {"Performance", "system call perf_event_open", "call(298, 0, 0, 0, 0, 0)"},
    {"Rings", "system call io_uring_setup", "call(425, 1, 0)"},
    {"FaultHandling", "system call userfaultfd", "call(323, 0)"},
    {"TypingAtTheTerminal", "system call ioctl",
     "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x')"},
    {"TerminalsEcho", "system call ioctl", "import termios; call(16, 0, termios.TCSETS, 0)"},
    {"JoiningAnothersGroup", "system call setpgid", "os.setpgid(0, os.getppid())"},
    {"DatagramPair", "system call socketpair",
     "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)"},
    {"PassingDescriptors", "system call sendmsg",
     "socket.send_fds(socket.socketpair()[0], [b'x'], [1])"},
    {"PassingManyDescriptors", "system call sendmmsg", "call(307, 0, 0, 0, 0)"},
    {"Mode", "system call chmod", "os.chmod('FOLDER/hidden/file.txt', 0o666)"},
    {"ModeByDescriptor", "system call fchmod",
     "os.fchmod(os.open('FOLDER/readable/file.txt', os.O_RDONLY), 0o666)"},
    {"Owner", "system call chown", "os.chown('FOLDER/hidden/file.txt', -1, -1)"},
    {"Times", "system call utimensat", "os.utime('FOLDER/hidden/file.txt')"},
    {"Attributes", "system call setxattr",
     "os.setxattr('FOLDER/hidden/file.txt', 'user.isopool', b'x')"},
    {"RemovingAttributes", "system call removexattr",
     "os.removexattr('FOLDER/hidden/file.txt', 'user.isopool')"},
    {"Flags", "system call ioctl",
     "import fcntl; fcntl.ioctl(open('FOLDER/readable/file.txt'), 0x40086602, bytes(8))"},
    {"ExtendedFlags", "system call ioctl",
     "import fcntl; fcntl.ioctl(open('FOLDER/readable/file.txt'), 0x401C5820, bytes(28))"},
    {"Sealing", "system call ioctl",
     "import fcntl; fcntl.ioctl(open('FOLDER/readable/file.txt'), 0x40806685, bytes(128))"},
    {"Encryption", "system call ioctl",
     "import fcntl; fcntl.ioctl(os.open('FOLDER/readable', 0), 0x800C6613, bytes(24))"},
    {"Subvolumes", "system call ioctl", "call(16, os.open('FOLDER/readable', 0), 0x5000940E, 0)"},
    {"Version", "system call ioctl",
     "import fcntl; fcntl.ioctl(open('FOLDER/readable/file.txt'), 0x40086604, bytes(8))"},
    {"VersionOfOtherFileSystems", "system call ioctl",
     "import fcntl; fcntl.ioctl(open('FOLDER/readable/file.txt'), 0x40087602, bytes(8))"},
    {"FreezingAFileSystem", "system call ioctl",
     "import fcntl; fcntl.ioctl(os.open('FOLDER/readable', 0), 0xC0045877, bytes(4))"},
    {"DeathOfItsSupervisor", "system call prctl", "native(libc.prctl, 1, 0, 0, 0, 0)"},
    {"LeavingOrphansToTheSupervisor", "system call prctl", "native(libc.prctl, 36, 0, 0, 0, 0)"},
    {"AProcessBesideTheWorker", "system call clone", "call(56, 0x8000 | 17, 0, 0, 0, 0)"},
    {"GrowingDown", "system call mmap", "call(9, 0, 1 << 20, 3, 0x122, -1, 0)"},
    {"PagesInAPipe", "system call vmsplice", "call(278, os.pipe()[1], 0, 0, 0)"},
    {"AsynchronousOperations", "system call io_setup", "call(206, 100, 0)"},
    {"WatchingFiles", "system call inotify_init1", "call(294, 0)"},
    {"WatchingFilesTheOldWay", "system call inotify_init", "call(253)"},
    {"WatchingAFileSystem", "system call fanotify_init", "call(300, 0, 0)"},
    {"WatchingAFolder", "system call fcntl",
     "import fcntl; fcntl.fcntl(os.open('FOLDER/readable', 0), fcntl.F_NOTIFY, 1)"},
    {"Lease", "system call fcntl",
     "import fcntl; fcntl.fcntl(os.open('FOLDER/readable/file.txt', 0), fcntl.F_SETLEASE, 0)"},
    {"SecretMemory", "system call memfd_secret", "call(447, 0)"},
    {"ShadowStack", "system call map_shadow_stack", "call(453, 0, 1 << 20, 0)"},
    {"AbstractName", "system call bind",
     "socket.socketpair()[0].bind('\\0isopool-test-%d' % os.getpid())"},
    {"AbstractNameByCredentials", "system call setsockopt",
     "socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)"},
    {"AnothersProcessors", "system call sched_setaffinity",
     "os.sched_setaffinity(os.getppid(), {0})"},
    {"AnothersScheduling", "system call sched_setscheduler",
     "os.sched_setscheduler(os.getppid(), os.SCHED_BATCH, os.sched_param(0))"},
    {"AnothersPriority", "system call setpriority",
     "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)"},
    {"PriorityOfTheUser", "system call setpriority", "os.setpriority(os.PRIO_USER, 0, 19)"},
    {"AnothersDiskPriority", "system call ioprio_set", "call(251, 1, os.getppid(), 0)"},
    {"AnothersSharedMemory", "system call shmctl", "call(31, 0, 0, 0)"},
    {"AnothersSemaphores", "system call semctl", "call(66, 0, 0, 0, 0)"},
    {"AnothersMessages", "system call msgctl", "call(71, 0, 0, 0)"},
    {"MessageQueues", "system call mq_open", "call(240, 0, 0, 0, 0)"},
    {"ReadingOutside", "file FOLDER/hidden/file.txt", "open('FOLDER/hidden/file.txt')"},
    {"ReadingPasswords", "file /etc/shadow", "open('/etc/shadow')"},
    {"WritingOutside", "file FOLDER/hidden/new.txt", "open('FOLDER/hidden/new.txt', 'w')"},
    {"WritingWhereOneMayRead", "file FOLDER/readable/file.txt",
     "open('FOLDER/readable/file.txt', 'a')"},
    {"MakingWhereOneMayRead", "file FOLDER/readable/new.txt",
     "open('FOLDER/readable/new.txt', 'w')"},
    {"RemovingOutside", "file FOLDER/hidden/file.txt", "os.remove('FOLDER/hidden/file.txt')"},
    {"TruncatingOutside", "file FOLDER/hidden/file.txt", "os.truncate('FOLDER/hidden/file.txt', 0)",
     "PermissionError", landlock::kVersionWithTruncate},
    {"ListingOutside", "file FOLDER/hidden", "os.listdir('FOLDER/hidden')"},
    {"ReadingAnothersMemory", "file /proc/PARENT/mem", "open(f'/proc/{os.getppid()}/mem', 'rb')"},
};

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word)) {
    text.replace(at, word.size(), by);
  }
  return text;
}

}  // namespace

TEST_P(ForbiddenAct, IsAPythonErrorThatNamesItAndIsCounted) {
  if (worker::probeKernelProtections().landlock < GetParam().landlock) {
    GTEST_SKIP() << "this kernel's Landlock has no rule for it";
  }
  for (const char* name : {"hidden", "readable", "writable"}) folder(name);
  const auto here = [&](const std::string& text) {
    return replaced(replaced(text, "FOLDER", fs::path(probePackage()).parent_path()), "PARENT",
                    std::to_string(::getpid()));
  };
  const std::string act = here(GetParam().act);
  const std::string message = errorOf(kNative + here(GetParam().source), GetParam().type);
  EXPECT_TRUE(has(message, "isopool: the sandbox (strict) forbids " + act)) << message;
  EXPECT_EQ(toldActs(1), (Acts{{act, 1}}));
  expectServes();
  EXPECT_FALSE(worker->hasMessage(milliseconds(0))) << "it was reported twice";
}

INSTANTIATE_TEST_SUITE_P(Each, ForbiddenAct, ::testing::ValuesIn(kForbidden),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_F(Strict, CountsWhatUserCodeSwallows) {
  EXPECT_EQ(resultOf(R"(
import socket
result = 0
for _ in range(5):
    try:
        socket.socket()
    except PermissionError:
        result += 1
)")
                .toInt(),
            5);
  EXPECT_EQ(toldActs(5), (Acts{{"system call socket", 5}}));
}

TEST_F(Strict, CountsWhatOtherThreadsDo) {
  resultOf(R"(
import socket, threading
def act():
    try:
        socket.socket()
    except PermissionError:
        pass
threads = [threading.Thread(target=act) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
)");
  EXPECT_EQ(toldActs(4), (Acts{{"system call socket", 4}}));
}

TEST_F(Strict, ReportsActsWithoutWaitingForTheSupervisor) {
  constexpr uint64_t kTimes = 3000;
  for (uint64_t i = 0; i < kTimes; ++i) {
    ASSERT_EQ(client.probe("run", {"import socket\nsocket.socket()"}).status, Status::kPythonError);
  }
  // Acts that found no room in the socket are reported after a later call.
  uint64_t times = 0;
  for (int round = 0; round < 100 && times < kTimes; ++round) {
    while (worker->hasMessage(milliseconds(0))) {
      const auto act = ipc::decodeMessage<ipc::ForbiddenAct>(worker->receive());
      EXPECT_EQ(act.act, "system call socket");
      times += act.times;
    }
    expectServes();
  }
  EXPECT_EQ(times, kTimes);
}

TEST_F(Strict, TellsABoundedNumberOfActs) {
  for (int i = 0; i < 100; ++i) {
    errorOf("open('" + (folder("hidden") / std::to_string(i)).string() + "', 'w')",
            "PermissionError");
  }
  const Acts acts = toldActs(100);
  EXPECT_EQ(acts.size(), 64u);
  EXPECT_EQ(acts.at("other acts"), 37u);
}

TEST_F(Strict, StartsNoProcessNativelyEither) {
  // posix_spawn blocks all signals, so the call is refused without a signal.
  EXPECT_EQ(resultOf(std::string(kNative) + R"(
pid = ctypes.c_int(0)
words = (ctypes.c_char_p * 2)(b'true', None)
result = libc.posix_spawn(ctypes.byref(pid), b'/bin/true', None, None, words, None)
)")
                .toInt(),
            EPERM);
  expectServes();
}

TEST_F(Strict, KeepsItsHandlerOfForbiddenCalls) {
  errorOf("import signal; signal.signal(signal.SIGSYS, signal.SIG_DFL)", "PermissionError");
  errorOf("import socket; socket.socket()", "PermissionError");
  expectServes();
}

}  // namespace isopool::tests
