// SPDX-License-Identifier: BSD-3-Clause
// `isopool metrics` and its HTTP listener, with a real supervisor and plain workers.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/control/operator_messages.h"
#include "tests/cli/attached_program.h"
#include "tests/cli/http_client.h"
#include "tests/cli/own_supervisor.h"
#include "tests/cli/running_command.h"

namespace isopool::tests {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string metricsOf(const OwnSupervisor& supervisor) {
  const CommandOutcome outcome = runCommand({"metrics", "--socket", supervisor.address()});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
  return outcome.output;
}

// The value of a series with its labels; -1 if there is no such series.
double valueOf(const std::string& metrics, const std::string& series) {
  const size_t at = ("\n" + metrics).find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::stod(metrics.substr(at + series.size() + 1));
}

bool isInstalled(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
}

// Kills the worker that serves the slot, and waits until its death is counted and the slot is
// served again.
void killWorkerOf(const OwnSupervisor& supervisor, int32_t slot) {
  const auto serves = [slot](const ipc::ReportedWorker& worker) {
    return worker.slot == slot && worker.state == "serving";
  };
  const auto served = [&](const ipc::Report& report) {
    return std::any_of(report.workers.begin(), report.workers.end(), serves);
  };
  const ipc::Report before = supervisor.waitFor(served);
  const auto victim = std::find_if(before.workers.begin(), before.workers.end(), serves);
  ASSERT_NE(victim, before.workers.end());
  const auto deathsIn = [](const ipc::Report& report) {
    uint64_t deaths = 0;
    for (const ipc::ReportedCount& each : report.groups.at(0).deaths) deaths += each.count;
    return deaths;
  };
  ASSERT_EQ(::kill(victim->processId, SIGKILL), 0);
  supervisor.waitFor([&](const ipc::Report& report) {
    return deathsIn(report) > deathsIn(before) && served(report);
  });
}

// Three answers, of which two took between 250 and 500 us and one 40 s, and a failure.
ipc::ModelCalls someCalls() {
  ipc::ModelCalls calls;
  calls.model = "bert.pt:model";
  calls.answered = 3;
  calls.failed = 1;
  calls.times.resize(ipc::kCallTimeBounds.size() + 1);
  calls.times[3] = 2;
  calls.times.back() = 1;
  calls.sumMicroseconds = 40'000'800;
  return calls;
}

void reportCalls(const OwnSupervisor& supervisor, AttachedProgram& program) {
  program.report({someCalls()});
  supervisor.waitFor([](const ipc::Report& report) {
    return std::any_of(report.classes.begin(), report.classes.end(),
                       [](const auto& each) { return !each.models.empty(); });
  });
}

TEST(Metrics, PromtoolFindsNothingWrong) {
  if (!isInstalled("promtool")) GTEST_SKIP() << "no promtool here: apt-get install prometheus";
  const OwnSupervisor supervisor;
  AttachedProgram program(supervisor.address(), "trainer");
  program.load("/models/\"quoted\\\n\xff.pt", "bytes");
  EXPECT_EQ(program.call("hello"), "hello");
  reportCalls(supervisor, program);
  killWorkerOf(supervisor, 1);
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/metrics";
  std::ofstream(file) << metricsOf(supervisor);
  const std::string said = folder.path() + "/said";
  EXPECT_EQ(std::system(("promtool check metrics <" + file + " >" + said + " 2>&1").c_str()), 0);
  std::ifstream text(said);
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(text)), {}), "");
  std::ofstream(file) << metricsOf(supervisor) << "isopool_forged_total{a=\"\n";
  EXPECT_NE(std::system(("promtool check metrics <" + file + " >/dev/null 2>&1").c_str()), 0);
}

