// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/native_libraries.h"

#include <Python.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "base/fd.h"
#include "base/system_call.h"

namespace isopool::worker {

namespace {

[[noreturn]] void fail(const std::string& library, const std::string& reason) {
  throw std::runtime_error("the library " + library + " can't be loaded: " + reason);
}

void load(const std::string& library) {
  if (::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  const char* reason = ::dlerror();
  fail(library, reason != nullptr ? reason : "dlerror() reported no reason");
}

void writeAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

std::string readAll(int fd) {
  std::string text;
  char chunk[4096];
  for (;;) {
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(chunk, static_cast<size_t>(got));
  }
}

// State of the child process that tries libraries.
int reportTo = -1;
std::string tried;

// Terminate handler: dlopen() does not propagate exceptions of initialisers.
[[noreturn]] void reportTermination() {
  std::string what = "an exception that is not a std::exception";
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
    what = "std::terminate was called";
  } catch (const c10::Error& error) {
    what = error.what_without_backtrace();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  writeAll(reportTo,
           "\nthe library " + tried + " can't be loaded: an initialiser in it throws: " + what);
  ::_exit(1);
}

// Writes one line per library before it loads it; after an error an empty line and then the reason.
[[noreturn]] void report(const std::vector<std::string>& libraries, int fd) {
  reportTo = fd;
  std::set_terminate(&reportTermination);
  for (const std::string& library : libraries) {
    tried = library;
    writeAll(fd, library + "\n");
    try {
      load(library);
    } catch (const std::exception& error) {
      writeAll(fd, std::string("\n") + error.what());
      ::_exit(1);
    }
  }
  ::_exit(0);
}

}  // namespace

void loadLibraries(const std::vector<std::string>& libraries) {
  for (const std::string& library : libraries) load(library);
}

void tryLibraries(const std::vector<std::string>& libraries) {
  if (libraries.empty()) return;
  int ends[2];
  base::checkSystemCall(::pipe(ends), "pipe");
  const base::Fd input(ends[0]);
  base::Fd output(ends[1]);
  PyOS_BeforeFork();
  const pid_t child = ::fork();
  if (child == 0) report(libraries, output.get());
  const int error = errno;
  PyOS_AfterFork_Parent();
  if (child == -1) throw base::SystemCallError("fork", "", error);
  output.close();
  const std::string told = readAll(input.get());
  int status = 0;
  while (::waitpid(child, &status, 0) == -1 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const size_t reason = told.find("\n\n");
  if (reason != std::string::npos) throw std::runtime_error(told.substr(reason + 2));
  const std::string lines = told.substr(0, told.size() - std::min<size_t>(told.size(), 1));
  fail(lines.substr(lines.rfind('\n') + 1),
       WIFSIGNALED(status)
           ? "signal " + std::to_string(WTERMSIG(status)) + " killed a process that loaded it"
           : "it ended a process that loaded it with exit code " +
                 std::to_string(WEXITSTATUS(status)));
}

}  // namespace isopool::worker
