// SPDX-License-Identifier: BSD-3-Clause
#include "client/program/copy_counter.h"

#include <array>
#include <atomic>

#include "isopool/counters.h"

namespace isopool {

namespace {

std::array<std::atomic<uint64_t>, static_cast<size_t>(ipc::CopyReason::kCount)> copied{};

uint64_t bytesFor(ipc::CopyReason reason) {
  return copied[static_cast<size_t>(reason)].load(std::memory_order_relaxed);
}

}  // namespace

namespace client {

void countCopied(ipc::CopyReason reason, uint64_t bytes) noexcept {
  const auto index = static_cast<size_t>(reason);
  if (index < copied.size()) copied[index].fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace client

CopyCounters copyCounters() {
  CopyCounters counters;
  counters.inputOutsideSharedMemory = bytesFor(ipc::CopyReason::kInputOutsideSharedMemory);
  counters.inputInline = bytesFor(ipc::CopyReason::kInputInline);
  counters.inputOfOtherWorker = bytesFor(ipc::CopyReason::kInputOfOtherWorker);
  counters.resultOutsideSharedMemory = bytesFor(ipc::CopyReason::kResultOutsideSharedMemory);
  counters.resultInline = bytesFor(ipc::CopyReason::kResultInline);
  counters.resultNoLease = bytesFor(ipc::CopyReason::kNoLease);
  counters.resultWeightWritten = bytesFor(ipc::CopyReason::kPackageWritten);
  counters.keptByModel = bytesFor(ipc::CopyReason::kKeptByModel);
  return counters;
}

}  // namespace isopool
