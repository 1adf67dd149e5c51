// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/config/system_check.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>

#include "base/fd.h"
#include "base/process_environment.h"
#include "base/settings/setting_text.h"
#include "base/standard_streams.h"
#include "base/system_call.h"
#include "supervisor/processes/exit_status.h"

namespace isopool::supervisor {

namespace {

constexpr int kProgramMayTake = 30'000;  // ms, from a cold disk
constexpr int kNoTorch = 3;
// Finds torch without importing it: an import takes a second. A torch that is not an installed
// package has no version that this way finds.
constexpr const char* kAskForVersions =
    "import sys\n"
    "print('%d.%d' % sys.version_info[:2])\n"
    "from importlib import metadata, util\n"
    "if util.find_spec('torch') is None: sys.exit(3)\n"
    "try: print(metadata.version('torch'))\n"
    "except metadata.PackageNotFoundError: pass\n";

std::string whyNoFolder(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return path + ": " + std::strerror(errno);
  return S_ISDIR(status.st_mode) ? "" : path + " is not a folder";
}

std::string whyNoProgram(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return path + ": " + std::strerror(errno);
  if (S_ISDIR(status.st_mode)) return path + " is a folder, not a program";
  return ::access(path.c_str(), X_OK) == 0 ? "" : path + " can't be executed";
}

std::string folderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string whyNoLogFile(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return errno == ENOENT ? whyNoFolder(folderOf(path)) : path + ": " + std::strerror(errno);
  }
  if (S_ISDIR(status.st_mode)) return path + " is a folder, not a file";
  if (S_ISFIFO(status.st_mode)) {
    // It opens at once only if another process reads it.
    const base::Fd pipe(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    if (!pipe.valid() && errno == ENXIO) return path + " is a named pipe that no process reads";
  }
  return ::access(path.c_str(), W_OK) == 0 ? "" : path + ": " + std::strerror(errno);
}

/// How a program ended, and what it printed.
struct Ran {
  bool inTime = false;
  int status = 0;  ///< as from waitpid()
  std::vector<std::string> lines;

  bool succeeded() const { return exitedWith(0); }
  bool exitedWith(int code) const {
    return inTime && WIFEXITED(status) && WEXITSTATUS(status) == code;
  }
};

/// Sets SIGCHLD to its default while this object lives: the parent process may have started us with
/// SIGCHLD ignored, and then waitpid() returns no status.
class ChildrenAwaited {
 public:
  ChildrenAwaited() : before_(::signal(SIGCHLD, SIG_DFL)) {}
  ~ChildrenAwaited() { ::signal(SIGCHLD, before_); }
  ChildrenAwaited(const ChildrenAwaited&) = delete;
  ChildrenAwaited& operator=(const ChildrenAwaited&) = delete;

