// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "supervisor/clients/client.h"

namespace isopool::supervisor {

/// The client of a private supervisor: the program that started it. It owns its group, whose pools
/// it opens and closes, and which ends with the connection. It has no limits. A worker that it
/// reports is lost. Contracts as for Client.
class PrivateClient final : public Client {
 public:
  struct Events {
    Over over;
    /// A worker of the client's group was reaped.
    std::function<void()> reaped;
  };

  PrivateClient(Services& services, ClientId id, base::Fd socket, Events events);
  ~PrivateClient() override;

  /// Zygotes fail repeatedly: as WorkerGroup::onZygoteCrashLoop().
  void onZygoteCrashLoop() { ownGroup_.onZygoteCrashLoop(); }
  void appendPids(std::vector<pid_t>& pids) const { ownGroup_.appendPids(pids); }
  /// As WorkerGroup::stateChanged().
  void stateChanged(const Processes::StateChange& change) { ownGroup_.stateChanged(change); }
  /// As WorkerGroup::logOutput().
  void logOutput() const { ownGroup_.logOutput(); }
  /// "client 1".
  std::string describe() const override;

 private:
  bool serves(uint32_t role) const override;
  std::string admit(const ipc::Hello& hello, const base::Fd& pidfd) override;
  void welcome() override;
  void openPool(base::PoolId pool, uint32_t workers) override;
  void closePool(base::PoolId pool) override;
  void reportDeath(base::Epoch epoch, const std::string& reason, bool overdue) override;
  void takePackage(const ipc::LoadPackage& message, std::shared_ptr<PackageMemory> memory) override;
  std::string refusalOfDescriptor() const override { return {}; }
  ClientLimits limits() const override { return {}; }
  uint32_t share() const override { return 1; }
  void leaveGroup() override;

  bool uses(const Slot&) const override { return true; }
  void slotsChanged() override {}  // each of its pools keeps its size
  void slotServed(const Slot& slot, base::Epoch epoch) override;
  void slotQuarantined(const Quarantine& quarantine, const std::string& text) override;
  // What the only client causes counts against its slots.
  void onOwnQuarantine(const ClientHolds::ClientQuarantine&) override {}
  void onNoWorkers(const std::string& text) override;

  WorkerGroup ownGroup_;
};

}  // namespace isopool::supervisor
