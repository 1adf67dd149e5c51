// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/lifeline.h"
#include "supervisor/pool/attachment.h"
#include "supervisor/pool/client_id.h"
#include "supervisor/pool/services.h"
#include "supervisor/processes/child_process.h"
#include "supervisor/processes/connection.h"
#include "supervisor/processes/doorbell.h"
#include "supervisor/processes/restart_policy.h"

namespace isopool::supervisor {

/// One life of one worker process, from the fork request to the reaping, and its channels to
/// clients. Owned by its group. Reads nothing that the worker writes but its control messages,
/// which it checks, and a few counters, by pread. Its callbacks must not destroy it.
class Worker {
 public:
  enum class Stage {
    kForking,   ///< the zygote was asked
    kStarting,  ///< a process, not yet ready
    kReady,     ///< takes channels and serves them
    kDying      ///< dead or killed; not yet reaped
  };

  struct Events {
    std::function<void()> ready;
    std::function<void(ClientId)> attached;
    /// It has unmapped all that it had of the client; the attachment is about to go.
    std::function<void(ClientId)> detached;
    std::function<void(ClientId, uint64_t bytes)> segmentWanted;
    /// User code tried what the sandbox forbids, this act for the first time.
    std::function<void(const std::string& act, uint64_t times)> forbidden;
    /// It will not serve any more: it died, misbehaved, or did not start. Not after kill().
    std::function<void()> lost;
    /// The zygote died before it made one. Not after kill().
    std::function<void()> notMade;
    /// Nothing is left of it; no status if it never was a process that we know of. Told last, once.
    std::function<void(const std::optional<ExitStatus>&)> gone;
  };

  /// Asks the zygote for it. Throws base::SystemCallError.
  Worker(Services& services, base::Epoch epoch, bool spare, Events events);
  ~Worker();

  /// Kills it if it lives and says so by gone(), not before this returns. Idempotent.
  void kill();
  /// The same, for a reason that is its cause() then, and told by lost().
  void lose(const std::string& reason);
  /// Notes why it dies, unless that is known.
  void blame(const std::string& reason);

  /// Sends a message and rings the doorbell.
  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    connection_->send(message, descriptors);
  }

  // What follows reaches it when there is room for it: it reads no messages for as long as it runs
  // a call, and what clients do meanwhile stands in their attachments.

  /// Tells it of a package of the client, and that the client has dropped it.
  void mapPackage(const ipc::MapPackage& message, std::shared_ptr<PackageMemory> memory);
  void unmapPackage(ClientId client, uint32_t package);
  /// Tells it of memory for the client's inputs, or that this was refused.
  void mapSegment(ClientId client, uint32_t number, std::shared_ptr<InputSegment> segment);
  /// Gives it memory for results to the client.
  void grantOutput(const ipc::AddOutputSegment& message, base::Fd segment);

  /// A channel to a client that is about to be told of it. From here on it is the client's turn,
  /// who may be stopped: there is no deadline.
  Attachment& introduce(ClientId client, ChannelMemory memory);
  /// Tells it to serve the client, whose control segment must be sealed by now.
  void attach(ClientId client, uint32_t share, const ClientLimits& limits);
  /// Tells it to forget the client; it is killed if a call of that client then runs for longer than
  /// the grace period.
  void detach(ClientId client);
  /// A call of the client has run for too long, for this `reason`: the worker is killed unless the
  /// call ends within the grace period. False if that is so already, or the client has no usable
  /// channel.
  bool overdue(ClientId client, uint64_t sequence, const std::string& reason);
  /// The client says that it is dead or of no use. Returns how often this client has said so.
  uint32_t reportedBy(ClientId client) { return ++reports_[client]; }
  /// The client is gone for good.
  void forgetReports(ClientId client) { reports_.erase(client); }
  uint32_t reportsOf(ClientId client) const;
  /// True if each client that it serves has said so.
  bool reportedByAll() const;
  /// Null if it has no channel to the client.
  Attachment* attachment(ClientId client);
  const std::map<ClientId, Attachment>& attachments() const { return attachments_; }
  bool wasIntroduced() const { return wasIntroduced_; }

  /// Why it died or was killed; empty: it died by itself, as far as we know.
  const std::string& cause() const { return cause_; }
  base::Epoch epoch() const { return epoch_; }
  Stage stage() const { return stage_; }
  base::TimePoint bornAt() const { return bornAt_; }
  pid_t pid() const { return process_ != nullptr ? process_->pid() : 0; }
  const base::Fd& pidfd() const { return process_->pidfd(); }
  const base::Fd& crashLog() const { return crashLog_; }
  const base::Fd& statusPage() const { return statusPage_; }
  uint64_t sharedBytes() const;
  /// Calls completed in this life, as the worker says.
  uint64_t completedCalls() const;
  ExitKind exitKindNow() const {
    return completedCalls() > 0 ? ExitKind::kAfterCall : ExitKind::kBeforeFirstCall;
  }
  /// Whose call runs, as the worker says; 0 if none does.
  uint64_t runningClient() const;
  /// For how long it has run, as the worker says; right to a few milliseconds.
  base::Milliseconds runningTime() const;
  /// True if a request of the client waits or runs.
  bool busyWith(ClientId client) const;
  const std::map<std::string, uint64_t>& forbiddenActs() const { return forbiddenActs_; }

 private:
  uint64_t statusWord(size_t offset) const;
  void requestFork(base::Fd control, base::Fd lifelineEnd, bool spare);
  void forkSettled(const ForkOutcome& outcome);
  void handle(ipc::Frame& frame);
  void forbiddenAct(const ipc::ForbiddenAct& message);
  void becomeReady();
  void stop();
  void controlOver(const std::string& reason);
  void goneSoon();
  void loseLate(const char* what);
  void awaitDetached(ClientId client);
  void awaitAnswer(ClientId client);
  bool hasTimeToAnswer() const;
  void forget(ClientId client);
  void tell(ClientId client);
  void tellMore();
  bool tellNext(ClientId client, Attachment& attachment);
  void tellOfDropped(ClientId client, std::map<uint32_t, bool>& dropped);

  Services& services_;
  const base::Epoch epoch_;
  Events events_;
  Stage stage_ = Stage::kForking;
  const base::TimePoint bornAt_;
  bool forkSettled_ = false;
  bool saidReady_ = false;
  bool wasIntroduced_ = false;
  std::optional<std::string> controlOver_;
  std::string cause_;
  base::Lifeline lifeline_;
  Doorbell doorbell_;
  base::Fd crashLog_;
  base::Fd statusPage_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<ChildProcess> process_;
  std::map<ClientId, Attachment> attachments_;
  std::map<ClientId, uint32_t> reports_;
  std::deque<ClientId> line_;  ///< of whom it is to be told more, in turn
  bool telling_ = false;
  uint64_t callsOfForgotten_ = 0;  ///< completed for clients that are detached
  std::map<std::string, uint64_t> forbiddenActs_;
  base::Timer deadline_;
  /// Handlers on their way hold it weakly: they outlive the worker.
  std::shared_ptr<Worker*> self_;
};

}  // namespace isopool::supervisor
