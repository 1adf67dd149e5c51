// SPDX-License-Identifier: BSD-3-Clause
#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/settings/setting_text.h"
#include "base/terminal_text.h"
#include "cli/actions.h"

namespace isopool::cli {

namespace {

constexpr double kShortestInterval = 0.1;  // seconds
constexpr double kLongestInterval = 86400;
constexpr double kShortestTime = 0.001;  // of a wait, a pause and a refusal
constexpr double kLongestTime = 366.0 * 86400;

constexpr const char* kDescription =
    "isopool: shows the state of a shared supervisor (isopoold --listen): its workers, its\n"
    "clients and their models. evict, pause, resume, recycle, drain and restart change something.\n"
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
    "  isopool restart                               replace the supervisor, without losing a "
    "call\n"
    "\n"
    "The address of the supervisor is --socket, else $ISOPOOL_SOCKET, else\n"
    "/run/isopool/isopoold.sock. Its own user, root and the group of its setting socket_group may\n"
    "connect; only the first two may change something.\n"
    "\n"
    "Exit code 0: success; 1: the supervisor can't be reached, refused the connection or the\n"
    "action, or did not answer within 2 s, and one line on stderr gives the cause; 2: wrong "
    "usage;\n"
    "3: status found a problem. NO_COLOR=1 turns colours off.\n";

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

// For the text of timeInSeconds(). Refuses what is no number, too.
CLI::Validator timeBetween(double shortest, double longest, const char* refusal) {
  return {[=](const std::string& text) {
            const double seconds = std::strtod(text.c_str(), nullptr);
            return seconds >= shortest && seconds <= longest ? std::string() : std::string(refusal);
          },
          ""};
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
      ->check(timeBetween(kShortestInterval, kLongestInterval,
                          "the interval must be between 100ms and 24h"));
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
      "clients or descriptors is met, the last reload failed. Others are notices: a call that has "
      "been running for 30 s,\n"
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
      "worker of the command's own loads it; no supervisor is needed. Loading runs the file's "
      "code\n"
      "as the user of this command, so the worker is in the sandbox 'strict', whatever\n"
      "ISOPOOL_SANDBOX says. A model that needs more may be loaded at another level (--sandbox),\n"
      "if you trust the file.\n"
      "\nExamples:\n"
      "  isopool models\n"
      "  isopool models --json | jq '[.models[].bytes] | add'\n"
      "  isopool models resnet.onnx\n"
      "  isopool models bert.pt --pickle model/model.pkl\n"
      "  isopool models own.pt --pickle model/model.pkl --sandbox default    a file that you "
      "trust\n");
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
  command
      ->add_option("--sandbox", options.sandbox,
                   "With FILE: what its code may do: strict (default), default, none; "
                   "docs/sandbox.md explains the levels")
      ->type_name("LEVEL")
      ->needs("FILE")
      ->check(CLI::IsMember({"strict", "default", "none"}).description(""));
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
                   "Serve HTTP at unix:PATH, 127.0.0.1:PORT, [::1]:PORT or another loopback "
                   "address; other addresses are refused")
      ->type_name("ADDRESS");
}

void addWait(CLI::App& command, Options& options, const char* what) {
  command.add_option("--wait", options.wait, what)
      ->type_name("TIME")
      ->transform(timeInSeconds())
      ->check(
          timeBetween(kShortestTime, kLongestTime, "the time must be between 1ms and 366 days"));
}

void addClient(CLI::App& command, Options& options) {
  command.add_option("CLIENT", options.target, "The client's number")
      ->required()
      ->type_name("")
      ->check([](const std::string& text) {
        return clientNumberIn(text) ? std::string()
                                    : "'" + text + "' is not the number of a client";
      });
}

void addFor(CLI::App& command, Options& options, const char* what) {
  command.add_option("--for", options.time, what)
      ->type_name("TIME")
      ->transform(timeInSeconds())
      ->check(
          timeBetween(kShortestTime, kLongestTime, "the time must be between 1ms and 366 days"));
}

void addEvict(CLI::App& app, Options& options) {
  CLI::App* command = addCommand(
      app, options, "evict", "End the connection of a client",
      "CLIENT is the number that 'isopool clients' shows. All that the client has in the\n"
      "supervisor is released: its memory, its models, its sessions. A call that a worker runs "
      "for\n"
      "it throws SupervisorLost; if the call does not end within 'grace', its worker is replaced.\n"
      "Its manager attaches again by itself (ISOPOOL_RECONNECT), as another client, unless --for "
      "is\n"
      "given: then all programs of the same user with the same name are refused for that time.\n"
      "Only the supervisor's own user and root may evict.\n"
      "\nExamples:\n"
      "  isopool evict 7\n"
      "  isopool evict 7 --for 10m\n"
      "  isopool evict 7 --json | jq .done\n");
  addClient(*command, options);
  addFor(*command, options,
         "Refuse programs of its user and name for so long: seconds, or with a unit ms, s, m, h");
}

