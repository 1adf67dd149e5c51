// SPDX-License-Identifier: BSD-3-Clause
// isopoold: see supervisor/README.md.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/lifeline.h"
#include "base/log/log.h"
#include "base/loop/kernel_event_loop.h"
#include "base/memory_limits.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"
#include "ipc/control/operator_messages.h"
#include "ipc/crash_point.h"
#include "supervisor/config/settings.h"
#include "supervisor/config/system_check.h"
#include "supervisor/processes/detach.h"
#include "supervisor/processes/guardian.h"
#include "supervisor/processes/guardian_link.h"
#include "supervisor/processes/kernel_processes.h"
#include "supervisor/processes/log_retry.h"
#include "supervisor/processes/memory_shortage.h"
#include "supervisor/processes/output_quota.h"
#include "supervisor/processes/service_manager.h"
#include "supervisor/processes/succession.h"
#include "supervisor/processes/worker_folders.h"
#include "supervisor/processes/worker_output.h"
#include "supervisor/supervisor.h"

namespace {

using namespace isopool;
using namespace isopool::supervisor;

constexpr int kDefaultControlFd = 3;

// Prints the text, and sends it to the program that started this process, if there is one: that
// program's error stream may not be read.
int refuse(const OptionsRefused& refused, int controlFd) {
  std::FILE* stream = refused.exitCode == 0 ? stdout : stderr;
  std::fprintf(stream, "%s\n", refused.text.c_str());
  if (refused.exitCode != 0 && ::fcntl(controlFd, F_GETFD) != -1) {
    ipc::ControlSocket(base::Fd(controlFd)).send(ipc::Failure{refused.text});
  }
  return refused.exitCode;
}

/// A successor's connection to its guardian, by which its predecessor learns why it does not serve.
/// Of any other process: not valid.
using FailureReports = base::Fd;

void reportFailure(FailureReports& reports, const std::string& reason) {
  if (!reports.valid()) return;
  ipc::ControlSocket(std::move(reports)).send(ipc::Failure{reason}, {}, base::Milliseconds(0));
}

std::string withoutProgram(std::string text) {
  constexpr std::string_view kProgram = "isopoold: ";
  if (text.starts_with(kProgram)) text.erase(0, kProgram.size());
  return text;
}

// For a successor: its error stream is the log of its predecessor.
int refuseSuccessor(const OptionsRefused& refused, FailureReports& reports) {
  const std::string reason = withoutProgram(refused.text);
  base::log(base::LogLevel::kError, "this process can't take over: " + reason);
  reportFailure(reports, reason);
  return refused.exitCode;
}

Options withFolders(Options options, const std::string& path) {
  options.workerFolders = path;
  options.workerEnvironment.push_back(kWorkerFoldersVariable + ("=" + path));
  return options;
}

OutputSource sourceOfZygote() {
  OutputSource source;
  source.kind = "zygote";
  return source;
}

int supervise(const Options& settings) {
  closeInheritedDescriptors({settings.controlFd, settings.lifelineFd});
  const std::string folders = reserveWorkerFolders();
  const Options options = withFolders(settings, folders);
  InheritedLimits limits = detach(folders);
  if (!base::armLifeline(options.lifelineFd)) return 0;
  base::KernelEventLoop loop;
  const LogRetry logRetry(loop);
  OutputQuota outputQuota(options.outputQuota, loop.now());
  std::optional<WorkerOutput> zygoteOutput;
  if (options.collectOutput) zygoteOutput.emplace(loop, outputQuota, sourceOfZygote);
  KernelProcesses processes =
      zygoteOutput ? KernelProcesses(zygoteOutput->writeEnd()) : KernelProcesses();
  Supervisor supervisor({loop, processes, outputQuota, std::random_device{}()}, options,
                        std::move(limits), {});
  supervisor.addClient(base::Fd(options.controlFd));
  const int exitCode = supervisor.run();
  supervisor.logOutput();
  if (zygoteOutput) zygoteOutput->finish();
  // Skips destructors: they would wait for work in progress. The end of this process cuts every
  // lifeline.
  ::_exit(exitCode);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// `address` may differ from the setting: the service manager may have opened the socket.
Options servedAt(Options options, const std::string& address, const std::string& folders) {
  options.listen = address;
  options.collectOutput = true;
  return withFolders(std::move(options), folders);
}

Reload reloaded(Settings& settings, ServiceManager& manager, const std::string& address,
                const std::string& folders) {
  manager.reloading();
  const std::string& logFile = settings.options().logFile;
  if (const std::string problem = logFile.empty() ? "" : base::sendErrorStreamTo(logFile);
      !problem.empty()) {
    base::log(base::LogLevel::kError,
              "the log file can't be opened again: " + problem +
                  ". Lines go to the old one; if it was removed, they are counted as lost");
  }
  const auto changes = settings.reload();
  manager.ready("serving");
  if (const auto* refused = std::get_if<OptionsRefused>(&changes)) {
    base::log(base::LogLevel::kError,
              "the reload failed, no setting has changed: " + refused->text);
    return {.options = {}, .failure = withoutProgram(refused->text), .needRestart = {}};
  }
  const auto& [taken, needRestart] = std::get<Settings::Changes>(changes);
  base::setLogLevel(settings.options().logLevel);
  base::log(base::LogLevel::kInfo, "the settings were reloaded",
            {{"taken", joined(taken)}, {"need_restart", joined(needRestart)}});
  if (!needRestart.empty()) {
    base::log(base::LogLevel::kWarning,
              "settings that changed in the file need a restart: " + joined(needRestart));
  }
  return {.options = servedAt(settings.options(), address, folders),
          .failure = {},
          .needRestart = needRestart};
}

std::vector<ipc::ReportedSetting> reported(const Settings& settings) {
  std::vector<ipc::ReportedSetting> all;
  for (Settings::Shown& each : settings.shown()) {
    const bool reloadable = each.reloadable();
    all.push_back({std::move(each.key), std::move(each.text), std::move(each.source), reloadable});
  }
  return all;
}

// A supervisor ends drain_timeout after its successor serves: what is later than that hangs.
ipc::StartSuccessor successorTimes(const Options& options, const ServiceManager& manager) {
  constexpr base::Milliseconds kLonger(10'000);
  ipc::StartSuccessor times;
  times.startMilliseconds = static_cast<uint64_t>(successorTimeout(options).count());
  times.drainMilliseconds = static_cast<uint64_t>((options.drainTimeout + kLonger).count());
  if (const auto period = manager.signOfLifePeriod()) {
    times.watchdogMicroseconds = 2 * static_cast<uint64_t>(period->count());
  }
  return times;
}

/// What a shared supervisor begins with.
struct Beginning {
  ListeningSocket socket;  ///< not valid: to be made
  Supervisor::Accept accept = Supervisor::Accept::kAtOnce;
  ServiceManager manager;
  InheritedLimits limits;
  base::Fd guardian;
  FailureReports* failures = nullptr;
  std::string folders;
};

// Runs in the child of the guardian, which is the process that was started.
int serveShared(Settings settings, Beginning beginning) {
  ListeningSocket listening = std::move(beginning.socket);
  if (!listening.socket.valid()) {
    listening = listenAt(settings.options().listen, settings.options().socketGroup);
  }
  const std::string address = pathOfSocket(listening.socket);
  const std::string folders = beginning.folders;
  ServiceManager manager = std::move(beginning.manager);
  // Workers keep the raised limit of open files: a worker has descriptors for each of its clients.
  InheritedLimits limits = beginning.limits;
  limits.openFiles = {};
  base::KernelEventLoop loop;
  std::optional<Supervisor> supervisor;
  GuardianLink guardian(
      loop, std::move(beginning.guardian),
      {.successorServes = [&] { supervisor->replaced(); },
       .successorEnded = [&](const std::string& text) { supervisor->successorFailed(text); }});
  SupervisorEvents events;
  events.failed = [&](const std::string& reason) { reportFailure(*beginning.failures, reason); };
  events.serving = [&] {
    manager.ready("serving");
    if (beginning.accept == Supervisor::Accept::kWhenServing) guardian.serves();
    beginning.failures->close();
    base::log(base::LogLevel::kInfo, "serving", {{"address", address}});
  };
  events.draining = [&] { manager.stopping("waiting for calls in flight"); };
  if (const auto period = manager.signOfLifePeriod()) {
    events.alive = [&] { manager.alive(); };
    events.aliveEvery = std::chrono::duration_cast<base::Milliseconds>(*period);
  }
  events.reload = [&] { return reloaded(settings, manager, address, folders); };
  events.settings = [&] { return reported(settings); };
  events.startSuccessor = [&](const ListeningSocket& socket) {
    guardian.startSuccessor(successorTimes(settings.options(), manager), socket.socket.get(),
                            socket.lock.get());
  };
  const LogRetry logRetry(loop);
  OutputQuota outputQuota(settings.options().outputQuota, loop.now());
  WorkerOutput zygoteOutput(loop, outputQuota, sourceOfZygote);
  KernelProcesses processes(zygoteOutput.writeEnd());
  const std::string problem =
      processes.makeControlGroups(beginning.accept == Supervisor::Accept::kWhenServing);
  base::log(base::LogLevel::kInfo, problem.empty()
                                       ? "each worker gets a control group of its own"
                                       : "workers get no control groups of their own: " + problem);
  supervisor.emplace(Platform{loop, processes, outputQuota, std::random_device{}()},
                     servedAt(settings.options(), address, folders), std::move(limits),
                     std::move(events));
  supervisor->listen(std::move(listening), beginning.accept);
  const int exitCode = supervisor->run();
  supervisor->logOutput();
  zygoteOutput.finish();
  supervisor.reset();  // before what it uses
  return exitCode;
}

void warnOfGroupKills() {
  if (!base::memoryKillsWholeGroup()) return;
  base::log(base::LogLevel::kWarning,
            "the control group has memory.oom.group=1: if its memory runs out, the kernel kills "
            "isopoold and all workers, not one worker; limit each worker (sandbox.memory), or have "
            "the container engine not set memory.oom.group (Kubernetes: singleProcessOOMKill)");
}

int superviseShared(Settings settings, FailureReports& failures) {
  base::Fd socket = takeActivatedSocket();
  const std::string& listen = settings.options().listen;
  if (!socket.valid() && listen.empty()) {
    return refuse({"isopoold: neither --listen PATH nor --private is given; to start a shared "
                   "supervisor, give --listen PATH (see --help)",
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
  warnOfGroupKills();
  Beginning beginning;
  beginning.socket.socket = std::move(socket);
  beginning.manager = ServiceManager::fromEnvironment();
  beginning.folders = reserveWorkerFolders();
  Detached detached = detachStandalone(beginning.folders, beginning.manager.throughRelay());
  beginning.limits = std::move(detached.limits);
  beginning.guardian = std::move(detached.guardian);
  beginning.failures = &failures;
  ::_exit(serveShared(std::move(settings), std::move(beginning)));
}

int succeed(Settings settings, Inheritance inheritance, FailureReports& failures) {
  const std::string address = pathOfSocket(inheritance.socket);
  const std::string& listen = settings.options().listen;
  if (!listen.empty() && listen != address) {
    return refuseSuccessor({"listen is " + listen + ", but a restart keeps the address, which is " +
                                address + ": stop the service and start it again",
                            2},
                           failures);
  }
  warnOfGroupKills();
  Beginning beginning;
  beginning.socket = inherited(std::move(inheritance.socket), std::move(inheritance.lock));
  beginning.accept = Supervisor::Accept::kWhenServing;
  beginning.manager = ServiceManager::behind(std::move(inheritance.notifications));
  beginning.folders = std::move(inheritance.folders);
  beginning.limits = detachSuccessor();
  beginning.guardian = std::move(inheritance.guardian);
  beginning.failures = &failures;
  ::_exit(serveShared(std::move(settings), std::move(beginning)));
}

bool asksForPrivatePool(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--private") return true;
  }
  return false;
}

// A private pool's log goes to its program's error stream, so its format "auto" is text, or to its
// program's logger, which reads JSON.
void startLogOf(const Options& options) {
  if (options.privatePool && options.collectOutput) {
    return base::startLog(options.logLevel, base::LogFormat::kJson);
  }
  const bool asText = options.privatePool && options.logFormat == base::LogFormat::kAuto;
  base::startLog(options.logLevel, asText ? base::LogFormat::kText : options.logFormat);
}

int run(int argc, char** argv, FailureReports& failures) {
  std::optional<Inheritance> inheritance = takeInheritance();
  if (inheritance) {
    failures = inheritance->guardian.duplicate();
    // Until the settings are known.
    base::startLog(base::LogLevel::kInfo, base::LogFormat::kAuto);
  }
  const auto refused = [&](const OptionsRefused& refusal, bool privatePool, int controlFd) {
    if (inheritance) return refuseSuccessor(refusal, failures);
    return refuse(refusal, privatePool ? controlFd : -1);
  };
  auto parsed = Settings::parse(argc, argv);
  if (const auto* wrong = std::get_if<OptionsRefused>(&parsed)) {
    return refused(*wrong, asksForPrivatePool(argc, argv), kDefaultControlFd);
  }
  Settings& settings = std::get<Settings>(parsed);
  const Options& options = settings.options();
  if (!options.privatePool && !options.logFile.empty()) {
    const std::string problem = base::sendErrorStreamTo(options.logFile);
    if (!problem.empty()) return refused({"isopoold: log_file: " + problem, 2}, false, -1);
  }
  startLogOf(options);
  if (!ipc::armCrashPointFromEnvironment("ISOPOOL_SUPERVISOR_CRASH_POINT") &&
      std::getenv("ISOPOOL_SUPERVISOR_CRASH_POINT") != nullptr) {
    return refused({"isopoold: ISOPOOL_SUPERVISOR_CRASH_POINT is not the name of a crash point", 2},
                   options.privatePool, options.controlFd);
  }
  const std::string problem = problemOnThisSystem(settings);
  if (!problem.empty()) {
    return refused({"isopoold: " + problem, 2}, options.privatePool, options.controlFd);
  }
  if (options.privatePool) return supervise(options);
  for (const std::string& each : unknownVariables()) base::log(base::LogLevel::kWarning, each);
  if (inheritance) return succeed(std::move(settings), *std::move(inheritance), failures);
  return superviseShared(std::move(settings), failures);
}

}  // namespace

int main(int argc, char** argv) {
  waitForMemoryWhenThereIsNone();
  // With a limit of the size of files (ulimit -f) this signal would end the process without a word;
  // the failed system call is reported.
  ::signal(SIGXFSZ, SIG_IGN);
  FailureReports failures;
  try {
    return run(argc, argv, failures);
  } catch (const ActivationError& error) {
    return refuse({std::string("isopoold: ") + error.what(), 2}, -1);
  } catch (const std::bad_alloc&) {
    base::log(base::LogLevel::kError,
              "isopoold ends: an allocation failed for 2 s because memory is short");
    ::_exit(1);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kError, error.what());
    reportFailure(failures, error.what());
    ::_exit(1);
  }
}
