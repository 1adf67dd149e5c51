// SPDX-License-Identifier: BSD-3-Clause
// The output of the command matches the state of a real supervisor with plain workers.
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "ipc/control/operator_messages.h"
#include "tests/cli/attached_program.h"
#include "tests/cli/own_supervisor.h"
#include "tests/cli/running_command.h"

namespace isopool::tests {
namespace {

std::string run(const OwnSupervisor& supervisor, const std::string& subcommand) {
  const CommandOutcome outcome = runCommand({subcommand, "--socket", supervisor.address()});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
  return outcome.output;
}

std::string runJson(const OwnSupervisor& supervisor, const std::string& subcommand) {
  const CommandOutcome outcome =
      runCommand({subcommand, "--json", "--socket", supervisor.address()});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1);
  return outcome.output;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool allServe(const ipc::Report& report, size_t workers) {
  return static_cast<size_t>(std::count_if(
             report.workers.begin(), report.workers.end(), [](const ipc::ReportedWorker& worker) {
               return worker.state == "serving" || worker.state == "spare";
             })) == workers;
}

// Waits until the slot has a worker, kills it, waits until its death is reported, and returns
// its pid.
pid_t killTheWorkerOf(const OwnSupervisor& supervisor, int32_t slot) {
  const auto isIts = [slot](const ipc::ReportedWorker& worker) {
    return worker.slot == slot && worker.state == "serving";
  };
  const ipc::Report before = supervisor.waitFor([&](const ipc::Report& report) {
    return std::any_of(report.workers.begin(), report.workers.end(), isIts);
  });
  const auto victim = std::find_if(before.workers.begin(), before.workers.end(), isIts);
  if (victim == before.workers.end() || victim->processId <= 0) return -1;
  EXPECT_EQ(::kill(victim->processId, SIGKILL), 0);
  supervisor.waitFor([](const ipc::Report& report) { return report.restarts > 0; });
  return victim->processId;
}

TEST(Command, SaysHowManyWorkersServe) {
  const OwnSupervisor supervisor({"--workers", "3"});
  supervisor.waitFor([](const ipc::Report& report) { return allServe(report, 4); });
  const std::string status = run(supervisor, "status");
  EXPECT_TRUE(has(status, "serving  pid " + std::to_string(supervisor.processId()))) << status;
  EXPECT_TRUE(has(status, supervisor.address())) << status;
  EXPECT_TRUE(has(status, "3 serving, 1 spare")) << status;
  EXPECT_TRUE(has(status, "nothing is wrong")) << status;
  const std::string json = runJson(supervisor, "status");
  EXPECT_EQ(inJson(json, "value['workers_serving'], value['workers_spare'], value['state']"),
            "(3, 1, 'serving')");
  EXPECT_EQ(inJson(json, "value['pid']"), std::to_string(supervisor.processId()));
  EXPECT_EQ(inJson(json, "value['address']"), supervisor.address());
  EXPECT_EQ(inJson(json, "value['python_version'], value['findings']"),
            "('" PLAIN_WORKER_PYTHON "', [])");

  const std::string workers = run(supervisor, "workers");
  for (const char* place : {"shared/0", "shared/1", "shared/2", "spare"}) {
    EXPECT_TRUE(has(workers, place)) << workers;
  }
  EXPECT_EQ(inJson(runJson(supervisor, "workers"),
                   "sorted(str(worker['slot']) for worker in value['workers'])"),
            "['0', '1', '2', 'None']");
}

TEST(Command, SaysThatNoClientIsAttached) {
  const OwnSupervisor supervisor;
  EXPECT_EQ(run(supervisor, "clients"), "no client\n");
  EXPECT_EQ(run(supervisor, "models"), "no model\n");
  EXPECT_EQ(inJson(runJson(supervisor, "clients"), "value"), "{'clients': []}");
  EXPECT_EQ(inJson(runJson(supervisor, "models"), "value"), "{'models': [], 'calls': []}");
}

TEST(Command, ShowsAProgramThatAttachedAndItsCalls) {
  const OwnSupervisor supervisor;
  AttachedProgram program(supervisor.address(), "trainer");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(program.call("hello"), "hello");
  const std::string clients = run(supervisor, "clients");
  EXPECT_TRUE(has(clients, "trainer")) << clients;
  EXPECT_TRUE(has(clients, ::getpwuid(::geteuid())->pw_name)) << clients;
  EXPECT_EQ(inJson(runJson(supervisor, "clients"),
                   "[(each['program'], each['pid'], each['user_id'], each['completed_calls'],"
                   " each['state'], each['class'], each['share']) for each in value['clients']]"),
            "[('trainer', " + std::to_string(::getpid()) + ", " + std::to_string(::geteuid()) +
                ", 5, 'attached', None, 1)]");
  EXPECT_EQ(inJson(runJson(supervisor, "workers"),
                   "sum(worker['completed_calls'] for worker in value['workers'])"),
            "5");
  EXPECT_EQ(inJson(runJson(supervisor, "status"), "value['clients'], value['completed_calls']"),
            "(1, 5)");
}

TEST(Command, ShowsWhoseCallRuns) {
  const OwnSupervisor supervisor;
  AttachedProgram program(supervisor.address(), "trainer");
  program.hang();
  const std::string number =
      inJson(runJson(supervisor, "clients"), "value['clients'][0]['number']");
  const std::string workers = run(supervisor, "workers");
  EXPECT_TRUE(has(workers, "#" + number + " trainer, ")) << workers;
  EXPECT_EQ(inJson(runJson(supervisor, "workers"),
                   "[worker['running_client'] for worker in value['workers'] if "
                   "worker['running_client'] is not None]"),
            "[" + number + "]");
  EXPECT_EQ(inJson(runJson(supervisor, "clients"), "value['clients'][0]['running_calls']"), "1");
}

TEST(Command, SaysWhyAWorkerWasReplaced) {
  const OwnSupervisor supervisor;
  const pid_t victim = killTheWorkerOf(supervisor, 1);
  const ipc::Report after = supervisor.waitFor([](const ipc::Report& report) {
    return report.restarts == 1 && allServe(report, 3) &&
           report.slots.at(1).lastDeath.find("SIGKILL") != std::string::npos;
  });
  const std::string reason = after.slots.at(1).lastDeath;
  ASSERT_NE(reason, "");

  const std::string status = run(supervisor, "status");
  EXPECT_TRUE(has(status, "1 worker died and replaced")) << status;
  EXPECT_TRUE(has(status, "shared/1: 1 restart, last ")) << status;
  EXPECT_TRUE(has(status, "ago: " + reason)) << status;
  EXPECT_TRUE(has(status, "nothing is wrong")) << status;
  const std::string workers = run(supervisor, "workers");
  EXPECT_TRUE(has(workers, "ago: " + reason)) << workers;
  const std::string json = runJson(supervisor, "status");
  EXPECT_EQ(inJson(json,
                   "value['restarts'], [(slot['group'], slot['slot'], slot['restarts']) "
                   "for slot in value['slots'] if slot['restarts'] > 0]"),
            "(1, [('shared', 1, 1)])");
  EXPECT_EQ(inJson(json, "value['slots'][1]['last_death']"), reason);
  EXPECT_EQ(inJson(json, "value['slots'][1]['pid'] == " + std::to_string(victim)), "False");
}

TEST(Command, ShowsAModelAndWhoLoadedIt) {
  const OwnSupervisor supervisor;
  AttachedProgram one(supervisor.address(), "trainer");
  AttachedProgram other(supervisor.address(), "server");
  const std::string bytes(4096, 'm');
  one.load("/models/bert.pt", bytes);
  other.load("/models/other.pt", bytes);
  const auto isHeldOnce = [](const ipc::Report& report) {
    return report.models.size() == 1 && report.models[0].clients.size() == 2;
  };
  supervisor.waitFor(isHeldOnce);
  const std::string models = run(supervisor, "models");
  EXPECT_TRUE(has(models, "/models/bert.pt  4.0 KiB  000000000000")) << models;
  EXPECT_TRUE(has(models, "trainer, #")) << models;
  EXPECT_TRUE(has(models, "server")) << models;
  EXPECT_EQ(inJson(runJson(supervisor, "models"),
                   "[(model['name'], model['bytes'], model['digest'], len(model['clients'])) for "
                   "model in value['models']]"),
            "[('/models/bert.pt', 4096, '00000000000001230000000000abcdef', 2)]");
  EXPECT_EQ(inJson(runJson(supervisor, "clients"),
                   "[(each['models'], each['package_bytes']) for each in value['clients']]"),
            "[(1, 4096), (1, 4096)]");
}

TEST(Command, ShowsTheCallsOfAModel) {
  const OwnSupervisor supervisor;
  AttachedProgram program(supervisor.address(), "trainer");
  ipc::ModelCalls calls;
  calls.model = "bert.pt:model";
  calls.answered = 100;
  calls.failed = 2;
  calls.times.resize(ipc::kCallTimeBounds.size() + 1);
  calls.times[3] = 98;
  calls.times[9] = 2;
  calls.sumMicroseconds = 120'000;
  program.report({calls});
  supervisor.waitFor(
      [](const ipc::Report& report) { return !report.classes.at(0).models.empty(); });
  const std::string models = run(supervisor, "models");
  EXPECT_TRUE(has(models, "no model\n\nCALLS OF")) << models;
  for (const char* part : {"bert.pt:model", "100", "1.2 ms", "<= 500 us", "<= 50 ms"}) {
    EXPECT_TRUE(has(models, part)) << part << " in\n" << models;
  }
  EXPECT_EQ(
      inJson(runJson(supervisor, "models"),
             "[(each['class'], each['model'], each['answered'], each['failed'], "
             "each['workers'], each['sum_us'], each['times'][3]) for each in value['calls']]"),
      "[(None, 'bert.pt:model', 100, 2, 0, 120000, {'at_most_us': 500, 'calls': 98})]");
}

TEST(Command, AModelsNameCannotSpoilTheOutput) {
  const OwnSupervisor supervisor;
  AttachedProgram program(supervisor.address(), "trainer");
  program.load("\x1b[2J\xff\"\n", "bytes");
  const std::string models = run(supervisor, "models");
  EXPECT_EQ(models.find('\x1b'), std::string::npos);
  EXPECT_TRUE(has(models, "?[2J?\" ")) << models;
  EXPECT_EQ(inJson(runJson(supervisor, "models"), "ascii(value['models'][0]['name'])"),
            "'\\x1b[2J\\ufffd\"\\n'");
}

TEST(Command, EveryNameInItsJsonIsDocumented) {
  const OwnSupervisor supervisor;
  AttachedProgram program(supervisor.address(), "trainer");
  program.load("model.pt", "bytes");
  killTheWorkerOf(supervisor, 0);
  std::ifstream file(COMMAND_LINE_PAGE);
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  ASSERT_NE(page, "");
  const CommandOutcome all =
      runCommand({"top", "--count", "1", "--json", "--socket", supervisor.address()});
  std::istringstream names(inJson(all.output,
                                  "' '.join(sorted(set(__import__('re').findall(r'\"(\\w+)\": ', "
                                  "__import__('json').dumps(value)))))"));
  size_t count = 0;
  for (std::string name; names >> name; ++count) {
    EXPECT_TRUE(has(page, "`" + name + "`")) << name;
  }
  EXPECT_GT(count, 50u);
}

TEST(Command, ShowsTheSettingsInForceAndTheirSources) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/isopool.toml";
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  write("grace = \"700ms\"\n");
  const OwnSupervisor supervisor({"--workers", "1", "--config", file});
  const auto valueOf = [&](const std::string& key) {
    return inJson(runJson(supervisor, "settings"),
                  "[(each['value'], each['source'].replace('" + file +
                      "', 'FILE'), each['reloadable']) for each in value['settings'] if "
                      "each['key'] == '" +
                      key + "']");
  };
  EXPECT_EQ(valueOf("grace"), "[('700ms', 'file FILE:1', True)]");
  EXPECT_EQ(valueOf("workers"), "[('1', 'flag --workers', True)]");
  EXPECT_EQ(valueOf("spares"), "[('1', 'default', False)]");
  const std::string page = run(supervisor, "settings");
  EXPECT_TRUE(has(page, "grace")) << page;
  EXPECT_TRUE(has(page, "flag --workers")) << page;

