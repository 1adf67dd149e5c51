// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/system_check.h"

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
#include <string_view>

#include "ipc/fd.h"
#include "supervisor/setting_text.h"

namespace isopool::supervisor {

namespace {

constexpr int kInterpreterMayTake = 30'000;  // ms, from a cold disk
constexpr int kNoTorch = 3;
// Finds torch without importing it, which takes a second.
constexpr const char* kLookForTorch =
    "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('torch') else 3)";

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

// The exit status as waitpid() has it; -1 if it can't be started or does not end in time.
// What it prints goes to `output`, if there is one. `variables` win over our environment.
int statusOf(const std::string& program, std::vector<std::string> words, int output = -1,
             std::vector<std::string> variables = {}) {
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(nullptr);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  if (::posix_spawn_file_actions_init(&actions) != 0) return -1;
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  }
  if (output != -1) ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return -1;
  const ipc::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd ended{pidfd.get(), POLLIN, 0};
  const bool inTime = ::poll(&ended, 1, kInterpreterMayTake) == 1;
  if (!inTime) ::kill(pid, SIGKILL);
  int status = -1;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return inTime ? status : -1;
}

std::string whyNoInterpreter(const std::string& path) {
  const std::string problem = whyNoProgram(path);
  if (!problem.empty()) return problem;
  const int status = statusOf(path, {path, "-c", kLookForTorch});
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoTorch) return path + " has no torch";
  return path + " is not a Python that runs";
}

// The worker program knows where its Python has code.
std::string whyNoSandbox(const Options& options) {
  if (options.sandbox != "strict") return {};
  const ipc::Fd output(::memfd_create("output", MFD_CLOEXEC));
  const int status = statusOf(options.worker, {options.worker, "--check-sandbox"}, output.get(),
                              options.workerEnvironment);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 0) return {};
  char text[4096];
  const ssize_t bytes = ::pread(output.get(), text, sizeof text, 0);
  const std::string_view said(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  return std::string(said.substr(0, said.find('\n')));
}

std::string problemWith(const Settings::Shown& shown) {
  const std::string_view key = shown.key;
  const std::string& text = shown.value.text;
  if (key == "worker_program") return whyNoProgram(text);
  if (key == "python" && !text.empty()) return whyNoInterpreter(text);
  if (key == "listen" && !text.empty()) return whyNoFolder(folderOf(text));
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
    if (settings.options().privatePool && shown.setting->concern == Concern::kShared) continue;
    const std::string problem = problemWith(shown);
    if (!problem.empty()) return shown.key + " (" + shown.source + "): " + problem;
  }
  return whyNoSandbox(settings.options());
}

std::vector<std::string> unknownVariables() {
  std::vector<std::string> known{"ISOPOOL_CONFIG", "ISOPOOL_CLIENT_CRASH_POINT",
                                 "ISOPOOL_SUPERVISOR_CRASH_POINT", "ISOPOOL_ZYGOTE_CRASH_POINT"};
  for (const Setting& setting : settingTable()) {
    if (!setting.variable.empty()) known.emplace_back(setting.variable);
  }
  std::vector<std::string> unknown;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::string name(variable.substr(0, variable.find('=')));
    if (!name.starts_with("ISOPOOL_")) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    unknown.push_back("the variable " + name + " is no setting; the nearest is " +
                      nearestOf(name, known));
  }
  return unknown;
}

}  // namespace isopool::supervisor
