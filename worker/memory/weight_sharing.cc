// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/weight_sharing.h"

#include <caffe2/serialize/in_memory_adapter.h>
#include <caffe2/serialize/inline_container.h>

#include <cstring>
#include <utility>

#include "worker/memory/package_store.h"

namespace isopool::worker {

namespace {

// The alignment of torch's allocator, on which kernels may rely.
constexpr uint64_t kAlignment = 64;

// True if the ZIP record is stored without compression: the local header has the signature
// and method 0.
bool isStored(const ipc::Mapping& archive, uint64_t header) {
  constexpr uint32_t kSignature = 0x04034B50;
  constexpr uint64_t kHeaderBytes = 30;
  constexpr uint64_t kMethodOffset = 8;
  if (header > archive.bytes() || archive.bytes() - header < kHeaderBytes) return false;
  uint32_t signature = 0;
  uint16_t method = 0;
  std::memcpy(&signature, archive.data() + header, sizeof signature);
  std::memcpy(&method, archive.data() + header + kMethodOffset, sizeof method);
  return signature == kSignature && method == 0;
}

}  // namespace

WeightSharing::WeightSharing(std::shared_ptr<const ipc::Mapping> archive)
    : archive_(std::move(archive)) {
  caffe2::serialize::PyTorchStreamReader reader(
      std::make_shared<caffe2::serialize::MemoryReadAdapter>(
          archive_->data(), static_cast<off_t>(archive_->bytes())));
  for (const std::string& name : reader.getAllRecords()) {
    const uint64_t bytes = reader.getRecordSize(name);
    if (bytes < kLeastSharedBytes) continue;
    const uint64_t offset = reader.getRecordOffset(name);
    if (offset % kAlignment != 0 || offset > archive_->bytes() ||
        bytes > archive_->bytes() - offset ||
        !isStored(*archive_, reader.getRecordHeaderOffset(name))) {
      continue;
    }
    records_.emplace(bytes, offset);
  }
}

void WeightSharing::share(const c10::Storage& storage) {
  if (!storage || storage.device_type() != c10::DeviceType::CPU || storage.data() == nullptr ||
      archive_->contains(storage.data())) {
    return;
  }
  const auto [begin, end] = records_.equal_range(storage.nbytes());
  for (auto record = begin; record != end; ++record) {
    const uint64_t offset = record->second;
    if (std::memcmp(storage.data(), archive_->data() + offset, storage.nbytes()) != 0) continue;
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(packageData(archive_, offset));
    return;
  }
}

}  // namespace isopool::worker
