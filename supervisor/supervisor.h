// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <map>
#include <memory>
#include <vector>

#include "supervisor/client.h"
#include "supervisor/memory_stock.h"
#include "supervisor/options.h"
#include "supervisor/services.h"
#include "supervisor/zygote.h"

namespace isopool::supervisor {

/// The parent of all: one zygote, the clients, and through them all workers. Made by main, run on
/// one thread. Everything that it started is dead or dying when run() returns.
class Supervisor {
 public:
  Supervisor(const Options& options, InheritedLimits limits);

  /// Serves a client over its control socket. A private pool has one; when it is gone, run() ends.
  void addClient(ipc::Fd socket);

  /// Returns the exit code: 0 if the client left, 1 if it could not be served.
  int run();

 private:
  void zygoteGivenUp(const std::string& text);
  void clientOver(ClientId id, const std::string& reason);
  void childReaped();
  void sweepSoon();
  void sweepOrphans();
  std::vector<pid_t> ownChildren() const;
  void awaitSignals();
  void stop(int exitCode);

  const Options options_;
  boost::asio::io_context io_;
  MemoryStock stock_;
  Zygote zygote_;
  Services services_;
  std::map<ClientId, std::unique_ptr<Client>> clients_;
  ClientId lastClient_;
  boost::asio::signal_set signals_;
  bool sweepWanted_ = false;
  bool killOrphans_ = false;
  int exitCode_ = 0;
};

}  // namespace isopool::supervisor
