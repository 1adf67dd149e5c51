// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "ipc/channel/futex.h"
#include "ipc/channel/spin.h"
#include "ipc/channel/status_page.h"
#include "ipc/control/frame.h"
#include "ipc/control/worker_messages.h"
#include "ipc/memory/memory_object.h"
#include "worker/memory/control_plane.h"
#include "worker/memory/copy_counts.h"
#include "worker/memory/routed_blocks.h"
#include "worker/serve/call_runner.h"
#include "worker/serve/client_link.h"
#include "worker/serve/collection_guard.h"
#include "worker/serve/fitness_check.h"
#include "worker/serve/idle_collection.h"
#include "worker/serve/output_trim.h"
#include "worker/serve/sleep_watches.h"
#include "worker/serve/turn_order.h"
#include "worker/serve/user_hooks.h"
#include "worker/serve/user_threads.h"

namespace isopool::worker {

/// The main loop of a worker: serves its channels in turn, one call at a time, handles the
/// supervisor's messages, and sleeps without a time-out when there is nothing to do. Runs on the
/// worker's main thread, which holds the liveness word of every channel, and the GIL except
/// while it sleeps.
///
/// If a client dies, the supervisor sends DetachChannel; after the running call the client's
/// objects are dropped and its memory is made private. If the supervisor dies, the process
/// exits. If user code left the process unfit for another client, the process exits before
/// that client's call.
class CallLoop final : public ControlPlane {
 public:
  /// `doorbell` is a word that the supervisor writes, mapped read-only. `statusPage` is a page that
  /// only this worker writes. `blocks` is never destroyed. `sandbox` must outlive this object.
  CallLoop(base::Epoch epoch, ipc::ControlSocket control, ipc::Mapping doorbell,
           ipc::Mapping statusPage, RoutedBlocks& blocks, Sandbox& sandbox);

  /// Sends WorkerReady and serves. Never returns: exits the process when the supervisor is gone.
  [[noreturn]] void run();

  bool waitForMessage(int64_t deadline) override;
  void requestOutputSegment(uint64_t client, size_t bytes) noexcept override;
  bool retireOutputSegment(uint64_t client, base::SegmentId segment) noexcept override;
  bool tell(const ipc::ForbiddenAct& act) override;
  void requestCollection() noexcept override { collection_.request(); }

 private:
  bool doorbellRung() const noexcept;
  /// True if the doorbell rang or a call waits.
  bool anythingToDo() const noexcept;
  /// Handles all messages of the supervisor that have arrived; true if there was one. Exits the
  /// process if the supervisor is gone or a message can't be handled.
  bool readMessages();
  void handleMessage(ipc::Frame& frame);
  enum class Mapped : uint8_t {
    kYes,
    kNoRoom,  ///< no memory or address space is left for it
    kRefused  ///< by the kernel: the client can have sealed what is its own
  };
  /// Runs `step`, which maps memory of one client. A failure is logged to the crash log and
  /// concerns only that client.
  Mapped map(const char* what, const std::function<void()>& step);
  void attachChannel(ipc::Frame& frame);
  /// Null if the client can't be served, which is logged. Throws SystemCallError.
  std::unique_ptr<ClientLink> makeChannel(const ipc::AttachChannel& message, ipc::Frame& frame);
  void refuseChannel(uint64_t client);
  void mapInputSegment(ipc::Frame& frame);
  void mapPackage(ipc::Frame& frame);
  void addOutputSegment(ipc::Frame& frame);
  void removeInputSegment(const ipc::UnmapInputSegment& message);
  /// The link of a client that is not detached; null if there is none.
  ClientLink* find(uint64_t client) const noexcept;

  /// Serves one call of the client whose turn it is; false if no call waits.
  bool serveNext();
  /// Exits the process if user code has closed descriptors of the call's memory.
  CallRunner::Served serve(ClientLink& channel);
  /// Exits the process because the supervisor is gone, and no other process manages this worker, or
  /// because user code has closed the connection.
  [[noreturn]] void leaveSupervisor();
  /// Exits the process if user code left it unfit for this client.
  void requireFitnessFor(const ClientLink& channel);
  /// Publishes that the client's code runs, and since when; after endCode(), that none runs.
  void startCodeOf(ClientLink& channel) noexcept;
  void endCode() noexcept;
  /// To be called when code of the client has run: notes what it leaves in the interpreter.
  void noteCodeOf(const ClientLink& channel);
  void updateStatusPage() noexcept;
  /// Publishes the client whose code may run from now on, if it is another one than before.
  void switchTo(ClientLink& channel) noexcept;
  /// No client's code runs: takes back what the last one has left on in this thread.
  void leaveClient() noexcept;
  /// The longest time that a client allows this worker to spin, in ns.
  int64_t spinAllowance() const noexcept;
  /// Moves this thread if a client would let it spin on another processor.
  void leaveClientsProcessor(int64_t now) noexcept;
  /// Spins, then sleeps until a call or a message comes or a requested collection is due.
  void waitForWork();
  /// True if a client has left that dropDetachedChannels() has not handled.
  bool anyDetached() const noexcept;
  /// Only if anyDetached(). Drops the objects of detached clients, makes private what is left of
  /// their memory, and reports to the supervisor.
  void dropDetachedChannels();
  void detach(ClientLink& channel);
  /// Unmaps the segments that clients have removed.
  void leaveRemovedInputs();
  /// Frees the output arenas of former clients that are no longer in use.
  void dropRemains();
  void collect();
  /// Reports threads and hooks that clients have left behind.
  void lookForCodeLeft();

  const base::Epoch epoch_;
  ipc::ControlSocket control_;
  const ipc::Mapping doorbellMapping_;
  const ipc::SharedWord<uint32_t>& doorbell_;
  uint32_t seenDoorbell_ = 0;  // its value when messages were read last
  const ipc::Mapping statusPageMapping_;
  ipc::WorkerStatusPage& statusPage_;
  RoutedBlocks& blocks_;

  CopyCounts copies_;  // of the worker's life
  ShownModels models_;
  CallRunner runner_;
  FitnessCheck fitness_;
  const PyRef noContext_ = PyRef::steal(::PyContext_CopyCurrent());  // before any user code has run
  CollectionGuard guard_{PyRef::share(noContext_.get())};
  std::vector<std::unique_ptr<ClientLink>> channels_;
  TurnOrder turns_;
  uint64_t lastClient_ = 0;                                    // what the status page has
  const EnteredModes noModes_ = EnteredModes::ofThisThread();  // before any user code has run
  PyRef context_;                   // of contextvars, that this thread has entered
  uint32_t servedSinceUpdate_ = 0;  // requests since updateStatusPage()
  /// Memory of clients that are gone, while tensors of the worker still lie in it.
  std::vector<std::shared_ptr<ChannelMemory>> remains_;

  bool inputsRemoved_ = false;  // some channel has ClientLink::removedInputs
  OutputTrim outputTrim_;
  int64_t movedAt_ = 0;  // when leaveClientsProcessor() moved it last, by ipc::monotonicNow()
  SleepWatches watches_;
  IdleCollection collection_;
  UserThreads threads_;
  UserHooks hooks_;
};

}  // namespace isopool::worker
