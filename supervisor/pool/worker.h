// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/lifeline.h"
#include "base/weak_self.h"
#include "ipc/control/worker_messages.h"
#include "supervisor/pool/attachment.h"
#include "supervisor/pool/client_id.h"
#include "supervisor/pool/death_cause.h"
#include "supervisor/pool/services.h"
#include "supervisor/processes/child_process.h"
#include "supervisor/processes/connection.h"
#include "supervisor/processes/doorbell.h"
#include "supervisor/processes/restart_policy.h"
#include "supervisor/processes/worker_output.h"

namespace isopool::supervisor {

/// One worker process, from the fork request to the reaping, and its channels to clients. Owned by
/// its group. Of what the worker writes it reads only control messages, which it checks, and a few
/// counters, by pread(): the counters are not trustworthy. Not thread-safe: used on the loop's
/// thread. Its callbacks must not destroy it.
class Worker {
 public:
  enum class Stage {
    kForking,   ///< the fork request is outstanding
    kStarting,  ///< the process exists, but is not ready
    kReady,     ///< takes channels and serves them
    kDying      ///< dead or killed; not yet reaped
  };

  struct Events {
    std::function<void()> ready;
    /// The channel to the client is usable.
    std::function<void(ClientId)> attached;
    /// The worker has unmapped all memory of the client. The attachment is destroyed afterwards.
    std::function<void(ClientId)> detached;
    /// The worker needs another output segment, of at least `bytes`, for results to the client.
    std::function<void(ClientId, uint64_t bytes)> segmentWanted;
    /// The worker has removed an output segment of the client: Attachment::retire() has it.
    std::function<void(ClientId, uint32_t segment)> segmentRetired;
    /// The worker has unmapped a segment of the client's inputs, see Attachment::unmapping.
    std::function<void(ClientId)> inputUnmapped;
    /// User code tried an act that the sandbox forbids; `first`: for the first time in this worker.
    std::function<void(const std::string& act, uint64_t times, bool first)> forbidden;
    /// Code of clients that have left still runs, or can run.
    std::function<void(const ipc::CodeLeft&)> codeLeft;
    /// Returns where a line of its output comes from. Needed with Options::collectOutput.
    std::function<OutputSource()> outputSource;
    /// A signal has stopped the worker, and does not continue it soon. `left`: until it is lost; 0:
    /// it is not. `leftForCalls`: the same while calls wait that no other worker can serve.
    std::function<void(base::Milliseconds left, base::Milliseconds leftForCalls)> staysStopped;
    /// Whether another worker can serve the client's calls that wait for this one.
    std::function<bool(ClientId)> otherServes;
    /// The worker can't serve any more: it died, broke the protocol, or did not start. Not called
    /// after kill().
    std::function<void()> lost;
    /// The zygote died before it forked the worker. Not called after kill().
    std::function<void()> notMade;
    /// The process is reaped; no status if the supervisor never learned of a process. Called once,
    /// as the last event.
    std::function<void(const std::optional<ExitStatus>&)> gone;
  };

  /// Sends the fork request; `gpu` as in ipc::ForkWorker. Throws base::SystemCallError.
  Worker(Services& services, base::Epoch epoch, bool spare, std::string gpu, Events events);
  ~Worker();

  /// Kills the worker if it lives. Events::gone is called after this has returned. Idempotent.
  void kill();
  /// The same, with a reason for deathCause() and cause(), and calls Events::lost.
  void lose(DeathCause cause, const std::string& reason);
  /// Sets deathCause() and cause(), unless they are set already.
  void blame(DeathCause cause, const std::string& reason);

  /// Sends a message; the doorbell rings when the message has left.
  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    connection_->send(message, descriptors);
  }

  // Messages of the next five functions wait in the client's attachment until there is room in the
  // queue: the worker reads no messages while it runs a call. The client must have an attachment.

