// SPDX-License-Identifier: BSD-3-Clause
// The memory of a channel's requests and answers: storages that are lent, copied and taken back.
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "base/running_time.h"
#include "client/models/archive_file.h"
#include "client/program/copy_counter.h"
#include "client/transport/input_arena.h"
#include "client/transport/moved_object.h"
#include "client/transport/pending_request.h"
#include "client/transport/unread_messages.h"
#include "client/transport/worker_link.h"
#include "ipc/crash_point.h"
#include "ipc/tensor/lent_alignment.h"

namespace isopool::client {

namespace {

using std::chrono::milliseconds;

// A sleeping worker is woken when so many bytes are left to copy: these take some 40 us, in which
// the worker wakes up and then spins. Less than kLeastRousing is copied before the worker is awake.
constexpr uint64_t kRouseBytes = uint64_t{1} << 20;
constexpr uint64_t kLeastRousing = uint64_t{1} << 18;

// Between two looks at the deadline.
constexpr uint64_t kCopiedBetweenLooks = uint64_t{1} << 24;
constexpr size_t kStoragesBetweenLooks = 64;

void nap() {
  static const ipc::SharedWord<uint32_t> never{0};
  const ipc::FutexWatch watch{&never, 0};
  ipc::futexWait({&watch, 1}, milliseconds(1));
}

// Waits a moment for room for `what` in the input arena. Throws if the wait is over, or in vain.
void awaitRoom(const std::string& what, const NoBlock& why, base::RunningTime& waited,
               const Deadline& deadline) {
  const bool past = isPast(deadline);
  if (past || !why.waitingHelps || waited.look(Clock::now()) >= kPayloadPatience) {
    const std::string text = "no room for " + what + ": " + why.text;
    if (!past) throw ArenaFull(text);
    throw DeadlineExceeded(
        "the deadline passed before the call was sent, so it will not run: " + text,
        /*started=*/false);
  }
  nap();
}

// Call if WorkerMemory::find() found nothing: if messages of the supervisor are not read now, waits
// for them and searches again. `worker`: its name. Throws if they stay unread.
std::optional<OutputPlace> findAmongUnread(WorkerMemory& memory, uint64_t connection,
                                           const ipc::StorageRecord& record,
                                           const std::string& worker, const Deadline& deadline) {
  constexpr milliseconds kLongestSearch(500);
  const base::SegmentId id(record.segment);
  const auto announced = [&] { return memory.neverCame(id) || memory.find(id, 0, 0); };
  base::RunningTime waited(kLongestSearch);
  waited.look(Clock::now());
  while (UnreadMessages::of(connection) && !announced()) {
    const bool past = isPast(deadline);
    if (!past && waited.look(Clock::now()) < kPayloadPatience) continue;
    const std::string text = worker + " has run the call, and its result of " +
                             std::to_string(record.bytes) +
                             " bytes can't be reached: " + UnreadMessages::cause();
    if (!past) throw ArenaFull(text);
    throw DeadlineExceeded("the deadline passed: " + text, /*started=*/true);
  }
  return memory.find(id, record.offset, record.bytes);
}

void checkWhileCopying(const Deadline& deadline) {
  if (!isPast(deadline)) return;
  throw DeadlineExceeded(
      "the deadline passed while the arguments of the call were being copied; it will not run",
      /*started=*/false);
}

c10::Storage heapStorage(std::span<const std::byte> bytes) {
  c10::Allocator* allocator = c10::GetDefaultCPUAllocator();
  c10::DataPtr data = allocator->allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(data.get(), bytes.data(), bytes.size());
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            bytes.size(), std::move(data),
                                                            allocator, /*resizable=*/true));
}

// The storages of one answer that lie in packages and moved objects. All that lie in the same
// archive become one range of it: so they share what they shared in the worker, and the number of
// mappings does not depend on the worker.
class PackageResults {
 public:
  explicit PackageResults(const std::vector<ipc::StorageRecord>& records) : records_(records) {}

  /// Throws ValueError if there are no such bytes.
  c10::Storage storage(const ipc::StorageRecord& record) {
    if (record.offset % ipc::kStorageAlignment != 0) {
      throw ipc::ValueError("a result in a package is misaligned");
    }
    const auto known = ranges_.find(record.segment);
    if (known != ranges_.end()) return known->second->storage(record.offset, record.bytes);
    const base::PackageId id(record.segment);
    c10::Storage storage;
    if (const auto file = ArchiveFile::find(id)) {
      storage = rangeOf(*file)->storage(record.offset, record.bytes);
    } else if (const auto moved = MovedObject::find(id)) {
      storage = moved->storageAt(record.offset, record.bytes);
    }
    if (!storage) throwNotThere();
    return storage;
  }

 private:
  [[noreturn]] static void throwNotThere() {
    throw ipc::ValueError("a result refers to stored bytes that do not exist");
  }

