// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/pool/client_id.h"
#include "supervisor/pool/services.h"
#include "supervisor/pool/worker_group.h"
#include "supervisor/processes/connection.h"
#include "supervisor/processes/peer.h"

namespace isopool::supervisor {

/// The slots of a shared group's pool that a client calls, in the order of its own slots.
inline constexpr base::PoolId kSharedPool{1};

/// One connection of a client: what it declared (packages, input segments), what it may have, and
/// its place in a group. In a private pool the group is its own and ends with it; else it leaves
/// the group. When the client is gone, or sends nonsense, over() is called. Its callbacks must not
/// destroy it.
class Client final : public GroupClient {
 public:
  struct Events {
    /// It is no longer served; `reason` is empty if it left by itself. Told once.
    std::function<void(const std::string& reason)> over;
    /// A worker of its own group was reaped.
    std::function<void()> reaped;
    /// The shared group for a client of this class (null: none fits).
    std::function<WorkerGroup&(const ClientClass*)> groupFor;
    /// It is an operator and asks for a report.
    std::function<ipc::Report()> report;
    /// Those that isopoold keeps for what clients declared.
    std::function<size_t()> descriptorsOfClients;
    /// It says that it is a program: why another one is not served; empty: it is.
    std::function<std::string()> whyNoMorePrograms;
  };

  /// The one client of a private pool.
  Client(Services& services, ClientId id, base::Fd socket, Events events);
  /// A client of a shared supervisor.
  Client(Services& services, ClientId id, base::Fd socket, const Peer& peer, Events events);
  ~Client() override;

  /// A zygote is ready: the client is welcome.
  void zygoteReady();
  /// Workers can't be made at the moment, and have not been for a while.
  void onZygoteCrashLoop();
  /// Says why and ends.
  void refuse(const std::string& text);
  /// Asks it to publish no more calls.
  void drain(const std::string& text);
  /// True once no call of it is in flight and none will come.
  bool drained() const;

  void appendPids(std::vector<pid_t>& pids) const;
  /// "client 7 (trader, pid 4711, user 1000)".
  std::string describe() const override;
  bool isServedProgram() const { return saidHello_ && !isOperator(); }
  bool isOperator() const { return role_ == ipc::ClientRole::kOperator; }
  ipc::ReportedClient report() const;
  void appendModels(std::map<const PackageMemory*, ipc::ReportedModel>& models) const;
  uint64_t declaredBytes() const { return inputBytes_; }
  size_t declaredDescriptors() const { return segmentsHeld_ + packages_.size(); }

 private:
  struct Package {
    std::shared_ptr<PackageMemory> memory;
    std::string name;
    bool shared = false;
    /// What may be the same bytes, until the client has compared them.
    std::shared_ptr<PackageMemory> candidate;
    bool mapped = false;  ///< workers may have it
  };

  Client(Services& services, ClientId id, base::Fd socket, std::optional<Peer> peer, Events events);

  // What the client says.
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
  uint64_t inputBytes_ = 0;  ///< of those
  /// Of a shared group, by our own slots: whose workers serve them.
  base::PoolId pool_;
  std::vector<uint32_t> slotIndices_;
  uint64_t callsOfPast_ = 0;  ///< completed by workers that are gone
  uint64_t overdueCalls_ = 0;
  uint64_t refusals_ = 0;
  /// Handlers on their way hold it weakly: they outlive the client's record.
  std::shared_ptr<Client*> self_;
};

}  // namespace isopool::supervisor
