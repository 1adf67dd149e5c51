// SPDX-License-Identifier: BSD-3-Clause
// What user code may not do in a worker, at each level. The tests really try each act.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "ipc/control/worker_messages.h"
#include "ipc/control/zygote_messages.h"
#include "testing/sanitizers.h"
#include "tests/worker/harness.h"

namespace isopool::tests {

namespace {

namespace fs = std::filesystem;
using Status = ipc::CompletionStatus;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A folder beside the probe's package. The sandboxes below may read "readable" and write
/// "writable", but do not see "hidden".
const fs::path& folder(const std::string& name) {
  static std::map<std::string, fs::path> folders;
  fs::path& path = folders[name];
  if (path.empty()) {
    path = fs::path(probePackage()).parent_path() / name;
    fs::create_directories(path);
    std::ofstream(path / "file.txt") << "content";
  }
  return path;
}

std::vector<std::string> printedBy(const std::string& command) {
  std::vector<std::string> lines;
  FILE* output = ::popen(command.c_str(), "re");
  if (output == nullptr) return lines;
  std::string line;
  for (int letter = std::fgetc(output); letter != EOF; letter = std::fgetc(output)) {
    if (letter != '\n') {
      line.push_back(static_cast<char>(letter));
      continue;
    }
    lines.push_back(std::exchange(line, {}));
  }
  ::pclose(output);
  return lines;
}

ZygoteProcess& strictZygote() {
  static ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict",
                               "ISOPOOL_SANDBOX_READ=" + folder("readable").string(),
                               "ISOPOOL_SANDBOX_WRITE=" + folder("writable").string()});
  return zygote;
}

/// One worker with the Probe in it.
class Sandboxed : public ::testing::Test {
 protected:
  explicit Sandboxed(ZygoteProcess& zygote) : worker(zygote.fork(1)), client(*worker) {
    client.defineProbe();
  }

  Answer run(const std::string& source) { return client.probe("run", {source}); }
  at::IValue resultOf(const std::string& source) { return client.probeValue("run", {source}); }
  std::string errorOf(const std::string& source, const std::string& type) {
    const Answer answer = run(source);
    if (answer.status != Status::kPythonError) {
      ADD_FAILURE() << "nothing was raised by " << source;
      return {};
    }
    EXPECT_EQ(answer.error[0], type) << answer.error[1];
    EXPECT_TRUE(has(answer.error[2], answer.error[1])) << answer.error[2];
    return answer.error[1];
  }
  /// The acts that the worker reports to its supervisor, read until `count` acts are reported.
  std::map<std::string, uint64_t> toldActs(uint64_t count) {
    std::map<std::string, uint64_t> acts;
    for (uint64_t told = 0; told < count;) {
      const ipc::Frame frame = worker->receive();
      if (frame.type != ipc::MessageType::kForbiddenAct) continue;
      const auto act = ipc::decodeMessage<ipc::ForbiddenAct>(frame);
      acts[act.act] += act.times;
      told += act.times;
    }
    return acts;
  }
  void expectServes() { EXPECT_EQ(resultOf("result = 6 * 7").toInt(), 42); }

  std::unique_ptr<WorkerProcess> worker;
  TestClient client;
};

class Strict : public Sandboxed {
 protected:
  Strict() : Sandboxed(strictZygote()) {}
};

using Acts = std::map<std::string, uint64_t>;

struct Forbidden {
  const char* name;
  const char* act;  ///< its name in the report
  const char* source;
  const char* type = "PermissionError";
};

std::ostream& operator<<(std::ostream& out, const Forbidden& forbidden) {
  return out << forbidden.name;
}

class ForbiddenAct : public Strict, public ::testing::WithParamInterface<Forbidden> {};

// Calls functions of libc that Python does not offer.
constexpr const char* kNative = R"(
import ctypes, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def native(function, *arguments):
    ctypes.set_errno(0)
    if function(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "it failed")
def call(*words):
    native(libc.syscall, *(ctypes.c_long(word) for word in words))
)";

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
    {"DeathOfItsSupervisor", "system call prctl", "native(libc.prctl, 1, 0, 0, 0, 0)"},
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
    {"TruncatingOutside", "file FOLDER/hidden/file.txt",
     "os.truncate('FOLDER/hidden/file.txt', 0)"},
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

TEST_F(Strict, LacksNothingOnAKernelThatHasAll) {
  const auto ready = ipc::decodeMessage<ipc::ZygoteReady>(strictZygote().greeting());
  if (ready.missingProtections.empty()) return;
  for (const std::string& line : ready.missingProtections)
    std::printf("missing: %s\n", line.c_str());
  GTEST_SKIP() << "this kernel lacks some protections";
}

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

