// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/moved_object.h"

#include <c10/core/CPUAllocator.h>

#include <new>
#include <utility>

#include "base/system_call.h"
#include "client/models/archive_file.h"
#include "client/program/process_fork.h"
#include "ipc/control/client_messages.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

void forgetSlice(void* context) { delete static_cast<MovedSlice*>(context); }

}  // namespace

// The moved objects of this process. Never destroyed: results may use it until the process exits.
struct MovedObject::Registry {
  base::Mutex mutex;
  std::map<uint32_t, std::weak_ptr<MovedObject>> byId ISOPOOL_GUARDED_BY(mutex);

  static Registry& instance() {
    static PerProcess<Registry> registry;
    return registry.get();
  }
};

std::shared_ptr<MovedObject> MovedObject::make(std::shared_ptr<ControlWriter> writer,
                                               uint64_t connection, uint64_t bytes,
                                               std::string name) {
  try {
    std::shared_ptr<MovedObject> moved(
        new MovedObject(ArchiveFile::newId(), ipc::createMemoryObject("isopool:moved", bytes),
                        bytes, std::move(name)));
    {
      Registry& registry = Registry::instance();
      base::MutexLock lock(registry.mutex);
      registry.byId[moved->id_.value] = moved;
    }
    moved->announceTo(std::move(writer), connection);
    return moved;
  } catch (const base::SystemCallError& error) {
    throw Error("no shared memory for a moved object of " + std::to_string(bytes) +
                " bytes: " + error.what());
  }
}

std::shared_ptr<MovedObject> MovedObject::find(base::PackageId id) {
  Registry& registry = Registry::instance();
  base::MutexLock lock(registry.mutex);
  const auto entry = registry.byId.find(id.value);
  return entry == registry.byId.end() ? nullptr : entry->second.lock();
}

MovedObject::MovedObject(base::PackageId id, base::Fd object, uint64_t bytes, std::string name)
    : id_(id),
      object_(std::move(object)),
      name_(std::move(name)),
      generation_(forkGeneration()),
      mapping_(ipc::mapShared(object_, 0, bytes, ipc::Access::kReadWrite, ipc::Prefault::kNo)),
      copied_(mapping_.data(), ipc::roundUpToPages(bytes), nullptr) {}

void MovedObject::announceTo(std::shared_ptr<ControlWriter> writer, uint64_t connection) {
  base::MutexLock lock(mutex_);
  writer->send(ipc::LoadPackage{id_.value, mapping_.bytes(), name_, /*shared=*/true},
               {object_.get()});
  writer_ = std::move(writer);
  connection_.store(connection, std::memory_order_relaxed);
}

MovedObject::~MovedObject() {
  if (generation_ != forkGeneration()) return;
  {
    Registry& registry = Registry::instance();
    base::MutexLock lock(registry.mutex);
    registry.byId.erase(id_.value);
  }
  try {
    base::MutexLock lock(mutex_);
    if (writer_) writer_->send(ipc::UnloadPackage{id_.value});
  } catch (const std::bad_alloc&) {
    // The supervisor then keeps the memory until this program disconnects.
  }
}

c10::Storage MovedObject::storageAt(uint64_t offset, uint64_t bytes) {
  if (offset > mapping_.bytes() || bytes > mapping_.bytes() - offset) return {};
  base::MutexLock lock(mutex_);
  const auto known = storages_.find({offset, bytes});
  if (known != storages_.end()) {
    c10::Storage storage(known->second.lock());
    // One that was resized has other memory.
    if (storage && movedSliceOf(storage) != nullptr) return storage;
  }
  std::erase_if(storages_, [](const auto& entry) { return entry.second.expired(); });
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
      c10::DataPtr(mapping_.data() + offset, new MovedSlice{shared_from_this(), offset},
                   &forgetSlice, c10::Device(c10::DeviceType::CPU)),
      c10::GetCPUAllocator(), /*resizable=*/true);
  storages_.insert_or_assign(std::pair(offset, bytes), WeakStorage(storage));
  return c10::Storage(std::move(storage));
}

const MovedSlice* movedSliceOf(const c10::Storage& storage) noexcept {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &forgetSlice ? static_cast<const MovedSlice*>(data.get_context())
                                            : nullptr;
}

}  // namespace isopool::client
