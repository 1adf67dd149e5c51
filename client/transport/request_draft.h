// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/channel/lease_table.h"
#include "ipc/tensor/value_codec.h"

namespace isopool::client {

/// A tensor's storage that a request passes to a worker. If the worker returns the same tensor (an
/// echo), the result uses `storage`. `block`, unless null, is lent under `lease` until the worker
/// returns it.
struct ExportedStorage {
  c10::Storage storage;
  const void* block = nullptr;
  ipc::Lease lease;
};

/// The buffers in which one thread builds a request. Reused from call to call.
struct RequestDraft {
  ipc::PayloadWriter writer;
  uint32_t modes = 0;  ///< SubmissionFlags of the caller's modes
  std::vector<ipc::StorageRecord> records;
  std::vector<ExportedStorage> exports;
  uint32_t flags = 0;  ///< further ipc::SubmissionFlags
};

/// The calling thread's draft, cleared, with the thread's present modes. Valid until the thread
/// calls this function again.
RequestDraft& requestDraft();

}  // namespace isopool::client
