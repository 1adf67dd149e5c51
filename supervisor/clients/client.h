// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/weak_self.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/operator_messages.h"
#include "supervisor/clients/class_totals.h"
#include "supervisor/pool/client_id.h"
#include "supervisor/pool/services.h"
#include "supervisor/pool/worker_group.h"
#include "supervisor/processes/connection.h"

namespace isopool::supervisor {

/// One connection of a client: its messages, and what it has declared (packages, input segments).
/// What a private and a shared supervisor do differently is in PrivateClient and SharedClient.
///
/// If the client closes the connection, dies (its pidfd becomes readable), or sends an invalid
/// message, it leaves its group and `over` is called. Not thread-safe: used on the loop's thread.
/// Its callbacks must not destroy it.
class Client : public GroupClient {
 public:
  /// The client is no longer served. `reason` is empty if it left or died. Called once.
  using Over = std::function<void(const std::string& reason)>;

  /// A zygote is ready: sends Welcome, if the client has sent Hello.
  void zygoteReady();
  /// Sends Failure with this text and ends the connection.
  void refuse(const std::string& text);
  /// The client sees at once that its connection has ended. Call before its workers end with the
  /// supervisor: a client that sees a worker's death finds out in this way that it is not only the
  /// worker's.
  void hangUp() noexcept { connection_.hangUp(); }

  ClientId id() const final { return id_; }
  void appendModels(std::map<const PackageMemory*, ipc::ReportedModel>& models) const;
  /// Bytes of its input segments.
  uint64_t declaredBytes() const { return inputBytes_ + retiredInputBytes(); }
  /// Descriptors that isopoold keeps for its input segments, packages and results.
  size_t declaredDescriptors() const;

 protected:
  Client(Services& services, ClientId id, base::Fd socket, Over over);

  // What differs between the kinds of supervisor.

  /// True if a client may have this role (ipc::ClientRole) of Hello.
  virtual bool serves(uint32_t role) const = 0;
  /// Admits the client, or returns why not. Throws ipc::ProtocolError if its Hello is invalid.
  virtual std::string admit(const ipc::Hello& hello, const base::Fd& pidfd) = 0;
  /// Sends Welcome by sendWelcome().
  virtual void welcome() = 0;
  /// Handles a message. Throws ipc::ProtocolError if it is invalid.
  virtual void dispatch(ipc::Frame& frame);
  virtual void openPool(base::PoolId pool, uint32_t workers) = 0;
  virtual void closePool(base::PoolId pool) = 0;
  /// As in ipc::ReportDeath, with a printable reason.
  virtual void reportDeath(base::Epoch epoch, const std::string& reason, bool overdue) = 0;
  /// Holds the package by holdPackage(), or refuses it.
  virtual void takePackage(const ipc::LoadPackage& message,
                           std::shared_ptr<PackageMemory> memory) = 0;
  /// Empty, or why isopoold may not keep another descriptor for the client.
  virtual std::string refusalOfDescriptor() const = 0;
  /// The limits of this client; those that can change at run time may differ at the next call.
  virtual ClientLimits limits() const = 0;
  /// Names the setting that callTime() comes from.
  virtual std::string settingOfCallTime() const { return ""; }
  /// Calls per call of a client with share 1, while both wait.
  virtual uint32_t share() const = 0;
  /// The connection has ended: leaves the group.
  virtual void leaveGroup() = 0;

  // For both kinds.

  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    connection_.send(message, descriptors);
  }
  /// Completes the message and sends it.
  void sendWelcome(ipc::Welcome welcome);
  void sendAssignment(base::PoolId pool, uint32_t slot, base::Epoch epoch);
  /// `pool` and `slot` are the client's numbers.
  void sendQuarantine(base::PoolId pool, uint32_t slot, const Quarantine& quarantine,
                      const std::string& text);
  /// Keeps a package, and makes the client's workers map it unless it has a candidate, memory that
  /// may hold the same bytes: then they map it after ConfirmPackage.
  void holdPackage(const ipc::LoadPackage& message, std::shared_ptr<PackageMemory> memory,
                   std::shared_ptr<PackageMemory> candidate);
  /// The worker, if the client can judge it: the client's channel to it is mapped and not being
  /// detached. Else null.
  Worker* judged(base::Epoch epoch);
  /// Empty, or why the client may not have `bytes` more.
  std::string refusalOfMemory(uint64_t bytes, const char* what) const;
  /// What the client holds and has called.
  ipc::ReportedClient reportFigures() const;
  /// What the client has done since it connected; `connections` is 1 when it has attached.
  ClassTotals totals() const;
  void countRefusal(ClientLimit limit) { ++refusals_[static_cast<size_t>(limit)]; }
  /// Keeps the counts of all workers in callsOfPast_: the client leaves its group.
  void countCallsOfAll();
  bool isOperator() const { return role_ == ipc::ClientRole::kOperator; }
  bool saidHello() const { return saidHello_; }
  bool welcomed() const { return welcomed_; }
  bool over() const { return over_; }
  /// See Connection::isIdle().
  bool connectionIdle() const { return connection_.isIdle(); }
  /// The highest that both sides support. After Hello.
  uint32_t protocolVersion() const { return protocolVersion_; }
  size_t packages() const { return packages_.size(); }

