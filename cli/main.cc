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

namespace {

using namespace isopool;
using namespace isopool::cli;

constexpr int kUnreachable = 1;
constexpr int kWrongUsage = 2;

constexpr const char* kDefaultAddress = "/run/isopool/isopoold.sock";
constexpr double kShortestInterval = 0.1;  // seconds
constexpr double kLongestInterval = 86400;

constexpr const char* kDescription =
    "isopool: looks at a shared supervisor (isopoold --listen) and what runs there.";

constexpr const char* kExamples =
    "\nExamples:\n"
    "  isopool status                                is it well, and what died lately?\n"
    "  isopool top --interval 500ms                  what is busy, twice a second, until q\n"
    "  isopool workers --socket /tmp/isopool.sock    another supervisor's workers\n"
    "  isopool clients --json | jq '.clients[] | select(.queued_calls > 0)'\n"
    "  isopool top --json --count 60 > minute.jsonl  a minute, for later\n"
    "\n"
    "The supervisor is the one at --socket, else at $ISOPOOL_SOCKET, else at\n"
    "/run/isopool/isopoold.sock. Exit code 0: fine; 1: it can't be reached or refused us, and one\n"
    "line says why; 2: wrong usage. NO_COLOR=1 prints without colours.\n";

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

// Before the command or behind it.
void addCommonOptions(CLI::App& app, Options& options) {
  app.add_option("--socket", options.socket,
                 "The supervisor's socket (default: $ISOPOOL_SOCKET, then "
                 "/run/isopool/isopoold.sock)")
      ->type_name("PATH");
  app.add_flag("--json", options.json, "For programs; the names of all values are stable");
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
      app, options, "top", "What is busy now: rates, workers and clients, again and again",
      "On a terminal it refreshes in place; q or Ctrl-C ends it. Elsewhere it prints a page for\n"
      "each report, with --json a line. Rates are calls per second since the report before; the\n"
      "first one has none. Who completes most calls comes first.\n"
      "\nExamples:\n"
      "  isopool top --interval 500ms\n"
      "  isopool top --count 10 > ten-seconds.txt\n"
      "  isopool top --json | jq .calls_per_second\n");
  command
      ->add_option("--interval", options.interval,
                   "Time between two reports: seconds, or with ms, s, m, h (default: 1s)")
      ->type_name("TIME")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{
                                            {"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}})
                      .description(""))
      ->check([](const std::string& text) {
        const double seconds = std::strtod(text.c_str(), nullptr);
        const bool fits = seconds >= kShortestInterval && seconds <= kLongestInterval;
        return fits ? std::string() : std::string("an interval lies between 100ms and 24h");
      });
  command->add_option("--count", options.count, "End after so many reports (default: no end)")
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
  app.set_help_flag("-h,--help", "This text");
  app.set_version_flag("--version", "isopool " ISOPOOL_VERSION, "The version of isopool");
  app.require_subcommand(1);
  addCommonOptions(app, options);
  app.get_formatter()->column_width(20);
  app.footer(kExamples);
  addCommand(
      app, options, "status", "One look: is it well, what died, what does it hold",
      "Last come findings, lines that begin with '!': a slot without a worker, a call that\n"
      "has been running for 30 s, what the sandbox forbade. 'lent' are results that clients\n"
      "still hold; 'zombie' is memory of clients that are gone, which a worker still keeps.\n"
      "\nExamples:\n"
      "  isopool status\n"
      "  isopool status --json | jq -e '.findings == []'    for a monitor\n");
  addCommand(
      app, options, "workers", "Each worker: what it runs, for whom, what it holds",
      "SLOT is group/number; a worker without a number is a spare or on its way out. RUNNING\n"
      "is the client whose call runs, and for how long; WAITING are clients that wait for\n"
      "this worker. PRIVATE is memory of its own, LENT what clients hold of its results.\n"
      "Columns that would be empty are left out.\n"
      "\nExamples:\n"
      "  isopool workers\n"
      "  isopool workers --json | jq '.workers[] | select(.running_ms > 1000)'\n");
  addCommand(app, options, "models", "Models that are loaded, and by whom",
             "Packages with the same bytes are held once for all clients. DIGEST is the beginning\n"
             "of the bytes' XXH3-128; --json has all of it.\n"
             "\nExamples:\n"
             "  isopool models\n"
             "  isopool models --json | jq '[.models[].bytes] | add'\n");
  addCommand(
      app, options, "clients", "Programs that are attached: their calls, memory and limits",
      "QUEUED and RUNNING are calls now, COMPLETED those that its present workers did for\n"
      "it. INPUTS, PACKAGES and RESULTS are shared memory, HANDLES the objects in workers that it\n"
      "refers to and the workers' own memory that these keep. OVERDUE are calls that ran past\n"
      "their deadline, REFUSALS what a limit forbade. Columns that would be empty are left\n"
      "out; CLASS is a [class.NAME] of the supervisor's settings.\n"
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
