// SPDX-License-Identifier: BSD-3-Clause
// isopool: see cli/README.md.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <clocale>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/terminal_text.h"
#include "cli/actions.h"
#include "cli/findings.h"
#include "cli/metrics/listen_address.h"
#include "cli/metrics/metrics_server.h"
#include "cli/metrics/report_metrics.h"
#include "cli/report_json.h"
#include "cli/report_pages.h"
#include "cli/sorting.h"
#include "cli/styled_text.h"
#include "cli/supervisor_link.h"
#include "cli/terminal.h"
#include "cli/top.h"
#include "cli/wording.h"
#include "ipc/control/operator_messages.h"

namespace {

using namespace isopool;
using namespace isopool::cli;

constexpr int kUnreachable = 1;
constexpr int kWrongUsage = 2;
constexpr int kProblemFound = 3;

constexpr const char* kDefaultAddress = "/run/isopool/isopoold.sock";
constexpr double kShortestInterval = 0.1;  // seconds
constexpr double kLongestInterval = 86400;

constexpr const char* kDescription =
    "isopool: shows the state of a shared supervisor (isopoold --listen): its workers, its\n"
    "clients and their models. Only evict and recycle change something.\n"
    "\n"
    "isopool batch runs a model over many inputs: isopool batch --help.";

constexpr const char* kExamples =
    "\nExamples:\n"
    "  isopool status                                the state, recent deaths, and problems\n"
    "  isopool top --interval 500ms                  activity, twice a second, until q\n"
    "  isopool workers --socket /tmp/isopool.sock    the workers of another supervisor\n"
    "  isopool clients --json | jq '.clients[] | select(.queued_calls > 0)'\n"
    "  isopool top --json --count 60 > minute.jsonl  record one minute\n"
    "  isopool status --ready                        for a health probe\n"
    "  isopool metrics --listen 127.0.0.1:9464       serve metrics to Prometheus\n"
    "  isopool evict 7                               end the connection of client #7\n"
    "  isopool recycle --all --wait 5m               replace all workers, one after another\n"
    "\n"
    "The address of the supervisor is --socket, else $ISOPOOL_SOCKET, else\n"
    "/run/isopool/isopoold.sock. Its own user, root and the group of its setting socket_group may\n"
    "connect; only the first two may change something.\n"
    "\n"
    "Exit code 0: success; 1: the supervisor can't be reached, refused the connection or the\n"
    "action, or did not answer within 2 s, and one line on stderr gives the cause; 2: wrong "
    "usage;\n"
    "3: status found a problem. NO_COLOR=1 turns colours off.\n";

struct Options {
  std::string socket;
  bool json = false;
  double interval = 1;  ///< seconds
  uint64_t count = 0;
  bool ready = false;
  std::string listen;
  std::string target;  ///< of an action
  bool all = false;
  double wait = 0;     ///< seconds
  std::string file;    ///< of a model
  std::string pickle;  ///< in that file: MODULE/RESOURCE
};

std::string addressOf(const Options& options) {
  if (!options.socket.empty()) return options.socket;
  const char* named = std::getenv("ISOPOOL_SOCKET");
  return named != nullptr && *named != '\0' ? named : kDefaultAddress;
}

void print(const Page& page) {
  writeOut(painted(page, outputHasColours() ? Colours::kYes : Colours::kNo));
}

void print(const base::Json& json) { writeOut(base::jsonText(json) + "\n"); }

ipc::Report reportFor(const Options& options) {
  ipc::Report report = SupervisorLink(addressOf(options)).ask();
  sortByPlace(report);
  return report;
}

int ready(const Options& options, const ipc::Report& report) {
  const std::optional<std::string> why = whyNotReady(report);
  if (options.json) {
    print(base::Json{{"ready", !why}, {"reason", why ? base::Json(*why) : base::Json()}});
  } else if (why) {
    std::fprintf(stderr, "isopool: not ready: %s\n", why->c_str());
  } else {
    writeOut("ready\n");
  }
  return why ? kProblemFound : 0;
}

int status(const Options& options) {
  const ipc::Report report = reportFor(options);
  if (options.ready) return ready(options, report);
  if (options.json) {
    print(statusJson(report));
  } else {
    print(statusPage(report));
  }
  return hasProblem(findings(report)) ? kProblemFound : 0;
}

int workers(const Options& options) {
  const ipc::Report report = reportFor(options);
  if (options.json) {
    print(base::Json{{"workers", workersJson(report)}, {"slots", slotsJson(report)}});
  } else {
    print(workersPage(report));
  }
  return 0;
}

int clients(const Options& options) {
  const ipc::Report report = reportFor(options);
  if (options.json) {
    print(base::Json{{"clients", clientsJson(report)}});
  } else {
    print(clientsPage(report));
  }
  return 0;
}

// Becomes another program of this installation. Returns only if that fails.
int become(const std::string& name, std::vector<const char*> words) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = self.parent_path().parent_path() / "libexec/isopool" / name;
  words.insert(words.begin(), program.c_str());
  words.push_back(nullptr);
  ::execv(program.c_str(), const_cast<char**>(words.data()));
  std::fprintf(stderr, "isopool: %s can't be executed: %s\n", program.c_str(),
               std::strerror(errno));
  return kUnreachable;
}