TEST(Metrics, CountCallsWorkersAndClients) {
  const OwnSupervisor supervisor({"--workers", "3"});
  AttachedProgram program(supervisor.address(), "trainer");
  program.load("/models/bert.pt", std::string(4096, 'm'));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(program.call("hello"), "hello");
  program.hang();
  supervisor.waitFor([](const ipc::Report& report) {
    return std::count_if(report.workers.begin(), report.workers.end(),
                         [](const auto& worker) { return worker.state == "serving"; }) == 3;
  });
  const std::string metrics = metricsOf(supervisor);
  for (const auto& [series, value] : std::vector<std::pair<const char*, double>>{
           {"isopool_up", 1},
           {"isopool_ready", 1},
           {"isopool_state{state=\"serving\"}", 1},
           {"isopool_state{state=\"draining\"}", 0},
           {"isopool_zygote_up", 1},
           {"isopool_slots{group=\"shared\"}", 3},
           {"isopool_slots_vacant{group=\"shared\"}", 0},
           {"isopool_workers{group=\"shared\",state=\"serving\"}", 3},
           {"isopool_calls_total{group=\"shared\"}", 5},
           {"isopool_calls_running{group=\"shared\"}", 1},
           {"isopool_client_calls_total{class=\"none\"}", 5},
           {"isopool_clients{class=\"none\"}", 1},
           {"isopool_client_connections_total{class=\"none\"}", 1},
           {"isopool_calls_queued{class=\"none\"}", 0},
           {"isopool_client_memory_bytes{class=\"none\",kind=\"packages\"}", 4096},
           {"isopool_client_refusals_total{class=\"none\",limit=\"memory\"}", 0},
           {"isopool_worker_deaths_total{group=\"shared\",cause=\"crash\"}", 0},
           {"isopool_sandbox_denials_total{group=\"shared\",kind=\"file\"}", 0},
           {"isopool_models", 1},
           {"isopool_model_bytes{model=\"/models/bert.pt\",digest=\"000000000000\"}", 4096},
           {"isopool_connections_refused_total{reason=\"max_clients\"}", 0},
           {"isopool_clients_limit", 1024}}) {
    EXPECT_EQ(valueOf(metrics, series), value) << series << " in\n" << metrics;
  }
  EXPECT_GE(valueOf(metrics, "isopool_worker_start_duration_seconds_count{group=\"shared\"}"), 3);
  EXPECT_GT(valueOf(metrics, "isopool_open_descriptors"), 10);
  EXPECT_GT(valueOf(metrics, "isopool_descriptors_limit"), 10);
  EXPECT_GE(valueOf(metrics, "isopool_worker_threads{group=\"shared\",slot=\"0\"}"), 1);
}

TEST(Metrics, CountTheCallsOfAModelAndTheirTimes) {
  const OwnSupervisor supervisor;
  AttachedProgram program(supervisor.address(), "trainer");
  reportCalls(supervisor, program);
  const std::string metrics = metricsOf(supervisor);
  const std::string calls = "isopool_model_calls_total{class=\"none\",model=\"bert.pt:model\",";
  EXPECT_EQ(valueOf(metrics, (calls + "result=\"answered\"}").c_str()), 3) << metrics;
  EXPECT_EQ(valueOf(metrics, (calls + "result=\"failed\"}").c_str()), 1);
  const std::string times = "isopool_model_call_duration_seconds_";
  const std::string labels = "{class=\"none\",model=\"bert.pt:model\"";
  for (const auto& [bound, value] : std::vector<std::pair<std::string, double>>{
           {"0.00025", 0}, {"0.0005", 2}, {"30", 2}, {"+Inf", 3}}) {
    EXPECT_EQ(valueOf(metrics, (times + "bucket" + labels + ",le=\"" + bound + "\"}").c_str()),
              value)
        << bound;
  }
  EXPECT_EQ(valueOf(metrics, (times + "count" + labels + "}").c_str()), 3);
  EXPECT_EQ(valueOf(metrics, (times + "sum" + labels + "}").c_str()), 40.0008);
}