TEST_F(Strict, LetsPythonDoTheUsualThings) {
  for (const char* source :
       {"import os; os.kill(os.getpid(), 0); os.kill(0, 0)",
        "import threading; t = threading.Thread(target=print); t.start(); t.join()",
        "import socket; a, b = socket.socketpair(); a.send(b'x'); b.recv(1)",
        "import asyncio; asyncio.run(asyncio.sleep(0))", "import json.tool, sqlite3, ssl, decimal",
        "import time; time.localtime()", "import zoneinfo; zoneinfo.ZoneInfo('Europe/Paris')",
        "import os; os.cpu_count(); os.sched_getaffinity(0); os.getloadavg(); os.urandom(8)",
        "import pwd, os; pwd.getpwuid(0)", "open('/dev/null', 'w').write('x')",
        "open('/proc/self/maps').read(); open('/proc/meminfo').read()",
        "import numpy; numpy.random.rand(3).dot(numpy.ones(3))",
        "import torch; torch.set_num_threads(3); torch.ones(600, 600).mm(torch.ones(600, 600))",
        "import torch; torch.jit.script(torch.nn.ReLU())(torch.ones(3))",
        "import resource; resource.getrlimit(resource.RLIMIT_DATA)",
        "import multiprocessing.connection, ctypes.util, logging.handlers, http.client"}) {
    const Answer answer = run(source);
    EXPECT_EQ(answer.status, Status::kValue)
        << source << ": " << (answer.error.empty() ? answer.reason : answer.error[2]);
  }
}

TEST_F(Strict, MayPinAndSlowItsOwnThreads) {
  EXPECT_TRUE(resultOf(R"(
import os, threading
ready, over = threading.Event(), threading.Event()
threads = []
def work():
    threads.append(threading.get_native_id())
    ready.set()
    over.wait()
thread = threading.Thread(target=work)
thread.start()
ready.wait()
processors = os.sched_getaffinity(threads[0])
os.sched_setaffinity(threads[0], {min(processors)})
pinned = os.sched_getaffinity(threads[0]) == {min(processors)}
os.sched_setaffinity(0, processors)
os.setpriority(os.PRIO_PROCESS, threads[0], 5)
slowed = os.getpriority(os.PRIO_PROCESS, threads[0]) == 5 and os.getpriority(os.PRIO_PROCESS, 0) == 0
over.set()
thread.join()
result = pinned and slowed
)")
                  .toBool());
  EXPECT_FALSE(worker->hasMessage(milliseconds(0))) << "it was counted";
}

TEST_F(Strict, ReadsAndWritesWhereItMay) {
  EXPECT_EQ(resultOf("result = open('" + (folder("readable") / "file.txt").string() + "').read()")
                .toStringRef(),
            "content");
  resultOf("import os; os.chdir('" + folder("writable").string() + R"(')
os.makedirs('a/b')
open('a/b/new.txt', 'w').write('new')
os.rename('a/b/new.txt', 'a/moved.txt')
os.symlink('moved.txt', 'a/link')
open('a/link', 'a').write('er')
os.rmdir('a/b')
)");
  std::ifstream file(folder("writable") / "a" / "moved.txt");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "newer");
}

TEST_F(Strict, ReachesMemoryObjectsThroughTheirDescriptors) {
  EXPECT_EQ(resultOf(R"(
import os
fd = os.memfd_create('object')
with open(f'/proc/self/fd/{fd}', 'w') as file: file.write('content')
result = open(f'/proc/self/fd/{fd}').read()
)")
                .toStringRef(),
            "content");
}

TEST_F(Strict, HasAPrivateFolderForTemporaryFiles) {
  const at::IValue result = resultOf(R"(
import tempfile, os
with tempfile.NamedTemporaryFile('w+') as file:
    file.write('content')
    file.flush()
    result = open(file.name).read(), os.path.dirname(file.name), len(os.listdir(tempfile.gettempdir()))
)");
  const auto& elements = result.toTupleRef().elements();
  EXPECT_EQ(elements[0].toStringRef(), "content");
  EXPECT_EQ(elements[1].toStringRef().rfind("/proc/" + std::to_string(worker->pid) + "/fd/", 0),
            0u);
  EXPECT_EQ(elements[2].toInt(), 1);
  errorOf("import tempfile; tempfile.TemporaryFile().write(bytes(65 << 20))", "OSError");
}

