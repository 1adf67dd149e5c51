// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>

#include "client/pool/model_figures.h"
#include "client/pool/pool_call.h"
#include "client/pool/worker_steps.h"
#include "isopool/call_options.h"
#include "isopool/result_stream.h"

namespace isopool {

/// The implementation of a ResultStream: the handle of an iterator in one life of one worker. When
/// that worker dies, the stream is lost: next() throws WorkerLost. For one thread at a time.
class StreamImpl {
 public:
  /// Takes over the handle, which it releases at its end.
  StreamImpl(std::shared_ptr<client::Pool> pool, std::shared_ptr<client::WorkerLink> channel,
             base::HandleId handle, const CallOptions& options);
  ~StreamImpl() { close(); }
  StreamImpl(const StreamImpl&) = delete;
  StreamImpl& operator=(const StreamImpl&) = delete;

  /// Waits for the next item, with the deadline of the options for each item; nothing at the end.
  /// Throws what client::step() throws; a RemoteError ends the stream.
  std::optional<at::IValue> next();
  /// Makes the worker close the iterator; does not wait for that. No effect after the end.
  void close() noexcept;
  /// The same, and waits until the iterator's own code has ended. Throws what client::step()
  /// throws; the stream has ended in every case.
  void closeAndWait(const CallOptions& options);
  /// Takes over one user of the slot (Pool::addUser()), which is released when the stream ends.
  void occupy(std::shared_ptr<WorkerSlot> slot) { slot_ = std::move(slot); }
  /// Counts the stream as a call of this model that has run since `begin`: answered when it ends or
  /// is closed, failed when next() throws.
  void countFor(std::shared_ptr<client::ModelFigures> figures, client::Clock::time_point begin) {
    figures_ = std::move(figures);
    begin_ = begin;
  }

 private:
  void answered() noexcept;
  void failed() noexcept;

  const std::shared_ptr<client::Pool> pool_;
  const std::shared_ptr<client::WorkerLink> channel_;
  const base::HandleId handle_;
  const CallOptions options_;
  std::shared_ptr<WorkerSlot> slot_;
  std::shared_ptr<client::ModelFigures> figures_;  // null: counts no more
  client::Clock::time_point begin_;
  bool ended_ = false;
};

/// Makes the call on a free worker, where its result stays. Waits until the call has returned,
/// not for the first item. If the worker dies before the call has started (or at any time, if the
/// call is idempotent), makes it on another one. `items` are the options of each item. Throws what
/// client::callOnPool() throws.
std::unique_ptr<StreamImpl> openStream(const client::PoolCall& call, const CallOptions& items);

}  // namespace isopool