  Services& services_;
  WorkerGroup* group_ = nullptr;  ///< null: it has not joined one

 private:
  struct Package {
    std::shared_ptr<PackageMemory> memory;
    std::string name;
    bool shared = false;
    /// Memory that may hold the same bytes; null when the client has compared them.
    std::shared_ptr<PackageMemory> candidate;
    bool mapped = false;  ///< workers map it, those that attach later included
  };

  // Messages from the client.
  void handle(ipc::Frame& frame);
  void hello(ipc::Frame& frame);
  void declareInputSegment(ipc::Frame& frame);
  void retireInputSegment(const ipc::RetireInputSegment& message);
  void outputSegmentUnmapped(const ipc::OutputSegmentUnmapped& message);
  void loadPackage(ipc::Frame& frame);
  void confirmPackage(const ipc::ConfirmPackage& message);
  void unloadPackage(const ipc::UnloadPackage& message);
  void channelMapped(const ipc::ChannelMapped& message);
  void reportOverdue(const ipc::ReportOverdue& message);
  void sendStatistics(uint64_t token);
  void end(const std::string& reason);
  void closeMemory();
  uint64_t completedCalls() const;

  // As a member of its group.
  void introduce(Worker& worker, bool spare) override;
  void workerRetires(base::Epoch epoch) override;
  uint64_t servedCalls() const override;
  base::Milliseconds callTime() const override { return limits().callTime; }
  void callTimeOver(Worker& worker, uint64_t sequence) override;
  void workerDied(base::Epoch epoch, const ExitStatus& status) override;
  void channelClosed(base::Epoch epoch) override;
  void segmentWanted(Worker& worker, uint64_t bytes) override;
  uint32_t patienceOfCalls() const;
  void segmentRetired(Worker& worker, uint32_t segment) override;
  void inputUnmapped() override { releaseRetiredInputs(); }
  void onChannelCorrupt() override;

  void releaseRetiredInputs();
  bool isUnmapping(uint32_t segment) const;
  void trimOutputs();
  void grantSegment(base::Epoch epoch, uint32_t number, uint64_t bytes, base::Fd segment,
                    const std::string& failure);
  void countCallsOf(base::Epoch epoch);
  void mapPackage(uint32_t number, Package& package);
  void tell(Worker& worker, uint32_t number, const Package& package);
  template <typename Visit>
  void visitListeningWorkers(Visit&& visit) const;
  uint64_t retiredInputBytes() const;
  uint64_t packageBytes() const;
  uint64_t sumOverWorkers(uint64_t (Attachment::*figure)() const) const;
  uint64_t outputBytes() const;
  uint64_t handleBytes() const;

  const ClientId id_;
  const Over onOver_;
  Connection connection_;
  base::Fd pidfd_;
  std::optional<base::ReadinessWatch> deathWatch_;
  const base::TimePoint attachedAt_;
  ipc::ClientRole role_ = ipc::ClientRole::kProgram;
  uint32_t protocolVersion_ = ipc::kProtocolVersion;  ///< the highest that both sides support
  bool saidHello_ = false;
  bool welcomed_ = false;
  bool over_ = false;
  std::map<uint32_t, Package> packages_;
  std::map<uint32_t, std::shared_ptr<InputSegment>> inputSegments_;
  /// Segments that the client has retired and a worker may still map.
  std::map<uint32_t, std::shared_ptr<InputSegment>> retiredInputs_;
  size_t segmentsHeld_ = 0;     ///< segments with a descriptor: declared or retired, not refused
  size_t segmentsRefused_ = 0;  ///< of inputSegments_
  uint64_t inputBytes_ = 0;     ///< bytes of the declared ones
  uint64_t callsOfPast_ = 0;   ///< calls completed by workers that have died or detached the client
  uint64_t servedOfPast_ = 0;  ///< the same, of servedCalls()
  uint64_t overdueCalls_ = 0;
  Refusals refusals_{};
  /// Weak handle to this object for callbacks that are still pending: they may outlive it.
  base::WeakSelf<Client> self_;
};

}  // namespace isopool::supervisor