  /// Makes the worker map a package of the client.
  void mapPackage(const ipc::MapPackage& message, std::shared_ptr<PackageMemory> memory);
  /// Makes the worker unmap a package that the client has dropped.
  void unmapPackage(ClientId client, uint32_t package);
  /// Makes the worker map memory for the client's inputs, or note that the memory was refused.
  void mapSegment(ClientId client, uint32_t number, std::shared_ptr<InputSegment> segment);
  /// Makes the worker unmap memory for the client's inputs: Attachment::unmapping has its number
  /// until the worker has answered, unless the worker was not told of the segment.
  void unmapSegment(ClientId client, uint32_t number);
  /// Gives the worker memory for results to the client.
  void grantOutput(const ipc::AddOutputSegment& message, std::shared_ptr<const base::Fd> segment);

  /// Adds a channel to a client; the caller then sends IntroduceWorker to the client. Sets no
  /// deadline: the client has to answer, and it may be stopped.
  Attachment& introduce(ClientId client, ChannelMemory memory);
  /// Makes the worker serve the client, after the client has sealed its control segment.
  void attach(ClientId client, uint32_t share, const ClientLimits& limits);
  /// Makes the worker unmap the client's memory. The worker is killed if a call of that client then
  /// runs for longer than the grace period.
  void detach(ClientId client);
  /// Starts the grace period of a call that has run for too long: the worker is killed unless the
  /// call ends within it. `reason` becomes part of cause(). Returns false and does nothing if the
  /// grace period of a call that still runs has started already, or the client has no usable
  /// channel.
  bool overdue(ClientId client, uint64_t sequence, const std::string& reason);
  /// Counts a report of the client that the worker is dead or unusable. Returns the client's count.
  uint32_t reportedBy(ClientId client) { return ++reports_[client]; }
  /// A signal has stopped the process, or continued it. A worker that stays stopped for
  /// Options::stoppedTimeout is lost, but not with noKill.
  void stateChanged(bool stopped);
  /// True if a signal has stopped it, as far as the kernel says now.
  bool isStopped() const;
  /// The same, and stopped_timeout limits for how long.
  bool isStoppedForSomeTime() const;
  /// Deletes the count of a client that has left.
  void forgetReports(ClientId client) { reports_.erase(client); }
  uint32_t reportsOf(ClientId client) const;
  /// True if every client with a usable channel to the worker has reported it.
  bool reportedByAll() const;
  /// Null if the worker has no channel to the client.
  Attachment* attachment(ClientId client);
  const std::map<ClientId, Attachment>& attachments() const { return attachments_; }
  /// True if introduce() has been called.
  bool wasIntroduced() const { return wasIntroduced_; }

  /// Why the worker died or was killed, for the log; empty: unknown, it died by itself.
  const std::string& cause() const { return cause_; }
  /// The same, for counting; kUnknown: it died by itself.
  DeathCause deathCause() const { return deathCause_; }
  /// The same; if it is kUnknown, the cause that the exit status tells.
  DeathCause deathCause(const ExitStatus& how) const {
    return deathCause_ != DeathCause::kUnknown ? deathCause_ : causeOf(how);
  }
  base::Epoch epoch() const { return epoch_; }
  const std::string& gpu() const { return gpu_; }
  Stage stage() const { return stage_; }
  base::TimePoint bornAt() const { return bornAt_; }
  /// 0 until it is forked.
  pid_t pid() const { return process_ != nullptr ? process_->pid() : 0; }
  /// Only after the worker was forked.
  const base::Fd& pidfd() const { return process_->pidfd(); }
  const base::Fd& crashLog() const { return crashLog_; }
  const base::Fd& statusPage() const { return statusPage_; }
  /// Logs what the worker has written so far, if its output is collected.
  void logOutput() {
    if (output_) output_->finish();
  }
  /// Bytes of doorbell, status page and all channels.
  uint64_t sharedBytes() const;
  /// Calls that this worker has completed. Untrusted, as the next six: the worker writes it.
  uint64_t completedCalls() const;
  /// The kind of the exit, if the worker ended now. In a shared pool steps do not count as calls,
  /// see Attachment::servedCalls().
  ExitKind exitKindNow() const;
  /// True if code of another client than this one has run in the worker, also of one that has left.
  bool ranCodeOfOthers(ClientId client) const;
  /// The clients whose code has run in it, with at most two of those that have left it.
  std::set<ClientId> clientsThatRan() const;
  /// The client whose call runs; 0 if none does.
  uint64_t runningClient() const;
  /// How long that call has run, to within a few milliseconds.
  base::Milliseconds runningTime() const;
  /// Bytes of shared memory that its models keep between calls.
  uint64_t keptBytes() const;
  /// True if a request of the client waits or runs.
  bool busyWith(ClientId client) const;
  /// What user code tried and the sandbox forbade, with counts. The worker reports the names.
  const std::map<std::string, uint64_t>& forbiddenActs() const { return forbiddenActs_; }

