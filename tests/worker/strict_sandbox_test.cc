// SPDX-License-Identifier: BSD-3-Clause
// What user code may and may not do in a worker of the level strict.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "ipc/control/worker_messages.h"
#include "ipc/control/zygote_messages.h"
#include "tests/worker/sandboxed.h"

namespace isopool::tests {

namespace {

namespace fs = std::filesystem;
using Status = ipc::CompletionStatus;

}  // namespace

TEST_F(Strict, LacksNothingOnAKernelThatHasAll) {
  const auto ready = ipc::decodeMessage<ipc::ZygoteReady>(strictZygote().greeting());
  if (ready.missingProtections.empty()) return;
  for (const std::string& line : ready.missingProtections)
    std::printf("missing: %s\n", line.c_str());
  GTEST_SKIP() << "this kernel lacks some protections";
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

// What torch, numpy, Python's terminals, caches and compilers ask of descriptors.
TEST_F(Strict, LetsDescriptorsBeAskedForTheirState) {
  resultOf("import os; os.chdir('" + folder("writable").string() + R"(')
import fcntl, socket, sys, termios, array
for stream in sys.stdout, sys.stderr:
    stream.isatty()
a, b = socket.socketpair()
a.setblocking(False)
b.send(b'xy')
count = array.array('i', [0])
fcntl.ioctl(a, termios.FIONREAD, count)
assert count[0] == 2
fcntl.ioctl(a, termios.FIOCLEX)
with open('lock', 'w') as file:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(file, fcntl.LOCK_UN)
for request, error in (0x80086601, 0), (2, 0):  # FS_IOC_GETFLAGS, FIGETBSZ
    try:
        fcntl.ioctl(open('lock'), request, bytearray(8))
    except PermissionError:
        raise
    except OSError:
        pass  # the file system has none
)");
  expectServes();
  EXPECT_FALSE(worker->hasMessage(milliseconds(0))) << "it was counted";
}

TEST_F(Strict, TakesNoHugePages) {
  EXPECT_EQ(resultOf(std::string(kNative) + R"(
result = 0
for act in lambda: call(9, 0, 1 << 21, 3, 0x40022, -1, 0), lambda: call(319, 0, 4):
    try: act()
    except PermissionError: result += 1
)")
                .toInt(),
            2);
}

// RLIMIT_SIGPENDING is a limit of the user: a worker leaves most of it to others.
TEST_F(Strict, MakesABoundedNumberOfTimers) {
  EXPECT_EQ(resultOf(std::string(kNative) + R"(
import errno
result = 0
try:
    for _ in range(2000):
        timer = ctypes.c_int()
        call(222, 0, 0, ctypes.addressof(timer))
except OSError as error:
    result = error.errno
)")
                .toInt(),
            EAGAIN);
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
streams = {os.fstat(number).st_ino for number in range(3)}  # they may be pipes, and have duplicates
for name in os.listdir('/proc/self/fd'):
    try:
        status = os.fstat(int(name))
        if stat.S_ISFIFO(status.st_mode) and status.st_ino not in streams:
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

}  // namespace isopool::tests