// A program whose calls wait in its own line: no worker has a place for them.
TEST(Metrics, CountCallsThatWaitInAProgramAndHowLongNoneCompletes) {
  const OwnSupervisor supervisor({"--workers", "2"});
  AttachedProgram hanging(supervisor.address(), "hanging");
  AttachedProgram other(supervisor.address(), "other");
  const char* queued = "isopool_calls_queued{class=\"none\"}";
  const char* stalled = "isopool_client_stalled_seconds{class=\"none\"}";
  hanging.report({}, 3);
  const auto reports = [&](uint64_t calls) {
    supervisor.waitFor([&](const ipc::Report& report) {
      return std::any_of(report.clients.begin(), report.clients.end(), [&](const auto& client) {
        return client.program == "hanging" && client.queuedCalls == calls;
      });
    });
  };
  reports(3);
  EXPECT_EQ(valueOf(metricsOf(supervisor), queued), 3);
  const double first = valueOf(metricsOf(supervisor), stalled);
  // Calls of another program of the class complete meanwhile.
  supervisor.waitFor([&](const ipc::Report& report) {
    EXPECT_EQ(other.call("hello"), "hello");
    return std::any_of(report.clients.begin(), report.clients.end(),
                       [](const auto& client) { return client.stalledMilliseconds > 300; });
  });
  EXPECT_GE(valueOf(metricsOf(supervisor), stalled), std::max(first, 0.3));
  hanging.report({}, 0);
  reports(0);
  const std::string after = metricsOf(supervisor);
  EXPECT_EQ(valueOf(after, queued), 0);
  EXPECT_EQ(valueOf(after, stalled), 0);
}

TEST(Metrics, CountStoppedWorkersAndWantedSpares) {
  const OwnSupervisor supervisor({"--workers", "1", "--spares", "2"});
  const ipc::Report report = supervisor.waitFor([](const ipc::Report& now) {
    return now.workers.size() == 3 && now.workers[0].state == "serving";
  });
  EXPECT_EQ(valueOf(metricsOf(supervisor), "isopool_spares{group=\"shared\"}"), 2);
  EXPECT_EQ(valueOf(metricsOf(supervisor), "isopool_workers_stopped{group=\"shared\"}"), 0);
  ASSERT_EQ(::kill(report.workers[0].processId, SIGSTOP), 0);
  supervisor.waitFor(
      [](const ipc::Report& now) { return !now.workers.empty() && now.workers[0].stopped; });
  EXPECT_EQ(valueOf(metricsOf(supervisor), "isopool_workers_stopped{group=\"shared\"}"), 1);
  const CommandOutcome status = runCommand({"status", "--socket", supervisor.address()});
  EXPECT_TRUE(has(status.output, "has been stopped by a signal: kill -CONT continues it"))
      << status.output;
}

TEST(Metrics, CountsStayWhenAWorkerDiesAndWhenItsClientLeaves) {
  const OwnSupervisor supervisor({"--workers", "1"});
  auto program = std::make_unique<AttachedProgram>(supervisor.address(), "trainer");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(program->call("hello"), "hello");
  killWorkerOf(supervisor, 0);
  const std::string afterDeath = metricsOf(supervisor);
  EXPECT_EQ(valueOf(afterDeath, "isopool_calls_total{group=\"shared\"}"), 5);
  EXPECT_EQ(valueOf(afterDeath, "isopool_client_calls_total{class=\"none\"}"), 5);
  EXPECT_EQ(valueOf(afterDeath, "isopool_worker_deaths_total{group=\"shared\",cause=\"killed\"}"),
            1);
  EXPECT_EQ(valueOf(afterDeath, "isopool_worker_restarts_total{group=\"shared\"}"), 1);
  program.reset();
  supervisor.waitFor([](const ipc::Report& report) { return report.clients.empty(); });
  const std::string afterLeaving = metricsOf(supervisor);
  EXPECT_EQ(valueOf(afterLeaving, "isopool_calls_total{group=\"shared\"}"), 5);
  EXPECT_EQ(valueOf(afterLeaving, "isopool_client_calls_total{class=\"none\"}"), 5);
  EXPECT_EQ(valueOf(afterLeaving, "isopool_client_connections_total{class=\"none\"}"), 1);
  EXPECT_EQ(valueOf(afterLeaving, "isopool_clients{class=\"none\"}"), 0);

  AttachedProgram next(supervisor.address(), "trainer");
  EXPECT_EQ(next.call("hello"), "hello");
  const std::string later = metricsOf(supervisor);
  EXPECT_EQ(valueOf(later, "isopool_client_calls_total{class=\"none\"}"), 6);
  EXPECT_EQ(valueOf(later, "isopool_client_connections_total{class=\"none\"}"), 2);
}

