// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/replicated_object.h"
#include "client/worker_steps.h"
#include "isopool/call_options.h"
#include "isopool/result_stream.h"

namespace isopool {

/// The body of a ResultStream: an iterator's handle in one life of one worker.
class StreamImpl {
 public:
  StreamImpl(std::shared_ptr<client::Pool> pool, std::shared_ptr<client::WorkerLink> channel,
             base::HandleId handle, const CallOptions& options);
  ~StreamImpl() { close(); }
  StreamImpl(const StreamImpl&) = delete;
  StreamImpl& operator=(const StreamImpl&) = delete;

  std::optional<at::IValue> next();
  void close() noexcept;
  /// Its slot counts it as a user until it ends.
  void occupy(std::shared_ptr<WorkerSlot> slot) { slot_ = std::move(slot); }

 private:
  const std::shared_ptr<client::Pool> pool_;
  const std::shared_ptr<client::WorkerLink> channel_;
  const base::HandleId handle_;
  const CallOptions options_;
  std::shared_ptr<WorkerSlot> slot_;
  bool ended_ = false;
};

/// Calls the object on a free worker and keeps what it returns there.
std::unique_ptr<StreamImpl> openStream(const ReplicatedObjImpl& object,
                                       const std::vector<at::IValue>& args,
                                       const std::unordered_map<std::string, c10::IValue>& kwargs,
                                       const CallOptions& options);

}  // namespace isopool