TEST_F(Strict, MakesABoundedNumberOfTemporaryFiles) {
  EXPECT_EQ(resultOf(R"(
import errno, os, tempfile
result, folder = 0, tempfile.mkdtemp()
try:
    for i in range(40000):
        os.mknod(f'{folder}/{i}')
except OSError as error:
    result = error.errno
)")
                .toInt(),
            ENOSPC);
}

TEST_F(Strict, CannotHoldTheOtherEndOfItsLifeline) {
  const at::IValue result = resultOf(R"(
import os, stat
opened, refused = [], 0
for name in os.listdir('/proc/self/fd'):
    try:
        mode = os.fstat(int(name)).st_mode
        if stat.S_ISFIFO(mode) and int(name) > 2:
            opened.append(os.open('/proc/self/fd/' + name, os.O_WRONLY | os.O_NONBLOCK))
    except PermissionError:
        refused += 1
    except OSError:
        pass
result = len(opened), refused
)");
  EXPECT_EQ(result.toTupleRef().elements()[0].toInt(), 0);
  EXPECT_EQ(result.toTupleRef().elements()[1].toInt(), 1);
  ::kill(worker->pid, SIGSTOP);
  worker->lifeline.close();
  EXPECT_EQ(worker->waitForEnd().signal, SIGKILL);
}

TEST_F(Strict, CountsNoUserLookUps) {
  resultOf("import pwd, getpass; pwd.getpwuid(0); getpass.getuser()");
  expectServes();
  EXPECT_FALSE(worker->hasMessage(milliseconds(0)));
}

TEST_F(Strict, HasNoCapabilities) {
  EXPECT_EQ(resultOf("result = [line.split()[1] for line in open('/proc/self/status')"
                     " if line.startswith(('CapEff', 'CapPrm', 'NoNewPrivs'))]")
                .toListRef()
                .vec(),
            (std::vector<at::IValue>{"0000000000000000", "0000000000000000", "1"}));
}

TEST(StrictSandbox, LetsModelsStartProcessesWhileTheyAreLoaded) {
  const fs::path modules = folder("modules");
  std::ofstream(modules / "starts_a_process.py")
      << "import os, subprocess\n"
         "answer = subprocess.run(['/bin/sh', '-c', 'exit 7']).returncode\n";
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict", "PYTHONPATH=" + modules.string()});
  auto worker = zygote.fork(1);
  TestClient client(*worker);
  const auto import = [&](const char* module, const char* name) {
    return client.ask(ipc::Operation::kGlobal, [&](ipc::PayloadWriter& writer) {
      writer.packer().pack_array(3).pack(std::string(module)).pack(std::string(name)).pack(1);
    });
  };
  const Answer answer = import("starts_a_process", "answer");
  EXPECT_EQ(answer.status, Status::kValue) << (answer.error.empty() ? "" : answer.error[2]);
  client.defineProbe();
  EXPECT_EQ(client.probe("run", {"import os; os.system('true')"}).status, Status::kPythonError);
}

// The refusal sends no signal: a signal would end a program that a model starts.
TEST(StrictSandbox, RefusesModelsAlsoWhileTheyAreLoadedToChangeWhatFilesAre) {
  const fs::path modules = folder("modules");
  std::ofstream(modules / "changes_files.py") << R"(
import subprocess, sys
SOURCE = '''
import ctypes, fcntl, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def flags(): fcntl.ioctl(open(FILE), 0x40086602, bytes(8))
def mode(): os.chmod(FILE, 0o600)
refused = 0
for act in flags, mode:
    try: act()
    except PermissionError: refused += 1
if libc.prctl(1, 0, 0, 0, 0) == -1: refused += 1
'''.replace('FILE', repr(__file__))
program = subprocess.run([sys.executable, '-c', SOURCE + 'sys.exit(refused)']).returncode
own = {}
exec(SOURCE, own)
answer = own['refused'], program
)";
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict", "PYTHONPATH=" + modules.string()});
  auto worker = zygote.fork(1);
  TestClient client(*worker);
  const Answer answer = client.ask(ipc::Operation::kGlobal, [&](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(3).pack(std::string("changes_files"));
    writer.packer().pack(std::string("answer")).pack(1);
  });
  ASSERT_EQ(answer.status, Status::kValue) << (answer.error.empty() ? "" : answer.error[2]);
  client.defineProbe();
  const at::IValue refused =
      client.probeValue("run", {"import changes_files; result = changes_files.answer"});
  for (const at::IValue& times : refused.toTupleRef().elements()) EXPECT_EQ(times.toInt(), 3);
}