  const std::shared_ptr<StoredBytes>& rangeOf(ArchiveFile& file) {
    uint64_t begin = std::numeric_limits<uint64_t>::max();
    uint64_t end = 0;
    for (const ipc::StorageRecord& record : records_) {
      if (record.kind != ipc::StorageKind::kPackage || record.segment != file.id().value) continue;
      if (record.offset > file.bytes() || record.bytes > file.bytes() - record.offset) {
        throwNotThere();
      }
      begin = std::min(begin, record.offset);
      end = std::max(end, record.offset + record.bytes);
    }
    return ranges_.emplace(file.id().value, file.range(begin, end)).first->second;
  }

  const std::vector<ipc::StorageRecord>& records_;
  std::map<uint32_t, std::shared_ptr<StoredBytes>> ranges_;  // of archives, by package number
};

}  // namespace

// ---- Towards the worker -------------------------------------------------------------

void WorkerLink::collectReturnedLeases() {
  loans_.collect([](const void* block) { InputArena::instance().dropReference(block); });
}

// A call that was taken back has its inputs until its worker has answered that it did not run, and
// nobody waits for that answer.
bool WorkerLink::reclaim() noexcept {
  try {
    if (abandoned_.load(std::memory_order_relaxed) > 0) deliverUnlessLed();
  } catch (const std::exception&) {
    // No memory to report invalid data: the next call finds it again.
  }
  collectReturnedLeases();
  return hasLoans();
}

bool WorkerLink::loansInUse() {
  collectReturnedLeases();
  return hasLoans() && !processGone();
}

std::optional<ipc::StorageRecord> WorkerLink::lend(const c10::Storage& storage,
                                                   ExportedStorage& exported) {
  InputArena& arena = InputArena::instance();
  const auto reference = arena.referTo(storage.data());
  if (!reference) return std::nullopt;
  const auto& [block, location] = *reference;
  const auto begin = static_cast<uint64_t>(static_cast<const std::byte*>(storage.data()) -
                                           static_cast<const std::byte*>(block));
  // A view of a block that the program made, for example by from_blob(), may begin anywhere.
  const bool lendable = begin % ipc::kLentAlignment == 0 && begin <= location.bytes &&
                        storage.nbytes() <= location.bytes - begin;
  const auto lease = lendable ? loans_.lend(block) : std::nullopt;
  if (!lease) {
    arena.dropReference(block);
    return std::nullopt;
  }
  exported.storage = storage;
  exported.block = block;
  exported.lease = *lease;
  ipc::reachCrashPoint(ipc::CrashPoint::kInputLent);
  ipc::StorageRecord record;
  record.kind = ipc::StorageKind::kLent;
  record.segment = location.segment.value;
  record.offset = location.offset + begin;
  record.bytes = storage.nbytes();
  record.lease = lease->index;
  record.generation = lease->generation;
  return record;
}

ipc::StorageRecord WorkerLink::exportStorage(const c10::Storage& storage, ipc::StorageExtent extent,
                                             ExportedStorage& exported, const Deadline& deadline) {
  if (InputArena::instance().ownsBlock(storage.data())) {
    if (auto record = lend(storage, exported)) {
      exported.callers = true;
      return *record;
    }
  }
  if (const MovedSlice* slice = movedSliceOf(storage);
      slice != nullptr && slice->object->knownTo(connection_)) {
    exported.storage = storage;
    exported.callers = true;
    exported.moved = slice->object;
    ipc::StorageRecord record;
    record.kind = ipc::StorageKind::kPackage;
    record.segment = slice->object->id().value;
    record.offset = slice->offset;
    record.bytes = storage.nbytes();
    return record;
  }
  auto reason = ipc::CopyReason::kInputOutsideSharedMemory;
  if (LentBlock* block = lentBlockOf(storage)) {
    if (block->memory == memory_) {
      exported.storage = storage;
      exported.callers = true;
      exported.home = HeldBlock(*block);
      ipc::StorageRecord record;
      record.kind = ipc::StorageKind::kHome;
      record.segment = block->segment->id.value;
      record.offset = block->offset;
      record.bytes = storage.nbytes();
      return record;
    }
    reason = ipc::CopyReason::kInputOfOtherWorker;
  }
  return exportCopy(storage, extent, reason, exported, deadline);
}

ipc::StorageRecord WorkerLink::exportCopy(const c10::Storage& storage, ipc::StorageExtent extent,
                                          ipc::CopyReason reason, ExportedStorage& exported,
                                          const Deadline& deadline) {
  const auto* bytes = static_cast<const std::byte*>(storage.data()) + extent.begin;
  const uint64_t count = extent.end - extent.begin;
  if (count > ipc::kInlineStorageBytes) {
    const c10::Storage copy = copyToArena(bytes, count, deadline);
    if (auto record = lend(copy, exported)) {
      countCopied(reason, count);
      record->rebase = extent.begin;
      return *record;
    }
  }
  ipc::StorageRecord record;
  record.rebase = extent.begin;
  record.inlineBytes = {bytes, count};
  countCopied(ipc::CopyReason::kInputInline, count);
  return record;
}

