// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/channel.h"
#include "client/pool.h"

namespace isopool {

/// The body of an Obj: an object in one life of one worker.
class InterpreterObj {
 public:
  InterpreterObj(std::shared_ptr<client::Pool> pool, std::shared_ptr<client::Channel> channel,
                 ipc::HandleId handle)
      : pool_(std::move(pool)), channel_(std::move(channel)), handle_(handle) {}
  ~InterpreterObj() { channel_->releaseHandle(handle_); }
  InterpreterObj(const InterpreterObj&) = delete;
  InterpreterObj& operator=(const InterpreterObj&) = delete;

  const std::shared_ptr<client::Pool>& pool() const { return pool_; }
  const std::shared_ptr<client::Channel>& channel() const { return channel_; }
  ipc::HandleId handle() const { return handle_; }

 private:
  std::shared_ptr<client::Pool> pool_;
  std::shared_ptr<client::Channel> channel_;
  ipc::HandleId handle_;
};

/// The body of an InterpreterSession: a user of a slot, bound to the worker that serves it now.
class SessionImpl {
 public:
  SessionImpl(std::shared_ptr<client::Pool> poolOfSlot, std::shared_ptr<WorkerSlot> usedSlot,
              std::shared_ptr<client::Channel> channelOfWorker)
      : pool(std::move(poolOfSlot)),
        slot(std::move(usedSlot)),
        channel(std::move(channelOfWorker)) {}
  ~SessionImpl() { pool->releaseUser(*slot); }
  SessionImpl(const SessionImpl&) = delete;
  SessionImpl& operator=(const SessionImpl&) = delete;

  const std::shared_ptr<client::Pool> pool;
  const std::shared_ptr<WorkerSlot> slot;
  const std::shared_ptr<client::Channel> channel;
};

namespace client {

/// One step on one worker that can't be run elsewhere. Throws RemoteError, WorkerLost, Error.
at::IValue step(Pool& pool, Channel& channel, ipc::Operation operation, RequestDraft& draft);

/// A session on a free slot or the given one, its worker configured.
std::shared_ptr<SessionImpl> openSession(const std::shared_ptr<Pool>& pool,
                                         std::shared_ptr<WorkerSlot> slot = nullptr);

/// Adds positional and named arguments as operations carry them. Throws ipc::ValueError.
void draftArguments(RequestDraft& draft, at::ArrayRef<at::IValue> args,
                    const std::unordered_map<std::string, c10::IValue>& kwargs);

}  // namespace client
}  // namespace isopool
