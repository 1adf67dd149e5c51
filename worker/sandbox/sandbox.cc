// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/sandbox.h"

#include <Python.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/settings/environment.h"
#include "base/system_call.h"
#include "worker/process/memory_limit.h"
#include "worker/process/native_libraries.h"
#include "worker/python/interpreter.h"
#include "worker/sandbox/anonymous_folder.h"
#include "worker/sandbox/forbidden_acts.h"
#include "worker/sandbox/process_starts.h"
#include "worker/sandbox/system_call_filter.h"

namespace isopool::worker {

namespace {

using base::checkSystemCall;

// In the error of one call; the report to the supervisor has all of them.
constexpr size_t kMaxActsInWords = 4;
constexpr std::string_view kSystemCall = "system call ";
// Acts that wait for room in the supervisor's socket.
constexpr size_t kMaxUnreported = 256;
// Timers (timer_create) and queued signals. The kernel counts those of all processes of the user,
// but compares the number with the limit of the process that wants another one: so the others keep
// what is between this limit and theirs.
constexpr uint64_t kMostTimers = 1024;

void requirePath(const char* variable, const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return;
  throw std::runtime_error(std::string(variable) + " names " + path +
                           ", which does not exist: create it first, because workers get no access "
                           "to what is created later");
}

/// The paths in the list that a function of isopool_worker returned. Null: the function failed.
std::vector<std::string> pathsFrom(const PyRef& list) {
  if (!list || !PyList_Check(list.get())) throw std::runtime_error(takePythonError().traceback);
  std::vector<std::string> paths;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    const char* path = PyBytes_AsString(PyList_GET_ITEM(list.get(), i));
    if (path == nullptr) throw std::runtime_error(takePythonError().traceback);
    paths.emplace_back(path);
  }
  return paths;
}

std::vector<std::string> foldersOfPython() {
  const PyRef function = workerFunction("zygote", "folders");
  return pathsFrom(function ? PyRef::steal(PyObject_CallNoArgs(function.get())) : PyRef());
}

std::vector<std::string> placesOfCode() {
  const PyRef libraries = PyRef::steal(PyList_New(0));
  for (const char* variable : {"ISOPOOL_PRELOAD_LIBS", kWorkerLibraries}) {
    for (const std::string& library : base::settingInEnvironment(variable).items) {
      const PyRef name = PyRef::steal(
          PyBytes_FromStringAndSize(library.data(), static_cast<Py_ssize_t>(library.size())));
      if (!libraries || !name || PyList_Append(libraries.get(), name.get()) != 0) {
        throw std::runtime_error(takePythonError().traceback);
      }
    }
  }
  const PyRef function = workerFunction("code_paths", "places");
  return pathsFrom(function ? PyRef::steal(PyObject_CallOneArg(function.get(), libraries.get()))
                            : PyRef());
}

/// True if the path is the folder or lies in it.
bool isWithin(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder.ends_with('/') ? folder : folder + '/');
}

// Otherwise the next zygote would run, without a sandbox, code that a worker left there.
void requireNoCodeIn(const std::string& writable, const std::vector<std::string>& code) {
  std::error_code error;
  const std::string folder = std::filesystem::weakly_canonical(writable, error).string();
  for (const std::string& each : code) {
    if (!isWithin(each, folder) && !isWithin(folder, each)) continue;
    throw std::runtime_error("ISOPOOL_SANDBOX_WRITE names " + writable +
                             ", where a worker could leave code for the next zygote, which runs it "
                             "without a sandbox: the zygote's Python takes code from " +
                             each);
  }
}

void allowLibrariesOfWorkers(FileAccess& files) {
  for (const std::string& library : base::settingInEnvironment(kWorkerLibraries).items) {
    const size_t slash = library.rfind('/');
    // A library may load other libraries from its own folder.
    if (slash != std::string::npos && slash > 0) files.allowReading(library.substr(0, slash));
  }
}

void dropCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  checkSystemCall(static_cast<int>(::syscall(SYS_capset, &header, none)), "capset");
}

void limitHard(int resource, uint64_t value, const char* variable) {
  rlimit former{};
  checkSystemCall(::getrlimit(static_cast<__rlimit_resource>(resource), &former), "getrlimit",
                  variable);
  const rlim_t limit = std::min<rlim_t>(value, former.rlim_max);
  const rlimit wanted{limit, limit};
  checkSystemCall(::setrlimit(static_cast<__rlimit_resource>(resource), &wanted), "setrlimit",
                  variable);
}

bool begins(std::string_view text, std::string_view with) { return text.starts_with(with); }

