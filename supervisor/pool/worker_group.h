// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/log/line_rate.h"
#include "base/running_time.h"
#include "base/weak_self.h"
#include "supervisor/pool/call_times.h"
#include "supervisor/pool/client_holds.h"
#include "supervisor/pool/death_report.h"
#include "supervisor/pool/group_totals.h"
#include "supervisor/pool/life_span.h"
#include "supervisor/pool/memory_watch.h"
#include "supervisor/pool/separation.h"
#include "supervisor/pool/services.h"
#include "supervisor/pool/slot_table.h"
#include "supervisor/pool/worker.h"

namespace isopool::supervisor {

/// The one pool of a shared supervisor's group. A client calls some of its slots.
inline constexpr base::PoolId kSharedPool{1};

/// The interface of a client to its group. The group calls it. A client must not leave the group
/// within these calls, except within the last two.
class GroupClient {
 public:
  virtual ~GroupClient() = default;
  virtual ClientId id() const = 0;
  /// Its name in the log.
  virtual std::string describe() const = 0;
  /// True if it calls the workers of that slot.
  virtual bool uses(const Slot& slot) const = 0;
  /// The worker has a new channel for the client: sends it to the client.
  virtual void introduce(Worker& worker, bool spare) = 0;
  /// The group has other slots than before, and the member may use some that are gone.
  virtual void slotsChanged() = 0;
  /// `epoch`, whose channel is usable, serves the slot from now on.
  virtual void slotServed(const Slot& slot, base::Epoch epoch) = 0;
  /// The slot stays empty for a while; `text` is the reason.
  virtual void slotQuarantined(const Quarantine& quarantine, const std::string& text) = 0;
  /// The client gets no further worker for a while, because its code has ended workers. Called
  /// again when it loses another worker meanwhile.
  virtual void onOwnQuarantine(const ClientHolds::ClientQuarantine& quarantine) = 0;
  /// Calls that workers have completed for the client, those that have died included, without steps
  /// (Attachment::servedCalls()). Untrusted: the workers write it.
  virtual uint64_t servedCalls() const = 0;
  /// Another worker has replaced `epoch`: asks the client to release it. Called until it does.
  virtual void workerRetires(base::Epoch epoch) = 0;
  /// How long one call of the client may run; 0: no limit.
  virtual base::Milliseconds callTime() const = 0;
  /// The worker has run a call of the client for longer than callTime().
  virtual void callTimeOver(Worker& worker, uint64_t sequence) = 0;
  /// A worker with a channel to the client is dead and reaped.
  virtual void workerDied(base::Epoch epoch, const ExitStatus& status) = 0;
  /// A worker has unmapped all memory of the client, after the client left the group or reported
  /// the worker.
  virtual void channelClosed(base::Epoch epoch) = 0;
  /// The worker needs another output segment for results to the client.
  virtual void segmentWanted(Worker& worker, uint64_t bytes) = 0;
  /// The worker has removed an output segment, see Attachment::retire().
  virtual void segmentRetired(Worker& worker, uint32_t segment) = 0;
  /// A worker has unmapped a segment of the client's inputs, see Attachment::unmapping.
  virtual void inputUnmapped() = 0;
  /// A worker has closed its channel because the channel contained invalid data.
  virtual void onChannelCorrupt() = 0;
  /// A pool has no worker, and none can be started for a while.
  virtual void onNoWorkers(const std::string& text) = 0;
};

/// Workers that serve the same clients: the private pools of one program, or all programs of a
/// shared supervisor, or all of one class. Carries out the decisions of its SlotTable, and attaches
/// each worker to each member that calls it, and a spare to all members. A worker that dies is
/// replaced, and the group logs the cause.
///
/// A worker of several members that dies early (it has completed no call) does not count against
/// its slot if a member's code has run there: it counts against that member (ClientHolds), if the
/// member has completed no call on that worker. The worker's status page names the member.
///
/// Members may be destroyed after forget(). Not thread-safe: used on the loop's thread.
class WorkerGroup : private SlotTableEffects {
 public:
  struct Events {
    std::function<void()> reaped;  ///< a worker was reaped
    std::function<void()> served;  ///< a slot has a worker; may be empty
    /// A slot stays empty for a while, see describe(Quarantine); may be empty.
    std::function<void(const std::string& text)> quarantined;
  };

  /// `name` is empty for a private pool, else "shared" or the name of a class.
  WorkerGroup(Services& services, std::string name, Events events);
  ~WorkerGroup() override;

  /// Starts the pool's workers, and with the first pool the spares.
  void openPool(base::PoolId pool, uint32_t workers);
  /// Kills the pool's workers, and with the last pool the spares.
  void closePool(base::PoolId pool);
  bool hasPool(base::PoolId pool) const { return slotTable_.hasPool(pool); }

