// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "ipc/channel/futex.h"
#include "ipc/control/frame.h"
#include "worker/client_channel.h"
#include "worker/output_blocks.h"
#include "worker/routed_blocks.h"

namespace isopool::worker {

/// The worker's side of the control plane: applies what the supervisor sends to the clients' channels
/// and asks it for room. The call loop's thread, which reads it when the bell was rung or when a call
/// names something that has not arrived yet. The supervisor's end ends this process.
class ControlLink final : public SegmentRequester {
 public:
  /// `bell` is a memory object of one page with a futex at its begin. Throws SystemCallError.
  ControlLink(ipc::Epoch epoch, ipc::Fd socket, const ipc::Fd& bell, RoutedBlocks& routed);

  void announceReady();
  /// Applies what has arrived. With the GIL.
  void readAll();
  /// Applies what arrives until `done`, waiting up to `patience`. True if done.
  bool readUntil(const std::function<bool()>& done, std::chrono::milliseconds patience);

  /// True if the supervisor has sent something since readAll().
  bool rung() const { return bell().load(std::memory_order_acquire) != heard_; }
  ipc::FutexWatch bellWatch() const { return {&bell(), heard_}; }

  std::vector<std::unique_ptr<ClientChannel>>& channels() { return channels_; }
  void requestOutputSegment(uint64_t client, size_t bytes) noexcept override;

 private:
  const ipc::SharedWord<uint32_t>& bell() const {
    return *reinterpret_cast<const ipc::SharedWord<uint32_t>*>(bell_.data());
  }
  void apply(ipc::Frame& frame);
  void attach(const ipc::AttachChannel& message, ipc::Frame& frame);
  void detach(uint64_t client);
  ClientChannel* find(uint64_t client);

  const ipc::Epoch epoch_;
  ipc::ControlSocket socket_;
  ipc::Mapping bell_;
  uint32_t heard_ = 0;
  RoutedBlocks& routed_;
  std::vector<std::unique_ptr<ClientChannel>> channels_;
  // Segments and packages of a client whose channel comes right behind them.
  std::vector<ipc::Frame> early_;
  // Memory of detached clients that Python still refers to.
  std::vector<std::shared_ptr<ChannelMemory>> leftBehind_;
};

}  // namespace isopool::worker