const char* adviceFor(const std::string& act) {
  if (begins(act, "file ")) return "see ISOPOOL_SANDBOX_READ and ISOPOOL_SANDBOX_WRITE";
  if (begins(act, "start of a process")) {
    return "it is not allowed after the first call of a model, see docs/sandbox.md";
  }
  if (begins(act, "system call socket")) return "see ISOPOOL_SANDBOX_NETWORK";
  return "see docs/sandbox.md";
}

// A worker cannot have a higher limit than the process that starts it.
void requireFiles(uint64_t wanted) {
  rlimit limit{};
  checkSystemCall(::getrlimit(RLIMIT_NOFILE, &limit), "getrlimit", "RLIMIT_NOFILE");
  if (wanted <= limit.rlim_max) return;
  throw std::runtime_error("ISOPOOL_WORKER_FILES=" + std::to_string(wanted) +
                           " is more than the hard limit of this process, " +
                           std::to_string(limit.rlim_max) + " (ulimit -Hn)");
}

bool containsOneOf(const std::string& text, std::initializer_list<const char*> phrases) {
  return std::any_of(phrases.begin(), phrases.end(),
                     [&](const char* phrase) { return text.find(phrase) != std::string::npos; });
}

// By torch's texts for a CUDA that finds no device or may not open it.
bool isAboutGpus(const std::string& text) {
  return containsOneOf(text, {"No CUDA GPUs are available", "Found no NVIDIA driver",
                              "CUDA initialization", "CUDA unknown error", "cudaGetDeviceCount"});
}

// By the texts of Python and torch, which have no exception type for it.
bool isAboutMemory(const std::string& text) {
  return containsOneOf(text, {"std::bad_alloc", "annot allocate memory", "can't allocate memory"});
}

}  // namespace

SandboxPlan planSandbox(const SandboxSettings& settings) {
  SandboxPlan plan;
  plan.settings = settings;
  plan.kernel = probeKernelProtections();
  if (settings.files) requireFiles(*settings.files);
  plan.kernel.temporaryFolders = makeAnonymousFolder().valid();
  if (settings.level != SandboxLevel::kStrict) return plan;
  plan.files = FileAccess::ofTheSystem(settings.network);
  if (settings.gpus) plan.files.allowGpus();
  for (const std::string& folder : foldersOfPython()) plan.files.allowPrograms(folder);
  allowLibrariesOfWorkers(plan.files);
  for (const std::string& path : settings.readable) {
    requirePath("ISOPOOL_SANDBOX_READ", path);
    plan.files.allowReading(path);
  }
  const std::vector<std::string> code =
      settings.writable.empty() ? std::vector<std::string>() : placesOfCode();
  for (const std::string& path : settings.writable) {
    requirePath("ISOPOOL_SANDBOX_WRITE", path);
    requireNoCodeIn(path, code);
    plan.files.allowWriting(path);
  }
  return plan;
}

std::string Sandbox::ownFolder() const {
  return plan_.settings.folders + "/" + std::to_string(worker_.value);
}

void Sandbox::enter() {
  if (!plan_.settings.folders.empty()) offerFolder(ownFolder());
  if (plan_.settings.level == SandboxLevel::kNone) return;
  checkSystemCall(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)");
  FilterOptions options;
  options.process = ::getpid();
  options.network = plan_.settings.network;
  options.gpus = plan_.settings.gpus;
  if (::getrandom(options.key, sizeof options.key, 0) != sizeof options.key) {
    throw base::SystemCallError("getrandom", "a key", errno);
  }
  // Before the rules below, which forbid making it.
  if (strict()) makeFolder();
  // Processes whose parent ends stay in the worker's tree, and do not become the supervisor's.
  if (strict())
    checkSystemCall(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)");
  limitResources();
  if (plan_.settings.memory) limitMemory(*plan_.settings.memory, options.key);
  if (!strict()) return;
  dropCapabilities();
  plan_.files.restrictSelf(plan_.kernel.landlock, plan_.settings.network, folder_);
  if (!plan_.kernel.systemCallFilters) return;
  countForbiddenCalls(options);
  installFilter(alwaysForbidden(options));
}

void Sandbox::makeFolder() {
  if (plan_.kernel.temporaryFolders) {
    folder_ = keepAnonymousFolder();
    if (folder_ == -1) {
      throw std::runtime_error(
          "the worker has no folder for temporary files: it could not make one in memory, although "
          "the zygote could (user.max_user_namespaces may be used up)");
    }
    folderPath_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(folder_);
  } else if (!plan_.settings.folders.empty()) {
    folderPath_ = ownFolder();
    folder_ = keepOfferedFolder();
  }
}