  write("# one line more\ngrace = \"900ms\"\nspares = 3\n");
  supervisor.signal(SIGHUP);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (valueOf("grace") != "[('900ms', 'file FILE:2', True)]" &&
         std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_EQ(valueOf("grace"), "[('900ms', 'file FILE:2', True)]");
  EXPECT_EQ(valueOf("spares"), "[('1', 'default', False)]") << "this needs a restart";
}

TEST(Command, StatusHasAFailedReloadUntilOneSucceeds) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/isopool.toml";
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  write("grace = \"700ms\"\n");
  const OwnSupervisor supervisor({"--workers", "1", "--config", file});
  supervisor.waitFor([](const ipc::Report& report) { return allServe(report, 1); });
  const auto status = [&] { return runCommand({"status", "--socket", supervisor.address()}); };
  const auto reload = [&](const std::string& failure) {
    supervisor.signal(SIGHUP);
    supervisor.waitFor([&](const ipc::Report& each) { return each.reloadFailure == failure; });
  };

  write("\nspares = 99\n");
  const std::string reason = file + ":2: spares: '99' is not a whole number between 0 and 64";
  reload(reason);
  EXPECT_EQ(status().exitCode, 3);
  EXPECT_TRUE(
      has(status().output, "! the last reload failed, and no setting has changed: " + reason))
      << status().output;
  const CommandOutcome json = runCommand({"status", "--json", "--socket", supervisor.address()});
  EXPECT_EQ(json.exitCode, 3);
  EXPECT_EQ(inJson(json.output, "value['reload_failure']"), reason);

