// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/moved_storages.h"

#include <cstring>

#include "worker/memory/package_store.h"

namespace isopool::worker {

void moveStorage(c10::Storage storage, std::shared_ptr<const ipc::Mapping> memory, uint64_t offset,
                 bool adopt) {
  std::memcpy(memory->data() + offset, storage.data(), storage.nbytes());
  if (!adopt) return;
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(packageData(std::move(memory), offset));
}

}  // namespace isopool::worker
