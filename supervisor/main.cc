// SPDX-License-Identifier: BSD-3-Clause
// isopoold: see supervisor/README.md.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "ipc/control/frame.h"
#include "ipc/crash_point.h"
#include "supervisor/detach.h"
#include "supervisor/lifeline.h"
#include "supervisor/log.h"
#include "supervisor/options.h"
#include "supervisor/supervisor.h"

namespace {

using namespace isopool;
using namespace isopool::supervisor;

constexpr int kDefaultControlFd = 3;

// The program that started us learns the reason even if nobody reads its error stream.
int refuse(const OptionsRefused& refused, int controlFd) {
  std::FILE* stream = refused.exitCode == 0 ? stdout : stderr;
  std::fprintf(stream, "%s\n", refused.text.c_str());
  if (refused.exitCode != 0 && ::fcntl(controlFd, F_GETFD) != -1) {
    ipc::ControlSocket(ipc::Fd(controlFd)).send(ipc::Failure{refused.text});
  }
  return refused.exitCode;
}

int supervise(const Options& options) {
  closeInheritedDescriptors({options.controlFd, options.lifelineFd});
  InheritedLimits limits = detach();
  if (!armLifeline(options.lifelineFd)) return 0;
  Supervisor supervisor(options, std::move(limits), {});
  supervisor.addClient(ipc::Fd(options.controlFd));
  const int exitCode = supervisor.run();
  // Without destructors: whatever is in the making is not worth waiting for, and every lifeline is
  // cut by our end.
  ::_exit(exitCode);
}

bool asksForPrivatePool(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--private") return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = parseOptions(argc, argv);
  if (const auto* refused = std::get_if<OptionsRefused>(&parsed)) {
    return refuse(*refused, asksForPrivatePool(argc, argv) ? kDefaultControlFd : -1);
  }
  const Options& options = std::get<Options>(parsed);
  if (!options.privatePool) {
    return refuse({"isopoold is started by programs that use isopool (--private); see --help", 2},
                  -1);
  }
  if (!startLog()) {
    return refuse({"isopoold: ISOPOOL_LOG is none of debug, info, warning, error, off", 2},
                  options.controlFd);
  }
  if (!ipc::armCrashPointFromEnvironment("ISOPOOL_SUPERVISOR_CRASH_POINT") &&
      std::getenv("ISOPOOL_SUPERVISOR_CRASH_POINT") != nullptr) {
    return refuse({"isopoold: ISOPOOL_SUPERVISOR_CRASH_POINT names no crash point", 2},
                  options.controlFd);
  }
  try {
    return supervise(options);
  } catch (const std::exception& error) {
    log(LogLevel::kError, error.what());
    ::_exit(1);
  }
}