 private:
  sighandler_t before_;
};

std::vector<std::string> linesIn(const base::Fd& output) {
  char text[4096];
  const ssize_t bytes = ::pread(output.get(), text, sizeof text, 0);
  std::istringstream stream(std::string(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0))));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

// `variables` override our environment. Throws base::SystemCallError if the program can't be
// started.
Ran run(const std::string& program, std::vector<std::string> words,
        std::vector<std::string> variables = {}) {
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  std::vector<std::string> ours = base::processEnvironment();
  for (std::string& variable : ours) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const ChildrenAwaited awaited;
  const base::Fd output = base::awayFromStandardStreams(
      base::Fd(base::checkSystemCall(::memfd_create("output", MFD_CLOEXEC), "memfd_create")));
  posix_spawn_file_actions_t actions;
  if (const int error = ::posix_spawn_file_actions_init(&actions); error != 0) {
    throw base::SystemCallError("posix_spawn_file_actions_init", "", error);
  }
  for (const int stream : {STDIN_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  }
  ::posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw base::SystemCallError("posix_spawn", program, error);
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd ended{pidfd.get(), POLLIN, 0};
  Ran ran;
  ran.inTime = ::poll(&ended, 1, kProgramMayTake) == 1;
  if (!ran.inTime) ::kill(pid, SIGKILL);
  while (::waitpid(pid, &ran.status, 0) < 0 && errno == EINTR) {
  }
  ran.lines = linesIn(output);
  return ran;
}

std::string howItEnded(const Ran& ran) {
  if (!ran.inTime) return "did not end within " + std::to_string(kProgramMayTake) + " ms";
  return ExitStatus{WIFSIGNALED(ran.status) ? WTERMSIG(ran.status) : 0,
                    WIFEXITED(ran.status) ? WEXITSTATUS(ran.status) : 0}
      .describe();
}

std::string whyNoInterpreter(const std::string& path) {
  const std::string problem = whyNoProgram(path);
  if (!problem.empty()) return problem;
  Ran ran;
  try {
    ran = run(path, {path, "-c", kAskForVersions});
  } catch (const base::SystemCallError& error) {
    return error.what();
  }
  if (ran.exitedWith(kNoTorch)) return path + " has no torch";
  // A worker program is built for one version of Python and of torch.
  if (!ran.lines.empty() && ran.lines[0] != ISOPOOL_PYTHON_VERSION) {
    return path + " is Python " + ran.lines[0] +
           ", but isopool was built for " ISOPOOL_PYTHON_VERSION;
  }
  if (!ran.succeeded() || ran.lines.empty()) {
    return path + " is not a working Python (it " + howItEnded(ran) + ")";
  }
  if (ran.lines.size() > 1 && !ran.lines[1].starts_with(ISOPOOL_TORCH_SERIES ".")) {
    return path + " has torch " + ran.lines[1] +
           ", but isopool was built for " ISOPOOL_TORCH_VERSION;
  }
  return {};
}

// Asks the worker program: it finds the folders that its Python has code in.
std::string whyNoSandbox(const Options& options) {
  if (options.sandbox != "strict") return {};
  try {
    const Ran ran =
        run(options.worker, {options.worker, "--check-sandbox"}, options.workerEnvironment);
    if (ran.succeeded()) return {};
    if (!ran.lines.empty()) return ran.lines[0];
    return options.worker + " --check-sandbox " + howItEnded(ran);
  } catch (const base::SystemCallError& error) {
    return error.what();
  }
}

std::string problemWith(const Settings::Shown& shown) {
  const std::string_view key = shown.key;
  const std::string& text = shown.value.text;
  if (key == "worker_program") return whyNoProgram(text);
  if (key == "python" && !text.empty()) return whyNoInterpreter(text);
  if (key == "listen" && !text.empty()) return whyNoFolder(folderOf(text));
  if (key == "log_file" && !text.empty()) return whyNoLogFile(text);
  if (key == "sandbox.read" || key == "sandbox.write") {
    for (const std::string& folder : shown.value.items) {
      const std::string problem = whyNoFolder(folder);
      if (!problem.empty()) return problem;
    }
  }
  if (key == "preload_libs" || key == "worker_preload_libs") {
    for (const std::string& library : shown.value.items) {
      const bool isPath = library.find('/') != std::string::npos;
      if (isPath && ::access(library.c_str(), R_OK) != 0) {
        return library + ": " + std::strerror(errno);
      }
    }
  }
  return {};
}

}  // namespace

std::string problemOnThisSystem(const Settings& settings) {
  for (const Settings::Shown& shown : settings.shown()) {
    if (shown.setting == nullptr) continue;
    if (settings.options().privatePool && shown.setting->scope == base::Scope::kShared) continue;
    const std::string problem = problemWith(shown);
    if (!problem.empty()) return shown.key + " (" + shown.source + "): " + problem;
  }
  return whyNoSandbox(settings.options());
}

std::vector<std::string> unknownVariables() {
  std::vector<std::string> unknown;
  for (const std::string& variable : base::processEnvironment()) {
    const std::string name = variable.substr(0, variable.find('='));
    const std::string problem = base::whyNoVariable(name);
    if (!problem.empty()) unknown.push_back("the variable " + name + " " + problem);
  }
  return unknown;
}

}  // namespace isopool::supervisor
