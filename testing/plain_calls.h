// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <msgpack.hpp>
#include <set>
#include <string>

#include "ipc/channel/lease_table.h"
#include "ipc/channel/worker_end.h"
#include "ipc/memory/memory_object.h"
#include "ipc/memory/page_arena.h"

namespace isopool::tests {

/// The memory and the operations of a plain worker for one client: enough of isopool-worker that
/// libisopool can load a package into it and call the package's only object, which behaves as that
/// of chaos/model/chaos_model/steps.py. Tensors are contiguous int64. As with torch, they are sent
/// inside the call or lent in shared memory, in both directions. The package itself is not read.
/// One thread.
class PlainCalls {
 public:
  /// `end` must outlive this object. `output` is the memory for results.
  PlainCalls(ipc::WorkerEnd& end, base::Fd output, size_t outputBytes);

  void addInputSegment(uint32_t segment, ipc::Mapping memory);
  /// False if the call uses a segment that has not been added yet: segments arrive by the control
  /// socket, independently of calls.
  bool resolvable(const ipc::ReceivedCall& call) const;

  /// Runs a call that has been started and is not a kPing, and publishes its answer.
  void run(const ipc::ReceivedCall& call);

 private:
  struct Numbers {
    uint64_t* data = nullptr;
    size_t count = 0;
  };

  void callObject(const ipc::ReceivedCall& call, const msgpack::object& body,
                  const msgpack::object& storages);
  Numbers numbersOf(const msgpack::object& storage);
  void giveBack(const msgpack::object& storages);
  void answer(const ipc::ReceivedCall& call, ipc::CompletionStatus status,
              const msgpack::sbuffer& body);
  void answerNothing(const ipc::ReceivedCall& call);
  void answerNoModuleMissing(const ipc::ReceivedCall& call);
  void answerError(const ipc::ReceivedCall& call, const std::string& text);
  void refuse(const ipc::ReceivedCall& call, ipc::RefusalKind kind, const std::string& text);

  ipc::WorkerEnd& end_;
  ipc::PageArena output_;
  ipc::LeaseTable lent_;
  std::map<uint32_t, ipc::Mapping> inputs_;
  std::set<uint64_t> objects_;
};

}  // namespace isopool::tests
