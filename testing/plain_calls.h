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

/// What a plain worker has of one client besides the rings: so much of isopool-worker's memory and
/// operations that libisopool can load a package into it and call the one object that there is, the
/// one of chaos/chaos_model/steps.py. Tensors are contiguous int64; they travel as with torch,
/// inside the call or lent in shared memory, both ways. The package's contents are not looked at.
class PlainCalls {
 public:
  /// `end` must outlive it. `output` is the memory for results.
  PlainCalls(ipc::WorkerEnd& end, base::Fd output, size_t outputBytes);

  void addInputSegment(uint32_t segment, ipc::Mapping memory);
  /// True unless the call names a segment that has yet to be added: it comes over another road.
  bool resolvable(const ipc::ReceivedCall& call) const;

  /// Runs a call that is not a kPing, of which user code may run now, and publishes its answer.
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
