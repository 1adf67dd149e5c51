// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/connection.h"
#include "supervisor/roster.h"
#include "supervisor/services.h"
#include "supervisor/worker.h"

namespace isopool::supervisor {

/// The supervisor's number of a client process, from 1, never reused.
using ClientId = ipc::Id<struct ClientIdTag, uint64_t>;

/// One client process: its connection, what it declared (packages, input segments), its pools, and
/// the workers that serve it. Carries out what its Roster decides. When the client is gone, or sends
/// nonsense, its workers are killed and over() is called. Its callbacks must not destroy it.
class Client : private RosterEffects {
 public:
  struct Events {
    /// It is no longer served; `reason` is empty if it left by itself. Told once.
    std::function<void(const std::string& reason)> over;
    /// A worker was reaped.
    std::function<void()> reaped;
  };

  Client(Services& services, ClientId id, ipc::Fd socket, Events events);
  ~Client() override;

  /// A zygote is ready: the client is welcome.
  void zygoteReady();
  /// Workers can't be made at the moment, and have not been for a while.
  void zygoteStruggles();
  /// Says why and ends: no worker of it is left alive.
  void refuse(const std::string& text);

  void appendPids(std::vector<pid_t>& pids) const;

 private:
  struct Package {
    ipc::Fd object;
    uint64_t bytes = 0;
    std::string name;
    bool shared = false;
  };
  struct InputSegment {
    ipc::Fd object;
    uint64_t bytes = 0;
  };

  // What the client says.
  void handle(ipc::Frame& frame);
  void hello(ipc::Frame& frame);
  void openPool(const ipc::OpenPool& message);
  void declareInputSegment(ipc::Frame& frame);
  void loadPackage(ipc::Frame& frame);
  void unloadPackage(const ipc::UnloadPackage& message);
  void channelMapped(const ipc::ChannelMapped& message);
  void reportDeath(const ipc::ReportDeath& message);
  void sendStatistics(uint64_t token);
  void welcome();
  void end(const std::string& reason);

  // What its workers do.
  void workerReady(Worker& worker);
  void workerAttached(Worker& worker);
  void workerLost(Worker& worker, const std::string& reason);
  void workerGone(Worker& worker, const std::optional<ExitStatus>& status);
  void segmentWanted(Worker& worker, uint64_t bytes);
  void grantSegment(ipc::Epoch epoch, uint32_t number, uint64_t bytes, ipc::Fd segment,
                    const std::string& failure);
  Worker* find(ipc::Epoch epoch);
  std::string describe(const Worker& worker) const;

  // What its roster decides.
  ipc::Epoch startWorker(bool spare) override;
  void retireWorker(ipc::Epoch epoch) override;
  void assignWorker(const Slot& slot, ipc::Epoch epoch) override;
  void slotQuarantined(const Quarantine& quarantine) override;
  void spareQuarantined(uint32_t deaths, Milliseconds duration) override;
  void scheduleTick();

  Services& services_;
  const ClientId id_;
  Events events_;
  Roster roster_;
  Connection connection_;
  ipc::Fd pidfd_;
  std::optional<ReadinessWatch> deathWatch_;
  bool saidHello_ = false;
  bool welcomed_ = false;
  bool over_ = false;
  std::map<uint32_t, Package> packages_;
  std::map<uint32_t, InputSegment> inputSegments_;
  std::map<ipc::Epoch, std::unique_ptr<Worker>> workers_;
  uint64_t restarts_ = 0;
  Timer tick_;
  /// Handlers on their way hold it weakly: they outlive the client's record.
  std::shared_ptr<Client*> self_;
};

}  // namespace isopool::supervisor
