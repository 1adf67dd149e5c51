// SPDX-License-Identifier: BSD-3-Clause
#include "worker/answer.h"

#include <cstring>

#include "ipc/crash_point.h"
#include "worker/python_errors.h"

namespace isopool::worker {

namespace {

// How long a finished call waits for room for its result.
constexpr std::chrono::milliseconds kRoomPatience(2000);

}  // namespace

void AnswerWriter::begin(ipc::CompletionStatus status) {
  writer_.clear();
  records_.clear();
  inlineCopies_.clear();
  status_ = status;
}

void AnswerWriter::writeNothing() {
  begin(ipc::CompletionStatus::kValue);
  writer_.packer().pack_array(2).pack_nil();
}

void AnswerWriter::writeRefusal(ipc::RefusalKind kind, const std::string& text) {
  begin(ipc::CompletionStatus::kRefused);
  writer_.packer().pack_array(2).pack(static_cast<uint32_t>(kind)).pack(text);
}

void AnswerWriter::writePythonError(const PythonError& error) {
  begin(ipc::CompletionStatus::kPythonError);
  writer_.packer().pack_array(4).pack(error.type).pack(error.message);
  writer_.packer().pack(error.traceback).pack(error.formatted);
}

void AnswerWriter::writeValue(ClientChannel& channel, at::IValue value,
                              const std::vector<ImportedStorage>& imported, CopyCounts& copies) {
  begin(ipc::CompletionStatus::kValue);
  writer_.packer().pack_array(2);
  writer_.addValue(value);
  const auto& storages = writer_.storages();
  for (size_t i = 0; i < storages.size(); ++i) {
    records_.push_back(
        exportStorage(channel, storages[i], writer_.extentOfStorage(i), imported, copies));
  }
  writer_.releaseStorages();
  ipc::reachCrashPoint(ipc::CrashPoint::kResultExported);
}

std::span<const std::byte> AnswerWriter::finish(const CopyCounts& copies) {
  if (status_ == ipc::CompletionStatus::kValue) {
    uint32_t reasons = 0;
    for (size_t i = 0; i < CopyCounts::kReasons; ++i) reasons += copies.of(i) > 0 ? 1 : 0;
    writer_.packer().pack_array(reasons);
    for (size_t i = 0; i < CopyCounts::kReasons; ++i) {
      if (copies.of(i) == 0) continue;
      writer_.packer().pack_array(2).pack(static_cast<uint32_t>(i)).pack(copies.of(i));
    }
  }
  return writer_.finish(records_);
}

ipc::StorageRecord AnswerWriter::exportStorage(ClientChannel& channel, const c10::Storage& storage,
                                               ipc::StorageExtent extent,
                                               const std::vector<ImportedStorage>& imported,
                                               CopyCounts& copies) {
  ipc::StorageRecord record;
  for (size_t i = 0; i < imported.size(); ++i) {
    if (imported[i].mayEcho && imported[i].impl == storage.unsafeGetStorageImpl()) {
      record.kind = ipc::StorageKind::kEcho;
      record.offset = i;
      return record;
    }
  }
  OutputBlocks& output = channel.memory->output;
  const void* data = storage.data();
  if (const auto location = output.arena().locate(data)) {
    void* block = output.arena().find(location->segment, location->offset);
    if (!output.isPrivatised(block)) {
      if (const auto lease = output.lend(block)) {
        record.kind = ipc::StorageKind::kLent;
        record.segment = location->segment.value;
        record.offset = location->offset + static_cast<uint64_t>(
            static_cast<const std::byte*>(data) - static_cast<const std::byte*>(block));
        record.bytes = storage.nbytes();
        record.lease = lease->index;
        record.generation = lease->generation;
        return record;
      }
      return exportCopy(channel, storage, extent, ipc::CopyReason::kNoLease, copies);
    }
  }
  if (const auto place = channel.packages.locate(data, storage.nbytes())) {
    if (pages_.written(data, storage.nbytes())) {
      return exportCopy(channel, storage, extent, ipc::CopyReason::kPackageWritten, copies);
    }
    record.kind = ipc::StorageKind::kPackage;
    record.segment = place->package.value;
    record.offset = place->offset;
    record.bytes = storage.nbytes();
    return record;
  }
  return exportCopy(channel, storage, extent, ipc::CopyReason::kResultOutsideSharedMemory, copies);
}

ipc::StorageRecord AnswerWriter::exportCopy(ClientChannel& channel, const c10::Storage& storage,
                                            ipc::StorageExtent extent, ipc::CopyReason reason,
                                            CopyCounts& copies) {
  OutputBlocks& output = channel.memory->output;
  const auto* begin = static_cast<const std::byte*>(storage.data()) + extent.begin;
  const uint64_t bytes = extent.end - extent.begin;
  ipc::StorageRecord record;
  record.rebase = extent.begin;
  if (bytes > ipc::kInlineStorageBytes && reason != ipc::CopyReason::kNoLease) {
    void* block = output.allocateUnnoted(bytes);
    if (block == nullptr) {
      output.wantRoom(bytes);
      control_.readUntil([&] { return (block = output.allocateUnnoted(bytes)) != nullptr; },
                         kRoomPatience);
    }
    if (block == nullptr) {
      throw Refusal(ipc::RefusalKind::kArenaFull,
                    "no room for a result of " + std::to_string(bytes) +
                        " bytes in the worker's output memory: let earlier results go, or raise "
                        "ISOPOOL_OUTPUT_ARENA_LIMIT");
    }
    if (const auto lease = output.lendOwned(block)) {
      std::memcpy(block, begin, bytes);
      const auto location = output.arena().locate(block);
      record.kind = ipc::StorageKind::kLent;
      record.segment = location->segment.value;
      record.offset = location->offset;
      record.bytes = bytes;
      record.lease = lease->index;
      record.generation = lease->generation;
      copies.count(reason, bytes);
      return record;
    }
    output.dropReference(block);
    reason = ipc::CopyReason::kNoLease;
  } else if (reason != ipc::CopyReason::kNoLease) {
    reason = ipc::CopyReason::kResultInline;
  }
  if (bytes > 0) {
    inlineCopies_.emplace_back(begin, begin + bytes);
    record.inlineBytes = inlineCopies_.back();
  }
  copies.count(reason, bytes);
  return record;
}

}  // namespace isopool::worker