void addPause(CLI::App& app, Options& options) {
  CLI::App* command = addCommand(
      app, options, "pause", "Make the calls of a client wait",
      "CLIENT is the number that 'isopool clients' shows. Its library publishes no more calls: "
      "they\n"
      "wait, until their deadlines, and those of other clients go on. Calls that its workers have\n"
      "end as usual. The pause ends with 'isopool resume', after --for, when the client leaves, "
      "and\n"
      "when the supervisor is drained or restarted. 'isopool status', 'clients' and 'top' show "
      "it.\n"
      "Only the supervisor's own user and root may pause.\n"
      "\nExamples:\n"
      "  isopool pause 7\n"
      "  isopool pause 7 --for 5m\n");
  addClient(*command, options);
  addFor(*command, options, "Resume it after TIME: seconds, or with a unit ms, s, m, h");
  addClient(*addCommand(app, options, "resume", "End the pause of a client",
                        "CLIENT is the number that 'isopool clients' shows.\n"
                        "\nExample:\n"
                        "  isopool resume 7\n"),
            options);
}

void addDrain(CLI::App& app, Options& options) {
  CLI::App* command = addCommand(
      app, options, "drain", "End the supervisor when its calls have ended",
      "As SIGTERM to the process that was started: the supervisor gives up its address, serves no\n"
      "new program, and ends when the calls in flight have ended, at the latest after\n"
      "'drain_timeout', with exit code 0. A supervisor that is started meanwhile serves the "
      "programs\n"
      "that have no call in flight at once. Under systemd the next connection starts the service\n"
      "again, unless isopoold.socket is stopped, too.\n"
      "The command ends when the supervisor has accepted the request, or with --wait when the\n"
      "supervisor has ended; exit code 1 if that takes longer.\n"
      "\nExample:\n"
      "  isopool drain --wait 1m\n");
  addWait(*command, options,
          "Wait until the supervisor has ended, at most TIME: seconds, or with a unit ms, s, m, h");
}

void addRestart(CLI::App& app, Options& options) {
  CLI::App* command = addCommand(
      app, options, "restart", "Replace the supervisor by a new one, without refusing a call",
      "The process that was started (the guardian) starts its program file again, with the same\n"
      "arguments: after an upgrade the new one. It reads the settings again. When it serves at "
      "the\n"
      "same address, the present supervisor is drained: programs attach to the new one as soon as\n"
      "they have no call in flight, at the latest after 'drain_timeout'. If the new one does not\n"
      "serve (wrong settings, no zygote), the present one goes on. The process id of the service\n"
      "stays, for systemd, containers and terminals alike. Both need memory for their workers and\n"
      "models meanwhile.\n"
      "The command ends when the new supervisor serves; exit code 1 if it does not.\n"
      "\nExamples:\n"
      "  isopool restart\n"
      "  isopool restart --wait 5m\n");
  addWait(*command, options,
          "Wait for the new supervisor, at most TIME: seconds, or with a unit ms, s, m, h "
          "(default: 150s)");
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
  addWait(
      *command, options,
      "Wait until the replaced workers have ended, at most TIME: seconds, or with a unit ms, s, "
      "m, h");
  command->callback([worker, all] {
    if (worker->count() + all->count() == 0) throw CLI::RequiredError("WORKER or --all");
  });
}

}  // namespace

void declareCommands(CLI::App& app, Options& options) {
  app.description(kDescription);
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
      "worker's own memory beyond the zygote's; STARTED is that of the processes that its user\n"
      "code has started, with their number; LENT is memory of\n"
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
  addPause(app, options);
  addRecycle(app, options);
  addDrain(app, options);
  addRestart(app, options);
}

std::string unknownCommand(const CLI::App& app, int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--socket") ++i;  // and its value
    if (word.starts_with("-")) continue;
    if (word == "batch") return "batch must be the first word";
    std::vector<std::string> commands{"batch"};
    for (const CLI::App* each : app.get_subcommands({})) commands.push_back(each->get_name());
    if (std::find(commands.begin(), commands.end(), word) != commands.end()) return {};
    return "'" + base::terminalText(word) + "' is not a command; the nearest is " +
           base::nearestOf(word, commands) + ", and isopool --help shows all";
  }
  return {};
}

}  // namespace isopool::cli