TEST(StrictSandbox, LetsModelsBeCompiledWhileTheyAreLoaded) {
  const fs::path modules = folder("modules");
  std::ofstream(modules / "compiles.py")
      << "import torch\n"
         "compiled = torch.compile(lambda x: (x * 2 + 1).relu())\n"
         "with torch.no_grad(): answer = compiled(torch.ones(4)).sum().item()\n"
         "def call(): return compiled(torch.ones(4)).sum().item()\n";
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict", "PYTHONPATH=" + modules.string(),
                        "TORCHINDUCTOR_COMPILE_THREADS=1", "TMPDIR=" + folder("cache").string(),
                        "ISOPOOL_SANDBOX_WRITE=" + folder("cache").string()});
  auto worker = zygote.fork(1);
  TestClient client(*worker);
  const Answer answer = client.ask(ipc::Operation::kGlobal, [&](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(3).pack(std::string("compiles")).pack(std::string("call")).pack(1);
  });
  ASSERT_EQ(answer.status, Status::kValue) << (answer.error.empty() ? "" : answer.error[2]);
  client.defineProbe();
  EXPECT_EQ(client.probeValue("run", {"import compiles; result = compiles.call()"}).toDouble(), 12);
}

TEST(StrictSandbox, SaysWhichFolderOfModulesItHides) {
  auto worker = strictZygote().fork(1);
  TestClient client(*worker);
  const auto extend = [&](const std::string& path) {
    return client.ask(ipc::Operation::kExtendPath, [&](ipc::PayloadWriter& writer) {
      writer.packer().pack_array(1).pack(path);
    });
  };
  EXPECT_EQ(extend(folder("readable")).status, Status::kValue);
  EXPECT_EQ(extend(folder("hidden")).status, Status::kValue);
  const auto act = ipc::decodeMessage<ipc::ForbiddenAct>(worker->receive());
  EXPECT_EQ(act.act, "file " + folder("hidden").string());
  client.defineProbe();
  const Answer answer = client.probe("run", {"import module_that_is_hidden"});
  ASSERT_EQ(answer.status, Status::kPythonError);
  EXPECT_TRUE(has(answer.error[1], "isopool: the sandbox (strict) hides the folder " +
                                       folder("hidden").string() +
                                       " of sys.path; see ISOPOOL_SANDBOX_READ"))
      << answer.error[1];
  const Answer other = client.probe("run", {"raise ValueError('no')"});
  EXPECT_EQ(other.error[1], "no");
}

TEST(StrictSandbox, LetsTheLifelineKillTheWorker) {
  auto worker = strictZygote().fork(1);
  ::kill(worker->pid, SIGSTOP);
  worker->lifeline.close();
  EXPECT_EQ(worker->waitForEnd().signal, SIGKILL);
}