  std::filesystem::remove(file);
  reload(file + ": No such file or directory");
  EXPECT_EQ(status().exitCode, 3);

  write("spares = 3\n");
  reload("");
  EXPECT_EQ(status().exitCode, 0);
  EXPECT_TRUE(has(status().output, "! settings that changed in the file need a restart: spares"))
      << status().output;
  EXPECT_EQ(inJson(runJson(supervisor, "status"),
                   "value['reload_failure'], value['need_restart'], value['problems']"),
            "('', ['spares'], [])");
}

TEST(Command, StatusEndsWithThreeIfThereIsAProblem) {
  const OwnSupervisor supervisor(
      {"--workers", "1", "--spares", "0", "--restart-limit", "1", "--quarantine", "60s"});
  supervisor.waitFor([](const ipc::Report& report) { return allServe(report, 1); });
  const auto exitCodeOf = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--socket", supervisor.address()});
    return runCommand(arguments);
  };
  EXPECT_EQ(exitCodeOf({"status"}).exitCode, 0);
  const CommandOutcome ready = exitCodeOf({"status", "--ready"});
  EXPECT_EQ(ready.exitCode, 0);
  EXPECT_EQ(ready.output, "ready\n");
  EXPECT_EQ(ready.errors, "");

  killTheWorkerOf(supervisor, 0);
  supervisor.waitFor([](const ipc::Report& report) { return report.workers.empty(); });
  const CommandOutcome status = exitCodeOf({"status"});
  EXPECT_EQ(status.exitCode, 3);
  EXPECT_TRUE(has(status.output, "! no worker of shared serves: calls wait")) << status.output;
  EXPECT_TRUE(has(status.output, "it is in quarantine for another")) << status.output;
  const CommandOutcome notReady = exitCodeOf({"status", "--ready"});
  EXPECT_EQ(notReady.exitCode, 3);
  EXPECT_EQ(notReady.output, "");
  EXPECT_EQ(notReady.errors, "isopool: not ready: no worker of shared serves: calls wait\n");
  const CommandOutcome json = exitCodeOf({"status", "--ready", "--json"});
  EXPECT_EQ(json.exitCode, 3);
  EXPECT_EQ(inJson(json.output, "value['ready']"), "False");
  EXPECT_EQ(exitCodeOf({"workers"}).exitCode, 0) << "it only says whether the supervisor answers";
}

