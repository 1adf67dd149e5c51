// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/channel.h"
#include "client/supervisor_connection.h"
#include "isopool/call_options.h"
#include "isopool/environment.h"
#include "isopool/interpreter.h"

namespace isopool {

namespace client {
class Pool;
}

/// A slot of a pool, behind an Interpreter: the worker that serves it now, and how much it has to do.
/// Guarded by the pool's mutex.
class WorkerSlot {
 public:
  std::weak_ptr<client::Pool> pool;
  uint32_t index = 0;
  std::shared_ptr<client::Channel> channel;  ///< null or dead while a replacement is on its way
  uint32_t users = 0;                        ///< sessions and calls
  uint32_t inFlight = 0;  ///< calls of the pool: at most two, one running and one waiting behind it
  std::string quarantine;  ///< why it stays empty; cleared by the next worker
};

namespace client {

/// A manager's workers and who gets which. Any thread. Sessions and replicated objects keep it; it
/// works only as long as its manager lives (close()).
///
/// A call goes to the worker that served this thread last if that one is idle, else to an idle one,
/// else, if calls are short, behind the running call of the least busy one, so that the worker finds
/// it when it is done; else it waits in line. First come, first served.
class Pool final : public PoolEvents, public std::enable_shared_from_this<Pool> {
 public:
  Pool(std::shared_ptr<SupervisorConnection> connection, std::shared_ptr<Environment> environment);
  ~Pool() override;

  /// Asks for the workers and waits until all serve. Throws SupervisorLost, PoolUnavailable.
  void open(uint32_t workers);
  /// The manager ends: calls in flight fail, and every later use throws Error.
  void close();

  /// A place in a worker for one call, given back at the end of its life.
  class Turn {
   public:
    Turn(std::shared_ptr<Pool> pool, std::shared_ptr<WorkerSlot> slot,
         std::shared_ptr<Channel> channel);
    Turn(Turn&& other) noexcept = default;
    ~Turn();
    Channel& channel() const { return *channel_; }

   private:
    std::shared_ptr<Pool> pool_;
    std::shared_ptr<WorkerSlot> slot_;
    std::shared_ptr<Channel> channel_;
  };

  /// Waits for a turn. Throws DeadlineExceeded, PoolUnavailable, SupervisorLost, Error.
  Turn acquireTurn(const Deadline& deadline);

  /// The slot for a new session, counted as its user: idle if there is one. releaseUser() ends that.
  std::shared_ptr<WorkerSlot> acquireUser();
  void addUser(WorkerSlot& slot);
  void releaseUser(WorkerSlot& slot);
  /// The slot's living worker; waits for its replacement.
  std::shared_ptr<Channel> liveChannel(WorkerSlot& slot, const Deadline& deadline);
  /// The same without waiting; may be null.
  std::shared_ptr<Channel> currentChannel(const WorkerSlot& slot);

  /// Applies the environment to a worker that it has not been applied to.
  void configure(WorkerSlot& slot, const std::shared_ptr<Channel>& channel);
  void configure(Channel& channel);
  /// Makes the worker unpickle the object if it has not. Throws RemoteError.
  void define(Channel& channel, const ObjectDefinition& definition, const Deadline& deadline);
  /// Notes that the worker has unloaded the object, so that define() defines it again.
  void forget(Channel& channel, uint64_t object);
  /// Has the worker let the object go. Objs that refer to it keep it there.
  void unload(Channel& channel, uint64_t object);

  /// Only the first `count` slots take calls and new sessions from now on; the others end what they
  /// have.
  void limitSlots(size_t count);

  const std::vector<std::shared_ptr<WorkerSlot>>& slots() const { return slots_; }
  /// Null once the manager is gone.
  std::shared_ptr<SupervisorConnection> connection();
  /// Throws Error if the pool can't serve this process any more.
  void check();
  /// The same where a worker's death was seen, which may be that of its supervisor.
  void checkAfterDeath();

  void countRerun() { callsRerun_.fetch_add(1, std::memory_order_relaxed); }
  void noteServiceTime(std::chrono::nanoseconds time);
  uint64_t callsRerun() const { return callsRerun_.load(); }
  uint64_t workersReplaced() const { return workersReplaced_.load(); }

  void workerAssigned(uint32_t slot, std::shared_ptr<Channel> channel) override;
  void slotQuarantined(uint32_t slot, std::string text) override;
  void supervisorLost(std::string text) override;

 private:
  struct Waiter {
    std::condition_variable wake;
    std::shared_ptr<WorkerSlot> slot;
  };

  void checkLocked();
  std::shared_ptr<WorkerSlot> pickLocked();
  void serveWaitersLocked();
  void endTurn(WorkerSlot& slot);

  const uint32_t generation_;
  const std::shared_ptr<Environment> environment_;

  std::mutex mutex_;
  std::condition_variable changed_;  // a slot got a worker, or nothing will change any more
  std::shared_ptr<SupervisorConnection> connection_;
  ipc::PoolId id_;
  bool closed_ = false;
  std::string lost_;
  std::vector<std::shared_ptr<WorkerSlot>> slots_;
  size_t usedSlots_ = 0;  // the balancer gives work to the first ones only

  std::list<Waiter*> waiters_;
  std::atomic<int64_t> serviceNanoseconds_{0};
  std::atomic<uint64_t> callsRerun_{0};
  std::atomic<uint64_t> workersReplaced_{0};
};

}  // namespace client
}  // namespace isopool
