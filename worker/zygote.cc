// SPDX-License-Identifier: BSD-3-Clause
#include "worker/zygote.h"

#include <Python.h>
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "base/settings/environment.h"
#include "base/system_call.h"
#include "ipc/channel/liveness_word.h"
#include "ipc/crash_point.h"
#include "ipc/thread_variables.h"
#include "worker/memory/numpy_memory.h"
#include "worker/process/huge_pages.h"
#include "worker/process/lifeline.h"
#include "worker/process/native_libraries.h"
#include "worker/python/interpreter.h"
#include "worker/python/python_errors.h"
#include "worker/sandbox/kernel_protections.h"
#include "worker/sandbox/standard_streams.h"
#include "worker/serve/isopool_module.h"
#include "worker/worker.h"

namespace isopool::worker {

namespace {

constexpr const char* kCrashPointVariable = "ISOPOOL_ZYGOTE_CRASH_POINT";

// Never destroyed: tensors refer to their allocator, and so to the owner of their block.
RoutedBlocks& immortalBlocks() {
  static auto* blocks = new RoutedBlocks;
  return *blocks;
}

std::string pythonExecutable() {
  const std::string chosen = base::settingInEnvironment("ISOPOOL_PYTHON_EXECUTABLE").text;
  return chosen.empty() ? ISOPOOL_PYTHON_EXECUTABLE : chosen;
}

// For errors whose remedy is another interpreter or a change of its environment.
std::runtime_error wrongPython(const std::string& what) {
  return std::runtime_error("workers can't use the Python " + pythonExecutable() +
                            " (python, ISOPOOL_PYTHON_EXECUTABLE): " + what);
}

void useOneThread() {
  for (const std::string_view name : ipc::kThreadVariables) ::setenv(name.data(), "1", 1);
}

void startPython(const SandboxSettings& sandbox) {
  // kStrict ignores the packages in the user's home folder: workers may be allowed to write there,
  // and the zygote would import them without a sandbox.
  try {
    startInterpreter(
        pythonExecutable().c_str(),
        sandbox.level == SandboxLevel::kStrict ? UserPackages::kNot : UserPackages::kAsUsual,
        {"_isopool", &createIsopoolModule});
  } catch (const std::exception& error) {
    throw wrongPython(error.what());
  }
}

// `starter`: what ran since the last check, and what to do about it.
void requireOneThread(const std::string& starter) {
  const size_t threads = threadCount();
  if (threads == 1) return;
  throw std::runtime_error("the zygote has " + std::to_string(threads) +
                           " threads, but a fork copies only one: " + starter);
}

// Asks the driver's library, if something has loaded it: it counts devices only once it is
// initialised.
bool hasUsedCuda() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  using CountDevices = int (*)(int*);
  const auto countDevices = reinterpret_cast<CountDevices>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  constexpr int kSuccess = 0;
  const bool used = countDevices != nullptr && countDevices(&devices) == kSuccess;
  ::dlclose(driver);
  return used;
}

// Before requireOneThread(), because CUDA starts threads. `user`: what ran since the last check,
// and what to do about it.
void requireNoCuda(const std::string& user) {
  if (!hasUsedCuda()) return;
  throw std::runtime_error("the zygote has used CUDA, which its forks could then not use: " + user);
}

// The middle process ran in this process's memory. Killed within fork(), it leaves locks of libc
// taken there, glibc 2.41's lock of abort() for one, and each further fork would wait for them.
class MiddleKilled : public std::runtime_error {
 public:
  explicit MiddleKilled(int signal)
      : std::runtime_error("the process that forks the workers was killed by signal " +
                           std::to_string(signal) + ", and this zygote's memory may be unusable") {}
};

struct Versions {
  std::string python;
  std::string torch;
};

void importTorch() {
  requireOneThread("sitecustomize, or a .pth file of " + pythonExecutable() +
                   ", starts threads when Python starts; remove that");
  const PyRef begin = workerFunction("zygote", "begin");
  if (!begin || !PyRef::steal(PyObject_CallNoArgs(begin.get()))) {
    throw wrongPython("torch can't be imported\n" + takePythonError().traceback);
  }
  requireOneThread("torch, or a package that extends it, starts threads when it is imported");
}

// Before the preload modules, which may use the operators that the libraries register.
void preloadLibraries() {
  const auto libraries = base::settingInEnvironment("ISOPOOL_PRELOAD_LIBS").items;
  tryLibraries(libraries);
  tryLibraries(base::settingInEnvironment(kWorkerLibraries).items);
  for (const std::string& library : libraries) {
    loadLibraries({library});
    requireNoCuda("the library " + library +
                  " of ISOPOOL_PRELOAD_LIBS uses CUDA when it is loaded; name it in "
                  "ISOPOOL_WORKER_PRELOAD_LIBS instead");
    requireOneThread("the library " + library +
                     " of ISOPOOL_PRELOAD_LIBS starts threads when it is loaded; name it in "
                     "ISOPOOL_WORKER_PRELOAD_LIBS instead");
  }
}

void preloadModules() {
  const PyRef import = workerFunction("zygote", "preload");
  for (const std::string& name : base::settingInEnvironment("ISOPOOL_PRELOAD_MODULES").items) {
    const PyRef object = PyRef::steal(
        PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
    if (!import || !object || !PyRef::steal(PyObject_CallOneArg(import.get(), object.get()))) {
      throw std::runtime_error(takePythonError().traceback);
    }
    requireNoCuda("the module " + name +
                  " of ISOPOOL_PRELOAD_MODULES, or a module that it imports, uses CUDA when it is "
                  "imported; remove it there, so that workers import it when they need it");
    requireOneThread(
        "the module " + name +
        " of ISOPOOL_PRELOAD_MODULES, or a module that it imports, starts threads when "
        "it is imported; remove it there, so that workers import it when they need it");
  }
}

void importOwnModules() {
  const PyRef imports = workerFunction("zygote", "import_own");
  if (imports && PyRef::steal(PyObject_CallNoArgs(imports.get()))) return;
  throw std::runtime_error(takePythonError().traceback);
}

Versions prepareInPython() {
  importOwnModules();
  preloadModules();
  const PyRef finish = workerFunction("zygote", "finish");
  const PyRef versions = finish ? PyRef::steal(PyObject_CallNoArgs(finish.get())) : PyRef();
  const char* python = nullptr;
  const char* torch = nullptr;
  if (!versions || PyArg_ParseTuple(versions.get(), "ss", &python, &torch) == 0) {
    throw std::runtime_error(takePythonError().traceback);
  }
  return {python, torch};
}

}  // namespace

void checkSandboxOfZygotes() {
  const SandboxSettings sandbox = readSandboxSettings(::getenv);
  startPython(sandbox);
  planSandbox(sandbox);
}

std::string preloadsOf(const std::string& file) {
  useOneThread();
  startPython(readSandboxSettings(::getenv));
  importOwnModules();
  const PyRef report = workerFunction("preloading", "report");
  const PyRef name = PyRef::steal(PyUnicode_DecodeFSDefault(file.c_str()));
  const PyRef text =
      report && name ? PyRef::steal(PyObject_CallOneArg(report.get(), name.get())) : PyRef();
  const char* bytes = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (bytes == nullptr) throw std::runtime_error(takePythonError().message);
  return bytes;
}

Zygote::Zygote(base::Fd control, base::Fd lifeline)
    : control_(std::move(control)), lifeline_(std::move(lifeline)), blocks_(immortalBlocks()) {
  // The lifeline kills a process group, so the zygote needs one of its own.
  if (::getpgrp() != ::getpid()) base::checkSystemCall(::setpgid(0, 0), "setpgid");
  armLifeline(lifeline_.get());
  void* word =
      ::mmap(nullptr, ipc::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (word == MAP_FAILED) throw base::SystemCallError("mmap", "a page", errno);
  pidWord_ = ipc::Mapping(word, ipc::kPageBytes);
}

int Zygote::run() {
  try {
    prepare();
  } catch (const std::exception& error) {
    control_.send(ipc::ZygoteFailed{error.what()});
    return 1;
  }
  for (;;) {
    const ipc::ReceiveResult result = control_.receive();
    while (auto frame = control_.next()) forkWorker(*frame);
    if (result == ipc::ReceiveResult::kPeerGone) return 0;
    if (result == ipc::ReceiveResult::kWouldBlock) {
      control_.waitReadable(base::kForever);
    }
  }
}

void Zygote::prepare() {
  if (!ipc::armCrashPointFromEnvironment(kCrashPointVariable)) {
    throw std::runtime_error(std::string(kCrashPointVariable) + " does not name a crash point");
  }
  const bool livenessWordWorks = ipc::livenessWordWorksHere();
  const SandboxSettings sandbox = readSandboxSettings(::getenv);
  if (sandbox.level == SandboxLevel::kStrict) {
    narrowStandardStreams(probeKernelProtections().landlock);
  }
  useOneThread();
  ipc::installRoutingAllocator(blocks_);
  beginHugePages();
  startPython(sandbox);
  importTorch();
  preloadLibraries();
  const Versions versions = prepareInPython();
  routeNumpyMemory(blocks_);
  if (!versions.torch.starts_with(ISOPOOL_TORCH_SERIES ".")) {
    throw wrongPython("it has torch " + versions.torch +
                      ", but isopool was built for " ISOPOOL_TORCH_VERSION);
  }
  sandbox_ = planSandbox(sandbox);
  requireOneThread("the preparation of torch starts threads");
  endHugePages();
  control_.send(ipc::ZygoteReady{versions.python, versions.torch, livenessWordWorks,
                                 missingProtections(sandbox_.settings, sandbox_.kernel),
                                 !sandbox_.kernel.temporaryFolders});
  ipc::reachCrashPoint(ipc::CrashPoint::kZygoteReadySent);
}

void Zygote::forkWorker(ipc::Frame& frame) {
  const auto order = ipc::decodeMessage<ipc::ForkWorker>(frame);
  ipc::armCrashPointFromEnvironment(kCrashPointVariable);  // its file may appear after the start
  ipc::reachCrashPoint(ipc::CrashPoint::kForkRequestTaken);
  std::string reason;
  std::optional<pid_t> pid;
  if (frame.descriptors.size() < 5 || frame.descriptors.size() > 6) {
    reason = "the fork request has " + std::to_string(frame.descriptors.size()) +
             " descriptors, and needs five or six";
  } else {
    WorkerDescriptors descriptors{
        std::move(frame.descriptors[0]),
        std::move(frame.descriptors[1]),
        std::move(frame.descriptors[2]),
        std::move(frame.descriptors[3]),
        std::move(frame.descriptors[4]),
        frame.descriptors.size() == 6 ? std::move(frame.descriptors[5]) : base::Fd()};
    try {
      requireOneThread("a module or a library that was preloaded started threads later");
      pid = forkTwice(order, descriptors, reason);
    } catch (const MiddleKilled&) {
      throw;
    } catch (const std::exception& error) {
      reason = error.what();
    }
  }
  if (pid) {
    control_.send(ipc::WorkerForked{order.epoch, *pid});
    ipc::reachCrashPoint(ipc::CrashPoint::kWorkerForkedSent);
  } else {
    control_.send(ipc::ForkFailed{order.epoch, reason});
  }
}

std::optional<pid_t> Zygote::forkTwice(const ipc::ForkWorker& order, WorkerDescriptors& descriptors,
                                       std::string& reason) {
  auto* workerPid = reinterpret_cast<std::atomic<pid_t>*>(pidWord_.data());
  workerPid->store(0);
  PyOS_BeforeFork();
  // vfork(): the middle process runs in the zygote's memory while the zygote is suspended. A
  // copy of Python's page tables for it, and their removal, would take as long as the fork of
  // the worker itself.
  const pid_t middle = ::vfork();
  if (middle == 0) {
    // Only forks: Python's fork handlers do not run for this process.
    const pid_t forker = ::getpid();
    const pid_t worker = ::fork();
    if (worker == 0) runWorker(order, std::move(descriptors), forker, blocks_, sandbox_);
    ipc::reachCrashPoint(ipc::CrashPoint::kWorkerForkedBetween);
    workerPid->store(worker == -1 ? -errno : worker);
    ::_exit(0);
  }
  const int error = errno;
  PyOS_AfterFork_Parent();
  if (middle == -1) {
    reason = std::string("fork failed: ") + std::strerror(error);
    return std::nullopt;
  }
  // Once the middle process is reaped, the worker is the supervisor's child.
  int status = 0;
  while (::waitpid(middle, &status, 0) == -1 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) throw MiddleKilled(WTERMSIG(status));
  ipc::reachCrashPoint(ipc::CrashPoint::kWorkerBorn);
  const pid_t worker = workerPid->load();
  if (worker > 0) return worker;
  reason = std::string("fork failed: ") + std::strerror(worker < 0 ? -worker : EAGAIN);
  return std::nullopt;
}

}  // namespace isopool::worker
