// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/weak_self.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/operator_messages.h"
#include "supervisor/pool/client_id.h"
#include "supervisor/pool/services.h"
#include "supervisor/pool/worker_group.h"
#include "supervisor/processes/connection.h"
#include "supervisor/processes/peer.h"

namespace isopool::supervisor {

/// The one pool of a shared supervisor's group. A client calls some of its slots.
inline constexpr base::PoolId kSharedPool{1};

/// One connection of a client: its messages, what it has declared (packages, input segments), its
/// limits, and its membership in a group. The client of a private pool owns its group, which ends
/// with the connection; a client of a shared supervisor joins a group and leaves it.
///
/// If the client closes the connection, dies (its pidfd becomes readable), or sends an invalid
/// message, it leaves its group and Events::over is called. Not thread-safe: used on the loop's
/// thread. Its callbacks must not destroy it.
class Client final : public GroupClient {
 public:
  struct Events {
    /// The client is no longer served. `reason` is empty if it left or died. Called once.
    std::function<void(const std::string& reason)> over;
    /// A worker of the client's own group was reaped.
    std::function<void()> reaped;
    /// Returns the shared group for a client of this class (null: of no class).
    std::function<WorkerGroup&(const ClientClass*)> groupFor;
    /// The client is an operator and requests a report.
    std::function<ipc::Report()> report;
    /// Returns how many descriptors isopoold keeps for packages and segments of all clients.
    std::function<size_t()> descriptorsOfClients;
    /// Returns why no more programs are served; empty: the client may attach as a program.
    std::function<std::string()> whyNoMorePrograms;
  };

  /// The client of a private pool.
  Client(Services& services, ClientId id, base::Fd socket, Events events);
  /// A client of a shared supervisor.
  Client(Services& services, ClientId id, base::Fd socket, const Peer& peer, Events events);
  ~Client() override;

  /// A zygote is ready: sends Welcome, if the client has sent Hello.
  void zygoteReady();
  /// Zygotes fail repeatedly: as WorkerGroup::onZygoteCrashLoop(), for a client's own group.
  void onZygoteCrashLoop();
  /// Sends Failure with this text and ends the connection.
  void refuse(const std::string& text);
  /// Sends Drain: the client shall publish no more calls.
  void drain(const std::string& text);
  /// True once the client has acknowledged Drain, and no call of it is in flight.
  bool drained() const;

  void appendPids(std::vector<pid_t>& pids) const;
  /// "client 7 (trader, pid 4711, user 1000)".
  std::string describe() const override;
  /// True for a program after its Hello.
  bool isServedProgram() const { return saidHello_ && !isOperator(); }
  bool isOperator() const { return role_ == ipc::ClientRole::kOperator; }
  ipc::ReportedClient report() const;
  void appendModels(std::map<const PackageMemory*, ipc::ReportedModel>& models) const;
  /// Bytes of its input segments.
  uint64_t declaredBytes() const { return inputBytes_; }
  /// Descriptors that isopoold keeps for its input segments and packages.
  size_t declaredDescriptors() const { return segmentsHeld_ + packages_.size(); }

 private:
  struct Package {
    std::shared_ptr<PackageMemory> memory;
    std::string name;
    bool shared = false;
    /// Memory that may hold the same bytes; null when the client has compared them.
    std::shared_ptr<PackageMemory> candidate;
    bool mapped = false;  ///< workers map it, those that attach later included
  };

  Client(Services& services, ClientId id, base::Fd socket, std::optional<Peer> peer, Events events);

  // Messages from the client.
  void handle(ipc::Frame& frame);
  void handleOperator(const ipc::Frame& frame);
  void hello(ipc::Frame& frame);
  void openPool(const ipc::OpenPool& message);
  void closePool(base::PoolId pool);
  void declareInputSegment(ipc::Frame& frame);
  void loadPackage(ipc::Frame& frame);
  void confirmPackage(const ipc::ConfirmPackage& message);
  void unloadPackage(const ipc::UnloadPackage& message);
  void channelMapped(const ipc::ChannelMapped& message);
  void reportDeath(const ipc::ReportDeath& message);
  void reportOverdue(const ipc::ReportOverdue& message);
  void sendStatistics(uint64_t token);
  void welcome();
  void end(const std::string& reason);

  // As a member of its group.
  ClientId id() const override { return id_; }
  bool uses(const Slot& slot) const override;
  void introduce(Worker& worker, bool spare) override;
  void slotServed(const Slot& slot, base::Epoch epoch) override;
  void slotQuarantined(const Quarantine& quarantine, const std::string& text) override;
  void workerRetires(base::Epoch epoch) override;
  void callTimeOver(Worker& worker, uint64_t sequence) override;
  void workerDied(base::Epoch epoch, const ExitStatus& status) override;
  void channelClosed(base::Epoch epoch) override;
  void segmentWanted(Worker& worker, uint64_t bytes) override;
  void onChannelCorrupt() override;
  void onNoWorkers(const std::string& text) override;

  void grantSegment(base::Epoch epoch, uint32_t number, uint64_t bytes, base::Fd segment,
                    const std::string& failure);
  void countCallsOf(base::Epoch epoch);
  void mapPackage(uint32_t number, Package& package);
  void tell(Worker& worker, uint32_t number, const Package& package);
  template <typename Visit>
  void visitListeningWorkers(Visit&& visit) const;
  bool isShared() const { return peer_.has_value(); }
  const ClientClass* ownClass() const;
  std::string refusalOfMemory(uint64_t bytes, const char* what) const;
  std::string refusalOfDescriptor() const;
  uint64_t packageBytes() const;
  uint64_t sumOverWorkers(uint64_t (Attachment::*figure)() const) const;
  uint64_t outputBytes() const;
  uint64_t handleBytes() const;

  Services& services_;
  const ClientId id_;
  const std::optional<Peer> peer_;
  Events events_;
  std::unique_ptr<WorkerGroup> ownGroup_;
  WorkerGroup* group_ = nullptr;  ///< null in a shared supervisor until a pool is opened
  Connection connection_;
  base::Fd pidfd_;
  std::optional<base::ReadinessWatch> deathWatch_;
  base::Timer handshake_;
  const base::TimePoint attachedAt_;
  std::string program_;
  ipc::ClientRole role_ = ipc::ClientRole::kProgram;
  bool saidHello_ = false;
  bool welcomed_ = false;
  bool over_ = false;
  bool draining_ = false;
  bool drainAcknowledged_ = false;
  std::map<uint32_t, Package> packages_;
  std::map<uint32_t, std::shared_ptr<InputSegment>> inputSegments_;
  size_t segmentsHeld_ = 0;  ///< segments that are not refused
  uint64_t inputBytes_ = 0;  ///< bytes of those
  base::PoolId pool_;        ///< the client's number of its pool, in a shared supervisor
  /// The index of the client's slot is the index here; the value is the slot of the shared pool.
  std::vector<uint32_t> slotIndices_;
  uint64_t callsOfPast_ = 0;  ///< calls completed by workers that have died or detached the client
  uint64_t overdueCalls_ = 0;
  uint64_t refusals_ = 0;
  /// Weak handle to this object for callbacks that are still pending: they may outlive it.
  base::WeakSelf<Client> self_;
};

}  // namespace isopool::supervisor
