// SPDX-License-Identifier: BSD-3-Clause
// The supervisor's part: make the shared memory, start the processes, watch them, tell clients what
// happened. It refuses to do anything else: it runs no user code, maps nothing that a worker writes,
// takes no lock, and waits for nobody; whoever does not answer is killed or, a client, left with a
// queue of bounded size.
#include "supervisor/supervisor.h"

#include <signal.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "supervisor/log.h"
#include "supervisor/orphans.h"

namespace isopool::supervisor {

Supervisor::Supervisor(const Options& options, InheritedLimits limits)
    : options_(options),
      stock_(io_, options_.outputArena),
      zygote_(io_, options_, std::move(limits),
              Zygote::Events{[this](const ipc::ZygoteReady&) {
                               for (const auto& [id, client] : clients_) client->zygoteReady();
                             },
                             [this](const std::string& text) { zygoteGivenUp(text); },
                             [this](const std::string&) {
                               for (const auto& [id, client] : clients_) client->zygoteStruggles();
                             },
                             [this] { childReaped(); }, [this] { sweepSoon(); }}),
      services_{io_, options_, stock_, zygote_, {}},
      signals_(io_, SIGCHLD, SIGTERM, SIGINT) {}

void Supervisor::addClient(ipc::Fd socket) {
  const ClientId id(lastClient_.value + 1);
  lastClient_ = id;
  clients_[id] = std::make_unique<Client>(
      services_, id, std::move(socket),
      Client::Events{[this, id](const std::string& reason) { clientOver(id, reason); },
                     [this] { childReaped(); }});
}

int Supervisor::run() {
  awaitSignals();
  zygote_.start();
  io_.run();
  return exitCode_;
}

void Supervisor::zygoteGivenUp(const std::string& text) {
  for (const auto& [id, client] : clients_) client->refuse("isopool can't start: " + text);
  stop(1);
}

void Supervisor::clientOver(ClientId id, const std::string& reason) {
  if (!reason.empty()) {
    log(LogLevel::kError, "client " + std::to_string(id.value) + ": " + reason);
  }
  // A private pool; a supervisor that others can connect to would only forget this client.
  stop(reason.empty() ? 0 : 1);
}

void Supervisor::stop(int exitCode) {
  if (io_.stopped()) return;
  exitCode_ = exitCode;
  zygote_.kill();
  io_.stop();
}

void Supervisor::childReaped() {
  killOrphans_ = true;
  sweepSoon();
}

// Orphans are told apart from our own by pid, and of a worker that is being forked we do not know
// the pid yet: the sweep waits for it.
void Supervisor::sweepSoon() {
  if (std::exchange(sweepWanted_, true)) return;
  boost::asio::post(io_, [this] { sweepOrphans(); });
}

void Supervisor::sweepOrphans() {
  sweepWanted_ = false;
  if (zygote_.forksOutstanding()) return;  // comes again when they are settled
  const std::vector<pid_t> own = ownChildren();
  // The dead ones' children fall to us in turn: until there is nothing to kill.
  if (killOrphans_) killOrphans_ = killOrphans(own) > 0;
  reapOrphans(own);
}

std::vector<pid_t> Supervisor::ownChildren() const {
  std::vector<pid_t> own;
  if (zygote_.pid() != 0) own.push_back(zygote_.pid());
  for (const auto& [id, client] : clients_) client->appendPids(own);
  return own;
}

void Supervisor::awaitSignals() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    if (signal != SIGCHLD) {
      log(LogLevel::kInfo, "asked to end by signal " + std::to_string(signal));
      for (const auto& [id, client] : clients_) client->refuse("the supervisor was told to end");
      return stop(0);
    }
    sweepOrphans();
    awaitSignals();
  });
}

}  // namespace isopool::supervisor
