// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "supervisor/pool/services.h"
#include "supervisor/pool/slot_table.h"
#include "supervisor/pool/worker.h"

namespace isopool::supervisor {

/// A client as its group sees it. Called by the group, which none of these but the last two may
/// leave.
class GroupClient {
 public:
  virtual ~GroupClient() = default;
  virtual ClientId id() const = 0;
  /// For the log.
  virtual std::string describe() const = 0;
  /// True if it calls the workers of that slot.
  virtual bool uses(const Slot& slot) const = 0;
  /// The worker has a channel for the client, which is to be told.
  virtual void introduce(Worker& worker, bool spare) = 0;
  /// `epoch`, attached before, serves the slot from now on.
  virtual void slotServed(const Slot& slot, base::Epoch epoch) = 0;
  virtual void slotQuarantined(const Quarantine& quarantine, const std::string& text) = 0;
  /// Another worker serves what `epoch` did, which is to be let go.
  virtual void workerRetires(base::Epoch epoch) = 0;
  /// The worker has run a call of it for as long as one may run.
  virtual void callTimeOver(Worker& worker, uint64_t sequence) = 0;
  /// A worker that it was introduced to is dead and reaped.
  virtual void workerDied(base::Epoch epoch, const ExitStatus& status) = 0;
  /// A worker has unmapped all that it had of the client, which has left the group or reported it.
  virtual void channelClosed(base::Epoch epoch) = 0;
  virtual void segmentWanted(Worker& worker, uint64_t bytes) = 0;
  /// Its channel holds nonsense, says the worker.
  virtual void onChannelCorrupt() = 0;
  /// A pool has no worker, and none can be made for a while.
  virtual void onNoWorkers(const std::string& text) = 0;
};

/// Workers that serve the same clients: the private pools of one program, or all programs of a
/// shared supervisor, or of one class of them. Carries out what its SlotTable decides, and attaches
/// each worker to each member that calls it, a spare to all.
///
/// Members may be destroyed after forget().
class WorkerGroup : private SlotTableEffects {
 public:
  struct Events {
    std::function<void()> reaped;  ///< a worker was
  };

  WorkerGroup(Services& services, std::string name, Events events);
  ~WorkerGroup() override;

  void openPool(base::PoolId pool, uint32_t workers);
  /// Kills the pool's workers.
  void closePool(base::PoolId pool);
  bool hasPool(base::PoolId pool) const { return slotTable_.hasPool(pool); }

  void join(GroupClient& member);
  /// Its channels are closed as soon as no call of it runs, or the grace period is over; it hears
  /// of each.
  void leave(GroupClient& member);
  /// Nothing is told to this member any more, who has left or is about to go without.
  void forget(ClientId client);
  /// The `count` slots of a pool that the fewest members use, in turn if there are not so many.
  std::vector<uint32_t> leastUsedSlots(base::PoolId pool, uint32_t count) const;

  /// Kills all workers; nothing is restarted.
  void end();
  Worker* find(base::Epoch epoch);
  const std::map<base::Epoch, std::shared_ptr<Worker>>& workers() const { return workers_; }
  const SlotTable& slotTable() const { return slotTable_; }
  const std::string& name() const { return name_; }
  void appendPids(std::vector<pid_t>& pids) const;
  std::string describe(const Worker& worker) const;

  /// Kills the worker, unless that was done before, and replaces it.
  void loseWorker(Worker& worker, const std::string& reason);
  /// A member of several says that the worker is dead or of no use. It is lost if the kernel says
  /// so too, or every member that it serves does, or it does not let go of the member within
  /// ISOPOOL_WORKER_TIMEOUT. Else it serves on, and the member by a new channel.
  void workerReported(Worker& worker, GroupClient& member, const std::string& reason);
  /// Workers can't be made at the moment, and have not been for a while.
  void onZygoteCrashLoop();
  /// The member that a worker was for says why it killed it: it may be reaped, and not yet logged.
  void blameReaped(base::Epoch epoch, const std::string& reason);
  /// The settings that may change while it runs have changed.
  void settingsChanged();
  /// The member uses a retiring worker no longer.
  void released(base::Epoch epoch, ClientId client);