// Becomes the program that loads the file.
int describeModelFile(const Options& options) {
  std::vector<const char*> words{options.file.c_str()};
  if (!options.pickle.empty()) words.insert(words.end(), {"--pickle", options.pickle.c_str()});
  if (options.json) words.push_back("--json");
  return become("isopool-describe-model", words);
}

int models(const Options& options) {
  if (!options.file.empty()) return describeModelFile(options);
  const ipc::Report report = reportFor(options);
  if (options.json) {
    print(base::Json{{"models", modelsJson(report)}, {"calls", modelCallsJson(report)}});
  } else {
    print(modelsPage(report));
  }
  return 0;
}

int settings(const Options& options) {
  const ipc::SettingsInForce settings = SupervisorLink(addressOf(options)).askSettings();
  if (options.json) {
    print(base::Json{{"settings", settingsJson(settings)}, {"complete", settings.complete}});
  } else {
    print(settingsPage(settings));
  }
  return 0;
}

int metrics(const Options& options) {
  if (options.listen.empty()) {
    writeOut(metricsText(reportFor(options)));
  } else {
    serveMetrics(addressOf(options), ListenAddress::parse(options.listen));
  }
  return 0;
}

int print(const Options& options, const ipc::ActionDone& outcome) {
  if (options.json) {
    print(base::Json{{"done", outcome.done}, {"text", outcome.text}});
  } else if (outcome.done) {
    writeOut(base::terminalText(outcome.text) + "\n");
  } else {
    std::fprintf(stderr, "isopool: %s\n", base::terminalText(outcome.text).c_str());
  }
  return outcome.done ? 0 : kUnreachable;
}

int evict(const Options& options) {
  ipc::RequestAction request;
  request.action = static_cast<uint32_t>(ipc::Action::kEvictClient);
  request.target = *clientNumberIn(options.target);
  return print(options, SupervisorLink(addressOf(options)).act(request));
}

int recycle(const Options& options) {
  const ipc::RequestAction request = options.all ? recyclingOfAll() : *recyclingOf(options.target);
  SupervisorLink link(addressOf(options));
  const std::set<uint64_t> former = workersMeant(request, link.ask());
  ipc::ActionDone outcome = link.act(request);
  const auto wait = std::chrono::milliseconds(std::lround(options.wait * 1000));
  if (outcome.done && wait.count() != 0) {
    const size_t left = awaitEndOf(former, link, wait);
    outcome.done = left == 0;
    outcome.text = left == 0 ? counted(former.size(), "worker") + " replaced"
                             : counted(left, "worker") + " not replaced yet after " +
                                   wordsForDuration(static_cast<uint64_t>(wait.count()));
  }
  return print(options, outcome);
}

int top(const Options& options) {
  TopOptions top;
  top.interval = std::chrono::milliseconds(std::lround(options.interval * 1000));
  top.count = options.count;
  top.json = options.json;
  runTop(addressOf(options), top);
  return 0;
}