// The supervisor is a child of this test. When it is killed, its workers become children of
// the test.
TEST(StrictSandbox, EndsWithItsSupervisorWhateverUserCodeDidToItsLifeline) {
  constexpr const char* kDisarms[] = {"os.close(pipe)",
                                      "fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_NONBLOCK)",
                                      "fcntl.ioctl(pipe, 0x5452, bytes(4))"};  // FIOASYNC
  const fs::path ready = folder("writable") / "ready";
  fs::remove(ready);
  ASSERT_EQ(::mkfifo(ready.c_str(), 0600), 0);
  const base::Fd disarmed(::open(ready.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(disarmed.valid());
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const pid_t supervisor = ::fork();
  if (supervisor == 0) {
    try {
      auto& zygote = *new ZygoteProcess(
          {"ISOPOOL_SANDBOX=strict", "ISOPOOL_SANDBOX_WRITE=" + folder("writable").string()});
      for (const char* disarm : kDisarms) {
        auto& client = *new TestClient(*zygote.fork(1).release());
        client.defineProbe();
        client.publishProbe("run", {R"(
import ctypes, fcntl, os, stat, threading
for name in os.listdir('/proc/self/fd'):
    pipe = int(name)
    try: mode = os.fstat(pipe).st_mode
    except OSError: continue
    if pipe > 2 and stat.S_ISFIFO(mode): )" +
                                    std::string(disarm) + R"(
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
os.write(os.open(')" + ready.string() +
                                    R"(', os.O_WRONLY), b'%d\n' % os.getpid())
threading.Event().wait()
)"});
      }
      for (;;) ::pause();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(1);
  }
  std::string text;
  std::vector<std::pair<pid_t, base::Fd>> workers;
  while (workers.size() < std::size(kDisarms)) {
    pollfd readable{disarmed.get(), POLLIN, 0};
    char letter = 0;
    if (::poll(&readable, 1, static_cast<int>(kPatience.count())) != 1 ||
        ::read(disarmed.get(), &letter, 1) != 1) {
      ADD_FAILURE() << "only " << workers.size() << " workers have disarmed their lifeline";
      break;
    }
    if (letter != '\n') {
      text.push_back(letter);
      continue;
    }
    const pid_t pid = std::stoi(std::exchange(text, {}));
    workers.emplace_back(pid, static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  }
  ::kill(supervisor, SIGKILL);
  ::waitpid(supervisor, nullptr, 0);
  for (const auto& [pid, pidfd] : workers) {
    pollfd end{pidfd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&end, 1, 10'000), 1) << "worker " << pid << " outlives its supervisor";
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

TEST(StrictSandbox, OpensTheNetworkWhenAsked) {
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict", "ISOPOOL_SANDBOX_NETWORK=1"});
  auto worker = zygote.fork(1);
  TestClient client(*worker);
  client.defineProbe();
  EXPECT_EQ(client
                .probeValue("run", {R"(
import socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
client.send(b'content')
result = other.recv(7).decode()
)"})
                .toStringRef(),
            "content");
  EXPECT_EQ(client.probe("run", {"import socket; socket.socket(socket.AF_PACKET)"}).status,
            Status::kPythonError);
}

TEST(StrictSandbox, RunsOnAKernelWithoutItsFeaturesAndSaysWhatIsNotProtected) {
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict"}, {PYTHON, TEST_SOURCE_DIR "/older_kernel.py"});
  const auto ready = ipc::decodeMessage<ipc::ZygoteReady>(zygote.greeting());
  ASSERT_EQ(ready.missingProtections.size(), 2u);
  EXPECT_TRUE(has(ready.missingProtections[0], "no seccomp here, so user code can"));
  EXPECT_TRUE(has(ready.missingProtections[1], "no Landlock here, so user code can"));
  auto worker = zygote.fork(1);
  TestClient client(*worker);
  client.defineProbe();
  EXPECT_EQ(client.probeValue("run", {"import os; result = os.system('exit 3') >> 8"}).toInt(), 3);
}

TEST(StrictSandbox, SaysThatItHasNoTemporaryFolderWithoutUserNamespaces) {
  const std::string unshare = "HIDDEN_CALL=" + std::to_string(SYS_unshare);
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict", unshare},
                       {PYTHON, TEST_SOURCE_DIR "/older_kernel.py"});
  const auto ready = ipc::decodeMessage<ipc::ZygoteReady>(zygote.greeting());
  ASSERT_FALSE(ready.missingProtections.empty());
  EXPECT_TRUE(
      has(ready.missingProtections.back(), "temporary folders: user namespaces are forbidden here"))
      << ready.missingProtections.back();
}

TEST(StrictSandbox, HasAFolderOfItsOwnBelowItsSupervisorsWithoutUserNamespaces) {
  const fs::path folders = folder("folders");
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict", "HIDDEN_CALL=" + std::to_string(SYS_unshare),
                        "ISOPOOL_WORKER_FOLDERS=" + folders.string()},
                       {PYTHON, TEST_SOURCE_DIR "/older_kernel.py"});
  const auto ready = ipc::decodeMessage<ipc::ZygoteReady>(zygote.greeting());
  ASSERT_FALSE(ready.missingProtections.empty());
  EXPECT_TRUE(has(ready.missingProtections.back(),
                  "so workers' temporary files lie in " + folders.string()))
      << ready.missingProtections.back();
  auto worker = zygote.fork(1);
  auto other = zygote.fork(2);
  TestClient client(*worker);
  client.defineProbe();
  EXPECT_EQ(client
                .probeValue("run", {"import os, tempfile\nopen(tempfile.mkstemp()[1], 'w').write("
                                    "'text')\nresult = tempfile.gettempdir()"})
                .toStringRef(),
            (folders / std::to_string(worker->epoch)).string());
  const fs::path others = folders / std::to_string(other->epoch);
  ASSERT_TRUE(fs::exists(others));
  std::ofstream(others / "file") << "text";
  for (const std::string& act : {"open('" + (others / "file").string() + "')",
                                 "open('" + (others / "new").string() + "', 'w')",
                                 "os.listdir('" + folders.string() + "')"}) {
    EXPECT_EQ(client.probe("run", {"import os; " + act}).status, Status::kPythonError) << act;
  }
}

TEST(StrictSandbox, WorkerFailsIfItsTemporaryFolderCannotBeMade) {
  // Each folder takes a user namespace.
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict"},
                       {PYTHON, TEST_SOURCE_DIR "/few_user_namespaces.py", "2"});
  const auto ready = ipc::decodeMessage<ipc::ZygoteReady>(zygote.greeting());
  if (ready.needsFolders) GTEST_SKIP() << "no user namespaces here";
  std::vector<std::unique_ptr<WorkerProcess>> workers;
  std::string reason = "no worker failed";
  try {
    while (workers.size() < 3) workers.push_back(zygote.fork(1));
  } catch (const std::exception& error) {
    reason = error.what();
  }
  EXPECT_TRUE(has(reason, "no folder for temporary files")) << reason;
  EXPECT_TRUE(has(reason, "user.max_user_namespaces")) << reason;
  EXPECT_GE(workers.size(), 1u);
}

TEST(SandboxLevel, ThatDoesNotExistIsRefusedByTheZygoteInOneLine) {
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=paranoid"});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_EQ(failed.text,
            "ISOPOOL_SANDBOX=paranoid: 'paranoid' is not one of none, default, strict");
}

TEST(SandboxLevel, StrictIsRefusedWithAFolderThatIsNotThere) {
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict", "ISOPOOL_SANDBOX_READ=/no/such/folder"});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_TRUE(has(failed.text, "ISOPOOL_SANDBOX_READ names /no/such/folder")) << failed.text;
}

TEST(SandboxLevel, StrictIsRefusedWithWhatAZygoteTakesCodeFrom) {
  const fs::path modules = folder("modules");
  fs::create_directories(modules / "package");
  const std::string path = "PYTHONPATH=" + modules.string();
  for (const fs::path& writable : {modules, modules / "package", modules.parent_path()}) {
    ZygoteProcess zygote(
        {path, "ISOPOOL_SANDBOX=strict", "ISOPOOL_SANDBOX_WRITE=" + writable.string()});
    const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
    EXPECT_TRUE(has(failed.text, "ISOPOOL_SANDBOX_WRITE names " + writable.string()))
        << failed.text;
    EXPECT_TRUE(has(failed.text, "takes code from " + modules.string())) << failed.text;
  }
}

TEST(SandboxLevel, StrictIsRefusedWithALinkToWhatAZygoteTakesCodeFrom) {
  const fs::path writable = folder("writable");
  const fs::path modules = folder("modules");
  const fs::path second = folder("readable") / "second_link";
  fs::create_directories(modules);
  // sys.path names a link that models cannot write. It leads to a link in a folder that they
  // can write.
  const fs::path first = writable / "first_link";
  for (const auto& [link, target] : {std::pair{first, modules}, std::pair{second, first}}) {
    fs::remove(link);
    fs::create_symlink(target, link);
  }
  for (const fs::path& named : {first, second}) {
    ZygoteProcess zygote({"PYTHONPATH=" + named.string(), "ISOPOOL_SANDBOX=strict",
                          "ISOPOOL_SANDBOX_WRITE=" + writable.string()});
    const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
    EXPECT_TRUE(has(failed.text, "takes code from " + first.string())) << failed.text;
  }
  fs::remove(first);
  fs::remove(second);
}

TEST(SandboxLevel, StrictIsRefusedWithAModuleThatAZygoteHasLoaded) {
  const fs::path modules = folder("modules");
  const fs::path writable = folder("writable");
  fs::create_directories(modules);
  const fs::path elsewhere = writable / "elsewhere.py";
  std::ofstream(elsewhere) << "x = 1\n";
  std::ofstream(modules / "finds_elsewhere.py")
      << "import importlib.util, sys\n"
         "spec = importlib.util.spec_from_file_location('elsewhere', '"
      << elsewhere.string()
      << "')\nsys.modules['elsewhere'] = importlib.util.module_from_spec(spec)\n"
         "spec.loader.exec_module(sys.modules['elsewhere'])\n";
  ZygoteProcess zygote({"PYTHONPATH=" + modules.string(), "ISOPOOL_PRELOAD_MODULES=finds_elsewhere",
                        "ISOPOOL_SANDBOX=strict", "ISOPOOL_SANDBOX_WRITE=" + writable.string()});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_TRUE(has(failed.text, "takes code from " + elsewhere.string())) << failed.text;
  fs::remove(elsewhere);
}

// Models may be able to write the home folder. A virtual environment ignores the user's packages,
// so the test runs the Python that the environment was made from.
TEST(SandboxLevel, StrictRunsNoCodeOfTheUsersOwnPackagesBeforeItsWorkers) {
  const std::vector<std::string> python =
      printedBy(PYTHON
                " -c 'import os, sys, torch; print(sys._base_executable); "
                "print(os.path.dirname(os.path.dirname(torch.__file__))); "
                "print(\"%d.%d\" % sys.version_info[:2])'");
  ASSERT_EQ(python.size(), 3u);
  const fs::path home = folder("home");
  const fs::path site = home / ".local/lib" / ("python" + python[2]) / "site-packages";
  const fs::path trace = folder("trace") / "ran";
  fs::create_directories(site);
  std::ofstream(site / "planted.pth") << "import os; open('" << trace.string() << "', 'w')\n";
  for (const std::string level : {"strict", "default"}) {
    fs::remove(trace);
    ZygoteProcess zygote({"HOME=" + home.string(), "ISOPOOL_PYTHON_EXECUTABLE=" + python[0],
                          "PYTHONPATH=" + python[1], "ISOPOOL_SANDBOX=" + level});
    EXPECT_EQ(zygote.greeting().type, ipc::MessageType::kZygoteReady);
    EXPECT_EQ(fs::exists(trace), level == "default") << level;
  }
}

TEST(SandboxLevel, NoneAndDefaultDifferInNewPrivilegesAndLimits) {
  // A process cannot take this back, and some containers set it: none leaves it as it is.
  const std::string own = std::to_string(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  for (const auto& [level, privileges] :
       {std::pair<std::string, std::string>{"none", own}, {"default", "1"}}) {
    ZygoteProcess zygote(
        {"ISOPOOL_SANDBOX=" + level, level == "none" ? "UNUSED=1" : "ISOPOOL_WORKER_FILES=100"});
    auto worker = zygote.fork(1);
    TestClient client(*worker);
    client.defineProbe();
    const auto ask = [&](const std::string& source) { return client.probeValue("run", {source}); };
    EXPECT_EQ(ask("result = [line.split()[1] for line in open('/proc/self/status')"
                  " if line.startswith('NoNewPrivs')][0]")
                  .toStringRef(),
              privileges);
    EXPECT_EQ(ask("import os; result = os.system('exit 3') >> 8").toInt(), 3);
    EXPECT_EQ(ask("import resource; result = resource.getrlimit(resource.RLIMIT_CORE)[0]").toInt(),
              0);
    const int64_t files =
        ask("import resource; result = resource.getrlimit(resource.RLIMIT_NOFILE)[1]").toInt();
    if (level == "none") {
      EXPECT_GT(files, 100);
    } else {
      EXPECT_EQ(files, 100);
    }
  }
}

TEST(SandboxLevel, DefaultLimitsProcessesOfTheUser) {
  ZygoteProcess zygote({"ISOPOOL_WORKER_PROCESSES=1000"});
  auto worker = zygote.fork(1);
  TestClient client(*worker);
  client.defineProbe();
  EXPECT_EQ(client
                .probeValue("run",
                            {"import resource; result = resource.getrlimit(resource.RLIMIT_NPROC)"})
                .toTupleRef()
                .elements()[1]
                .toInt(),
            1000);
}

// ---- memory ----------------------------------------------------------------------------------

constexpr const char* kSanitizerTakesMemoryToo =
    "the sanitizer ends a process in which it gets no memory for its own use";

class MemoryLimit : public Sandboxed {
 protected:
  explicit MemoryLimit(ZygoteProcess& zygote = limited("default")) : Sandboxed(zygote) {}

  static ZygoteProcess& limited(const char* level) {
    static std::map<std::string, ZygoteProcess> zygotes;
    return zygotes
        .try_emplace(level, std::vector<std::string>{std::string("ISOPOOL_SANDBOX=") + level,
                                                     "ISOPOOL_WORKER_MEMORY=256MiB"})
        .first->second;
  }
  uint64_t limit() {
    return static_cast<uint64_t>(
        resultOf("import resource; result = resource.getrlimit(resource.RLIMIT_DATA)[0]").toInt());
  }
  void expectBreach(const std::string& source, const std::string& type) {
    const std::string message = errorOf(source, type);
    EXPECT_TRUE(
        has(message, "isopool: the worker's memory is limited to 256 MiB (ISOPOOL_WORKER_MEMORY)"))
        << message;
    EXPECT_EQ(toldActs(1), (Acts{{"memory beyond ISOPOOL_WORKER_MEMORY", 1}}));
    expectServes();
    EXPECT_EQ(resultOf("result = len(bytearray(100 << 20))").toInt(), 100 << 20);
  }
};

class StrictMemoryLimit : public MemoryLimit {
 protected:
  StrictMemoryLimit() : MemoryLimit(limited("strict")) {}
};

TEST_F(MemoryLimit, IsNamedInTheErrorForATooLargeTensor) {
  expectBreach("import torch; torch.empty(1 << 30, dtype=torch.uint8)", "RuntimeError");
}

TEST_F(MemoryLimit, IsNamedInTheErrorForTooManyTensors) {
  if (kUnderAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemoryToo;
  expectBreach("import torch\nkept = []\nwhile True: kept.append(torch.ones(1 << 22))",
               "RuntimeError");
}

TEST_F(MemoryLimit, IsNamedInTheErrorForATooLargeObject) {
  expectBreach("bytearray(1 << 30)", "MemoryError");
  expectBreach("[None] * (1 << 28)", "MemoryError");
}

TEST_F(MemoryLimit, IsNamedInTheErrorForNativeAllocations) {
  if (kUnderAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemoryToo;
  expectBreach(
      "import numpy\ntry: numpy.zeros(1 << 27)\nexcept MemoryError as e: raise OSError from e",
      "OSError");
  expectBreach("import zlib; zlib.decompress(zlib.compress(bytes(1 << 26)), bufsize=1 << 30)",
               "MemoryError");
}

TEST_F(MemoryLimit, IsNamedIfItCausedAnotherError) {
  expectBreach("try:\n  bytearray(1 << 30)\nexcept MemoryError as e: raise KeyError('x') from e",
               "KeyError");
}

TEST_F(MemoryLimit, IsInTheCrashLogOfAWorkerThatDiesOfIt) {
  // operator new throws on a thread that does not catch the exception.
  client.publishProbe("run", {R"(
import ctypes, threading
new = ctypes.CDLL('libstdc++.so.6')._Znwm
threading.Thread(target=new, args=(ctypes.c_size_t(1 << 30),)).start()
threading.Event().wait()
)"});
  EXPECT_EQ(worker->waitForEnd().signal, SIGABRT);
  const std::string words = worker->readCrashLog();
  EXPECT_TRUE(has(words, "std::bad_alloc")) << words;
  EXPECT_TRUE(has(words, "isopool: the worker's memory is limited to 256 MiB")) << words;
}

TEST_F(MemoryLimit, IsNotMentionedByOtherErrors) {
  EXPECT_EQ(errorOf("raise ValueError('no')", "ValueError"), "no");
}

TEST_F(StrictMemoryLimit, HoldsUnderStrictToo) {
  expectBreach("import torch; torch.empty(1 << 30, dtype=torch.uint8)", "RuntimeError");
}

TEST_F(StrictMemoryLimit, CanNotBeRaisedByUserCode) {
  const uint64_t before = limit();
  errorOf("import resource; resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))", "ValueError");
  errorOf("import resource, os; resource.prlimit(os.getpid(), resource.RLIMIT_DATA, (-1, -1))",
          "PermissionError");
  EXPECT_EQ(limit(), before);
}

class PackageUnderLimit : public MemoryLimit, public ::testing::WithParamInterface<const char*> {
 protected:
  PackageUnderLimit() : MemoryLimit(limited(GetParam())) {}
};

TEST_P(PackageUnderLimit, DoesNotCountAndItsEndRestoresTheLimit) {
  const uint64_t before = limit();
  constexpr uint64_t kBytes = uint64_t{1} << 30;
  const base::Fd package = ipc::createGrowingMemoryObject("package");
  ASSERT_EQ(::ftruncate(package.get(), kBytes), 0);
  ipc::sealMemoryObject(package, ipc::Seal::kReadOnly);
  worker->send(ipc::MapPackage{1, 77, kBytes, "large.pt", false}, {package.get()});
  ASSERT_TRUE([&] {
    for (int i = 0; i < 1000; ++i) {
      if (limit() == before + kBytes) return true;
    }
    return false;
  }()) << "four times the limit was not mapped";
  expectBreach("bytearray(1 << 30)", "MemoryError");
  worker->send(ipc::UnmapPackage{1, {77}});
  ASSERT_TRUE([&] {
    for (int i = 0; i < 1000; ++i) {
      if (limit() == before) return true;
    }
    return false;
  }());
}

INSTANTIATE_TEST_SUITE_P(AtEachLevel, PackageUnderLimit, ::testing::Values("default", "strict"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace isopool::tests