 private:
  uint64_t statusWord(size_t offset) const;
  void confine();
  uint64_t memoryAllowance() const;
  void allowMemory();
  void requestFork(base::Fd control, base::Fd lifelineEnd, bool spare);
  void forkSettled(const ForkOutcome& outcome);
  void handle(ipc::Frame& frame);
  void forbiddenAct(const ipc::ForbiddenAct& message);
  void outputRetired(const ipc::RetireOutputSegment& message);
  void inputUnmapped(const ipc::InputSegmentUnmapped& message);
  void becomeReady();
  void stop();
  void controlOver(const std::string& reason);
  void goneSoon();
  void loseLate(const char* what);
  void lookWhetherStopped(base::Milliseconds left);
  bool onlyItServesCalls() const;
  void limitLastCode(ClientId client);
  std::optional<uint64_t> lastCodeOf(ClientId client) const;
  void awaitAnswer(ClientId client);
  void watchItsSleep();
  void lookWhetherItSleeps(std::optional<std::chrono::nanoseconds> before);
  bool collectsGarbage() const;
  bool hasTimeToAnswer() const;
  void forget(ClientId client);
  void tell(ClientId client);
  void tellMore();
  bool tellNext(ClientId client, Attachment& attachment);
  void tellOfDropped(ClientId client, std::map<uint32_t, bool>& dropped);

  Services& services_;
  const base::Epoch epoch_;
  const std::string gpu_;
  Events events_;
  Stage stage_ = Stage::kForking;
  const base::TimePoint bornAt_;
  bool forkSettled_ = false;
  bool saidReady_ = false;
  bool confined_ = false;  ///< it is in its control group, or gets none
  bool wasIntroduced_ = false;
  std::optional<std::string> controlOver_;
  std::string cause_;
  DeathCause deathCause_ = DeathCause::kUnknown;
  base::Lifeline lifeline_;
  Doorbell doorbell_;
  base::Fd crashLog_;
  base::Fd statusPage_;
  std::optional<WorkerOutput> output_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<ChildProcess> process_;
  std::map<ClientId, Attachment> attachments_;
  std::map<ClientId, uint32_t> reports_;
  std::deque<ClientId> line_;  ///< clients whose attachments have unsent messages, in turn
  bool telling_ = false;
  uint64_t callsOfForgotten_ = 0;    ///< completed calls of clients that are detached
  uint64_t servedForgotten_ = 0;     ///< the same, of Attachment::servedCalls()
  std::set<ClientId> ranForgotten_;  ///< two of those whose code ran: each other client differs
  std::map<std::string, uint64_t> forbiddenActs_;
  base::TimeLimit deadline_;
  base::TimeLimit stopLook_;
  base::TimeLimit sleepLook_;
  int sleptLooks_ = 0;
  base::TimePoint watchedUntil_;
  bool stopReported_ = false;
  /// Weak handle to this object for callbacks that are still pending: they may outlive it.
  base::WeakSelf<Worker> self_;
};

}  // namespace isopool::supervisor