  uint64_t restarts() const { return restarts_; }
  uint64_t recycled() const { return recycled_; }
  uint64_t unfit() const { return unfit_; }
  bool retires(base::Epoch epoch) const { return retiring_.count(epoch) != 0; }
  /// Why the slot's last worker that died did, and when.
  struct LastExit {
    uint64_t restarts = 0;
    std::string reason;
    base::Epoch worker;
    base::TimePoint at;
  };
  const std::map<std::pair<uint32_t, uint32_t>, LastExit>& lastExits() const { return lastExits_; }

 private:
  /// When a worker's life is long enough (Recycling), with this life's jitter.
  struct LifeSpan {
    uint64_t calls = 0;
    base::Milliseconds age{0};
    uint64_t memoryGrowth = 0;
    std::optional<uint64_t> memoryAfterFirstCall;
  };
  /// A worker that is lost and not yet reaped: what is said of it then.
  struct Lost {
    std::string name;
    std::optional<Slot> slot;  ///< none: a spare
    bool early = false;        ///< it was introduced, and completed no call
    bool replaced = false;     ///< it was to retire
    pid_t processId = 0;
    base::Milliseconds vacancy{0};  ///< for how long nothing is started in its place
  };
  struct Retirement {
    base::TimePoint since;
    std::set<ClientId> released;
  };

  // What its workers do.
  void workerReady(Worker& worker);
  void introduce(Worker& worker, GroupClient& member);
  void introduceAnew(base::Epoch epoch, ClientId client);
  void introduceWith(base::Epoch epoch, ClientId client, ChannelMemory memory,
                     const std::string& failure);
  void channelNotMade(Worker& worker, const std::string& failure);
  void workerAttached(Worker& worker, ClientId client);
  void workerDetached(Worker& worker, ClientId client);
  void workerLost(Worker& worker);
  void logDeath(const Lost& lost, const std::string& death, const std::string& cause) const;
  void workerGone(Worker& worker, const std::optional<ExitStatus>& status);

  // What its slot table decides.
  base::Epoch startWorker(bool spare) override;
  void retireWorker(base::Epoch epoch) override;
  void assignWorker(const Slot& slot, base::Epoch epoch) override;
  void slotQuarantined(const Quarantine& quarantine) override;
  void spareQuarantined(uint32_t deaths, base::Milliseconds duration) override;
  void scheduleTick();

  GroupClient* memberOf(ClientId client) const;
  void serveIfAttached(GroupClient& member, const Slot& slot, base::Epoch epoch);
  void watchLives();
  void watchCallTimes();
  std::string lifeOver(Worker& worker, LifeSpan& life) const;
  LifeSpan drawLifeSpan();
  void pursueRetirements();

  Services& services_;
  const std::string name_;
  const Events events_;
  SlotTable slotTable_;
  std::map<ClientId, GroupClient*> members_;
  std::map<ClientId, GroupClient*> departing_;  // have left; some worker has not forgotten them yet
  std::map<base::Epoch, std::shared_ptr<Worker>> workers_;
  std::map<std::pair<uint32_t, uint32_t>, base::Epoch> serving_;  // by pool and slot
  std::map<std::pair<uint32_t, uint32_t>, LastExit> lastExits_;
  std::map<base::Epoch, LifeSpan> lives_;
  std::map<base::Epoch, Retirement> retiring_;
  std::map<base::Epoch, Lost> lost_;
  std::map<base::Epoch, std::shared_ptr<Worker>> reaped_;  // whose deaths are about to be logged
  uint64_t restarts_ = 0;
  uint64_t recycled_ = 0;
  uint64_t unfit_ = 0;  ///< ended by ipc::kUnfitWorkerExit
  bool over_ = false;
  base::Timer tick_;
  base::Timer lifeWatch_;
  base::Timer channelRetry_;
  base::Timer callWatch_;
  /// Handlers on their way hold it weakly: they outlive the group.
  std::shared_ptr<WorkerGroup*> self_;
};

}  // namespace isopool::supervisor