  /// Gives an open pool this many slots. The workers of slots that are removed retire: they are
  /// killed when no client uses them, at the latest when recycle.patience is over.
  void resizePool(base::PoolId pool, uint32_t workers);

  /// Adds a member and introduces the ready workers to it.
  void join(GroupClient& member);
  /// Closes the member's channels: each as soon as no call of the member runs, at the latest when
  /// the grace period is over. Calls GroupClient::channelClosed() for each.
  void leave(GroupClient& member);
  /// Makes a channel between a ready worker and a member, unless there is one or the member does
  /// not use the worker's slot. A spare is for every member.
  void introduce(Worker& worker, GroupClient& member);
  /// Ends all calls to this member, whether it has left or not.
  void forget(ClientId client);
  /// The `count` slots of a pool that the fewest members use, for this client: those that
  /// Separation leaves it, without those in quarantine unless all are. If these are fewer, they are
  /// repeated in turn.
  std::vector<uint32_t> leastUsedSlots(base::PoolId pool, uint32_t count, ClientId client) const;

  /// Kills all workers and starts no more.
  void end();
  /// Null if there is no such worker, or it is reaped.
  Worker* find(base::Epoch epoch);
  /// The worker that serves the slot; null if none does.
  Worker* serving(const Slot& slot);
  const std::map<base::Epoch, std::shared_ptr<Worker>>& workers() const { return workers_; }
  /// Logs what the workers have written so far, if their output is collected.
  void logOutput() const {
    for (const auto& [epoch, worker] : workers_) worker->logOutput();
  }
  const SlotTable& slotTable() const { return slotTable_; }
  /// True if a slot has a worker.
  bool serves() const { return !serving_.empty(); }
  const std::string& name() const { return name_; }
  void appendPids(std::vector<pid_t>& pids) const;
  /// The worker's name in the log: "worker 0 (pid 5477) of shared pool".
  std::string describe(const Worker& worker) const;

  /// Kills the worker, unless it is dying already, and replaces it.
  void loseWorker(Worker& worker, DeathCause cause, const std::string& reason);
  /// Handles a report of one of several members that the worker is dead or unusable. The worker is
  /// lost if /proc shows that it ends or is stopped, if every member that it serves has reported
  /// it, or if it does not detach the member within ISOPOOL_WORKER_TIMEOUT. Otherwise it stays, and
  /// the member gets a new channel to it.
  void workerReported(Worker& worker, GroupClient& member, const std::string& reason);
  /// Replaces a worker as if its life were over: a spare takes its slot when one is ready. `why` is
  /// for the log. Returns an empty text, or the reason why the worker is not replaced.
  std::string recycle(Worker& worker, const std::string& why);
  /// Passes a change of a process on, if the process is a worker of the group.
  void stateChanged(const Processes::StateChange& change);
  /// Zygotes fail repeatedly: reports slots without a worker, and pools without any, to members.
  void onZygoteCrashLoop();
  /// Sets the cause of death of a worker that is reaped but not yet logged: its only client has
  /// reported why.
  void blameReaped(base::Epoch epoch, DeathCause cause, const std::string& reason);
  /// Settings that can change at run time have changed.
  void settingsChanged();
  /// The member no longer uses a worker that retires, or that it has left.
  void released(base::Epoch epoch, ClientId client);
  /// The member uses no slot of the worker any more: asks it to release the worker, and closes the
  /// channel then.
  void leaveWorker(Worker& worker, GroupClient& member);

  /// Workers lost, without those that retired.
  uint64_t restarts() const { return restarts_; }
  /// Workers that were replaced by a spare because their life was over.
  uint64_t recycled() const { return recycled_; }
  /// Workers that ended by ipc::kUnfitWorkerExit.
  uint64_t unfit() const { return unfit_; }
  /// The counts up to now. Reads counters of each worker.
  const GroupTotals& totals();
  bool retires(base::Epoch epoch) const { return retiring_.count(epoch) != 0; }
  /// The last death of a worker of a slot: why and when.
  struct LastExit {
    uint64_t restarts = 0;
    std::string reason;
    base::Epoch worker;
    base::TimePoint at;
  };
  const std::map<std::pair<uint32_t, uint32_t>, LastExit>& lastExits() const { return lastExits_; }
  /// A quarantine for the log and for the slot's clients, with what is known of the last death.
  std::string describe(const Quarantine& quarantine) const;
  /// Nothing unless the member is in quarantine.
  std::optional<ClientHolds::ClientQuarantine> quarantineOf(ClientId client) const {
    return holds_.quarantineOf(client, services_.loop.now());
  }
  /// True while the member is kept on slots of its own, see Separation.
  bool keptApart(ClientId client) const { return separation_.concerns(client); }
  /// Members in quarantine.
  uint64_t quarantinedClients() const { return holds_.quarantined(services_.loop.now()); }

