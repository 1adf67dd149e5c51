// SPDX-License-Identifier: BSD-3-Clause
// isopool: see cli/README.md.
#include <CLI/CLI.hpp>
#include <chrono>
#include <clocale>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

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

constexpr const char* kDefaultAddress = "/run/isopool/isopoold.sock";
constexpr double kShortestInterval = 0.1;  // seconds
constexpr double kLongestInterval = 86400;

constexpr const char* kDescription =
    "isopool: shows the state of a shared supervisor (isopoold --listen): its workers, its\n"
    "clients and their models. It only reads; it changes nothing.";

constexpr const char* kExamples =
    "\nExamples:\n"
    "  isopool status                                the state, recent deaths, and problems\n"
    "  isopool top --interval 500ms                  activity, twice a second, until q\n"
    "  isopool workers --socket /tmp/isopool.sock    the workers of another supervisor\n"
    "  isopool clients --json | jq '.clients[] | select(.queued_calls > 0)'\n"
    "  isopool top --json --count 60 > minute.jsonl  record one minute\n"
    "\n"
    "The address of the supervisor is --socket, else $ISOPOOL_SOCKET, else\n"
    "/run/isopool/isopoold.sock. Its own user, root and the group of its setting socket_group may\n"
    "connect.\n"
    "\n"
    "Exit code 0: success; 1: the supervisor can't be reached, refused the connection or did not\n"
    "answer within 2 s, and one line on stderr gives the cause; 2: wrong usage. NO_COLOR=1 turns\n"
    "colours off.\n";

struct Options {
  std::string socket;
  bool json = false;
  double interval = 1;  ///< seconds
  uint64_t count = 0;
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

void status(const Options& options) {
  const ipc::Report report = reportFor(options);
  if (!options.json) return print(statusPage(report));
  print(statusJson(report));
}

void workers(const Options& options) {
  const ipc::Report report = reportFor(options);
  if (!options.json) return print(workersPage(report));
  print(base::Json{{"workers", workersJson(report)}, {"slots", slotsJson(report)}});
}

void clients(const Options& options) {
  const ipc::Report report = reportFor(options);
  if (!options.json) return print(clientsPage(report));
  print(base::Json{{"clients", clientsJson(report)}});
}

void models(const Options& options) {
  const ipc::Report report = reportFor(options);
  if (!options.json) return print(modelsPage(report));
  print(base::Json{{"models", modelsJson(report)}});
}

void top(const Options& options) {
  TopOptions top;
  top.interval = std::chrono::milliseconds(std::lround(options.interval * 1000));
  top.count = options.count;
  top.json = options.json;
  runTop(addressOf(options), top);
}

// Accepted both before and after the command.
void addCommonOptions(CLI::App& app, Options& options) {
  app.add_option("--socket", options.socket,
                 "Socket of the supervisor (default: $ISOPOOL_SOCKET, then "
                 "/run/isopool/isopoold.sock)")
      ->type_name("PATH");
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

void addTop(CLI::App& app, Options& options) {
  CLI::App* command = addCommand(
      app, options, "top", "Activity now, refreshed: call rates, workers and clients",
      "On a terminal the page refreshes in place; q or Ctrl-C ends it. Otherwise each report is\n"
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
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{
                                            {"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}})
                      .description(""))
      ->check([](const std::string& text) {
        const double seconds = std::strtod(text.c_str(), nullptr);
        const bool fits = seconds >= kShortestInterval && seconds <= kLongestInterval;
        return fits ? std::string() : std::string("the interval must be between 100ms and 24h");
      });
  command->add_option("--count", options.count, "End after N reports (default: no end)")
      ->type_name("N")
      ->check(CLI::Range(uint64_t{1}, uint64_t{UINT32_MAX}).description(""));
}

std::function<void(const Options&)> commandOf(const CLI::App& app) {
  const std::map<std::string, std::function<void(const Options&)>> commands{{"status", status},
                                                                            {"workers", workers},
                                                                            {"models", models},
                                                                            {"clients", clients},
                                                                            {"top", top}};
  return commands.at(app.get_subcommands().front()->get_name());
}

void declare(CLI::App& app, Options& options) {
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag("--version", "isopool " ISOPOOL_VERSION, "Print the version of isopool");
  app.require_subcommand(1);
  addCommonOptions(app, options);
  app.get_formatter()->column_width(20);
  app.footer(kExamples);
  addCommand(
      app, options, "status", "The supervisor: state, calls, memory, deaths, problems",
      "The last lines are findings and begin with '!': for example a slot without a worker, a\n"
      "call that has been running for 30 s, an action that the sandbox denied. 'lent' is memory\n"
      "of results that clients still hold; 'zombie' is memory of disconnected clients that a\n"
      "worker still keeps.\n"
      "\nExamples:\n"
      "  isopool status\n"
      "  isopool status --json | jq -e '.findings == []'    for a monitor\n");
  addCommand(
      app, options, "workers", "Each worker: its calls, its clients, its memory",
      "SLOT is group/number; a worker without a number is a spare, or it retires. RUNNING is\n"
      "the client whose call runs, and for how long; WAITING is the number of clients that wait\n"
      "for this worker. PRIVATE is the worker's own memory beyond the zygote's; LENT is memory of\n"
      "its results that clients still hold. FORBIDDEN counts actions that the sandbox denied.\n"
      "Empty columns are left out.\n"
      "\nExamples:\n"
      "  isopool workers\n"
      "  isopool workers --json | jq '.workers[] | select(.running_ms > 1000)'\n");
  addCommand(
      app, options, "models", "Loaded models, and the clients that use them",
      "The supervisor holds packages with the same bytes once for all clients. DIGEST is the\n"
      "first part of the XXH3-128 of the bytes; --json has all of it.\n"
      "\nExamples:\n"
      "  isopool models\n"
      "  isopool models --json | jq '[.models[].bytes] | add'\n");
  addCommand(
      app, options, "clients", "Attached programs: their calls, memory and limits",
      "QUEUED and RUNNING count the present calls; COMPLETED counts calls that the present\n"
      "workers have completed for the client. INPUTS, PACKAGES and RESULTS are shared memory.\n"
      "HANDLES are objects in workers that the client refers to, and the workers' own memory that\n"
      "they keep. OVERDUE counts calls that ran past their deadline, REFUSALS requests that a\n"
      "limit denied. CLASS is a [class.NAME] of the supervisor's settings. Empty columns are left\n"
      "out.\n"
      "\nExamples:\n"
      "  isopool clients\n"
      "  isopool clients --json | jq '.clients[] | select(.refusals > 0) | .program'\n");
  addTop(app, options);
}

}  // namespace

int main(int argc, char** argv) {
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
    commandOf(app)(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "isopool: %s\n", error.what());
    return kUnreachable;
  }
}