TEST(Command, StatusTellsOfTenDeathsInFiveMinutes) {
  const OwnSupervisor supervisor({"--workers", "1", "--restart-limit", "100"});
  for (uint64_t deaths = 1; deaths <= 10; ++deaths) {
    const auto isServing = [](const ipc::ReportedWorker& worker) {
      return worker.state == "serving";
    };
    const ipc::Report report = supervisor.waitFor([&](const ipc::Report& each) {
      return std::any_of(each.workers.begin(), each.workers.end(), isServing);
    });
    const auto victim = std::find_if(report.workers.begin(), report.workers.end(), isServing);
    ASSERT_NE(victim, report.workers.end());
    ASSERT_EQ(::kill(victim->processId, SIGKILL), 0);
    supervisor.waitFor(
        [&](const ipc::Report& each) { return each.groups.at(0).recentDeaths == deaths; });
  }
  const CommandOutcome outcome = runCommand({"status", "--socket", supervisor.address()});
  EXPECT_EQ(outcome.exitCode, 3);
  EXPECT_TRUE(has(outcome.output,
                  "! 10 workers of shared died in the last 5 min 0 s; causes since the start: "
                  "killed 10"))
      << outcome.output;
  EXPECT_FALSE(has(outcome.output, "nothing is wrong")) << outcome.output;
}

