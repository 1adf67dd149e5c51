// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>
#include <c10/util/ArrayRef.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/transport/deadline.h"
#include "client/transport/worker_memory.h"
#include "ipc/channel/lease_table.h"
#include "ipc/tensor/value_codec.h"
#include "ipc/tensor/value_types.h"
#include "isopool/call_options.h"

namespace isopool::client {

/// A tensor's storage that a request passes to a worker. If the worker returns the same tensor (an
/// echo), the result uses `storage`. `block`, unless null, is lent under `lease` until the worker
/// returns it. `storage` is null if the bytes were copied into the request. `callers`: `storage` is
/// the caller's own, to which the worker may write, and not a copy.
struct ExportedStorage {
  c10::Storage storage;
  bool callers = false;
  const void* block = nullptr;
  ipc::Lease lease;
  // The caller may resize the storage while the call has its memory: what has to stay until then.
  HeldBlock home;                     ///< of a block that comes back to its worker
  std::shared_ptr<const void> moved;  ///< the moved object that has the bytes
};

/// The buffers in which one thread builds a request. Reused from call to call, because their
/// allocation would take longer than a short call. The maker of the request fills `writer` and
/// `flags`; WorkerLink::exchange() fills `records` and `exports`, and takes `exports`.
struct RequestDraft {
  ipc::PayloadWriter writer;
  uint32_t modes = 0;                       ///< SubmissionFlags of the caller's modes
  std::vector<ipc::StorageRecord> records;  ///< one for each storage that `writer` refers to
  std::vector<ExportedStorage> exports;     ///< of the same storages
  uint32_t flags = 0;                       ///< further ipc::SubmissionFlags
  uint64_t tag = 0;                         ///< CallOptions::tag, for the record of the request
  /// The longest time that the worker may run it; none: as long as the deadline allows.
  std::optional<std::chrono::nanoseconds> runTime;
  /// For a preparation: no later request needs what it makes. So past its deadline its worker is
  /// killed, as by a call, and does not continue.
  bool onlyForThisCaller = false;
};

/// The calling thread's draft, cleared, with the thread's present modes. Valid until the thread
/// calls this function again. So a request that has to be sent while another one is being built
/// needs a RequestDraft of its own. Works at every stage of the thread's and the process's end.
/// Throws as prepareThread().
RequestDraft& requestDraft();

/// The ipc::SubmissionFlags that these options ask for.
uint32_t flagsOf(const CallOptions& options);

/// Makes the calling thread's draft and torch's thread_local objects, if it has none yet. For a
/// thread that uses torch before its first requestDraft(). Throws std::bad_alloc if there is no
/// memory for them.
void prepareThread();

using NamedArguments = std::unordered_map<std::string, c10::IValue>;

/// Adds positional and named arguments to a request; null: no named ones. Throws ipc::ValueError
/// for a value that can't be passed, and DeadlineExceeded if the deadline passes meanwhile. The
/// draft then refers to no tensor.
void draftArguments(RequestDraft& draft, at::ArrayRef<at::IValue> args,
                    const NamedArguments* kwargs, const Deadline& deadline = std::nullopt);
/// Adds one value. The same.
void draftValue(RequestDraft& draft, const at::IValue& value, const Deadline& deadline);

}  // namespace isopool::client
