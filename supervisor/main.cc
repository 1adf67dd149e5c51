// SPDX-License-Identifier: BSD-3-Clause
// isopoold: see supervisor/README.md.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/control/frame.h"
#include "ipc/crash_point.h"
#include "supervisor/detach.h"
#include "supervisor/guardian.h"
#include "supervisor/lifeline.h"
#include "supervisor/log.h"
#include "supervisor/service_manager.h"
#include "supervisor/settings.h"
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

// The process that was started is the guardian from here on; this is its child. `socket` is not
// valid unless the service manager opened it: then `listen` is to be made.
int serveShared(Settings settings, ipc::Fd socket, ServiceManager manager, InheritedLimits limits) {
  // SEAM: Supervisor supervisor(settings.options(), std::move(limits));
  //       supervisor.listen(std::move(socket), std::move(manager), std::move(settings));
  //       and, when its signal_set has SIGTERM and SIGHUP: admitSignals();
  (void)settings, (void)socket, (void)limits;
  admitSignals();
  manager.stopping("there is no shared pool in this build");
  log(LogLevel::kError, "there is no shared pool in this build");
  return 1;
}

int superviseShared(Settings settings) {
  ipc::Fd socket = takeActivatedSocket();
  const std::string& listen = settings.options().listen;
  if (!socket.valid() && listen.empty()) {
    return refuse({"isopoold is started by programs that use isopool (--private), or with --listen "
                   "PATH; see --help",
                   2},
                  -1);
  }
  if (socket.valid() && !listen.empty() && pathOfSocket(socket) != listen) {
    return refuse({"isopoold: listen is " + listen + ", but the service manager handed over " +
                       pathOfSocket(socket) + ": leave listen out of the settings",
                   2},
                  -1);
  }
  std::vector<int> kept;
  if (socket.valid()) kept.push_back(socket.get());
  closeInheritedDescriptors(kept);
  ServiceManager manager = ServiceManager::fromEnvironment();
  InheritedLimits limits = detachStandalone();
  ::_exit(
      serveShared(std::move(settings), std::move(socket), std::move(manager), std::move(limits)));
}

bool asksForPrivatePool(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--private") return true;
  }
  return false;
}

// A private pool's log is read by whoever reads its program's error stream.
void startLogOf(const Options& options) {
  const bool asText = options.privatePool && options.logFormat == LogFormat::kAuto;
  startLog(options.logLevel, asText ? LogFormat::kText : options.logFormat);
}

}  // namespace

int main(int argc, char** argv) {
  auto parsed = Settings::parse(argc, argv);
  if (const auto* refused = std::get_if<OptionsRefused>(&parsed)) {
    return refuse(*refused, asksForPrivatePool(argc, argv) ? kDefaultControlFd : -1);
  }
  Settings& settings = std::get<Settings>(parsed);
  const Options& options = settings.options();
  startLogOf(options);
  if (!ipc::armCrashPointFromEnvironment("ISOPOOL_SUPERVISOR_CRASH_POINT") &&
      std::getenv("ISOPOOL_SUPERVISOR_CRASH_POINT") != nullptr) {
    return refuse({"isopoold: ISOPOOL_SUPERVISOR_CRASH_POINT names no crash point", 2},
                  options.privatePool ? options.controlFd : -1);
  }
  try {
    return options.privatePool ? supervise(options) : superviseShared(std::move(settings));
  } catch (const ActivationError& error) {
    return refuse({std::string("isopoold: ") + error.what(), 2}, -1);
  } catch (const std::exception& error) {
    log(LogLevel::kError, error.what());
    ::_exit(1);
  }
}