TEST(Command, FindsTheSupervisorByItsVariable) {
  const OwnSupervisor supervisor;
  const CommandOutcome outcome =
      runCommand({"workers"}, {"ISOPOOL_SOCKET=" + supervisor.address()});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  const CommandOutcome flagWins = runCommand({"workers", "--socket", supervisor.address()},
                                             {"ISOPOOL_SOCKET=/nowhere/isopoold.sock"});
  EXPECT_EQ(flagWins.exitCode, 0) << flagWins.errors;
}

TEST(Command, HelpTeaches) {
  const CommandOutcome all = runCommand({"--help"});
  EXPECT_EQ(all.exitCode, 0);
  for (const char* part : {"status", "workers", "models", "clients", "settings", "metrics", "top",
                           "evict", "recycle", "Examples:", "ISOPOOL_SOCKET", "Exit code"}) {
    EXPECT_TRUE(has(all.output, part)) << part;
  }
  for (const char* subcommand :
       {"status", "workers", "models", "clients", "settings", "top", "evict", "recycle"}) {
    const CommandOutcome one = runCommand({subcommand, "--help"});
    EXPECT_EQ(one.exitCode, 0);
    for (const char* part : {"--json", "--socket PATH", "Examples:"}) {
      EXPECT_TRUE(has(one.output, part)) << one.output;
    }
  }
}

TEST(Command, AnUnknownCommandIsNamedAlsoBesideHelp) {
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"statsu"},
                                                {"statsu", "--help"},
                                                {"--help", "statsu"},
                                                {"--socket", "/tmp/status", "statsu", "--json"}}) {
    const CommandOutcome outcome = runCommand(wrong);
    EXPECT_EQ(outcome.exitCode, 2) << wrong.back();
    EXPECT_EQ(outcome.output, "") << wrong.back();
    EXPECT_EQ(outcome.errors,
              "isopool: 'statsu' is not a command; the nearest is status, and isopool --help shows "
              "all\n");
  }
  for (const std::vector<std::string>& right : {std::vector<std::string>{"--help"},
                                                {"status", "--help"},
                                                {"--socket", "/tmp/s", "--help"}}) {
    EXPECT_EQ(runCommand(right).exitCode, 0) << right.front();
  }
}

TEST(Command, WrongUsageEndsWithTwo) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{},
                                             {"statsu"},
                                             {"status", "--jsn"},
                                             {"status", "workers"},
                                             {"workers", "--ready"},
                                             {"top", "--interval", "1ms"},
                                             {"top", "--interval", "nan"},
                                             {"top", "--interval", "soon"},
                                             {"top", "--count", "0"},
                                             {"top", "--count", "-1"}}) {
    const CommandOutcome outcome = runCommand(wrong);
    EXPECT_EQ(outcome.exitCode, 2) << (wrong.empty() ? "" : wrong.back());
    EXPECT_EQ(outcome.output, "");
    EXPECT_NE(outcome.errors, "");
  }
}

TEST(Command, TakesItsOptionsBeforeTheSubcommandToo) {
  const OwnSupervisor supervisor;
  const CommandOutcome outcome = runCommand({"--socket", supervisor.address(), "clients"});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "no client\n");
}

}  // namespace
}  // namespace isopool::tests
