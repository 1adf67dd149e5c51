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
#include "ipc/memory/memory_object.h"
#include "worker/memory/control_plane.h"
#include "worker/memory/copy_counts.h"
#include "worker/memory/routed_blocks.h"
#include "worker/serve/call_runner.h"
#include "worker/serve/client_link.h"
#include "worker/serve/fitness_check.h"
#include "worker/serve/idle_collection.h"
#include "worker/serve/sleep_watches.h"
#include "worker/serve/turn_order.h"

namespace isopool::worker {

/// A worker's whole life after its first acts: serves its channels in turn, call by call, sleeps
/// without a time-out when there is nothing to do, obeys the supervisor. Runs on the worker's main
/// thread, which holds the GIL except while it sleeps, and the liveness word of every channel.
class CallLoop final : public ControlPlane {
 public:
  /// `doorbell` is the supervisor's word, mapped read-only; `status page` a page that this worker
  /// alone writes. `blocks` is immortal.
  CallLoop(base::Epoch epoch, ipc::ControlSocket control, ipc::Mapping doorbell,
           ipc::Mapping statusPage, RoutedBlocks& blocks, Sandbox& sandbox);

  /// Returns never: ends the process when the supervisor is gone.
  [[noreturn]] void run();

  bool waitForMessage(int64_t deadline) override;
  void requestOutputSegment(uint64_t client, size_t bytes) noexcept override;
  bool tell(const ipc::ForbiddenAct& act) override;
  void requestCollection() noexcept override { collection_.request(); }

 private:
  bool doorbellRung() const noexcept;
  bool anythingToDo() const noexcept;
  bool readMessages();
  void handleMessage(ipc::Frame& frame);
  /// Does a step for one client. False if no memory or address space is left for it, which is that
  /// client's loss alone; says so in the crash log.
  bool hasRoomFor(const char* what, const std::function<void()>& step);
  void attachChannel(ipc::Frame& frame);
  /// Null if the client can't be served. Throws SystemCallError.
  std::unique_ptr<ClientLink> makeChannel(const ipc::AttachChannel& message, ipc::Frame& frame);
  void refuseChannel(uint64_t client);
  void mapInputSegment(ipc::Frame& frame);
  void mapPackage(ipc::Frame& frame);
  void addOutputSegment(ipc::Frame& frame);
  ClientLink* find(uint64_t client) const noexcept;

  bool serveNext();
  void requireFitnessFor(const ClientLink& channel);
  void updateStatusPage() noexcept;
  int64_t spinAllowance() const noexcept;
  void waitForWork();
  void dropDetachedChannels();
  void detach(ClientLink& channel);
  void dropRemains();
  void collect();

  const base::Epoch epoch_;
  ipc::ControlSocket control_;
  const ipc::Mapping doorbellMapping_;
  const ipc::SharedWord<uint32_t>& doorbell_;
  uint32_t seenDoorbell_ = 0;
  const ipc::Mapping statusPageMapping_;
  ipc::WorkerStatusPage& statusPage_;
  RoutedBlocks& blocks_;

  CopyCounts copies_;
  CallRunner runner_;
  FitnessCheck fitness_;
  std::vector<std::unique_ptr<ClientLink>> channels_;
  TurnOrder turns_;
  uint32_t servedSinceUpdate_ = 0;
  /// Of clients that are gone: some of their tensors live on.
  std::vector<std::shared_ptr<ChannelMemory>> remains_;

  ipc::SpinBudget spinBudget_;
  SleepWatches watches_;
  IdleCollection collection_;
};

}  // namespace isopool::worker