// The plain worker uses processor time while it hangs.
TEST(Metrics, ProcessorTimeOfDeadWorkersStaysCounted) {
  const OwnSupervisor supervisor({"--workers", "1", "--spares", "0"});
  supervisor.waitFor([](const ipc::Report& report) {
    return !report.workers.empty() && report.workers[0].state == "serving";
  });
  const char* series = "isopool_worker_cpu_seconds_total{group=\"shared\"}";
  double before = valueOf(metricsOf(supervisor), series);
  for (int death = 0; death < 3; ++death) {
    killWorkerOf(supervisor, 0);
    const double after = valueOf(metricsOf(supervisor), series);
    EXPECT_GE(after, before);
    before = after;
  }
}

TEST(Metrics, AreForProgramsThatReadText) {
  const OwnSupervisor supervisor;
  const CommandOutcome outcome =
      runCommand({"--json", "metrics", "--socket", supervisor.address()});
  EXPECT_EQ(outcome.exitCode, 2);
  EXPECT_EQ(outcome.output, "");
}

TEST(Metrics, WithoutASupervisorThereAreNone) {
  const CommandOutcome outcome = runCommand({"metrics", "--socket", "/nowhere/isopoold.sock"});
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_EQ(outcome.output, "");
}

// ---- the listener -----------------------------------------------------------------------------

class MetricsListener : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/metrics.sock"; }

  /// Starts the listener and waits until it listens.
  void listen(const std::string& supervisor) {
    command_.emplace(
        std::vector<std::string>{"metrics", "--socket", supervisor, "--listen", "unix:" + path()});
    EXPECT_EQ(command_->nextLine(), "serving metrics at unix:" + path());
  }

  TemporaryFolder folder_;
  std::optional<RunningCommand> command_;
};

TEST_F(MetricsListener, AnswersCurlAtAPortAndAtAUnixSocket) {
  if (!isInstalled("curl")) GTEST_SKIP() << "no curl here: apt-get install curl";
  const OwnSupervisor supervisor;
  const auto curl = [&](const std::string& arguments) {
    const std::string file = folder_.path() + "/answer";
    EXPECT_EQ(std::system(("curl -sS --max-time 10 " + arguments + " >" + file).c_str()), 0);
    std::ifstream answer(file);
    return std::string((std::istreambuf_iterator<char>(answer)), {});
  };
  for (const char* address : {"127.0.0.1:0", "[::1]:0"}) {
    RunningCommand command({"metrics", "--socket", supervisor.address(), "--listen", address});
    const std::string line = command.nextLine().value_or("");
    ASSERT_TRUE(line.starts_with("serving metrics at http://")) << line;
    const std::string url = line.substr(line.find("http"));
    EXPECT_EQ(valueOf(curl("'" + url + "'"), "isopool_up"), 1) << url;
  }
  listen(supervisor.address());
  const std::string unixSocket = "--unix-socket " + path() + " http://isopool";
  EXPECT_EQ(valueOf(curl(unixSocket + "/metrics"), "isopool_up"), 1);
  EXPECT_EQ(curl(unixSocket + "/-/ready"), "ready\n");
  const std::string head = curl("--head " + unixSocket + "/metrics?collect=all");
  EXPECT_TRUE(has(head, "200 OK")) << head;
  EXPECT_TRUE(has(head, "Content-Type: text/plain; version=0.0.4; charset=utf-8")) << head;
}

TEST_F(MetricsListener, SurvivesTheEndOfTheSupervisorAndFindsTheNextOne) {
  const TemporaryFolder folder;
  const std::string address = folder.path() + "/isopoold.sock";
  listen(address);
  EXPECT_EQ(valueOf(httpGet(path(), "/metrics"), "isopool_up"), 0);
  const std::string notReady = httpGet(path(), "/-/ready");
  EXPECT_TRUE(has(notReady, "HTTP/1.1 503")) << notReady;
  EXPECT_TRUE(has(notReady, "can't be reached")) << notReady;
  for (int life = 0; life < 2; ++life) {
    {
      const OwnSupervisor supervisor({"--workers", "1"}, address);
      EXPECT_EQ(valueOf(httpGet(path(), "/metrics"), "isopool_up"), 1);
    }
    EXPECT_EQ(valueOf(httpGet(path(), "/metrics"), "isopool_up"), 0);
  }
}

