// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/channel/lease_table.h"
#include "ipc/tensor/value_codec.h"

namespace isopool::client {

/// A tensor's storage on its way to a worker. `storage` is what an echo of it gives back; `block`
/// is lent under `lease` until the worker returns it.
struct ExportedStorage {
  c10::Storage storage;
  const void* block = nullptr;
  ipc::Lease lease;
};

/// Where a thread builds a request. Reused from call to call.
struct RequestDraft {
  ipc::PayloadWriter writer;
  uint32_t modes = 0;  ///< SubmissionFlags of the caller's modes
  std::vector<ipc::StorageRecord> records;
  std::vector<ExportedStorage> exports;
  uint32_t flags = 0;  ///< ipc::SubmissionFlags beside the caller's modes
};

/// This thread's draft, cleared, with this thread's modes.
RequestDraft& requestDraft();

}  // namespace isopool::client
