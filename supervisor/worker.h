// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "supervisor/bell.h"
#include "supervisor/child_process.h"
#include "supervisor/connection.h"
#include "supervisor/lifeline.h"
#include "supervisor/restart_policy.h"
#include "supervisor/services.h"

namespace isopool::supervisor {

/// One life of one worker process, from the fork request to the reaping, and its channel to one
/// client. Owned by that client's record. Reads nothing that the worker writes but its control
/// messages, which it checks, and one counter, by pread. Its callbacks must not destroy it.
class Worker {
 public:
  enum class Stage {
    kForking,     ///< the zygote was asked
    kStarting,    ///< a process, not yet ready
    kReady,       ///< waits for channels
    kIntroduced,  ///< the client was told
    kAttaching,   ///< told to serve the client
    kUsable,
    kDying  ///< dead or killed; not yet reaped
  };

  struct Events {
    std::function<void()> ready;
    std::function<void()> attached;
    std::function<void(uint64_t bytes)> segmentWanted;
    /// It will not serve any more: it died, misbehaved, or did not start. Not after kill().
    std::function<void(const std::string& reason)> lost;
    /// The zygote died before it made one. Not after kill().
    std::function<void()> notMade;
    /// Nothing is left of it; no status if it never was a process that we know of. Told last, once.
    std::function<void(const std::optional<ExitStatus>&)> gone;
  };

  /// Asks the zygote for it. Throws ipc::SystemCallError.
  Worker(Services& services, ipc::Epoch epoch, Events events);
  ~Worker();

  /// Kills it if it lives and says so by gone(), not before this returns. Idempotent.
  void kill();

  /// Its channel's memory; the first output segment has number 1.
  void setMemory(ChannelMemory memory);
  /// Sends a message and rings the bell.
  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    connection_->send(message, descriptors);
  }
  void introduced();
  /// Tells it to serve the client, whose control segment must be sealed by now.
  void attach(uint64_t client);

  /// Room for another segment: its number, or none if `limit` would be passed. release() takes a
  /// reservation back.
  std::optional<uint32_t> reserveSegment(uint64_t bytes, uint64_t limit);
  void releaseSegment(uint64_t bytes) { outputBytes_ -= bytes; }

  ipc::Epoch epoch() const { return epoch_; }
  Stage stage() const { return stage_; }
  /// True while it has to hear of packages and segments: it has a channel that they belong to.
  bool listening() const { return stage_ >= Stage::kAttaching && stage_ < Stage::kDying; }
  bool wasIntroduced() const { return wasIntroduced_; }
  pid_t pid() const { return process_ != nullptr ? process_->pid() : 0; }
  const ipc::Fd& pidfd() const { return process_->pidfd(); }
  const ChannelMemory& memory() const { return memory_; }
  const ipc::Fd& lastWords() const { return lastWords_; }
  uint64_t outputBytes() const { return outputBytes_; }
  uint64_t sharedBytes() const;
  /// Calls completed in this life, as the worker says.
  uint64_t completedCalls() const;
  Death deathNow() const { return completedCalls() > 0 ? Death::kAfterService : Death::kBarren; }

 private:
  void requestFork(ipc::Fd control, ipc::Fd lifelineEnd);
  void forkSettled(const ForkOutcome& outcome);
  void handle(ipc::Frame& frame);
  void becomeReady();
  void stop();
  void controlOver(const std::string& reason);
  void lose(const std::string& reason);
  void goneSoon();
  void expectWithinTimeout(const char* what);

  Services& services_;
  const ipc::Epoch epoch_;
  Events events_;
  Stage stage_ = Stage::kForking;
  bool forkSettled_ = false;
  bool saidReady_ = false;
  std::optional<std::string> controlOver_;
  bool wasIntroduced_ = false;
  uint64_t client_ = 0;
  Lifeline lifeline_;
  Bell bell_;
  ipc::Fd lastWords_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<ChildProcess> process_;
  ChannelMemory memory_;
  uint64_t outputBytes_ = 0;
  uint32_t lastSegment_ = 0;
  Timer deadline_;
  /// Handlers on their way hold it weakly: they outlive the worker.
  std::shared_ptr<Worker*> self_;
};

}  // namespace isopool::supervisor