TEST_F(MetricsListener, AStoppedSupervisorIsDownAfterTwoSeconds) {
  const OwnSupervisor supervisor;
  listen(supervisor.address());
  supervisor.signal(SIGSTOP);
  const std::string answer = httpGet(path(), "/metrics");
  EXPECT_EQ(valueOf(answer, "isopool_up"), 0) << answer;
  EXPECT_TRUE(has(httpGet(path(), "/-/ready"), "did not answer within"));
  supervisor.signal(SIGCONT);
  EXPECT_EQ(valueOf(httpGet(path(), "/metrics"), "isopool_up"), 1);
}

TEST_F(MetricsListener, ReadinessFollowsTheSupervisor) {
  const OwnSupervisor supervisor(
      {"--workers", "1", "--spares", "0", "--restart-limit", "1", "--quarantine", "60s"});
  listen(supervisor.address());
  const ipc::Report report = supervisor.waitFor([](const ipc::Report& now) {
    return !now.workers.empty() && now.workers[0].state == "serving";
  });
  EXPECT_TRUE(has(httpGet(path(), "/-/ready"), "HTTP/1.1 200"));
  ASSERT_EQ(::kill(report.workers.at(0).processId, SIGKILL), 0);
  supervisor.waitFor([](const ipc::Report& now) { return now.workers.empty(); });
  const std::string answer = httpGet(path(), "/-/ready");
  EXPECT_TRUE(has(answer, "HTTP/1.1 503")) << answer;
  EXPECT_TRUE(has(answer, "no worker of shared serves: calls wait\n")) << answer;
  const std::string metrics = httpGet(path(), "/metrics");
  EXPECT_EQ(valueOf(metrics, "isopool_ready"), 0);
  EXPECT_EQ(valueOf(metrics, "isopool_slots_quarantined{group=\"shared\"}"), 1);
  EXPECT_EQ(valueOf(metrics, "isopool_worker_quarantines_total{group=\"shared\"}"), 1);
}

TEST_F(MetricsListener, RefusesWhatItDoesNotServe) {
  listen("/nowhere/isopoold.sock");
  EXPECT_TRUE(has(httpGet(path(), "/"), "HTTP/1.1 404"));
  const auto answerTo = [&](const std::string& bytes) {
    HttpClient client(path());
    client.send(bytes);
    return client.readToEnd();
  };
  EXPECT_TRUE(has(answerTo("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), "HTTP/1.1 405"));
  EXPECT_TRUE(has(answerTo("POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\nsome body"),
                  "HTTP/1.1 405"));
  EXPECT_TRUE(
      has(answerTo("GET /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\nsome body"), "HTTP/1.1 413"));
  EXPECT_FALSE(
      has(answerTo("GET /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\nsome body"), "isopool_up"));
  for (const std::string& invalid :
       {std::string("\r\n\r\n\r\n"), std::string("hello\r\n\r\n"), std::string(3, '\0'),
        "GET /metrics HTTP/1.1\r\nX: " + std::string(1u << 20, 'x')}) {
    EXPECT_FALSE(has(answerTo(invalid), "no end")) << invalid.substr(0, 40);
  }
  EXPECT_TRUE(has(httpGet(path(), "/metrics"), "isopool_up 0"));
}

/// Scrapes, and expects the whole answer within a second.
void expectQuickScrape(const std::string& path, const std::string& what) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(has(httpGet(path, "/metrics"), "isopool_up 0")) << what;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1)) << what;
}

TEST_F(MetricsListener, AnswersWithinASecondWhateverOtherConnectionsDo) {
  listen("/nowhere/isopoold.sock");
  const std::string whole = "GET /metrics HTTP/1.1\r\n\r\n";
  struct Peer {
    const char* what;
    std::string bytes;
    bool ends = false;
  };
  for (const auto& [what, bytes, ends] :
       {Peer{"sends nothing", ""}, Peer{"sends a part of a line", "GET /met"},
        Peer{"sends header after header", "GET / HTTP/1.1\r\nA: b\r\n"},
        Peer{"sends a part and its end", "GET /met", true}, Peer{"asks and does not read", whole},
        Peer{"asks three times at once", whole + whole + whole}}) {
    std::vector<std::unique_ptr<HttpClient>> open;
    for (int i = 0; i < 900; ++i) {
      open.push_back(std::make_unique<HttpClient>(path()));
      open.back()->send(bytes);
      if (ends) open.back()->endSending();
      if (i % 100 == 40) expectQuickScrape(path(), what);
    }
    expectQuickScrape(path(), what);
    if (bytes.empty()) {
      EXPECT_EQ(open.front()->readToEnd(), "") << "the oldest makes room";
    }
  }
}