void Sandbox::limitResources() const {
  const SandboxSettings& settings = plan_.settings;
  if (settings.files) limitHard(RLIMIT_NOFILE, *settings.files, "ISOPOOL_WORKER_FILES");
  if (settings.processes) limitHard(RLIMIT_NPROC, *settings.processes, "ISOPOOL_WORKER_PROCESSES");
  if (strict()) limitHard(RLIMIT_SIGPENDING, kMostTimers, "RLIMIT_SIGPENDING");
}

void Sandbox::enteredPython() {
  if (folder_ != -1) {
    const PyRef use = workerFunction("startup", "use_temporary_folder");
    if (!use || !PyRef::steal(PyObject_CallFunction(use.get(), "s", folderPath_.c_str()))) {
      throw std::runtime_error(takePythonError().traceback);
    }
  }
  if (strict() && plan_.kernel.systemCallFilters) watchProcessStarts();
}

void Sandbox::closeForCalls() {
  if (strict() && plan_.kernel.systemCallFilters) {
    installFilter(forbiddenDuringCalls(plan_.settings.gpus));
    forbidProcessStarts();
  }
  callsBegan_ = true;
}

void Sandbox::noteModuleFolder(const std::string& folder) {
  if (!strict() || plan_.kernel.landlock == 0 || ::access(folder.c_str(), F_OK) != 0 ||
      !plan_.files.hides(folder)) {
    return;
  }
  countForbiddenAct("file " + folder);
  if (hiddenFolders_.size() < kMaxActsInWords) hiddenFolders_.push_back(folder);
}

void Sandbox::collect() {
  for (ipc::ForbiddenAct& act : takeForbiddenActs()) {
    const auto same = [&](const ipc::ForbiddenAct& each) { return each.act == act.act; };
    const auto known = std::find_if(unreported_.begin(), unreported_.end(), same);
    if (known != unreported_.end()) {
      known->times += act.times;
    } else if (unreported_.size() < kMaxUnreported) {
      unreported_.push_back(std::move(act));
    }
  }
}

void Sandbox::explain(PythonError& error) {
  collect();
  // The error of such a call names the file, too: it would be counted twice.
  const bool changesFile =
      std::any_of(unreported_.begin(), unreported_.end(), [](const auto& each) {
        return begins(each.act, kSystemCall) && changesFiles(each.act.substr(kSystemCall.size()));
      });
  if (strict() && plan_.kernel.landlock > 0 && !changesFile) {
    for (const std::string& file : error.refusedFiles) {
      if (plan_.files.forbids(file)) countForbiddenAct("file " + file);
    }
  }
  const std::string lines =
      words(error.memoryShort || isAboutMemory(error.message), error.type == "ModuleNotFoundError");
  if (!lines.empty()) error.append(lines);
  if (strict() && plan_.kernel.landlock > 0 && !plan_.settings.gpus && isAboutGpus(error.message) &&
      ::access("/dev/nvidiactl", F_OK) == 0) {
    error.append("isopool: the sandbox (strict) forbids the GPUs; see ISOPOOL_WORKER_GPUS");
  }
}

void Sandbox::explain(std::string& reason) {
  const std::string lines = words(isAboutMemory(reason), /*moduleMissing=*/false);
  if (!lines.empty()) reason.append("\n").append(lines);
}

std::string Sandbox::words(bool memoryShort, bool moduleMissing) {
  std::string lines;
  const auto add = [&](const std::string& line) {
    if (!lines.empty()) lines.push_back('\n');
    lines.append(line);
  };
  collect();
  for (size_t i = 0; i < std::min(unreported_.size(), kMaxActsInWords); ++i) {
    const std::string& act = unreported_[i].act;
    add("isopool: the sandbox (strict) forbids " + act + "; " + adviceFor(act));
  }
  if (unreported_.size() > kMaxActsInWords) {
    add("isopool: and " + std::to_string(unreported_.size() - kMaxActsInWords) + " other acts");
  }
  for (const std::string& folder : hiddenFolders_) {
    if (!moduleMissing) break;
    add("isopool: the sandbox (strict) hides the folder " + folder +
        " of sys.path; see ISOPOOL_SANDBOX_READ");
  }
  if (memoryShort && plan_.settings.memory) {
    countForbiddenAct(ipc::kTooMuchMemory);
    add(memoryLimitInWords());
  }
  return lines;
}

void Sandbox::report(ControlPlane& control) noexcept {
  if (!anyForbiddenActs() && unreported_.empty()) return;
  try {
    collect();
    const auto reported = [&](const ipc::ForbiddenAct& act) { return control.tell(act); };
    unreported_.erase(unreported_.begin(),
                      std::find_if_not(unreported_.begin(), unreported_.end(), reported));
  } catch (const std::exception&) {
    // Reported after the next call.
  }
}

}  // namespace isopool::worker
