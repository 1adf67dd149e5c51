// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "supervisor/clients/class_totals.h"
#include "supervisor/clients/client.h"
#include "supervisor/clients/stall_clock.h"
#include "supervisor/processes/peer.h"

namespace isopool::supervisor {

/// A client of a shared supervisor: a program, or an operator that requests reports and actions. A
/// program joins the group of its class, calls some of the group's slots under the limits of one
/// client, and leaves; its report about a worker is a hint. Contracts as for Client.
class SharedClient final : public Client {
 public:
  struct Events {
    Over over;
    /// Returns the group for a client of this class (null: of no class).
    std::function<WorkerGroup&(const ClientClass*)> groupFor;
    /// The client reports calls. Throws ipc::ProtocolError if the counts are impossible.
    std::function<void(const SharedClient&, const std::vector<ipc::ModelCalls>&)> calls;
    /// The client is an operator and requests a report.
    std::function<ipc::Report()> report;
    /// The client is an operator and requests the settings.
    std::function<std::vector<ipc::ReportedSetting>()> settings;
    /// The client is an operator and requests an action. Returns the answer, without its token.
    std::function<ipc::ActionDone(const ipc::RequestAction&)> act;
    /// Returns how many descriptors isopoold keeps for packages and segments of all clients.
    std::function<size_t()> descriptorsOfClients;
    /// Returns true if those that isopoold may still open are for other uses than programs.
    std::function<bool()> lacksDescriptors;
    /// Returns why no more programs of this name are served; empty: the client may attach.
    std::function<std::string(const std::string& program)> whyNoMorePrograms;
  };

  SharedClient(Services& services, ClientId id, base::Fd socket, const Peer& peer, Events events);
  ~SharedClient() override;

  /// Sends Drain: the client shall publish no more calls. Resumes it first: calls that it has
  /// accepted shall end. `hasSuccessor`: another supervisor serves the address.
  void drain(const std::string& text, bool hasSuccessor);
  /// True once the client has acknowledged Drain, and no call of it is in flight. A program that
  /// has no pool yet opens one if there is a successor, because only a manager that has a pool
  /// attaches to the successor by itself. An operator is drained when it has made a request, within
  /// the time-out of the handshake, and has the answers to all that have arrived.
  bool drained();
  /// True if a manager in the client can attach to a successor without losing a call.
  bool mayMove() { return group_ != nullptr && drainAcknowledged_ && drained(); }

  /// Asks the client to publish no more calls, for this time; 0: until resume(). Returns an empty
  /// text, or the reason why it can't.
  std::string pause(base::Milliseconds time);
  /// Ends that.
  void resume();
  bool isPaused() const { return paused_; }

  /// "client 7 (trader, pid 4711, user 1000)".
  std::string describe() const override;
  const Peer& peer() const { return peer_; }
  const std::string& program() const { return program_; }
  /// True for a program after its Hello.
  bool isServedProgram() const { return saidHello() && !isOperator(); }
  using Client::isOperator;
  ipc::ReportedClient report();
  /// The name of its class of the settings; empty if it has none.
  std::string className() const;
  /// Adds to the totals of its class what the client has done since the last call.
  void addNewTo(ClassTotals& all);

 private:
  bool serves(uint32_t role) const override;
  std::string admit(const ipc::Hello& hello, const base::Fd& pidfd) override;
  void welcome() override;
  void dispatch(ipc::Frame& frame) override;
  void openPool(base::PoolId pool, uint32_t workers) override;
  void closePool(base::PoolId pool) override;
  void reportDeath(base::Epoch epoch, const std::string& reason, bool overdue) override;
  void takePackage(const ipc::LoadPackage& message, std::shared_ptr<PackageMemory> memory) override;
  std::string refusalOfDescriptor() const override;
  ClientLimits limits() const override;
  std::string settingOfCallTime() const override;
  uint32_t share() const override;
  void leaveGroup() override;

  bool uses(const Slot& slot) const override;
  void slotsChanged() override;
  void slotServed(const Slot& slot, base::Epoch epoch) override;
  void slotQuarantined(const Quarantine& quarantine, const std::string& text) override;
  void onOwnQuarantine(const ClientHolds::ClientQuarantine& quarantine) override;
  void onNoWorkers(const std::string&) override {}  // its slots are reported one by one

  void sendDrain();
  void handleOperator(const ipc::Frame& frame);
  void assign(uint32_t own, base::Epoch epoch);
  const ClientClass* ownClass() const;
  std::string chosenClass() const;

  const Peer peer_;
  const Events events_;
  base::TimeLimit handshake_;  ///< until Hello; of an operator until its first request
  base::Timer pauseEnd_;
  std::string program_;
  std::string class_;  ///< the name of its class from its Hello on; empty: none
  bool paused_ = false;
  std::string drainText_;
  bool draining_ = false;
  bool hasSuccessor_ = false;
  bool drainAcknowledged_ = false;
  bool callsEnded_ = false;  ///< after that
  ClassTotals counted_;      ///< what addNewTo() has added
  /// As the client has last reported, see ipc::ReportCalls.
  struct CallsInFlight {
    uint32_t waiting = 0;
    uint32_t awaited = 0;
  };
  std::optional<CallsInFlight> reported_;
  StallClock stall_;
  base::PoolId pool_;  ///< the client's number of its pool
  /// The index of the client's slot is the index here; the value is the slot of the shared pool.
  std::vector<uint32_t> slotIndices_;
  /// Its slots that it knows to be empty because of its own quarantine.
  std::set<uint32_t> slotsWithheld_;
};

}  // namespace isopool::supervisor
