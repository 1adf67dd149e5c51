// SPDX-License-Identifier: BSD-3-Clause
#include "worker/program.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "worker/process/process_title.h"
#include "worker/zygote.h"

namespace isopool::worker {

namespace {

constexpr const char* kHelp =
    "usage: isopool-worker --zygote --control-fd N --lifeline-fd N [--glibc-tunables TEXT]\n"
    "       isopool-worker --check-sandbox\n"
    "       isopool-worker --preloads-of PACKAGE\n"
    "       isopool-worker --version\n"
    "\n"
    "Part of isopool; started by its supervisor (isopoold). Imports torch once and then forks the\n"
    "workers that models run in.\n"
    "\n"
    "  --control-fd N   Unix stream socket to the supervisor\n"
    "  --lifeline-fd N  read end of a pipe whose write end only the supervisor holds\n"
    "  --glibc-tunables TEXT  value of GLIBC_TUNABLES for user code; empty: unset\n"
    "  --check-sandbox  print why a zygote would refuse the sandbox settings, and exit (0: valid)\n"
    "  --preloads-of PACKAGE  print the modules that this package takes from the workers' Python "
    "and\n"
    "                   the time to import each, for ISOPOOL_PRELOAD_MODULES, and exit.\n"
    "                   Imports them here, without a sandbox: the file chooses among the modules\n"
    "                   that are installed; code of the file itself does not run\n"
    "  --version        print the version, and exit\n"
    "\n"
    "environment:\n"
    "  ISOPOOL_PYTHON_EXECUTABLE  Python whose packages are used (built "
    "for: " ISOPOOL_PYTHON_EXECUTABLE
    ")\n"
    "  ISOPOOL_PRELOAD_MODULES    modules to import before the first fork, comma separated\n"
    "  ISOPOOL_PRELOAD_LIBS       libraries of operators to load before the first fork\n"
    "  ISOPOOL_WORKER_PRELOAD_LIBS  libraries of operators to load in each worker\n"
    "  ISOPOOL_WORKER_THREADS     threads of the libraries of one worker (default: 1)\n"
    "  ISOPOOL_CORE_DUMPS         1: a crashed worker leaves a core dump\n"
    "  ISOPOOL_NO_KILL            1: workers may be traced, breakpoint() waits for a debugger\n"
    "  ISOPOOL_CRASH_POINT        NAME or NAME:NTH: where workers kill themselves (tests)\n"
    "  ISOPOOL_ZYGOTE_CRASH_POINT  NAME or NAME:NTH: where the zygote kills itself (tests)\n";

int checkSandbox() {
  try {
    checkSandboxOfZygotes();
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

int printPreloads(const char* file) {
  try {
    std::fputs(preloadsOf(file).c_str(), stdout);
    std::fflush(stdout);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "isopool-worker: %s\n", error.what());
    return 1;
  }
}

struct Options {
  bool zygote = false;
  int controlFd = -1;
  int lifelineFd = -1;
};

int descriptorFrom(const char* text) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *text == '\0' || *end != '\0' || value < 0 ? -1 : static_cast<int>(value);
}

}  // namespace

int runProgram(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const bool hasValue = i + 1 < argc;
    if (std::strcmp(argv[i], "--help") == 0) {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (std::strcmp(argv[i], "--version") == 0) {
      std::puts("isopool-worker " ISOPOOL_VERSION);
      return 0;
    }
    if (std::strcmp(argv[i], "--check-sandbox") == 0) return checkSandbox();
    // No destructors: a module that was imported may have started threads.
    if (std::strcmp(argv[i], "--preloads-of") == 0 && hasValue) {
      std::_Exit(printPreloads(argv[i + 1]));
    }
    if (std::strcmp(argv[i], "--zygote") == 0) {
      options.zygote = true;
    } else if (std::strcmp(argv[i], "--control-fd") == 0 && hasValue) {
      options.controlFd = descriptorFrom(argv[++i]);
    } else if (std::strcmp(argv[i], "--lifeline-fd") == 0 && hasValue) {
      options.lifelineFd = descriptorFrom(argv[++i]);
    } else if (std::strcmp(argv[i], "--glibc-tunables") == 0 && hasValue) {
      // This process's own malloc read the variable before main().
      const char* before = argv[++i];
      *before == '\0' ? ::unsetenv("GLIBC_TUNABLES") : ::setenv("GLIBC_TUNABLES", before, 1);
    } else {
      std::fprintf(stderr, "isopool-worker: unknown argument %s\n%s", argv[i], kHelp);
      return 64;
    }
  }
  if (!options.zygote || options.controlFd < 0 || options.lifelineFd < 0) {
    std::fprintf(
        stderr,
        "isopool-worker: --zygote, --control-fd and --lifeline-fd are required: start isopoold, "
        "which starts this program\n%s",
        kHelp);
    return 64;
  }
  keepProcessTitle();
  setProcessTitle("zygote");
  try {
    Zygote zygote{base::Fd(options.controlFd), base::Fd(options.lifelineFd)};
    const int status = zygote.run();
    std::_Exit(status);  // no Py_Finalize(): with torch imported it may crash
  } catch (const std::exception& error) {
    std::fprintf(stderr, "isopool-worker: %s\n", error.what());
    std::_Exit(1);
  }
}

}  // namespace isopool::worker
