// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/package_store.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>

#include "worker/memory/package_capsule.h"
#include "worker/process/memory_limit.h"
#include "worker/python/interpreter.h"

namespace isopool::worker {

namespace {

using MappingOwner = std::shared_ptr<const ipc::Mapping>;

void releaseMapping(void* context) { delete static_cast<MappingOwner*>(context); }

}  // namespace

at::DataPtr packageData(std::shared_ptr<const ipc::Mapping> mapping, uint64_t offset) {
  std::byte* data = mapping->data() + offset;
  auto owner = std::make_unique<MappingOwner>(std::move(mapping));
  return {data, owner.release(), &releaseMapping, c10::Device(c10::DeviceType::CPU)};
}

c10::Storage packageStorage(std::shared_ptr<const ipc::Mapping> mapping, uint64_t offset,
                            uint64_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
      packageData(std::move(mapping), offset),
      // A resize moves it to other memory, as for a storage from torch.load.
      c10::GetCPUAllocator(), /*resizable=*/true));
}

Package::Package(base::PackageId id, std::string name, base::Fd object, size_t bytes,
                 Sharing sharing)
    : id_(id),
      name_(std::move(name)),
      object_(std::move(object)),
      mapping_(sharing == Sharing::kShared
                   ? std::make_shared<const ipc::Mapping>(ipc::mapShared(
                         object_, 0, bytes, ipc::Access::kReadWrite, ipc::Prefault::kNo))
                   : mapBeyondLimit(object_, bytes)),
      sharing_(sharing) {}

PyRef Package::capsule() const { return makePackageCapsule(mapping_, shared()); }

PyRef Package::ownCapsule() const {
  return makePackageCapsule(mapBeyondLimit(object_, mapping_->bytes()), /*shared=*/false);
}

PyObject* Package::importer() {
  if (importer_) return importer_.get();
  const PyRef open = workerFunction("packages", "open_package");
  if (!open) return nullptr;
  const PyRef pathText = PyRef::steal(PyUnicode_FromString(path().c_str()));
  const PyRef mapping = capsule();
  if (!pathText || !mapping) return nullptr;
  importer_ = PyRef::steal(
      PyObject_CallFunctionObjArgs(open.get(), pathText.get(), mapping.get(), nullptr));
  return importer_.get();
}

void Package::forgetImporter() {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  if (importer_) {
    const PyRef forget = workerFunction("packages", "forget_package");
    if (!forget || !PyRef::steal(PyObject_CallOneArg(forget.get(), importer_.get()))) PyErr_Clear();
    importer_.reset();
  }
  PyErr_Restore(type, value, traceback);
}

bool PackageStore::remove(base::PackageId id) {
  removed_.push_back(id);
  return std::erase_if(packages_, [&](const auto& package) { return package->id() == id; }) != 0;
}

void PackageStore::clear() {
  packages_.clear();
  removed_.clear();
}

bool PackageStore::wasRemoved(base::PackageId id) const noexcept {
  return std::find(removed_.begin(), removed_.end(), id) != removed_.end();
}

Package* PackageStore::find(base::PackageId id) const noexcept {
  for (const auto& package : packages_) {
    if (package->id() == id) return package.get();
  }
  return nullptr;
}

std::optional<PackagePlace> PackageStore::locate(const void* data, size_t bytes) const noexcept {
  const auto* begin = static_cast<const std::byte*>(data);
  for (const auto& package : packages_) {
    const ipc::Mapping& mapping = *package->mapping();
    if (mapping.contains(begin) &&
        bytes <= static_cast<size_t>(mapping.data() + mapping.bytes() - begin)) {
      return PackagePlace{package.get(), static_cast<uint64_t>(begin - mapping.data())};
    }
  }
  return std::nullopt;
}

}  // namespace isopool::worker
