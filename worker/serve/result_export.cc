// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/result_export.h"

#include <cstring>
#include <string>

#include "base/running_time.h"
#include "ipc/channel/futex.h"
#include "worker/serve/refusal.h"

namespace isopool::worker {

namespace {

constexpr std::chrono::seconds kWaitForRoom(2);
// A supervisor may be stopped for a while, by a debugger for example. If it is dead, its connection
// ends, and the worker with it.
constexpr std::chrono::seconds kWaitForAnswer(30);
// A client does not ring the doorbell when it returns a block, so the worker checks this often.
constexpr int64_t kLookForReturns = 5'000'000;  // ns

ipc::StorageRecord lentRecord(const ipc::BlockLocation& location, uint64_t bytes,
                              ipc::Lease lease) {
  ipc::StorageRecord record;
  record.kind = ipc::StorageKind::kLent;
  record.segment = location.segment.value;
  record.offset = location.offset;
  record.bytes = bytes;
  record.lease = lease.index;
  record.generation = lease.generation;
  return record;
}

}  // namespace

void* allocateOutput(ClientLink& channel, size_t bytes, ControlPlane& control) {
  OutputBlocks& output = channel.memory->output;
  if (void* block = output.allocateUnnoted(bytes)) return block;
  base::RunningTime waited;
  const auto unanswered = [&] { return output.awaitsAnswer() && output.refusal().reason.empty(); };
  for (;;) {
    output.wantRoom(bytes);
    const std::chrono::milliseconds limit = unanswered() ? kWaitForAnswer
                                            : output.refusal().reason.empty()
                                                ? kWaitForRoom
                                                : output.refusal().patience;
    const bool over = waited.look(std::chrono::steady_clock::now()) >= limit;
    // No limit was met: to wait for returned results does not help.
    if (output.refusal().ofSystem || over || channel.detached) break;
    control.waitForMessage(ipc::monotonicNow() + kLookForReturns);
    output.collectReturned();
    if (void* block = output.allocateUnnoted(bytes)) return block;
  }
  const auto& [reason, clientLimit, ofSystem, patience] = output.refusal();
  if (ofSystem) {
    throw Refusal(ipc::RefusalKind::kArenaFull, "no shared memory for " + std::to_string(bytes) +
                                                    " bytes of a result: " + reason);
  }
  if (clientLimit) {
    throw Refusal(ipc::RefusalKind::kLimitMet, "a result needs " + std::to_string(bytes) +
                                                   " bytes: " + reason +
                                                   "; release earlier results or inputs");
  }
  std::string full =
      "no shared memory for " + std::to_string(bytes) + " bytes of a result: of the " +
      std::to_string(output.arena().capacityBytes()) +
      " bytes that the worker has for this program's results " +
      std::to_string(output.arena().bytesInUse()) + " are in use, the largest free block has " +
      std::to_string(output.arena().largestFreeBlock()) + ", and ";
  if (output.lacksAddressSpace()) {
    full += "the " + std::to_string(output.addressSpaceBytes()) +
            " bytes of its address space for them have no room for more. Release earlier results";
  } else if (unanswered()) {
    full += "the supervisor has not answered within " + std::to_string(kWaitForAnswer.count()) +
            " seconds whether it may have more. Look whether the supervisor is stopped";
  } else {
    // The supervisor's reason names the limit and what counts towards it.
    full += "it got no more: " + (reason.empty() ? "other results took what came" : reason) +
            ". Release earlier results, or raise ISOPOOL_OUTPUT_ARENA_LIMIT";
  }
  throw Refusal(ipc::RefusalKind::kArenaFull, full);
}

void ResultExport::describe(const ipc::PayloadWriter& writer, ClientLink& channel,
                            const CallInputs& inputs, CopyCounts& copies) {
  records_.clear();
  inlineBytes_.clear();
  const auto& storages = writer.storages();
  for (size_t i = 0; i < storages.size(); ++i) {
    describeOne(storages[i], writer.extentOfStorage(i), channel, inputs, copies);
  }
  // The buffer of inline bytes may have moved while it grew. The offset of each record is the
  // position of its bytes in the buffer.
  for (ipc::StorageRecord& record : records_) {
    if (record.kind != ipc::StorageKind::kInline) continue;
    record.inlineBytes = {inlineBytes_.data() + record.offset, record.bytes};
  }
}

void ResultExport::describeOne(const c10::Storage& storage, ipc::StorageExtent extent,
                               ClientLink& channel, const CallInputs& inputs, CopyCounts& copies) {
  if (const auto echo = inputs.echoOf(storage, history_)) {
    ipc::StorageRecord record;
    record.kind = ipc::StorageKind::kEcho;
    record.offset = *echo;
    records_.push_back(record);
    return;
  }
  OutputBlocks& output = channel.memory->output;
  auto* data = const_cast<void*>(storage.data());
  const size_t bytes = storage.nbytes();
  auto reason = ipc::CopyReason::kResultOutsideSharedMemory;
  if (output.contains(data)) {
    const auto location = output.arena().locate(data);
    if (location && bytes <= location->bytes &&
        output.arena().find(location->segment, location->offset) == data) {
      const bool kept = storage.use_count() > 1 && !inputs.brought(storage);
      if (output.isPrivatised(data)) {
        reason = ipc::CopyReason::kKeptByModel;
      } else if (kept && copyKept(storage, extent, output, copies)) {
        return;
      } else if (const auto lease = output.lend(data)) {
        records_.push_back(lentRecord(*location, bytes, *lease));
        return;
      } else {
        reason = ipc::CopyReason::kNoLease;
      }
    }
  } else if (const auto place = channel.packages.locate(data, bytes);
             place && bytes > 0 && place->offset % ipc::kStorageAlignment == 0) {
    if (place->package->shared() || !history_.written(data, bytes)) {
      ipc::StorageRecord record;
      record.kind = ipc::StorageKind::kPackage;
      record.segment = place->package->id().value;
      record.offset = place->offset;
      record.bytes = bytes;
      records_.push_back(record);
      return;
    }
    reason = ipc::CopyReason::kPackageWritten;
  }
  copy(storage, extent, reason, channel, copies);
}

// False if the storage is large and the arena has no free room: the block is then lent and the
// worker's view of it privatised.
bool ResultExport::copyKept(const c10::Storage& storage, ipc::StorageExtent extent,
                            OutputBlocks& output, CopyCounts& copies) {
  const auto* data = static_cast<const std::byte*>(storage.data());
  const size_t bytes = extent.end - extent.begin;
  if (bytes <= ipc::kInlineStorageBytes) {
    copyInline(data, extent, ipc::CopyReason::kKeptByModel, copies);
    return true;
  }
  void* block = output.allocateUnnoted(bytes);
  if (block == nullptr) {
    output.wantRoom(bytes);
    return false;
  }
  copyInto(block, data, extent, ipc::CopyReason::kKeptByModel, output, copies);
  return true;
}

void ResultExport::copy(const c10::Storage& storage, ipc::StorageExtent extent,
                        ipc::CopyReason reason, ClientLink& channel, CopyCounts& copies) {
  const auto* data = static_cast<const std::byte*>(storage.data());
  const size_t bytes = extent.end - extent.begin;
  if (bytes <= ipc::kInlineStorageBytes) {
    if (reason == ipc::CopyReason::kResultOutsideSharedMemory) {
      reason = ipc::CopyReason::kResultInline;
    }
    copyInline(data, extent, reason, copies);
    return;
  }
  if (reason == ipc::CopyReason::kNoLease) {
    copyInline(data, extent, reason, copies);
    return;
  }
  copyInto(allocateOutput(channel, bytes, control_), data, extent, reason, channel.memory->output,
           copies);
}

void ResultExport::copyInto(void* block, const std::byte* data, ipc::StorageExtent extent,
                            ipc::CopyReason reason, OutputBlocks& output, CopyCounts& copies) {
  const size_t bytes = extent.end - extent.begin;
  std::memcpy(block, data + extent.begin, bytes);
  const auto lease = output.lendOwned(block);
  if (!lease) {
    output.dropReference(block);
    copyInline(data, extent, ipc::CopyReason::kNoLease, copies);
    return;
  }
  copies.count(reason, bytes);
  records_.push_back(lentRecord(*output.arena().locate(block), bytes, *lease));
  records_.back().rebase = extent.begin;
}

void ResultExport::copyInline(const std::byte* data, ipc::StorageExtent extent,
                              ipc::CopyReason reason, CopyCounts& copies) {
  ipc::StorageRecord record;
  record.kind = ipc::StorageKind::kInline;
  record.offset = inlineBytes_.size();
  record.bytes = extent.end - extent.begin;
  record.rebase = extent.begin;
  if (record.bytes > 0)
    inlineBytes_.insert(inlineBytes_.end(), data + extent.begin, data + extent.end);
  copies.count(reason, record.bytes);
  records_.push_back(record);
}

}  // namespace isopool::worker