c10::Storage WorkerLink::copyToArena(const std::byte* data, uint64_t bytes,
                                     const Deadline& deadline) {
  // Before memory is allocated: the kernel takes 0.5 s to clear 800 MB.
  checkWhileCopying(deadline);
  base::RunningTime waited;
  for (;;) {
    NoBlock why;
    if (auto storage = InputArena::instance().makeStorage(bytes, why)) {
      auto* copy = static_cast<std::byte*>(storage->mutable_data());
      // The worker wakes up while the rest is copied.
      const uint64_t first = bytes > kRouseBytes ? bytes - kRouseBytes : 0;
      for (uint64_t done = 0; done < first; done += kCopiedBetweenLooks) {
        std::memcpy(copy + done, data + done, std::min(first - done, kCopiedBetweenLooks));
        checkWhileCopying(deadline);
      }
      if (bytes >= kLeastRousing) memory_->end().rouse();
      std::memcpy(copy + first, data + first, bytes - first);
      return *storage;
    }
    awaitRoom("an argument of " + std::to_string(bytes) + " bytes", why, waited, deadline);
  }
}

void WorkerLink::exportStorages(RequestDraft& draft, const Deadline& deadline) {
  const auto& storages = draft.writer.storages();
  draft.exports.resize(storages.size());
  draft.records.resize(storages.size());
  for (size_t i = 0; i < storages.size(); ++i) {
    if ((i + 1) % kStoragesBetweenLooks == 0) checkWhileCopying(deadline);
    draft.records[i] =
        exportStorage(storages[i], draft.writer.extentOfStorage(i), draft.exports[i], deadline);
  }
  for (size_t i = 0; i < draft.writer.versions().size(); ++i) {
    if (!draft.exports[draft.writer.storageOfVersion(i)].callers) draft.writer.forgetVersion(i);
  }
}

void WorkerLink::cancelExports(std::vector<ExportedStorage>& exports) {
  for (ExportedStorage& exported : exports) {
    if (exported.block == nullptr) continue;
    if (loans_.cancel(exported.lease)) InputArena::instance().dropReference(exported.block);
    exported.block = nullptr;
  }
}

void WorkerLink::placePayload(std::span<const std::byte> payload, ipc::OutgoingPayload& place,
                              void*& blob, const Deadline& deadline) {
  if (payload.size() <= ipc::kInlineBytes) {
    place.inlineBytes = payload;
    return;
  }
  base::RunningTime waited;
  InputArena& arena = InputArena::instance();
  NoBlock why;
  while ((blob = arena.allocateBlock(payload.size(), why)) == nullptr) {
    awaitRoom("the arguments of a call (" + std::to_string(payload.size()) + " bytes)", why, waited,
              deadline);
  }
  std::memcpy(blob, payload.data(), payload.size());
  const auto location = arena.locate(blob);
  place.blobSegment = location->segment;
  place.blobOffset = location->offset;
  place.blobBytes = payload.size();
}

// ---- From the worker ----------------------------------------------------------------

std::vector<c10::Storage> WorkerLink::importStorages(const PendingRequest& request,
                                                     const ipc::PayloadReader& reader) {
  std::vector<c10::Storage> storages;
  storages.reserve(reader.storages().size());
  PackageResults packages(reader.storages());
  for (const ipc::StorageRecord& record : reader.storages()) {
    switch (record.kind) {
      case ipc::StorageKind::kInline:
        storages.push_back(heapStorage(record.inlineBytes));
        break;
      case ipc::StorageKind::kLent: {
        auto block = memory_->find(base::SegmentId(record.segment), record.offset, record.bytes);
        if (!block) {
          try {
            block = findAmongUnread(*memory_, connection_, record, name(), request.takenUntil);
          } catch (...) {
            // The storages that are made already give their blocks back by themselves.
            for (size_t i = storages.size(); i < reader.storages().size(); ++i) {
              const ipc::StorageRecord& left = reader.storages()[i];
              if (left.kind != ipc::StorageKind::kLent) continue;
              ipc::returnLease(memory_->end().returns(), {left.lease, left.generation});
            }
            throw;
          }
        }
        // The worker ended while the answer was on its way: this program lost the supervisor and
        // killed it.
        if (!block && causeKnown() && memory_->neverCame(base::SegmentId(record.segment))) {
          throw WorkerLost(death(), /*started=*/true);
        }
        if (!block || record.lease >= ipc::kLeases || record.generation == 0) {
          throw ipc::ValueError("a result lies outside the worker's memory");
        }
        if (record.offset % ipc::kPageBytes != 0) {
          throw ipc::ValueError("a result does not begin at the start of a block");
        }
        storages.push_back(memory_->adopt(std::move(*block), {record.lease, record.generation}));
        ipc::reachCrashPoint(ipc::CrashPoint::kResultAdopted);
        break;
      }
      case ipc::StorageKind::kEcho: {
        if (record.offset >= request.exports.size() || !request.exports[record.offset].storage) {
          throw ipc::ValueError("a result refers to an argument that does not exist");
        }
        storages.push_back(request.exports[record.offset].storage);
        break;
      }
      case ipc::StorageKind::kPackage:
        storages.push_back(packages.storage(record));
        break;
      case ipc::StorageKind::kHome:
        throw ipc::ValueError("a result is marked as the client's own memory");
    }
  }
  return storages;
}

}  // namespace isopool::client
