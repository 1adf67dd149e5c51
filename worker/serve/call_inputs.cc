// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/call_inputs.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ipc/tensor/lent_alignment.h"
#include "worker/serve/refusal.h"

namespace isopool::worker {

namespace {

[[noreturn]] void refuseRecord(const char* what) {
  throw Refusal(ipc::RefusalKind::kBadRequest, std::string("a tensor of the call ") + what);
}

c10::Storage inlineStorage(std::span<const std::byte> bytes) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  c10::DataPtr data = allocator->allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(data.get(), bytes.data(), bytes.size());
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes.size()), std::move(data),
      allocator, /*resizable=*/true));
}

bool within(uint64_t offset, uint64_t bytes, uint64_t all) {
  return offset <= all && bytes <= all - offset;
}

}  // namespace

void throwIfRefused(const ClientLink& channel, uint32_t segment) {
  const std::string* refusal = channel.memory->inputs.refusal(base::SegmentId(segment));
  if (refusal != nullptr) throw Refusal(ipc::RefusalKind::kLimitMet, *refusal);
}

bool CallInputs::resolvable(const ClientLink& channel,
                            const std::vector<ipc::StorageRecord>& records) {
  for (const ipc::StorageRecord& record : records) {
    if (record.kind == ipc::StorageKind::kLent &&
        channel.memory->inputs.find(base::SegmentId(record.segment)) == nullptr) {
      throwIfRefused(channel, record.segment);
      return false;
    }
    if (record.kind == ipc::StorageKind::kPackage &&
        channel.packages.find(base::PackageId(record.segment)) == nullptr) {
      return false;
    }
  }
  return true;
}

c10::Storage CallInputs::makeStorage(ClientLink& channel, const ipc::StorageRecord& record) {
  switch (record.kind) {
    case ipc::StorageKind::kInline:
      return inlineStorage(record.inlineBytes);
    case ipc::StorageKind::kLent: {
      InputSegment* segment = channel.memory->inputs.find(base::SegmentId(record.segment));
      if (segment == nullptr) refuseRecord("lies in a segment that this worker has not received");
      if (record.offset % ipc::kLentAlignment != 0) refuseRecord("is not aligned");
      if (!within(record.offset, record.bytes, segment->mapping.bytes())) {
        refuseRecord("reaches beyond its segment");
      }
      return BorrowedStorages::lent(channel.memory, *segment, record.offset, record.bytes,
                                    ipc::Lease{record.lease, record.generation});
    }
    case ipc::StorageKind::kHome: {
      const ipc::PageArena& arena = channel.memory->output.arena();
      void* block = arena.find(base::SegmentId(record.segment), record.offset);
      const auto location = block == nullptr ? std::nullopt : arena.locate(block);
      if (!location) refuseRecord("names a result that this worker no longer has");
      if (record.bytes > location->bytes) refuseRecord("reaches beyond its block");
      return BorrowedStorages::home(channel.memory, block, record.bytes);
    }
    case ipc::StorageKind::kPackage: {
      const Package* package = channel.packages.find(base::PackageId(record.segment));
      if (package == nullptr) refuseRecord("lies in a package that this worker has not received");
      if (record.offset % ipc::kStorageAlignment != 0) refuseRecord("is not aligned");
      if (!within(record.offset, record.bytes, package->mapping()->bytes())) {
        refuseRecord("reaches beyond its package");
      }
      return packageStorage(package->mapping(), record.offset, record.bytes);
    }
    case ipc::StorageKind::kEcho:
      break;
  }
  refuseRecord("has a kind that is valid only in answers");
}

UnclaimedLeases::~UnclaimedLeases() {
  for (size_t i = taken_; i < records_.size(); ++i) {
    const ipc::StorageRecord& record = records_[i];
    if (record.kind != ipc::StorageKind::kLent || record.generation == 0) continue;
    ipc::returnLease(channel_.memory->end.returns(), {record.lease, record.generation});
  }
}

void CallInputs::resolve(ClientLink& channel, ipc::PayloadReader& reader, UnclaimedLeases& loans) {
  inputs_.clear();
  const auto& records = reader.storages();
  if (records.empty()) return;
  std::vector<c10::Storage> storages;
  storages.reserve(records.size());
  for (const ipc::StorageRecord& record : records) {
    storages.push_back(makeStorage(channel, record));
    loans.tookNext();
    const c10::StorageImpl* impl = storages.back().unsafeGetStorageImpl();
    inputs_.push_back({impl, impl->data(), record.bytes, record.kind});
  }
  reader.setStorages(std::move(storages));
}

bool CallInputs::brought(const c10::Storage& storage) const {
  return std::any_of(inputs_.begin(), inputs_.end(), [&](const Input& input) {
    return input.impl == storage.unsafeGetStorageImpl();
  });
}

std::optional<size_t> CallInputs::echoOf(const c10::Storage& storage,
                                         const ipc::PageHistory& history) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (input.impl != storage.unsafeGetStorageImpl()) continue;
    // A resize has replaced its memory.
    if (storage.data() != input.data || storage.nbytes() != input.bytes) return std::nullopt;
    switch (input.kind) {
      case ipc::StorageKind::kLent:
      case ipc::StorageKind::kHome:
        return i;
      case ipc::StorageKind::kPackage:
        return history.written(input.data, input.bytes) ? std::nullopt : std::optional(i);
      default:
        return std::nullopt;  // a copy, which the call may have changed
    }
  }
  return std::nullopt;
}

}  // namespace isopool::worker
