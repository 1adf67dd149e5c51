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
#include "cli/command_line.h"
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
  words.insert(words.end(), {"--sandbox", options.sandbox.c_str()});
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

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::lround(seconds * 1000));
}

int actOnClient(const Options& options, ipc::Action action) {
  const auto request =
      requestOf(action, *clientNumberIn(options.target), milliseconds(options.time));
  return print(options, SupervisorLink(addressOf(options)).act(request));
}

int drain(const Options& options) {
  SupervisorLink link(addressOf(options));
  ipc::ActionDone outcome = link.act(requestOf(ipc::Action::kDrain));
  const auto wait = milliseconds(options.wait);
  if (outcome.done && wait.count() != 0) {
    outcome.done = awaitEndOf(link, wait);
    outcome.text = outcome.done ? "the supervisor has ended"
                                : "the supervisor has not ended yet after " +
                                      wordsForDuration(static_cast<uint64_t>(wait.count()));
  }
  return print(options, outcome);
}

int restart(const Options& options) {
  constexpr double kWait = 150;
  SupervisorLink link(addressOf(options));
  const ipc::Report former = link.ask();
  ipc::ActionDone outcome = link.act(requestOf(ipc::Action::kRestart));
  if (outcome.done) {
    const int32_t successor =
        awaitSuccessor(addressOf(options), former.processId,
                       milliseconds(options.wait != 0 ? options.wait : kWait));
    outcome.text = "isopoold (pid " + std::to_string(successor) + ") serves; the former one (pid " +
                   std::to_string(former.processId) +
                   (hasCrashed(link) ? ") was killed or crashed meanwhile: its calls in flight are "
                                       "lost, and the log has the signal"
                                     : ") ends when its calls in flight have ended");
  }
  return print(options, outcome);
}

int recycle(const Options& options) {
  const ipc::RequestAction request = options.all ? recyclingOfAll() : *recyclingOf(options.target);
  SupervisorLink link(addressOf(options));
  const std::set<uint64_t> former = workersMeant(request, link.ask());
  ipc::ActionDone outcome = link.act(request);
  const auto wait = milliseconds(options.wait);
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
  top.interval = milliseconds(options.interval);
  top.count = options.count;
  top.json = options.json;
  runTop(addressOf(options), top);
  return 0;
}

int run(const CLI::App& app, const Options& options) {
  const auto onClient = [](ipc::Action action) {
    return [action](const Options& its) { return actOnClient(its, action); };
  };
  const std::map<std::string, std::function<int(const Options&)>> commands{
      {"status", status},
      {"workers", workers},
      {"models", models},
      {"clients", clients},
      {"metrics", metrics},
      {"settings", settings},
      {"top", top},
      {"evict", onClient(ipc::Action::kEvictClient)},
      {"pause", onClient(ipc::Action::kPauseClient)},
      {"resume", onClient(ipc::Action::kResumeClient)},
      {"recycle", recycle},
      {"drain", drain},
      {"restart", restart}};
  const std::string name = app.get_subcommands().front()->get_name();
  if (name == "metrics" && options.json) {
    std::fputs("isopool: metrics are not available as JSON; see isopool status --json\n", stderr);
    return kWrongUsage;
  }
  return commands.at(name)(options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "batch") == 0) {
    // A program of its own: it needs torch.
    return become("isopool-batch", {argv + 2, argv + argc});
  }
  std::setlocale(LC_CTYPE, "");
  Options options;
  CLI::App app({}, "isopool");
  declareCommands(app, options);
  if (const std::string problem = unknownCommand(app, argc, argv); !problem.empty()) {
    std::fprintf(stderr, "isopool: %s\n", problem.c_str());
    return kWrongUsage;
  }
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