// These are accepted both before and after the command.

void addSocket(CLI::App& app, Options& options) {
  app.add_option("--socket", options.socket,
                 "Socket of the supervisor (default: $ISOPOOL_SOCKET, then "
                 "/run/isopool/isopoold.sock)")
      ->type_name("PATH");
}

void addCommonOptions(CLI::App& app, Options& options) {
  addSocket(app, options);
  app.add_flag("--json", options.json,
               "Print JSON, for programs; the names of all values are stable");
}

CLI::App* addCommand(CLI::App& app, Options& options, const char* name, const char* summary,
                     const char* details) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->footer(std::string("\n") + details);
  addCommonOptions(*command, options);
  return command;
}

CLI::Validator timeInSeconds() {
  return CLI::AsNumberWithUnit(
             std::map<std::string, double>{{"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}})
      .description("");
}

void addTop(CLI::App& app, Options& options) {
  CLI::App* command = addCommand(
      app, options, "top", "Activity now, refreshed: call rates, workers and clients",
      "On a terminal the page refreshes in place; q or Ctrl-C ends it, ? shows the other keys:\n"
      "sorting by calls, time, queue, memory or place, and moving in the tables. Columns that do\n"
      "not fit are left out. Elsewhere each report is\n"
      "a page, or with --json one line. CALLS/S is the number of calls completed per second\n"
      "since the previous report; the first report has none. The busiest workers and clients\n"
      "come first.\n"
      "\nExamples:\n"
      "  isopool top --interval 500ms\n"
      "  isopool top --count 10 > ten-seconds.txt\n"
      "  isopool top --json | jq .calls_per_second\n");
  command
      ->add_option("--interval", options.interval,
                   "Time between two reports, in seconds or with a unit ms, s, m, h (default: 1s)")
      ->type_name("TIME")
      ->transform(timeInSeconds())
      ->check([](const std::string& text) {
        const double seconds = std::strtod(text.c_str(), nullptr);
        const bool fits = seconds >= kShortestInterval && seconds <= kLongestInterval;
        return fits ? std::string() : std::string("the interval must be between 100ms and 24h");
      });
  command->add_option("--count", options.count, "End after N reports (default: no end)")
      ->type_name("N")
      ->check(CLI::Range(uint64_t{1}, uint64_t{UINT32_MAX}).description(""));
}

void addStatus(CLI::App& app, Options& options) {
  CLI::App* command = addCommand(
      app, options, "status", "The supervisor: state, calls, memory, deaths, problems",
      "The last lines are findings and begin with '!'. Some are problems: no worker serves, a "
      "slot\n"
      "has no worker, three workers died within five minutes, the zygote is down, a limit of\n"
      "clients or descriptors is met. Others are notices: a call that has been running for 30 s,\n"
      "an action that the sandbox denied. 'lent' is memory of results that clients still hold;\n"
      "'zombie' is memory of disconnected clients that a worker still keeps.\n"
      "\nExit code 0: no problem; 3: a problem, or with --ready: calls can't be served; 1: the\n"
      "supervisor can't be reached.\n"
      "\nExamples:\n"
      "  isopool status\n"
      "  until isopool status --ready; do sleep 1; done    wait for the service\n"
      "  isopool status --json | jq -e '.findings == []'   for a monitor\n");
  command->add_flag("--ready", options.ready,
                    "Only whether calls can be served: prints 'ready', or the reason on stderr");
}

void addModels(CLI::App& app, Options& options) {
  CLI::App* command = addCommand(
      app, options, "models", "Loaded models and their calls; or what a model file takes",
      "The supervisor holds packages with the same bytes once for all clients. DIGEST is the\n"
      "first part of the XXH3-128 of the bytes; --json has all of it. Below are the calls of each\n"
      "model, as the programs report them every two seconds.\n"
      "With FILE: what the model in this file takes and returns, as far as the file states it. A\n"
      "worker of the command's own loads it; no supervisor is needed.\n"
      "\nExamples:\n"
      "  isopool models\n"
      "  isopool models --json | jq '[.models[].bytes] | add'\n"
      "  isopool models resnet.onnx\n"
      "  isopool models bert.pt --pickle model/model.pkl\n");
  command->add_option("FILE", options.file, "A model file: torch.package, TorchScript, .pt2, ONNX")
      ->check(CLI::ExistingFile.description(""))
      ->type_name("");
  command
      ->add_option("--pickle", options.pickle,
                   "Of a torch.package: its object, as loadPickle(MODULE, RESOURCE) loads it")
      ->type_name("MODULE/RESOURCE")
      ->needs("FILE")
      ->check([](const std::string& text) {
        const size_t slash = text.rfind('/');
        const bool fits = slash != std::string::npos && slash > 0 && slash + 1 < text.size();
        return fits ? std::string() : "'" + text + "' is not MODULE/RESOURCE";
      });
}

void addMetrics(CLI::App& app, Options& options) {
  CLI::App* command = app.add_subcommand("metrics", "The state as metrics for Prometheus");
  command->footer(
      "\nPrints the metrics once, in Prometheus' text format, or serves them over HTTP until\n"
      "SIGTERM: /metrics, and /-/ready for probes (200 if calls can be served, else 503 and the\n"
      "reason). While the supervisor does not answer, isopool_up is 0. docs/operating.md\n"
      "explains the metrics.\n"
      "\nExamples:\n"
      "  isopool metrics\n"
      "  isopool metrics --listen 127.0.0.1:9464\n"
      "  isopool metrics --listen unix:/run/isopool/metrics.sock\n"
      "  curl --unix-socket /run/isopool/metrics.sock http://isopool/metrics\n");
  addSocket(*command, options);
  command
      ->add_option("--listen", options.listen,
                   "Serve HTTP at unix:PATH, 127.0.0.1:PORT or [::1]:PORT; other addresses are "
                   "refused")
      ->type_name("ADDRESS");
}

void addEvict(CLI::App& app, Options& options) {
  CLI::App* command = addCommand(
      app, options, "evict", "End the connection of a client",
      "CLIENT is the number that 'isopool clients' shows. All that the client has in the\n"
      "supervisor is released: its memory, its models, its sessions. A call that a worker runs "
      "for\n"
      "it throws SupervisorLost; if the call does not end within 'grace', its worker is replaced.\n"
      "This is no ban: a manager attaches again by itself (ISOPOOL_RECONNECT), as another client.\n"
      "Only the supervisor's own user and root may evict.\n"
      "\nExamples:\n"
      "  isopool evict 7\n"
      "  isopool evict 7 --json | jq .done\n");
  command->add_option("CLIENT", options.target, "The client's number")
      ->required()
      ->type_name("")
      ->check([](const std::string& text) {
        return clientNumberIn(text) ? std::string()
                                    : "'" + text + "' is not the number of a client";
      });
}

void addRecycle(CLI::App& app, Options& options) {
  CLI::App* command = addCommand(
      app, options, "recycle", "Replace a worker, or all, without losing a call",
      "WORKER is the process id or the slot that 'isopool workers' shows: 4711, or shared/0. A\n"
      "spare takes its slot, calls that run on the old worker and sessions may go on for\n"
      "'recycle.patience', and then it ends. With --all the workers that serve now are replaced "
      "one\n"
      "after another, in each class with workers of its own as well. State that a model kept in a\n"
      "worker is lost. Only the supervisor's own user and root may recycle.\n"
      "The command ends when the supervisor has accepted the request, or with --wait when the\n"
      "workers have ended; exit code 1 if that takes longer.\n"
      "\nExamples:\n"
      "  isopool recycle 4711\n"
      "  isopool recycle shared/0 --wait 1m\n"
      "  isopool recycle --all --wait 10m\n");
  CLI::Option* worker =
      command->add_option("WORKER", options.target, "The worker's process id, or its slot")
          ->type_name("")
          ->check([](const std::string& text) {
            return recyclingOf(text) ? std::string()
                                     : "'" + text + "' is neither a process id nor a slot";
          });
  CLI::Option* all = command->add_flag("--all", options.all, "All workers that serve now");
  worker->excludes(all);
  command
      ->add_option("--wait", options.wait,
                   "Wait until the replaced workers have ended, at most TIME: seconds, or with a "
                   "unit ms, s, m, h")
      ->type_name("TIME")
      ->transform(timeInSeconds())
      ->check(CLI::PositiveNumber.description(""));
  command->callback([worker, all] {
    if (worker->count() + all->count() == 0) throw CLI::RequiredError("WORKER or --all");
  });
}

int run(const CLI::App& app, const Options& options) {
  const std::map<std::string, std::function<int(const Options&)>> commands{
      {"status", status},   {"workers", workers}, {"models", models},
      {"clients", clients}, {"metrics", metrics}, {"settings", settings},
      {"top", top},         {"evict", evict},     {"recycle", recycle}};
  const std::string name = app.get_subcommands().front()->get_name();
  if (name == "metrics" && options.json) {
    std::fputs("isopool: metrics are not available as JSON; see isopool status --json\n", stderr);
    return kWrongUsage;
  }
  return commands.at(name)(options);
}

void declare(CLI::App& app, Options& options) {
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag("--version", "isopool " ISOPOOL_VERSION, "Print the version of isopool");
  app.require_subcommand(1);
  addCommonOptions(app, options);
  app.get_formatter()->column_width(20);
  app.footer(kExamples);
  addStatus(app, options);
  addCommand(
      app, options, "workers", "Each worker: its calls, its clients, its memory",
      "SLOT is group/number; a worker without a number is a spare, or it retires. RUNNING is\n"
      "the client whose call runs, and for how long; WAITING is the number of clients that wait\n"
      "for this worker. CPU is the processor time that the worker has used. PRIVATE is the "
      "worker's own memory beyond the zygote's; LENT is memory of\n"
      "its results that clients still hold. FORBIDDEN counts actions that the sandbox denied.\n"
      "Empty columns are left out.\n"
      "\nExamples:\n"
      "  isopool workers\n"
      "  isopool workers --json | jq '.workers[] | select(.running_ms > 1000)'\n");
  addModels(app, options);
  addCommand(
      app, options, "clients", "Attached programs: their calls, memory and limits",
      "QUEUED and RUNNING count the present calls; COMPLETED counts calls that workers have\n"
      "completed for the client. INPUTS, PACKAGES and RESULTS are shared memory.\n"
      "HANDLES are objects in workers that the client refers to, and the workers' own memory that\n"
      "they keep. OVERDUE counts calls that ran past their deadline, REFUSALS requests that a\n"
      "limit denied. CLASS is a [class.NAME] of the supervisor's settings. Empty columns are left\n"
      "out.\n"
      "\nExamples:\n"
      "  isopool clients\n"
      "  isopool clients --json | jq '.clients[] | select(.refusals > 0) | .program'\n");
  addCommand(
      app, options, "settings", "The settings in force, and where each comes from",
      "The settings by which the supervisor works now, after its last reload: of a flag, a\n"
      "variable, a line of the file, or the default. RELOAD marks those that SIGHUP can change.\n"
      "isopoold --show-settings shows the same for a supervisor that would be started now.\n"
      "\nExamples:\n"
      "  isopool settings | grep limits\n"
      "  isopool settings --json | jq '.settings[] | select(.source != \"default\")'\n");
  addMetrics(app, options);
  addTop(app, options);
  addEvict(app, options);
  addRecycle(app, options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "batch") == 0) {
    // A program of its own: it needs torch.
    return become("isopool-batch", {argv + 2, argv + argc});
  }
  std::setlocale(LC_CTYPE, "");
  Options options;
  CLI::App app(kDescription, "isopool");
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  try {
    return run(app, options);
  } catch (const AddressRefused& error) {
    std::fprintf(stderr, "isopool: %s\n", error.what());
    return kWrongUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "isopool: %s\n", error.what());
    return kUnreachable;
  }
}