 private:
  struct Retirement {
    base::RunningTime time;  ///< since it retires
    std::set<ClientId> released;
  };

  // Events of its workers.
  void workerReady(Worker& worker);
  void introduceAnew(base::Epoch epoch, ClientId client);
  void introduceWith(base::Epoch epoch, ClientId client, ChannelMemory memory,
                     const std::string& failure);
  void channelNotMade(Worker& worker, const std::string& failure);
  /// Makes the channels that members lack.
  void introduceMissing();
  void workerAttached(Worker& worker, ClientId client);
  void workerDetached(Worker& worker, ClientId client);
  void workerLost(Worker& worker);
  void logDeath(const DeathReport& report, base::LogLevel level, const std::string& death,
                const std::string& cause) const;
  void workerGone(Worker& worker, const std::optional<ExitStatus>& status);

  // Decisions of its slot table.
  base::Epoch startWorker(bool spare, uint32_t gpu) override;
  void retireWorker(base::Epoch epoch) override;
  void assignWorker(const Slot& slot, base::Epoch epoch) override;
  void slotQuarantined(const Quarantine& quarantine) override;
  void spareQuarantined(uint32_t deaths, base::Milliseconds duration) override;
  void scheduleTick();

  // Quarantines: of slots, and of members whose code has ended workers.
  DeathOrigin originOf(const Worker& worker) const;
  void describeOrigin(const Worker& worker, DeathReport& report) const;
  void settleOrigin(const Worker& worker, const ExitStatus& how, DeathReport& report) const;
  void countAgainstMembers(const Worker& worker, const DeathReport& report, const ExitStatus& how);
  bool crashedInItsCall(const Worker& worker, const DeathReport& report,
                        const ExitStatus& how) const;
  bool mayBeOfAnyClient(const Worker& worker, const DeathReport& report,
                        const ExitStatus& how) const;
  void separate(const Worker& worker);
  void separationChanged();
  void scheduleSeparationEnd();
  void quarantine(GroupClient& member);
  void tellOwnQuarantine(GroupClient& member);
  void scheduleHoldEnd();
  void reportQuarantines();
  void slotsOfMembersChanged();

  /// The pool's name in the log.
  std::string describe(base::PoolId pool) const;
  OutputSource outputSourceOf(base::Epoch epoch);
  void setTitle(base::Epoch epoch);
  base::Milliseconds ageOf(const Worker& worker) const;
  GroupClient* memberOf(ClientId client) const;
  void serveIfAttached(GroupClient& member, const Slot& slot, base::Epoch epoch);
  void watchLives();
  void checkLives();
  bool spareIsBusy() const;
  void memoryRanOut(base::Epoch epoch);
  std::vector<MemoryWatch::Subject> watchedWorkers() const;
  void memoryBeyondLimit(base::Epoch epoch, const std::string& why);
  void watchCallTimes(bool continues = false);
  void pursueRetirements();
  void pursueLeft();
  bool usesWorker(const GroupClient& member, base::Epoch epoch) const;

  Services& services_;
  const std::string name_;
  const Events events_;
  SlotTable slotTable_;
  std::map<ClientId, GroupClient*> members_;
  std::map<ClientId, GroupClient*> departing_;  // have left; their channels are being closed
  std::map<base::Epoch, std::shared_ptr<Worker>> workers_;
  std::map<std::pair<uint32_t, uint32_t>, base::Epoch> serving_;  // by pool and slot
  std::map<std::pair<uint32_t, uint32_t>, LastExit> lastExits_;
  std::map<base::Epoch, LifeSpan> lives_;
  std::map<base::Epoch, Retirement> retiring_;
  /// Workers that a member has left and not released, and since when.
  std::map<std::pair<base::Epoch, ClientId>, base::RunningTime> left_;
  std::map<base::Epoch, DeathReport> lost_;                // not reaped yet
  std::map<base::Epoch, std::shared_ptr<Worker>> reaped_;  // their deaths are not logged yet
  uint64_t restarts_ = 0;
  uint64_t recycled_ = 0;
  uint64_t unfit_ = 0;
  GroupTotals totals_;
  ClientHolds holds_;
  std::vector<Quarantine> newQuarantines_;  // of slots; members do not know of them yet
  bool over_ = false;
  bool spareAwaited_ = false;  ///< a worker's life is over, and no spare can take its slot yet
  base::Timer tick_;
  base::Timer lifeWatch_;
  base::Timer channelRetry_;
  base::LineRate channelFailureRate_;
  base::Timer callWatch_;
  MemoryWatch memoryWatch_;
  base::Timer holdEnd_;
  Separation separation_;
  base::Timer separationEnd_;
  CallTimes callTimes_{std::chrono::nanoseconds(0)};
  /// Weak handle to this object for callbacks that are still pending: they may outlive it.
  base::WeakSelf<WorkerGroup> self_;
};

}  // namespace isopool::supervisor