// Header lines that arrive one by one do not extend the time of a connection.
TEST_F(MetricsListener, AConnectionThatSendsSlowlyEnds) {
  listen("/nowhere/isopoold.sock");
  HttpClient slow(path());
  slow.send("GET /metrics HTTP/1.1\r\n");
  std::atomic<bool> ended = false;
  std::thread sender([&] {
    while (!ended) {
      slow.send("A: b\r\n");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  EXPECT_EQ(slow.readToEnd(), "");
  ended = true;
  sender.join();
}

// A port is closed with a reset if bytes were not read, and then the answer is lost.
TEST_F(MetricsListener, WhatAPeerSendsBehindItsRequestDoesNotCostItTheAnswer) {
  RunningCommand command(
      {"metrics", "--socket", "/nowhere/isopoold.sock", "--listen", "127.0.0.1:0"});
  const std::string line = command.nextLine().value_or("");
  const size_t colon = line.rfind(':');
  ASSERT_NE(colon, std::string::npos) << line;
  const auto port = static_cast<uint16_t>(std::stoi(line.substr(colon + 1)));
  for (const auto& [request, status] :
       {std::pair{"POST /metrics HTTP/1.1\r\nContent-Length: 60000\r\n\r\n", "405"},
        std::pair{"GET /metrics HTTP/1.1\r\n\r\n", "200"},
        std::pair{"GET /metrics HTTP/1.1\r\nContent-Length: 60000\r\n\r\n", "413"}}) {
    for (int i = 0; i < 20; ++i) {
      HttpClient client(port);
      client.send(request + std::string(60'000, 'x'));
      EXPECT_TRUE(has(client.readToEnd(), std::string("HTTP/1.1 ") + status)) << request;
    }
  }
}

TEST_F(MetricsListener, AHeadHasTheHeaderAlone) {
  listen("/nowhere/isopoold.sock");
  HttpClient client(path());
  client.send("HEAD /metrics HTTP/1.1\r\n\r\n");
  client.endSending();  // a peer that sends no more still gets its answer
  const std::string answer = client.readToEnd();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
  EXPECT_TRUE(has(answer, "Content-Length: ")) << answer;
  EXPECT_FALSE(has(answer, "isopool_up")) << answer;
}

TEST_F(MetricsListener, EndsOnSigtermAndRemovesItsSocket) {
  for (const int number : {SIGTERM, SIGINT}) {
    listen("/nowhere/isopoold.sock");
    HttpClient open(path());
    struct stat status {};
    ASSERT_EQ(::stat(path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777u, 0660u);
    command_->signal(number);
    EXPECT_EQ(command_->finish().exitCode, 0);
    EXPECT_NE(::access(path().c_str(), F_OK), 0);
  }
}

TEST_F(MetricsListener, TakesTheSocketOfAProcessThatHasEndedAndNoOther) {
  listen("/nowhere/isopoold.sock");
  const CommandOutcome second = runCommand({"metrics", "--listen", "unix:" + path()});
  EXPECT_EQ(second.exitCode, 2);
  EXPECT_TRUE(has(second.errors, "another process serves it")) << second.errors;
  command_->signal(SIGKILL);
  command_->finish();
  EXPECT_EQ(::access(path().c_str(), F_OK), 0) << "killed, it leaves its socket";
  listen("/nowhere/isopoold.sock");
  EXPECT_TRUE(has(httpGet(path(), "/metrics"), "isopool_up 0"));
  const std::string file = folder_.path() + "/file";
  std::ofstream(file) << "text";
  const CommandOutcome onFile = runCommand({"metrics", "--listen", "unix:" + file});
  EXPECT_EQ(onFile.exitCode, 2);
  EXPECT_TRUE(has(onFile.errors, "it exists and is not a socket")) << onFile.errors;
}

TEST_F(MetricsListener, RefusesAddressesThatOtherMachinesReach) {
  for (const char* address : {"0.0.0.0:9464", "[::]:9464", "example.org:9464"}) {
    const CommandOutcome outcome = runCommand({"metrics", "--listen", address});
    EXPECT_EQ(outcome.exitCode, 2) << address;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

}  // namespace
}  // namespace isopool::tests
